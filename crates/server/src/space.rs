//! The space: blocks that were put to be kept until they are removed, found by field, step and region.
//!
//! A field is cut into tiles, each of which has an owner that knows the blocks there; one of the owners also
//! describes the field. The blocks are held by the servers that they were put to.
//!
//! - this module: what an owner does when blocks are registered, found, released and let go;
//! - `keep`: what the server does that a block is put to;
//! - `described`: under which descriptions this server registers;
//! - `remove`: removing a field at a step, everywhere.

mod described;
mod keep;
mod remove;

use crate::node::{Held, Node, State};
use described::Described;
use forebay_core::block::Location;
use forebay_core::contract::Field;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, ServerId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::FieldReport;
use forebay_core::tiles::{TileMap, hash_in_space};
use forebay_core::{Error, Result};
use forebay_wire::peer::PeerMessage;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, timeout_at};

/// A field at a step.
pub(crate) type Key = (String, StepNumber);
/// Blocks that one message frees: more would not fit into it.
const FREED_AT_ONCE: usize = 1 << 18;

/// What a server knows of the space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// What this server owns.
    index: BTreeMap<Key, Owned>,
    /// What is being removed by this server, with the registrations that wait for the end of that.
    removing: HashMap<Key, Vec<(ServerId, PeerMessage)>>,
    /// Ranges of blocks that are held here, each with the owners that it is registered with; one that is just
    /// being put has this server besides. It is free when nobody is left.
    held: HashMap<Held, Vec<ServerId>>,
    /// What readers hold: the key that each lease is on.
    leases: HashMap<u64, Key>,
    /// What was removed while readers held it; let go with the last lease on its key.
    removed: HashMap<Key, Vec<Location>>,
    described: Described,
    /// How those are woken who wait for blocks of a key; as long as somebody waits.
    waiting: HashMap<Key, Arc<Notify>>,
}

/// What a reader that waits has seen, so that each block is looked at once, however many come.
#[derive(Debug)]
struct Seen {
    description: u64,
    removals: u64,
    /// How many blocks of the index.
    blocks: usize,
    /// How many elements of its parts are in none of them.
    missing: u64,
}

/// A field at a step, as one of its owners knows it.
#[derive(Debug)]
struct Owned {
    /// Grows with every time that it is described anew.
    description: u64,
    index: FieldIndex,
    /// Where it is described: the servers that may register under this description with other owners.
    registrants: BTreeSet<ServerId>,
}

/// What an owner answers to a reader.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 if it only describes the field.
    pub(crate) lease: u64,
    pub(crate) description: u64,
    pub(crate) report: FieldReport,
}

impl Space {
    /// What ends when something of a key changes. To be called while what is waited for is known not to be there,
    /// under the same lock.
    fn wait_for(&mut self, key: &Key) -> Pin<Box<OwnedNotified>> {
        // Those that nobody waits for any more are let go of here: each waiter adds one at most.
        self.waiting.retain(|known, changed| known == key || Arc::strong_count(changed) > 1);
        let changed = self.waiting.entry(key.clone()).or_default().clone();
        let mut changed = Box::pin(changed.notified_owned());
        changed.as_mut().enable();
        changed
    }

    /// Something of a key changed.
    fn wake(&self, key: &Key) {
        if let Some(changed) = self.waiting.get(key) {
            changed.notify_waiters();
        }
    }

    /// Whether it holds or knows any block.
    pub(crate) fn is_used(&self) -> bool {
        !self.held.is_empty() || !self.index.is_empty()
    }

    /// How many blocks its index knows, and about how many bytes that takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.index.values().fold((0, 0), |sum, owned| {
            (sum.0 + owned.index.blocks().len() as u64, sum.1 + owned.index.bytes())
        })
    }
}

impl Owned {
    /// Whether blocks cover these disjoint parts of the field. What a reader has seen is not looked at again.
    fn covers(&self, parts: &[Region], seen: &mut Option<Seen>) -> bool {
        let (description, removals) = (self.description, self.index.removals());
        let known = seen.take().filter(|seen| (seen.description, seen.removals) == (description, removals));
        let mut now = known.unwrap_or_else(|| Seen {
            description,
            removals,
            blocks: 0,
            missing: parts.iter().map(Region::volume).fold(0, u64::saturating_add),
        });
        for block in &self.index.blocks()[now.blocks..] {
            if block.level == 0 && block.extent.offset().is_some() {
                let interior = block.extent.interior();
                let inside = parts.iter().filter_map(|part| part.intersect(&interior));
                // Interiors do not overlap.
                now.missing = now.missing.saturating_sub(inside.map(|part| part.volume()).sum());
            }
        }
        now.blocks = self.index.blocks().len();
        let covered = now.missing == 0;
        *seen = Some(now);
        covered
    }
}

