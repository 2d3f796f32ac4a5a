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
use crate::surroundings::HashMap;
use described::Described;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, DescriptionNumber, Epoch, ServerId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::FieldReport;
use forebay_core::tiles::{TileMap, hash_in_space};
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{ReplicaUnit, SpaceBlock};
use forebay_wire::peer::space;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, timeout_at};

/// A field at a step.
pub(crate) type Key = (String, StepNumber);
/// How long all members may take to tell what follows from a new view.
const TOLD_PATIENCE: Duration = Duration::from_secs(5);
/// Blocks that one message frees: more would not fit into it.
const FREED_AT_ONCE: usize = 1 << 18;

/// What a server knows of the space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// What this server owns.
    index: BTreeMap<Key, Owned>,
    /// What is being removed by this server, with the registrations that wait for the end of that.
    removing: HashMap<Key, Vec<(ServerId, Registration)>>,
    /// Blocks that are held here, by their ranges. One is free when nobody keeps it any more.
    held: HashMap<Held, HeldBlock>,
    /// Where they are.
    by_key: HashMap<BlockKey, Held>,
    /// What readers hold: the key that each lease is on.
    leases: HashMap<u64, Key>,
    /// What was removed while readers held it; let go with the last lease on its key.
    removed: HashMap<Key, Vec<Location>>,
    /// What this owner has let go of, by the number with which its holder was told. If that dies, who holds copies may not
    /// have heard of it, and tells of them.
    freeing: HashMap<u64, Freeing>,
    /// How many blocks are not free yet of which an owner is told then, by its number.
    to_tell: HashMap<(ServerId, u64), usize>,
    described: Described,
    /// How those are woken who wait for blocks of a key; as long as somebody waits.
    waiting: HashMap<Key, Arc<Notify>>,
}

/// Blocks that are to be registered with this server.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) token: u64,
    pub(crate) step: StepNumber,
    pub(crate) description: DescriptionNumber,
    pub(crate) report: FieldReport,
}

impl Registration {
    /// As it came.
    fn message(self) -> space::Message {
        let Registration { token, step, description, report } = self;
        space::Message::Register { token, step, description, report }
    }
}

/// A block that is held here.
#[derive(Debug)]
struct HeldBlock {
    /// The owners that it is registered with, or is being.
    keepers: Vec<ServerId>,
    field: Arc<Field>,
    step: StepNumber,
    record: BlockRecord,
    /// Under which description it is registered; 0 until it is.
    description: DescriptionNumber,
    /// Whether it is still being put: not acknowledged yet.
    is_put: bool,
    /// The epoch since which an owner is gone that may have told readers of it, who may look at it still; 0 if none is, the
    /// highest number while that is being agreed.
    unseen_before: Epoch,
    /// Owners that have let go of it and are told when it is free, by which numbers.
    told_when_free: Vec<(ServerId, u64)>,
}

/// Blocks that a holder was told to free, and may hold still.
#[derive(Debug)]
struct Freeing {
    holder: ServerId,
    locations: Vec<Location>,
}

/// What a reader that waits has seen, so that each block is looked at once, however many come.
#[derive(Debug)]
struct Seen {
    description: DescriptionNumber,
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
    description: DescriptionNumber,
    index: FieldIndex,
    /// Where it is described: the servers that may register under this description with other owners.
    registrants: BTreeSet<ServerId>,
}

/// What an owner finds.
#[derive(Debug)]
enum Looked {
    Found(Box<Answer>),
    /// Not all is there yet.
    Missing,
    /// Others own all of it.
    NotOwned,
}

