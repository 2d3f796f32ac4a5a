//! The space: blocks that were put to be kept until they are removed, found by field, step and region.
//!
//! Each field and step has one owner, by hash, that knows all its blocks; the blocks are held by the server
//! that they were put to.

use crate::node::{Held, Node, Pending, State};
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_core::view::hash_name;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::message::{Bytes, PutBlock};
use forebay_wire::peer::PeerMessage;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// Blocks that one message frees: more would not fit into it.
const FREED_AT_ONCE: usize = 1 << 18;

/// What a server knows of the space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// The fields and steps that this server owns.
    index: BTreeMap<(String, StepNumber), FieldIndex>,
    /// Ranges of blocks that are held here.
    held: HashSet<Held>,
    arena: Option<u32>,
    /// What readers hold: the key that each lease is on.
    leases: HashMap<u64, (String, StepNumber)>,
    /// What was removed while readers held it; freed with the last lease on its key.
    removed: HashMap<(String, StepNumber), Vec<Location>>,
    changed: Arc<Notify>,
}

impl Space {
    /// How many blocks its index knows, and about how many bytes that takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.index
            .values()
            .fold((0, 0), |sum, index| (sum.0 + index.blocks().len() as u64, sum.1 + index.bytes()))
    }
}

impl Node {
    fn space_owner(&self, field: &str, step: StepNumber) -> ServerId {
        self.view.owner_of(hash_name(field).wrapping_add(step)).unwrap_or(self.id)
    }

    /// Reserves a range for a block of the space, and says whether pages of it may be missing.
    pub(crate) fn space_reserve(&self, bytes: u64) -> Result<(Held, bool)> {
        let mut state = self.state.lock();
        let mut store = self.store.lock();
        let arena = match state.space.arena {
            Some(arena) => arena,
            None => store.create_arena()?.0,
        };
        state.space.arena = Some(arena);
        match store.reserve(arena, bytes)? {
            Some(range) => {
                Ok((Held { arena, offset: range.offset, generation: range.generation }, range.fresh))
            }
            None => {
                let usage = store.usage();
                Err(Error::new(
                    ErrorKind::Full,
                    format!(
                        "{bytes} bytes do not fit on {}: {} of {} are held; remove what is no longer needed",
                        self.id, usage.staged, usage.budget
                    ),
                ))
            }
        }
    }

