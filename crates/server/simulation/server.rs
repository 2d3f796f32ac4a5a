//! A simulated server: all that a server does once it is started, in a process of the simulation.

use super::network::{Door, Network, Place, addresses};
use crate::node::Node;
use crate::options::ServerOptions;
use crate::replication::rejoin::HeldBefore;
use crate::sessions;
use forebay_cluster::forming;
use forebay_core::Result;
use forebay_core::block::Location;
use forebay_core::ids::{Lineage, StepId};
use forebay_core::roster::{Candidate, Incarnation};
use forebay_wire::peer::replication::ReplicaUnit;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// What the simulation knows of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<Mutex<KnownServer>>);

#[derive(Debug, Default)]
struct KnownServer {
    node: Weak<Node>,
    ended: Option<Ended>,
}

/// How a server ended by itself.
#[derive(Debug)]
pub(super) enum Ended {
    /// It has left.
    Left,
    /// Its group has gone on without it: what it held.
    Evicted(Box<HeldBefore>),
    /// It could not become a member.
    Failed(String),
}

impl Known {
    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.0.lock().node.upgrade()
    }

    pub(super) fn take_ended(&self) -> Option<Ended> {
        self.0.lock().ended.take()
    }
}

/// With what a server is started.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) network: Network,
    pub(super) process: u32,
    pub(super) host: usize,
    pub(super) options: ServerOptions,
    pub(super) lineage: Lineage,
    pub(super) incarnation: u64,
    pub(super) held: Option<Box<HeldBefore>>,
    pub(super) door: Arc<Door>,
}

/// Runs one until it ends by itself.
pub(super) async fn run(start: Start, known: Known) {
    let ended = serve(start, &known).await;
    known.0.lock().ended = Some(ended.unwrap_or_else(|error| Ended::Failed(error.to_string())));
}

async fn serve(start: Start, known: &Known) -> Result<Ended> {
    let Start { network, process, host, options, lineage, incarnation, held, door } = start;
    let environment = Arc::new(Place::new(&network, host));
    let incarnation = Incarnation(incarnation);
    let formerly = held.as_ref().map(|held| held.former);
    let own = Candidate { incarnation, pid: process, addresses: addresses(process, host), formerly };
    let formed = forming::become_member(&options.cluster, lineage, own, environment).await?;
    let (node, _no_workers) = Node::new(&options, formed);
    crate::start(&node, held.map(|held| *held), Vec::new());
    known.0.lock().node = Arc::downgrade(&node);
    let accepting = node.clone();
    tokio::spawn(async move {
        let strangers = Arc::new(Semaphore::new(crate::STRANGERS_MAX));
        while let Ok(stranger) = strangers.clone().acquire_owned().await {
            let link = door.accept().await;
            tokio::spawn(sessions::run(accepting.clone(), link, stranger));
        }
    });
    tokio::select! {
        biased;
        () = node.driver.released.notified() => {}
        () = node.shutdown.notified() => return Ok(Ended::Left),
    }
    let left = node.state.lock().common.members.goes();
    Ok(if left { Ended::Left } else { Ended::Evicted(Box::new(node.held_before())) })
}

/// Whether a server holds the bytes of a block.
pub(super) fn holds(node: &Node, id: &StepId, block: &Location) -> bool {
    let state = node.state.lock();
    let key = (block.server, block.arena);
    let mut arenas: Vec<u32> = Vec::new();
    if block.server == node.id {
        arenas.push(block.arena);
    }
    let by = state.replication.successors.of_arena(key);
    arenas.extend(by.into_iter().filter(|(by, _)| *by == node.id).map(|(_, arena)| arena));
    let is_there = |arena: u32, offset: u64, generation: u64| {
        arenas.contains(&arena) && (offset, generation) == (block.offset, block.generation)
    };
    if state.holdings.of(id).iter().any(|held| is_there(held.arena, held.offset, held.generation)) {
        return true;
    }
    let id = ReplicaUnit::Step(id.clone());
    let stands_for = |theirs| theirs == key || state.replication.successors.of_arena(key).contains(&theirs);
    state.replication.backups.ranges_of(&id).into_iter().any(|(theirs, range)| {
        (range.offset, range.generation) == (block.offset, block.generation) && stands_for(theirs)
    })
}

/// Whether a server holds the bytes of a block of a step that a rank of it has not ended, or puts again.
pub(super) fn holds_open(node: &Node, id: &StepId, block: &Location) -> bool {
    let in_use = |arena| node.store.lock().length_of(arena, block.offset, block.generation).is_some();
    (block.server == node.id && in_use(block.arena)) || holds(node, id, block)
}

/// Whether a server knows what a rank told of a step.
fn was_told(node: &Node, id: &StepId, rank: u32) -> bool {
    let state = node.state.lock();
    state.ranks.ledger().contributions_to(id).iter().any(|(of, _)| *of == rank)
        || state.replication.backups.has_report(id, rank)
}

/// Whether these servers have all that a rank has put in a step, which lies in these blocks; else what they lack.
pub(super) fn has(
    servers: &[Arc<Node>],
    id: &StepId,
    rank: u32,
    blocks: &[Location],
) -> std::result::Result<(), String> {
    if !servers.iter().any(|node| was_told(node, id, rank)) {
        return Err(format!("what rank {rank} told of {id}"));
    }
    let lacks = |block: &&Location| !servers.iter().any(|node| holds(node, id, block));
    match blocks.iter().find(lacks) {
        None => Ok(()),
        Some(block) => Err(format!("a block of rank {rank} of {id}, put at {block:?}")),
    }
}

/// What ranks have told a server of the steps that they have ended, and where the blocks of them are that are not told.
pub(super) fn told_by(node: &Node) -> Vec<(StepId, u32, Vec<Location>)> {
    let state = node.state.lock();
    let steps: BTreeSet<StepId> = state.ranks.ledger().all_steps().collect();
    let told = steps.into_iter().flat_map(|id| {
        let told = state.ranks.ledger().contributions_to(&id).into_iter();
        told.map(move |(rank, ended)| {
            let blocks = ended.fields.iter().flat_map(|field| &field.blocks);
            let stored = blocks.filter(|block| block.inline.is_none());
            (id.clone(), rank, stored.map(|block| block.location).collect())
        })
    });
    told.collect()
}

/// What a server still holds when nobody needs anything any more.
pub(super) fn leftovers(node: &Node) -> Option<String> {
    let state = node.state.lock();
    let staged = node.store.lock().usage().staged;
    let copies = state.replication.backups.counts();
    let nothing = staged == 0 && state.holdings.is_empty() && copies.is_empty();
    let held: Vec<&StepId> = state.holdings.steps().collect();
    (!nothing).then(|| format!("{} holds {staged} bytes, {held:?}, and for others {copies:?}", node.id))
}
