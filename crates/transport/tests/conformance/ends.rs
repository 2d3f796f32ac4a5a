//! Connected ends of each kind, and servers on one of them.

use forebay_core::Error;
use forebay_core::ids::Lineage;
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::shm::ShmLink;
use forebay_transport::tcp::TcpLink;
use forebay_transport::{Address, Kind, Link, Listener, inprocess};
use forebay_wire::handshake::{Prologue, Secret};
use forebay_wire::protocol::{Message, Protocol};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is said in these tests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Text(pub(crate) Vec<u8>);

impl Message for Text {
    const PROTOCOL: Protocol = Protocol::Comm;
}

pub(crate) const SECRET: Secret = Secret([5; 32]);
const LINEAGE: Lineage = Lineage([6; 16]);
pub(crate) const DOOR: Prologue<'_> = Prologue { secret: &SECRET, lineage: &LINEAGE, name: "server0" };

/// When a test gives up.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A listener of this kind, on a name or port of its own.
pub(crate) fn listen(kind: Kind) -> Listener {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if kind == Kind::Tcp {
        return Listener::tcp(&"127.0.0.1:0".parse().unwrap()).unwrap();
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    Listener::shm(&format!("forebay-test-{}-{number}", std::process::id())).unwrap()
}

pub(crate) fn dial(address: &Address) -> Box<dyn Link> {
    match address {
        Address::Shm { name, .. } => Box::new(ShmLink::connect(name).unwrap()),
        Address::Tcp(address) => Box::new(TcpLink::connect(address, Duration::from_secs(5)).unwrap()),
    }
}

pub(crate) fn accept(listener: &Listener) -> Box<dyn Link> {
    let deadline = soon();
    loop {
        match listener.try_accept() {
            Ok(link) => return link,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < deadline, "nobody connects");
    }
}

/// A fresh connected pair of links of one kind: the client's, and the server's.
pub(crate) fn pair(kind: Kind) -> (Box<dyn Link>, Box<dyn Link>) {
    if kind == Kind::InProcess {
        let (a, b) = inprocess::pair().unwrap();
        return (Box::new(a), Box::new(b));
    }
    let listener = listen(kind);
    let client = dial(listener.address());
    (client, accept(&listener))
}

/// Runs a server on one end, in a thread of its own.
pub(crate) fn serve<F, Fut>(link: Box<dyn Link>, secret: Secret, server: F) -> JoinHandle<Result<(), Error>>
where
    F: FnOnce(Receiver, Arc<Outbox>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Error>>,
{
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (receiver, outbox) =
                asynchronous::accept(link, &Prologue { secret: &secret, ..DOOR }).await?;
            let result = server(receiver, outbox.clone()).await;
            outbox.close();
            tokio::task::yield_now().await;
            result
        })
    })
}

/// Echoes messages until the peer closes.
pub(crate) fn echo(link: Box<dyn Link>, secret: Secret) -> JoinHandle<Result<(), Error>> {
    serve(link, secret, async |mut receiver, outbox| {
        while let Some((frame, descriptors)) = receiver.next().await? {
            assert_eq!(frame.header.payload, 0);
            outbox.push_with(frame.header, &frame.message::<Text>()?, descriptors, None)?;
        }
        Ok(())
    })
}