    /// Keeps a block whose bytes have arrived, once its owner knows it.
    pub(crate) async fn space_keep(
        &self,
        field: Field,
        step: StepNumber,
        block: PutBlock,
        bytes: u64,
        held: Held,
    ) -> Result<()> {
        self.store.lock().commit(held.arena, held.offset, held.generation, bytes)?;
        let inline = match block.bytes {
            Bytes::Inline(given) if given.len() <= INLINE_MAX => Some(given),
            _ => None,
        };
        let location = Location {
            server: self.id,
            arena: held.arena,
            offset: held.offset,
            bytes,
            generation: held.generation,
        };
        // A put has no rank: its number tells it apart.
        let key = BlockKey { rank: self.id.0, number: self.unique() };
        let record = BlockRecord {
            key,
            level: block.level,
            extent: block.extent,
            location,
            inline,
            stats: block.stats,
        };
        let name = field.name.clone();
        let token = self.unique();
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.state.lock();
            state.pending.insert(token, Pending { stream: name.clone(), rank: 0, reply });
            state.space.held.insert(held);
            let owner = self.space_owner(&name, step);
            let report = FieldReport { field, blocks: vec![record] };
            self.tell(&mut state, owner, PeerMessage::SpaceRegister { token, step, report });
            self.drain(&mut state);
        }
        let registered = match tokio::time::timeout(Duration::from_secs(20), answer).await {
            Ok(Ok(PeerMessage::Answer { result, .. })) => result,
            _ => Err(Error::unreachable(format!(
                "the directory's owner of field '{name}' at step {step} is gone"
            ))),
        };
        if registered.is_err() && self.state.lock().space.held.remove(&held) {
            self.free([held]);
        }
        registered
    }

    pub(crate) fn space_register(
        &self,
        state: &mut State,
        from: ServerId,
        token: u64,
        step: StepNumber,
        report: FieldReport,
    ) {
        let key = (report.field.name.clone(), step);
        let index = state.space.index.entry(key).or_insert_with(|| FieldIndex::new(report.field.clone()));
        let mut result = Ok(());
        if !index.field().agrees_with(&report.field) || index.field().shape != report.field.shape {
            result = Err(Error::conflict(format!(
                "field '{}' at step {step} is {} of shape {:?} in the space, not {} of shape {:?}",
                report.field.name,
                index.field().dtype,
                index.field().shape.as_deref(),
                report.field.dtype,
                report.field.shape.as_deref()
            )));
        } else {
            for block in report.blocks {
                result = result.and(index.insert(block).map(|_| ()));
            }
        }
        state.space.changed.notify_waiters();
        self.tell(state, from, PeerMessage::Answer { token, result });
    }

    /// The blocks that meet a region, once they cover it.
    pub(crate) async fn space_find(
        &self,
        field: &str,
        step: StepNumber,
        region: Option<Region>,
        patience: Duration,
    ) -> Result<(u64, FieldReport)> {
        let owner = self.space_owner(field, step);
        if owner != self.id {
            return Err(Error::invalid(format!(
                "{owner} owns field '{field}' at step {step}, not {}",
                self.id
            )));
        }
        let deadline = Instant::now() + patience;
        loop {
            let (changed, missing) = {
                let mut state = self.state.lock();
                let missing = match state.space.index.get(&(field.to_owned(), step)) {
                    None => {
                        Error::timeout(format!("nothing of field '{field}' was put at step {step} in time"))
                    }
                    Some(index) => match find(index, region.as_ref(), step) {
                        Ok(report) => {
                            let lease = self.unique();
                            state.space.leases.insert(lease, (field.to_owned(), step));
                            return Ok((lease, report));
                        }
                        Err(error) if error.kind == ErrorKind::NotCovered => error,
                        Err(error) => return Err(error),
                    },
                };
                let mut changed = Box::pin(state.space.changed.clone().notified_owned());
                changed.as_mut().enable();
                (changed, missing)
            };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(missing);
            }
        }
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

    /// Removes a field's blocks at a step: nobody finds them any more, and their memory is free once nobody
    /// holds them.
    pub(crate) fn space_remove(&self, field: &str, step: StepNumber) -> Result<()> {
        let owner = self.space_owner(field, step);
        if owner != self.id {
            return Err(Error::invalid(format!(
                "{owner} owns field '{field}' at step {step}, not {}",
                self.id
            )));
        }
        let key = (field.to_owned(), step);
        let mut state = self.state.lock();
        let Some(index) = state.space.index.remove(&key) else { return Ok(()) };
        let locations: Vec<Location> = index.blocks().iter().map(|block| block.location).collect();
        if state.space.leases.values().any(|held| *held == key) {
            state.space.removed.entry(key).or_default().extend(locations);
        } else {
            self.space_free(&mut state, locations);
            self.drain(&mut state);
        }
        Ok(())
    }

    /// Tells the holders to free these.
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

    /// The owner says that nobody needs these any more.
    pub(crate) fn space_freed(&self, state: &mut State, locations: &[Location]) {
        let held =
            locations.iter().map(|l| Held { arena: l.arena, offset: l.offset, generation: l.generation });
        let known: Vec<Held> = held.filter(|range| state.space.held.remove(range)).collect();
        self.free(known);
    }
}

/// The blocks of an index that meet a region, if they cover it; without a region only the field.
fn find(index: &FieldIndex, region: Option<&Region>, step: StepNumber) -> Result<FieldReport> {
    let field = index.field().clone();
    let Some(region) = region else { return Ok(FieldReport { field, blocks: Vec::new() }) };
    let whole = Region::whole(field.shape.as_deref().unwrap_or_default())?;
    if !whole.contains(region) {
        return Err(Error::out_of_bounds(format!(
            "region {region} reaches outside field '{}', which is {whole}",
            field.name
        )));
    }
    index.check_covered(&format!("step {step}"), region)?;
    let blocks = index.find(region).cloned().collect();
    Ok(FieldReport { field, blocks })
}