impl Node {
    /// Who owns which part of a field of the space at a step.
    fn space_tiles(
        &self,
        state: &mut State,
        field: &str,
        step: StepNumber,
        shape: Option<&[u64]>,
    ) -> TileMap {
        state.tiles.map(&self.standing().owners, hash_in_space(field, step), shape)
    }

    /// The server that describes a field of the space at a step.
    fn space_describes(&self, field: &str, step: StepNumber) -> ServerId {
        self.standing().owners.owner_of(hash_in_space(field, step)).unwrap_or(self.id)
    }

    fn check_describes(&self, field: &str, step: StepNumber) -> Result<()> {
        let server = self.space_describes(field, step);
        if server == self.id {
            return Ok(());
        }
        Err(Error::invalid(format!("{server} describes field '{field}' at step {step}, not {}", self.id)))
    }

    /// Blocks are registered with this server, which owns parts that they touch or describes the field.
    pub(crate) fn space_register(&self, state: &mut State, from: ServerId, message: PeerMessage) {
        let PeerMessage::SpaceRegister { token, step, description, report } = message else { return };
        let key = (report.field.name.clone(), step);
        let describes = self.space_describes(&key.0, step) == self.id;
        if let Some(waiting) = state.space.removing.get_mut(&key).filter(|_| describes && description == 0) {
            waiting.push((from, PeerMessage::SpaceRegister { token, step, description, report }));
            return;
        }
        let result = self.space_insert(state, from, &key, description, report, describes);
        state.space.wake(&key);
        self.tell(state, from, PeerMessage::SpaceRegistered { token, result });
    }

    fn space_insert(
        &self,
        state: &mut State,
        from: ServerId,
        key: &Key,
        description: u64,
        report: FieldReport,
        describes: bool,
    ) -> Result<u64> {
        let known = state.space.index.get(key).map(|owned| owned.description);
        let current = match known {
            Some(known) if description == 0 && describes => known,
            None if description == 0 && describes => self.unique(),
            _ if description == 0 => {
                return Err(Error::protocol(format!("{} does not describe field '{}'", self.id, key.0)));
            }
            // Where it is described, that is known best; elsewhere a later description ends an earlier one.
            _ if describes && known != Some(description) => return Ok(0),
            Some(known) if known > description => return Ok(0),
            Some(known) if known < description => {
                self.space_let_go_of(state, key);
                description
            }
            _ => description,
        };
        let single = self.space_tiles(state, &key.0, key.1, report.field.shape.as_deref()).is_single();
        let owned = state.space.index.entry(key.clone()).or_insert_with(|| Owned {
            description: current,
            index: FieldIndex::of_space(report.field.clone()),
            registrants: BTreeSet::new(),
        });
        check_same(owned.index.field(), &report.field, key.1)?;
        if describes && !single {
            owned.registrants.insert(from);
        }
        for block in report.blocks {
            owned.index.insert(block)?;
        }
        Ok(current)
    }

    /// The blocks that meet a region, once those of this owner's parts are there.
    pub(crate) async fn space_find(
        &self,
        field: &str,
        step: StepNumber,
        region: Option<&Region>,
        shape: Option<&Dims>,
        patience: Duration,
    ) -> Result<Answer> {
        let key = (field.to_owned(), step);
        if region.is_none() || shape.is_none() {
            self.check_describes(field, step)?;
        }
        let deadline = Instant::now() + patience;
        let mut seen = None;
        loop {
            let changed = {
                let mut state = self.state.lock();
                if let Some(answer) = self.space_look(&mut state, &key, region, shape, &mut seen)? {
                    return Ok(answer);
                }
                state.space.wait_for(&key)
            };
            if timeout_at(deadline, changed).await.is_err() {
                let state = &mut *self.state.lock();
                self.space_missing(state, &key, region)?;
                // It came at the last moment.
                seen = None;
            }
        }
    }