/// What an owner answers to a reader.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 if it only describes the field.
    pub(crate) lease: u64,
    pub(crate) description: DescriptionNumber,
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

    /// All blocks that are held here.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = ReplicaUnit> {
        self.held
            .values()
            .filter(|block| block.description > 0)
            .map(|block| ReplicaUnit::Space(block.record.key))
    }

    /// Whether a block is being put here.
    pub(crate) fn is_put_to(&self) -> bool {
        self.held.values().any(|block| block.is_put)
    }

    /// Where a block is held here.
    pub(crate) fn range_of(&self, key: BlockKey) -> Option<Held> {
        self.by_key.get(&key).copied()
    }

    /// What owners know of a block that is held here.
    pub(crate) fn block_of(&self, id: &ReplicaUnit) -> Option<SpaceBlock> {
        let ReplicaUnit::Space(key) = id else { return None };
        let block = self.held.get(&self.range_of(*key)?)?;
        let (field, record) = (block.field.clone(), block.record.clone());
        Some(SpaceBlock { field, step: block.step, description: block.description, record })
    }

    /// This server holds a block.
    fn hold(&mut self, held: Held, block: HeldBlock) {
        self.by_key.insert(block.record.key, held);
        self.held.insert(held, block);
    }

    /// The server is dead that held a block: this one does in its place. Its owners are told.
    pub(crate) fn take(&mut self, held: Held, block: SpaceBlock, epoch: Epoch) {
        let SpaceBlock { field, step, description, record } = block;
        let block = HeldBlock {
            keepers: Vec::new(),
            field,
            step,
            record,
            description,
            is_put: false,
            unseen_before: epoch,
            told_when_free: Vec::new(),
        };
        self.hold(held, block);
    }

    /// Whether it holds any block.
    pub(crate) fn is_used(&self) -> bool {
        !self.held.is_empty()
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
        state.tiles.map(&self.standing().roster.seats, hash_in_space(field, step), shape)
    }

    /// The server that describes a field of the space at a step.
    fn space_describes(&self, field: &str, step: StepNumber) -> ServerId {
        self.standing().roster.seats.holder_of(hash_in_space(field, step)).unwrap_or(self.id)
    }

    /// Blocks are registered with this server, which owns parts that they touch or describes the field.
    pub(crate) fn space_register(&self, state: &mut State, from: ServerId, registration: Registration) {
        let Registration { token, step, description, report } = registration;
        let key = (report.field.name.clone(), step);
        let describes = self.space_describes(&key.0, step) == self.id;
        if describes && description == 0 && !self.knows_places(state, &self.standing().view) {
            // Another one may have described it before, and who holds blocks is about to tell.
            let registration = Registration { token, step, description, report };
            if !state.locations.defer(from, registration.message()) {
                let result = Err(Error::unreachable("too much is put while the group changes: try again"));
                self.tell(state, from, space::Message::Registered { token, result });
            }
            return;
        }
        if let Some(waiting) = state.space.removing.get_mut(&key).filter(|_| describes && description == 0) {
            waiting.push((from, Registration { token, step, description, report }));
            return;
        }
        let result = self.space_insert(state, from, &key, description, report, describes);
        state.space.wake(&key);
        self.tell(state, from, space::Message::Registered { token, result });
    }

    fn space_insert(
        &self,
        state: &mut State,
        from: ServerId,
        key: &Key,
        description: DescriptionNumber,
        report: FieldReport,
        describes: bool,
    ) -> Result<DescriptionNumber> {
        let known = state.space.index.get(key).map(|owned| owned.description);
        let current = match known {
            Some(known) if description == 0 && describes => known,
            // Later ones are greater, whoever describes the field.
            None if description == 0 && describes => {
                u128::from(self.epoch()) << 64 | u128::from(self.unique())
            }
            // Who asks knows a view already that this server does not, or the other way round: it asks again.
            _ if description == 0 => {
                let epoch = self.epoch();
                let text = format!("{} does not describe field '{}' as of epoch {epoch}", self.id, key.0);
                return Err(Error::unreachable(text));
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
        // Where a block was that was put again, since the server did not answer that it was put to.
        let mut before = Vec::new();
        let (standing, answers) = (self.standing(), &state.answers);
        let some_have_gone = standing.roster.next_id.0 as usize > standing.view.members.len();
        for block in report.blocks {
            let same =
                |known: &&BlockRecord| known.extent == block.extent && known.location != block.location;
            if let Some(known) = owned.index.get(block.key).filter(same) {
                before.push(known.location);
                owned.index.remove(|known| known.key == block.key);
            }
            let again = some_have_gone.then(|| block.clone());
            if let Err(error) = owned.index.insert(block) {
                // What servers held that have gone is in nobody's way.
                let held = |location: &Location| {
                    standing.view.members.contains(&location.server)
                        || !answers.get((location.server, location.arena)).is_empty()
                };
                owned.index.remove(|known| known.inline.is_none() && !held(&known.location));
                owned.index.insert(again.ok_or(error)?)?;
            }
        }
        self.space_let_go(state, key, before);
        Ok(current)
    }

    /// A server holds blocks that an owner knew which has gone: this one owns their parts now, or describes the field.
    pub(crate) fn space_know(
        &self,
        state: &mut State,
        from: ServerId,
        step: StepNumber,
        description: DescriptionNumber,
        report: FieldReport,
    ) {
        let key = (report.field.name.clone(), step);
        let known = state.space.index.get(&key).map(|owned| owned.description);
        if known.is_some_and(|known| known < description) {
            self.space_let_go_of(state, &key);
        }
        let (mut report, mut refused) = (report, Vec::new());
        let tells_of_blocks = !report.blocks.is_empty();
        let freeing: HashSet<&Location> =
            state.space.freeing.values().flat_map(|freeing| &freeing.locations).collect();
        let removed = state.space.removed.get(&key);
        report.blocks.retain(|block| {
            let is_freed = freeing.contains(&block.location);
            if is_freed {
                refused.push(block.location);
            }
            // What readers still look at is let go of when they do not.
            !is_freed && !removed.is_some_and(|removed| removed.contains(&block.location))
        });
        if tells_of_blocks && report.blocks.is_empty() {
            // All of it was removed.
        } else if known.is_some_and(|known| known > description) {
            // It was removed, and put again.
            refused.extend(report.blocks.iter().map(|block| block.location));
        } else {
            let single = self.space_tiles(state, &key.0, step, report.field.shape.as_deref()).is_single();
            let owned = state.space.index.entry(key.clone()).or_insert_with(|| Owned {
                description,
                index: FieldIndex::of_space(report.field.clone()),
                registrants: BTreeSet::new(),
            });
            if !single {
                owned.registrants.insert(from);
            }
            for block in report.blocks {
                let location = block.location;
                if let Err(error) = owned.index.insert(block) {
                    tracing::warn!("a block of field '{}' at step {step} is not taken over: {error}", key.0);
                    refused.push(location);
                }
            }
        }
        self.space_free_at(state, refused.into_iter().map(|location| (from, location)));
        state.space.wake(&key);
    }

    /// The blocks that meet a region, once those of this owner's parts are there. `None` if others own all of them.
    pub(crate) async fn space_find(
        &self,
        field: &str,
        step: StepNumber,
        region: Option<&Region>,
        shape: Option<&Dims>,
        patience: Duration,
    ) -> Result<Option<Answer>> {
        let key = (field.to_owned(), step);
        let deadline = Instant::now() + patience;
        let all_told = deadline.max(Instant::now() + TOLD_PATIENCE);
        timeout_at(all_told, self.told_by_all()).await.map_err(|_| not_told(field, step))?;
        let mut seen = None;
        loop {
            if (region.is_none() || shape.is_none()) && self.space_describes(field, step) != self.id {
                return Ok(None);
            }
            let changed = {
                let mut state = self.state.lock();
                match self.space_look(&mut state, &key, region, shape, &mut seen)? {
                    Looked::Found(answer) => return Ok(Some(*answer)),
                    Looked::NotOwned => return Ok(None),
                    Looked::Missing => state.space.wait_for(&key),
                }
            };
            if timeout_at(deadline, changed).await.is_err() {
                let state = &mut *self.state.lock();
                self.space_missing(state, &key, region)?;
                // It came at the last moment.
                seen = None;
            }
        }
    }

    /// The blocks that meet a region, if those of this owner's parts are all there.
    fn space_look(
        &self,
        state: &mut State,
        key: &Key,
        region: Option<&Region>,
        shape: Option<&Dims>,
        seen: &mut Option<Seen>,
    ) -> Result<Looked> {
        let (name, step) = (&key.0, key.1);
        let Some(owned) = state.space.index.get(key) else { return Ok(Looked::Missing) };
        let field = owned.index.field().clone();
        let tiles =
            state.tiles.map(&self.standing().roster.seats, hash_in_space(name, step), field.shape.as_deref());
        let other = match shape {
            Some(_) => field.shape.as_ref() != shape,
            None => !tiles.is_single(),
        };
        let Some(region) = region.filter(|_| !other) else {
            let report = FieldReport::new(field, Vec::new());
            return Ok(Looked::Found(Box::new(Answer { lease: 0, description: owned.description, report })));
        };
        check_inside(&field, region)?;
        let parts = tiles.parts_of(self.id, region);
        if parts.is_empty() && tiles.descriptor() != Some(self.id) {
            return Ok(Looked::NotOwned);
        }
        if !owned.covers(&parts, seen) {
            return Ok(Looked::Missing);
        }
        let blocks = owned.index.find(region).cloned().collect();
        let (description, lease) = (owned.description, self.unique());
        state.space.leases.insert(lease, key.clone());
        let report = FieldReport::new(field, blocks);
        Ok(Looked::Found(Box::new(Answer { lease, description, report })))
    }

    /// An error that says what is missing of this owner's parts of a region, if something is.
    fn space_missing(&self, state: &mut State, key: &Key, region: Option<&Region>) -> Result<()> {
        let (name, step) = (&key.0, key.1);
        let Some(owned) = state.space.index.get(key) else {
            return Err(Error::timeout(format!("nothing of field '{name}' was put at step {step} in time")));
        };
        let Some(region) = region else { return Ok(()) };
        let shape = owned.index.field().shape.as_deref();
        let tiles = state.tiles.map(&self.standing().roster.seats, hash_in_space(name, step), shape);
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
        let mut at = Vec::new();
        for location in locations {
            // Whoever may hold it now: the others have nothing there.
            let answers = state.answers.get((location.server, location.arena));
            at.extend(answers.into_iter().map(|(server, _)| (server, location)));
            at.push((location.server, location));
        }
        self.space_free_at(state, at);
    }

    /// Tells servers to free blocks that they hold.
    fn space_free_at(&self, state: &mut State, at: impl IntoIterator<Item = (ServerId, Location)>) {
        let mut by_holder: BTreeMap<ServerId, Vec<Location>> = BTreeMap::new();
        for (holder, location) in at {
            by_holder.entry(holder).or_default().push(location);
        }
        let standing = self.standing();
        let all_told = self.knows_places(state, &standing.view);
        for (holder, locations) in by_holder {
            for part in locations.chunks(FREED_AT_ONCE) {
                let (token, locations) = (self.unique(), part.to_vec());
                if !all_told || standing.view.members.contains(&holder) {
                    state.space.freeing.insert(token, Freeing { holder, locations: locations.clone() });
                }
                self.tell(state, holder, space::Message::Free { token, locations });
            }
        }
    }

    /// A holder has freed what this owner has let go of.
    pub(crate) fn space_freed(&self, state: &mut State, from: ServerId, token: u64) {
        if state.space.freeing.get(&token).is_some_and(|freeing| freeing.holder == from) {
            state.space.freeing.remove(&token);
        }
    }

    /// All members have told what they hold in the place of those that have gone: nobody else will.
    pub(crate) fn space_told_by_all(&self, state: &mut State) {
        let standing = self.standing();
        state.space.freeing.retain(|_, freeing| standing.view.members.contains(&freeing.holder));
    }
}

/// The error where it is not known in time what an owner knew that has gone.
fn not_told(field: &str, step: StepNumber) -> Error {
    Error::timeout(format!(
        "what there is of field '{field}' at step {step} is not known in time: a server stands still"
    ))
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
