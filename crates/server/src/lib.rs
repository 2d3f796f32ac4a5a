//! The server: one process of a staging group.
//!
//! - [`options`]: what a server is started with;
//! - `forming`: founding a group, or joining one that forms, through its connection file;
//! - `node`: the server's state, shared by all its tasks; `handle` is what each message does to it;
//! - `session`: one task for each connection, by role;
//! - `peers`: messages to the other servers;
//! - `pipelines`, `workers`: executions, and the processes that run them;
//! - `directory`: which blocks touch which tiles, in large runs;
//! - `space`: blocks that were put to be kept;
//! - `status`: what `forebay status` shows.

mod directory;
mod forming;
mod handle;
mod node;
pub mod options;
mod peers;
mod pipelines;
mod session;
mod space;
mod status;
mod workers;

pub use options::ServerOptions;

use forebay_core::ids::Lineage;
use forebay_core::{Error, Result};
use forebay_transport::Listener;
use node::Node;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

/// Runs a server until it is told to end. `ready` is called once its group is complete.
///
/// Blocks; starts its own runtime with a few threads.
pub fn run(options: ServerOptions, ready: impl FnOnce() + Send + 'static) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("forebay")
        .enable_all()
        .build()
        .map_err(|e| Error::io("cannot start the server's runtime", &e))?;
    let result = runtime.block_on(serve(options, ready));
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// A lineage for a group that is to be founded.
pub fn new_lineage() -> Result<Lineage> {
    forming::random().map(Lineage)
}

async fn serve(options: ServerOptions, ready: impl FnOnce()) -> Result<()> {
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|e| Error::io("cannot watch for signals", &e))?;
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|e| Error::io("cannot watch for signals", &e))?;
    let parent = options.watch_parent.map(watch_process).transpose()?;
    let leash = options.leash.clone();
    let told_to_end = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = parent_gone(parent) => {}
            () = dropped(leash) => {}
        }
    };
    tokio::pin!(told_to_end);
    let lineage = options.lineage.map_or_else(new_lineage, Ok)?;
    let formed = tokio::select! {
        formed = forming::form(&options, lineage) => formed?,
        () = &mut told_to_end => return forming::abandon(&options, &lineage),
    };
    let (node, spawns) = Node::new(&options, &formed)?;
    let founder = formed.founder;
    for listener in formed.listeners {
        tokio::spawn(accept(node.clone(), listener));
    }
    tokio::spawn(node::housekeeping(node.clone()));
    ready();
    tokio::select! {
        () = told_to_end => {}
        () = node.shutdown.notified() => {}
        () = workers::spawn_all(spawns) => {}
    }
    workers::stop_all(&node).await;
    if founder {
        forming::remove_file(&options.group, &node.view.lineage);
    }
    Ok(())
}

async fn accept(node: Arc<Node>, listener: Listener) {
    let Ok(readable) = forming::pollable(&listener) else { return };
    loop {
        let Ok(mut ready) = readable.readable().await else { return };
        loop {
            match listener.try_accept() {
                Ok(link) => {
                    tokio::spawn(session::run(node.clone(), link));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    break;
                }
                Err(e) => {
                    // Out of descriptors, most likely: existing connections go on.
                    tracing::warn!("cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
            }
        }
    }
}

/// A descriptor that becomes readable when the process has ended.
pub(crate) fn watch_process(pid: u32) -> Result<rustix::fd::OwnedFd> {
    let gone = || Error::not_found(format!("process {pid} has ended already"));
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
    rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()).map_err(|_| gone())
}

async fn parent_gone(parent: Option<rustix::fd::OwnedFd>) {
    let Some(parent) = parent else { return std::future::pending().await };
    process_gone(&parent).await;
}

/// Waits until whoever holds the other end of the leash is gone without having let go of this server.
async fn dropped(leash: Option<Arc<rustix::fd::OwnedFd>>) {
    while let Some(leash) = &leash {
        readable(leash).await;
        match rustix::io::read(leash, &mut [0; 1]) {
            Ok(0) => return,
            Ok(_) => break,
            // A byte that another server took.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!("cannot tell whether what started this server is still there: {error}");
                return;
            }
        }
    }
    std::future::pending().await
}

/// Waits until a watched process has ended.
pub(crate) async fn process_gone(process: &rustix::fd::OwnedFd) {
    readable(process).await;
}

async fn readable(descriptor: &rustix::fd::OwnedFd) {
    let Ok(copy) = descriptor.try_clone() else { return };
    // SAFETY: an owned descriptor stays open and the same until the AsyncFd that owns it is dropped.
    #[allow(unsafe_code)]
    let registered = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
    if let Ok(pollable) = registered {
        let _ = pollable.readable().await;
    }
}
