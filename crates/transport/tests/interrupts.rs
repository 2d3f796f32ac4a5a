//! Signals end waits, also one that came when its wait had not begun yet: then the system does not wake it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_core::ErrorKind;
use forebay_core::ids::Lineage;
use forebay_transport::asynchronous;
use forebay_transport::blocking::{
    self, Connection, PollFlags, forget_interrupt, set_interrupt_check, wait_for_any,
};
use forebay_transport::inprocess;
use forebay_wire::handshake::{Prologue, Secret};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DOOR: Prologue<'_> = Prologue { secret: &Secret([5; 32]), lineage: &Lineage([6; 16]), name: "server0" };

/// Whether a signal has come.
static HAS_COME: AtomicBool = AtomicBool::new(false);

#[test]
fn a_signal_that_came_before_the_wait_ends_it() {
    set_interrupt_check(|| HAS_COME.load(Ordering::Relaxed));
    assert!(blocking::watches_signals());
    let (client, server) = inprocess::pair().unwrap();
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let _halves = asynchronous::accept(Box::new(server), &DOOR).await.unwrap();
            let _ = wait.await;
        });
    });
    let soon = || Instant::now() + Duration::from_secs(20);
    let mut connection = Connection::from_link(Box::new(client), "server0", &DOOR, soon()).unwrap();
    HAS_COME.store(true, Ordering::Relaxed);

    let error = connection.receiver.receive(soon(), "an answer").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.text.contains("a signal ended the wait for server0 an answer"), "{error}");
    forget_interrupt();
    let error = wait_for_any(&[(connection.receiver.descriptor(), PollFlags::IN)], soon()).unwrap_err();
    assert!(error.text.contains("a signal ended the wait for several servers"), "{error}");

    HAS_COME.store(false, Ordering::Relaxed);
    forget_interrupt();
    let error = connection.receiver.receive(Instant::now() + Duration::from_millis(250), "more").unwrap_err();
    assert!(error.text.contains("the deadline passed"), "{error}");
    done.send(()).unwrap();
    server.join().unwrap();
}
