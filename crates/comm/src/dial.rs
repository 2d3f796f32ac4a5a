//! Making a connection: where to, and the handshake.

use crate::hub::{Hub, Side};
use crate::meet;
use crate::members::Gone;
use crate::peers::{Link, PeerId};
use crate::reader::read;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Requester;
use forebay_transport::shm::ShmLink;
use forebay_transport::tcp::TcpLink;
use forebay_transport::{Address, host};
use forebay_wire::comm::CommMessage;
use forebay_wire::connection::HostId;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// How soon a peer whose backlog is full is dialled again.
const AGAIN: Duration = Duration::from_millis(5);
/// How long a peer may take to accept, and for its handshake, before somebody may dial it again.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug)]
enum Failed {
    /// Not yet: worth trying again soon.
    Busy,
    /// There will be none.
    Gone(Gone),
}

/// Shared memory on one host, else TCP.
fn choose(addresses: &[String], here: &HostId) -> Result<Address> {
    let parsed = addresses.iter().map(|address| address.parse()).collect::<Result<Vec<Address>>>()?;
    let local = parsed.iter().find(|address| matches!(address, Address::Shm { host, .. } if host == here));
    let chosen = local.or_else(|| parsed.iter().find(|address| matches!(address, Address::Tcp(_))));
    chosen.cloned().ok_or_else(|| {
        Error::unreachable(format!(
            "none of its addresses {addresses:?} is on this host or TCP: let its endpoint listen on TCP too"
        ))
    })
}

/// Connects a socket, to the address that is returned too.
async fn connect(
    addresses: &[String],
) -> std::result::Result<(Address, Box<dyn forebay_transport::Link>), Failed> {
    let failed = |address: &Address, e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock => Failed::Busy,
        io::ErrorKind::ConnectionRefused => Failed::Gone(Gone::new(format!(
            "cannot be reached: nobody listens at {address}, so its endpoint has ended"
        ))),
        _ => Failed::Gone(Gone::new(format!("cannot be reached at {address}: {e}"))),
    };
    let address = choose(addresses, &host::this_host())
        .map_err(|e| Failed::Gone(Gone::new(format!("cannot be reached: {}", e.text))))?;
    let link: Box<dyn forebay_transport::Link> = match &address {
        Address::Shm { name, .. } => Box::new(ShmLink::connect(name).map_err(|e| failed(&address, e))?),
        Address::Tcp(socket) => {
            let stream = TcpStream::connect(socket).await.and_then(TcpStream::into_std);
            let link = stream.and_then(|stream| TcpLink::new(stream.into()));
            Box::new(link.map_err(|e| failed(&address, e))?)
        }
    };
    Ok((address, link))
}

/// Makes a connection with a peer, then reads it as long as it lasts.
pub(crate) async fn dial(hub: Arc<Hub>, peer: PeerId, addresses: Vec<String>) {
    let connected = loop {
        match tokio::time::timeout(HANDSHAKE, connect(&addresses)).await {
            Ok(Err(Failed::Busy)) => {
                if hub.state.lock().closed {
                    break Err(None);
                }
                tokio::time::sleep(AGAIN).await;
            }
            Ok(Err(Failed::Gone(gone))) => break Err(Some(gone)),
            Ok(Ok(connected)) => break Ok(connected),
            // The peer may only be slow: whoever still wants it dials again.
            Err(_) => break Err(None),
        }
    };
    match connected {
        Ok(connected) => handshake(hub, peer, connected).await,
        Err(gone) => {
            let mut state = hub.state.lock();
            if let Some(peer) = state.peers.get(peer) {
                peer.dialling = false;
            }
            match gone {
                Some(gone) => hub.lose(&mut state, peer, &gone),
                None => hub.tell(&mut state),
            }
        }
    }
}

/// Shakes hands on a connected socket, then reads it as long as it lasts.
async fn handshake(
    hub: Arc<Hub>,
    peer: PeerId,
    (address, link): (Address, Box<dyn forebay_transport::Link>),
) {
    let name = address.to_string();
    let deadline = tokio::time::Instant::now() + HANDSHAKE;
    let shaken = Requester::connect(link, &hub.prologue(&name), deadline).await;
    let made = match shaken {
        Ok(requester) => {
            let (receiver, outbox) = requester.into_halves();
            let link = Link::new(outbox);
            link.say(&hub.hello());
            let offered = matches!(address, Address::Shm { .. }).then(|| meet::offer(&hub, &link)).flatten();
            let mut side = Side { peer: Some(peer), has_accepted: false, is_settled: false };
            let mut state = hub.state.lock();
            if state.closed {
                link.say(&CommMessage::Goodbye);
            }
            if offered.is_none() {
                // Nothing is shared: messages go through the socket.
                meet::settle(&hub, &mut state, &mut side, &link);
            }
            Some((receiver, link, (side, offered)))
        }
        Err(error) => {
            let mut state = hub.state.lock();
            if let Some(peer) = state.peers.get(peer) {
                peer.dialling = false;
            }
            // The peer may only be slow: whoever still wants it dials again.
            if error.kind == ErrorKind::Timeout {
                hub.tell(&mut state);
            } else {
                let why = match error.kind {
                    ErrorKind::Unreachable => "is gone: it ended while a connection was made".to_owned(),
                    _ => format!("cannot be reached: {}", error.text),
                };
                hub.lose(&mut state, peer, &Gone { kind: error.kind, ..Gone::new(why) });
            }
            None
        }
    };
    if let Some((receiver, link, known)) = made {
        read(hub, receiver, link, known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_chosen_on_one_host_only() {
        let here = HostId("here".into());
        let addresses: Vec<String> = ["tcp:10.0.0.1:7", "shm:here/x"].map(String::from).into();
        assert!(matches!(choose(&addresses, &here).unwrap(), Address::Shm { .. }));
        assert!(matches!(choose(&addresses, &HostId("there".into())).unwrap(), Address::Tcp(_)));
        assert!(choose(&addresses[1..], &HostId("there".into())).unwrap_err().text.contains("listen on TCP"));
        assert!(choose(&["rubbish".into()], &here).is_err());
    }
}