    /// The blocks that meet a region; `None` if those of this owner's parts are not all there.
    fn space_look(
        &self,
        state: &mut State,
        key: &Key,
        region: Option<&Region>,
        shape: Option<&Dims>,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Answer>> {
        let (name, step) = (&key.0, key.1);
        let Some(owned) = state.space.index.get(key) else { return Ok(None) };
        let field = owned.index.field().clone();
        let tiles =
            state.tiles.map(&self.standing().owners, hash_in_space(name, step), field.shape.as_deref());
        let other = match shape {
            Some(_) => field.shape.as_ref() != shape,
            None => !tiles.is_single(),
        };
        let Some(region) = region.filter(|_| !other) else {
            let report = FieldReport::new(field, Vec::new());
            return Ok(Some(Answer { lease: 0, description: owned.description, report }));
        };
        check_inside(&field, region)?;
        let parts = tiles.parts_of(self.id, region);
        if parts.is_empty() && tiles.descriptor() != Some(self.id) {
            return Err(Error::invalid(format!(
                "{} owns nothing of {region} of field '{name}' at step {step}",
                self.id
            )));
        }
        if !owned.covers(&parts, seen) {
            return Ok(None);
        }
        let blocks = owned.index.find(region).cloned().collect();
        let (description, lease) = (owned.description, self.unique());
        state.space.leases.insert(lease, key.clone());
        Ok(Some(Answer { lease, description, report: FieldReport::new(field, blocks) }))
    }

    /// An error that says what is missing of this owner's parts of a region, if something is.
    fn space_missing(&self, state: &mut State, key: &Key, region: Option<&Region>) -> Result<()> {
        let (name, step) = (&key.0, key.1);
        let Some(owned) = state.space.index.get(key) else {
            return Err(Error::timeout(format!("nothing of field '{name}' was put at step {step} in time")));
        };
        let Some(region) = region else { return Ok(()) };
        let shape = owned.index.field().shape.as_deref();
        let tiles = state.tiles.map(&self.standing().owners, hash_in_space(name, step), shape);
        owned.index.check_parts_covered(&format!("step {step}"), region, &tiles.parts_of(self.id, region))
    }

    /// A reader has finished with the blocks of an answer.
    pub(crate) fn space_release(&self, lease: u64) {
        let mut state = self.state.lock();
        let Some(key) = state.space.leases.remove(&lease) else { return };
        if !state.space.leases.values().any(|other| *other == key)
            && let Some(locations) = state.space.removed.remove(&key)
        {
            self.space_free(&mut state, locations);
            self.drain(&mut state);
        }
    }

    /// A put failed elsewhere: its blocks are not found here any more.
    pub(crate) fn space_unregister(
        &self,
        state: &mut State,
        field: String,
        step: StepNumber,
        blocks: Vec<(BlockKey, Location)>,
    ) {
        let key = (field, step);
        if let Some(owned) = state.space.index.get_mut(&key) {
            owned.index.remove(|known| blocks.contains(&(known.key, known.location)));
        }
        self.space_let_go(state, &key, blocks.into_iter().map(|(_, location)| location).collect());
    }

    /// Nobody finds a field at a step here any more.
    fn space_let_go_of(&self, state: &mut State, key: &Key) -> Option<Owned> {
        let owned = state.space.index.remove(key)?;
        let locations = owned.index.blocks().iter().map(|block| block.location).collect();
        self.space_let_go(state, key, locations);
        Some(owned)
    }

    /// Tells the holders that this owner needs these no longer, once no reader does.
    fn space_let_go(&self, state: &mut State, key: &Key, locations: Vec<Location>) {
        if state.space.leases.values().any(|held| held == key) {
            state.space.removed.entry(key.clone()).or_default().extend(locations);
        } else {
            self.space_free(state, locations);
        }
    }

    fn space_free(&self, state: &mut State, locations: Vec<Location>) {
        let mut by_server: BTreeMap<ServerId, Vec<Location>> = BTreeMap::new();
        for location in locations {
            by_server.entry(location.server).or_default().push(location);
        }
        for (server, locations) in by_server {
            for part in locations.chunks(FREED_AT_ONCE) {
                self.tell(state, server, PeerMessage::SpaceFree(part.to_vec()));
            }
        }
    }
}

/// Checks that a field is put as it was described.
fn check_same(known: &Field, given: &Field, step: StepNumber) -> Result<()> {
    if known.agrees_with(given) && known.shape == given.shape {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "field '{}' at step {step} is {} in the space, not {}; remove it there, or give this one another name or step",
        given.name,
        known.kind_and_shape(),
        given.kind_and_shape()
    )))
}

/// Checks that a region lies in a field.
fn check_inside(field: &Field, region: &Region) -> Result<()> {
    let whole = Region::whole(field.shape.as_deref().unwrap_or_default())?;
    if whole.contains(region) {
        return Ok(());
    }
    Err(Error::out_of_bounds(format!(
        "region {region} reaches outside field '{}', which is {whole}",
        field.name
    )))
}
