//! The server: one process of a staging group.
//!
//! - [`options`]: what a server is started with;
//! - `application`: what the cluster tells this server, and what follows when the members are others;
//! - `node`: the server's state, shared by all its tasks; `node/dispatch` is what each message does to it;
//! - `sessions`: one task for each connection, by role;
//! - `streams`: what the server knows of streams: those it coordinates, who coordinates the others, and its ranks;
//! - `replication`: copies: what backups hold of what this server holds, what it holds for others, who answers for the dead;
//! - `draining`: how a server gives all that it has to the others, and leaves;
//! - `pipelines`: executions, and the worker processes that run them;
//! - `directory`: which blocks touch which tiles, in large runs;
//! - `evaluation`: expressions, evaluated beside the blocks;
//! - `subscriptions`: expressions that are watched from step to step, and who is told of events;
//! - `space`: blocks that were put to be kept;
//! - `status`: what `forebay status` shows.

mod application;
mod context;
mod directory;
mod draining;
mod evaluation;
mod held;
mod meetings;
mod members;
mod node;
pub mod options;
mod pipelines;
mod questions;
mod replication;
mod sessions;
mod shared;
mod space;
mod spawner;
mod status;
mod streams;
mod subscriptions;

/// Whole servers in a simulated environment. It stands beside the sources, and sees what the server's own tests see.
#[cfg(test)]
#[path = "../simulation/mod.rs"]
mod simulation;

pub use options::ServerOptions;

use forebay_cluster::failure::process::{self, Process};
use forebay_cluster::forming;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::{Error, Result};
use forebay_transport::{Address, Listener};
use node::Node;
use replication::rejoin::HeldBefore;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many connections may be at their handshake at once. Others wait to be accepted, so that those who have no
/// secret cannot take all descriptors.
const STRANGERS_MAX: usize = 256;
/// How often it is said that no connection can be accepted.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// One that is given up so soon after it had joined that it was for the second time waits before it joins again, and twice as
/// long each time: something is between it and others, and each time it takes what it was given with it.
const SOON: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(300);

/// Why a server ends.
enum End {
    /// It was told to.
    Told,
    /// The group has gone on without it, which it did not want: what it held, and how long it was a member.
    Evicted(Box<HeldBefore>, Duration),
}

/// Runs a server until it is told to end. `ready` is called when it is first a member of its group. One that its group gave up,
/// since it did not answer for too long, comes back as a new member.
///
/// Blocks; starts its own runtime with a few threads.
pub fn run(mut options: ServerOptions, ready: impl FnOnce(ServerId)) -> Result<()> {
    let mut ready = Some(ready);
    let mut first = |id| ready.take().map_or((), |ready| ready(id));
    let (mut held_before, mut times, mut joins_at) = (None, 0, Instant::now());
    while let End::Evicted(held, member_for) = run_once(&options, held_before.take(), joins_at, &mut first)? {
        options.leash = None;
        held_before = Some(*held);
        times = times_soon(times, member_for);
        let rest = rest(times);
        if !rest.is_zero() {
            tracing::warn!(
                "the group gave this server up {times} times, each soon after it had joined: it joins again in {rest:?}"
            );
        }
        joins_at = Instant::now() + rest;
    }
    Ok(())
}

/// How often in a row a server was given up soon after it had joined, now that it was after so long.
fn times_soon(before: u32, member_for: Duration) -> u32 {
    if member_for < SOON { before.saturating_add(1) } else { 0 }
}

/// How long a server waits that was given up so many times soon after it had joined.
fn rest(times: u32) -> Duration {
    match times {
        0 | 1 => Duration::ZERO,
        _ => REST_MAX.min(REST * 2u32.saturating_pow(times - 2)),
    }
}

fn run_once(
    options: &ServerOptions,
    held: Option<HeldBefore>,
    joins_at: Instant,
    ready: impl FnOnce(ServerId),
) -> Result<End> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("forebay")
        .enable_all()
        .build()
        .map_err(|e| Error::io("cannot start the server's runtime", &e))?;
    let result = runtime.block_on(serve(options, held, joins_at, ready));
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// A lineage for a group that is to be founded.
pub fn new_lineage() -> Result<Lineage> {
    forming::random().map(Lineage)
}

fn watch(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|e| Error::io("cannot watch for signals", &e))
}

/// Told to a process that makes a file larger than it may: its number is the same on all that Forebay runs on.
const SIGXFSZ: i32 = 25;

async fn serve(
    options: &ServerOptions,
    held: Option<HeldBefore>,
    joins_at: Instant,
    ready: impl FnOnce(ServerId),
) -> Result<End> {
    raise_descriptor_limit();
    let mut interrupt = watch(SignalKind::interrupt())?;
    let mut terminate = watch(SignalKind::terminate())?;
    // A limit of the size of files ends a process that does not look for its signal: the call fails instead.
    let _too_large = watch(SignalKind::from_raw(SIGXFSZ))?;
    let parent = options.watch_parent.map(Process::watch).transpose();
    let parent = parent.inspect_err(|_| remove_place(options))?;
    let leash = options.leash.clone();
    let told_to_end = async {
        tokio::select! {
            _ = interrupt.recv() => By::Signal,
            _ = terminate.recv() => By::Signal,
            () = process::ended(parent.as_ref()) => By::Orphaned,
            () = process::dropped(leash) => By::Leash,
        }
    };
    tokio::pin!(told_to_end);
    let formed = tokio::select! {
        formed = form(options, held.as_ref(), joins_at) => formed?,
        by = &mut told_to_end => {
            if by == By::Orphaned {
                remove_place(options);
            }
            return Ok(End::Told);
        }
    };
    let Some((listeners, formed)) = formed else { return Ok(End::Told) };
    let member_since = Instant::now();
    let ports = listeners.iter().filter_map(|listener| match listener.address() {
        Address::Tcp(bound) => Some(*bound),
        Address::Shm { .. } => None,
    });
    let ports: Vec<SocketAddr> = ports.collect();
    let (node, spawns) = Node::new(options, formed);
    start(&node, held, ports);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(node.clone(), listener, strangers.clone()));
    }
    ready(node.id);
    let by = tokio::select! {
        by = told_to_end => by,
        () = node.shutdown.notified() => By::Shutdown,
        () = node.driver.released.notified() => By::Released,
        () = node.driver.abandoned.notified() => By::Abandoned,
        () = spawner::spawn_all(spawns) => By::Signal,
    };
    if by == By::Shutdown {
        node.tell_that_group_ends();
    }
    node.stop_workers().await;
    // Where all end at once, the last one to close its door sees that all others have.
    accepting.shutdown().await;
    if all_end(by, &node).await {
        node.remove_file(is_founder_cut_off(by, &node));
    }
    if by == By::Orphaned {
        remove_place(options);
    }
    let evicted = by == By::Released && !node.state.lock().common.members.goes();
    Ok(if evicted { End::Evicted(Box::new(node.held_before()), member_since.elapsed()) } else { End::Told })
}

/// Founds the group or joins it; joins it again if it brings what it held before. Nothing if the group has ended meanwhile.
async fn form(
    options: &ServerOptions,
    held: Option<&HeldBefore>,
    joins_at: Instant,
) -> Result<Option<(Vec<Listener>, forming::FormedMember)>> {
    if let Some(held) = held {
        return forming::join_again(&options.cluster, held.lineage, held.former, joins_at.into()).await;
    }
    let lineage = options.cluster.lineage.map_or_else(new_lineage, Ok)?;
    forming::form(&options.cluster, lineage).await.map(Some)
}

/// Whether all servers of the group end with this one.
async fn all_end(by: By, node: &Node) -> bool {
    match by {
        By::Orphaned | By::Shutdown => true,
        By::Leash if is_founder_cut_off(by, node) => true,
        By::Leash | By::Signal => node.is_last().await,
        By::Released | By::Abandoned => false,
    }
}

/// Whether what started the servers that were to found this group has ended amid that, and this is the one that did found it.
///
/// One of them that comes late founds it anew where the first founder has removed its file, and the first may still write what it
/// knew over that: the file goes whatever it says.
fn is_founder_cut_off(by: By, node: &Node) -> bool {
    by == By::Leash && node.id == ServerId(0)
}

/// A server that has become a member begins its work: `held` is what it held before it was one, `ports` where it listens.
fn start(node: &Arc<Node>, held: Option<HeldBefore>, ports: Vec<SocketAddr>) {
    held.into_iter().for_each(|held| node.rejoin_with(held));
    node.introduce();
    tokio::spawn(node::housekeeping(node.clone()));
    node.cluster.start(ports);
}

/// By what a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Signal,
    /// What would clean up after this server is gone.
    Orphaned,
    /// What started it has ended before it had let go of it.
    Leash,
    /// The whole group is told to end.
    Shutdown,
    /// The group has gone on without it.
    Released,
    /// The group has ended without it.
    Abandoned,
}

/// Whoever would have removed it is gone. All servers of the group end now; the last of them leaves nothing.
fn remove_place(options: &ServerOptions) {
    if let Some(place) = &options.private_place {
        let _ = std::fs::remove_dir_all(place);
    }
}

async fn accept(node: Arc<Node>, listener: Listener, strangers: Arc<Semaphore>) {
    let Ok(readable) = forming::pollable(&listener) else { return };
    let mut complained: Option<Instant> = None;
    loop {
        let Ok(mut ready) = readable.readable().await else { return };
        loop {
            let Ok(stranger) = strangers.clone().acquire_owned().await else { return };
            match listener.try_accept() {
                Ok(link) => {
                    tokio::spawn(sessions::run(node.clone(), link, stranger));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    break;
                }
                Err(e) => {
                    // Out of descriptors, most likely: existing connections go on.
                    if complained.is_none_or(|when| when.elapsed() > COMPLAIN_EVERY) {
                        tracing::warn!("cannot accept connections: {e}");
                        complained = Some(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
            }
        }
    }
}

/// Allows itself as many descriptors as the system lets it: each client takes a few.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::info!("the limit of descriptors stays at {:?}: {error}", limit.current);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_given_up_again_and_again_waits_longer_and_longer() {
        let waits: Vec<u64> = (0..6).chain([9, u32::MAX]).map(|times| rest(times).as_secs()).collect();
        assert_eq!(waits, [0, 0, 5, 10, 20, 40, 300, 300]);
        let members_for = [3600, 59, 10, 0, 60, 1].map(Duration::from_secs);
        let times = members_for.iter().scan(0, |times, member_for| {
            *times = times_soon(*times, *member_for);
            Some(*times)
        });
        assert_eq!(times.collect::<Vec<u32>>(), [0, 1, 2, 3, 0, 1], "one that stayed for long begins anew");
    }
}
