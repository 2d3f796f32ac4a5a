//! The space: arrays put and got by name, step and region, whoever put them.

use crate::assemble::{self, Selection};
use crate::declared::SpaceOptions;
use crate::fork::ForkGuard;
use crate::group::Group;
use crate::holder::{ARENAS_KEPT, Holders, Told};
use crate::rpc::{Payload, Rpc, lock, unexpected};
use crate::seconds::deadline_after;
use crate::storage::{GRACE, Storage};
use crate::typed::check_dtype;
use forebay_core::block::{Extent, INLINE_MAX};
use forebay_core::contract::Field;
use forebay_core::ids::{Epoch, ServerId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::{FieldReport, check_replicas_among};
use forebay_core::tiles::{TileMap, hash_in_space};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::{Source, Target};
use forebay_transport::Kind;
use forebay_wire::message::{self, Bytes, PutBlock, ToClient, ToServer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many fields are remembered.
const FIELDS_MAX: usize = 1024;

/// Up to this size the bytes of a put go over the socket although memory is shared: one question instead of
/// two, which costs more than copying so little twice.
const SOCKET_MAX: u64 = 64 << 10;

/// Arrays by name, step and region. What is put stays until it is removed.
#[derive(Debug)]
pub struct Space {
    guard: ForkGuard,
    holders: Holders,
    replicas: u32,
    /// Which of the servers is its home follows from this.
    number: u32,
    home: Mutex<ServerId>,
    /// Servers that have said that they take nothing any more.
    leaving: Mutex<Vec<ServerId>>,
    /// Made at random: tells this handle's puts from those of others.
    by: u32,
    /// The number of the next put; the first is made at random, too.
    numbers: AtomicU64,
    /// Made at the first put of a large array over shared memory.
    storage: Mutex<Option<Arc<Storage>>>,
    /// Fields as they were last seen: whom to ask follows from their shape.
    known: Mutex<HashMap<String, Field>>,
}

/// An array that is put.
#[derive(Debug, Clone)]
pub struct SpacePut {
    /// The field, with its global shape.
    pub field: Field,
    /// The step.
    pub step: StepNumber,
    /// The box.
    pub extent: Extent,
}

impl Space {
    /// Finds the group. Connects at first use.
    pub fn open(options: &SpaceOptions) -> Result<Space> {
        let group = Group::find(&options.group)?;
        check_replicas_among(options.replicas, group.known().view.members.len())?;
        // Spread over the servers by process and handle, since there is no rank.
        static HANDLES: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id().wrapping_add(HANDLES.fetch_add(1, Ordering::Relaxed));
        let home = Mutex::new(group.home_of(number)?);
        Ok(Space {
            guard: ForkGuard::new(),
            holders: Holders::new(group),
            replicas: options.replicas,
            number,
            home,
            leaving: Mutex::default(),
            by: random() as u32,
            numbers: AtomicU64::new(random()),
            storage: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// Fails in a process that was forked from the one that opened it.
    pub fn check_process(&self) -> Result<()> {
        self.guard.check("space")
    }

    /// The server that blocks are put to: another one when it has gone, or leaves.
    fn home(&self) -> Result<ServerId> {
        let group = self.holders.group();
        let leaving = lock(&self.leaving).clone();
        let mut home = lock(&self.home);
        if leaving.contains(&home) || !group.known().view.members.contains(&home) {
            *home = group.home_of_but(self.number, &leaving)?;
        }
        Ok(*home)
    }

    /// The server that describes a field at a step.
    fn describer(&self, field: &str, step: StepNumber) -> Result<ServerId> {
        let describer = self.holders.group().known().file.seats.holder_of(hash_in_space(field, step));
        describer.ok_or_else(|| Error::not_found("the group has no server"))
    }

    fn tiles(&self, field: &Field, step: StepNumber) -> TileMap {
        self.holders.tiles(hash_in_space(&field.name, step), field.shape.as_deref())
    }

    /// Puts an array. Waits until a server holds it, its directory knows it, and others hold its copies. If the server dies
    /// meanwhile it is put to another one.
    pub fn put(&self, put: &SpacePut, source: &Source<'_>) -> Result<()> {
        self.guard.check("space")?;
        put.field.check()?;
        check_dtype(&put.field, source.dtype())?;
        let stored = put.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "the array has shape {:?}, the box {:?}",
                source.shape(),
                &stored[..]
            )));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let group = self.holders.group();
        group.outlive(Instant::now() + group.limit(), || self.put_now(put, number, source))
    }

    fn put_now(&self, put: &SpacePut, number: u64, source: &Source<'_>) -> Result<()> {
        let bytes = put.extent.bytes(put.field.dtype)?;
        let home = self.home()?;
        let rpc = self.holders.connection(home)?;
        if rpc.kind() == Kind::Shm && bytes > SOCKET_MAX {
            return self.put_through_arena(put, number, source, (home, rpc));
        }
        let gathered;
        let dense = match source.as_dense() {
            Some(dense) => dense,
            None => {
                gathered = source.to_vec(None);
                &gathered
            }
        };
        if dense.len() <= INLINE_MAX && self.replicas == 1 {
            // A small block goes straight to its owner, so that reading it is one hop.
            let owners = self.tiles(&put.field, put.step).owners_of(&put.extent.interior());
            let owner = owners.first().copied().filter(|owner| !lock(&self.leaving).contains(owner));
            let owner = owner.unwrap_or(home);
            let rpc = self.holders.connection(owner)?;
            return self.keep((owner, &rpc), put, number, Bytes::Inline(dense.into()), None);
        }
        self.keep((home, &rpc), put, number, Bytes::Payload, Some(Payload(dense)))
    }

    /// Puts by one copy into memory that is shared with the server.
    fn put_through_arena(
        &self,
        put: &SpacePut,
        number: u64,
        source: &Source<'_>,
        (home, rpc): (ServerId, Arc<Rpc>),
    ) -> Result<()> {
        let bytes = put.extent.bytes(put.field.dtype)?;
        let storage = self.storage(home, rpc)?;
        let full = || Error::new(ErrorKind::Full, format!("{home} has no room for {bytes} bytes"));
        let grant = storage.reserve(bytes)?.ok_or_else(full)?;
        let Some(arena) = &storage.arena else { return Err(Error::protocol("no arena came to write to")) };
        let placed = storage.copy_in(arena, grant, source, None)?;
        let granted =
            Bytes::Granted { arena: placed.arena, offset: placed.offset, generation: placed.generation };
        self.keep((home, &storage.rpc), put, number, granted, None)
    }

    /// The home server with an arena to write to; another one after the connection broke.
    fn storage(&self, home: ServerId, rpc: Arc<Rpc>) -> Result<Arc<Storage>> {
        let mut storage = lock(&self.storage);
        if let Some(known) = storage.as_ref().filter(|known| Arc::ptr_eq(&known.rpc, &rpc)) {
            return Ok(known.clone());
        }
        let opened = Arc::new(Storage::open(home, rpc, &ToServer::SpaceStore)?);
        Ok(storage.insert(opened).clone())
    }

    /// Waits until a server keeps a block and its directory knows it.
    fn keep(
        &self,
        (server, rpc): (ServerId, &Rpc),
        put: &SpacePut,
        number: u64,
        bytes: Bytes,
        payload: Option<Payload<'_>>,
    ) -> Result<()> {
        let field = put.field.name.clone();
        let block = PutBlock { field, number, level: 0, extent: put.extent.clone(), stats: None, bytes };
        let (field, step, by, replicas) = (put.field.clone(), put.step, self.by, self.replicas);
        let message = ToServer::SpacePut(Box::new(message::SpacePut { field, step, by, replicas, block }));
        match rpc.call_within(&message, payload, rpc.patience(), "to keep an array")?.message {
            ToClient::Leaves => {
                lock(&self.leaving).push(server);
                Err(Error::unreachable(format!("{server} leaves the group")))
            }
            _ => Ok(()),
        }
    }

    /// The field as it is at a step, waiting until something of it was put, no longer than `timeout`.
    pub fn field(&self, field: &str, step: StepNumber, timeout: Duration) -> Result<Field> {
        self.guard.check("space")?;
        let deadline = deadline_after(timeout);
        self.holders.group().outlive(deadline, || self.field_now(field, step, deadline))
    }

    fn field_now(&self, field: &str, step: StepNumber, deadline: Instant) -> Result<Field> {
        let found = self.ask_one(self.describer(field, step)?, field, step, (None, None), deadline)?;
        let field = found.report.field.clone();
        self.remember(&field);
        Ok(field)
    }

    /// Finds the blocks that meet a region, waiting until they cover it, no longer than `timeout`. The result
    /// keeps the blocks until it is dropped. Asks the owners of the region's tiles at once; the one that
    /// describes the field only if they do not know all of it yet.
    pub fn find(
        &self,
        field: &str,
        step: StepNumber,
        region: &Region,
        timeout: Duration,
    ) -> Result<Found<'_>> {
        self.guard.check("space")?;
        let deadline = deadline_after(timeout);
        self.holders.group().outlive(deadline, || self.find_now(field, step, region, deadline))
    }

    fn find_now(
        &self,
        field: &str,
        step: StepNumber,
        region: &Region,
        deadline: Instant,
    ) -> Result<Found<'_>> {
        let describer = self.describer(field, step)?;
        // Whom to ask follows from the shape, and most fields have one at all steps.
        let mut known = lock(&self.known).get(field).cloned();
        loop {
            let tiles = known.as_ref().map(|known| self.tiles(known, step));
            let (Some(as_known), Some(tiles)) = (&known, tiles.filter(|tiles| !tiles.is_single())) else {
                let shape = known.as_ref().and_then(|known| known.shape.clone());
                let found = self.ask_one(describer, field, step, (Some(region), shape), deadline)?;
                self.remember(&found.report.field);
                if !found.held.is_empty() {
                    return Ok(found);
                }
                known = Some(found.report.field.clone());
                continue;
            };
            let owners = tiles.owners_of(region);
            let ask = |waits| self.ask_owners(&owners, as_known, step, region, (waits, deadline));
            if let Some(found) = ask(false)? {
                return Ok(found);
            }
            // Something is not there yet, or the field is another one now.
            let now = self.field_now(field, step, deadline)?;
            if now.shape == as_known.shape
                && let Some(found) = ask(true)?
            {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(format!(
                    "field '{field}' at step {step} is removed and put again and again while it is searched"
                )));
            }
            known = Some(now);
        }
    }

    fn remember(&self, field: &Field) {
        let mut known = lock(&self.known);
        if known.len() >= FIELDS_MAX && !known.contains_key(&field.name) {
            known.clear();
        }
        known.insert(field.name.clone(), field.clone());
    }

    /// Asks one server for a region (and by which shape it was chosen), or for the field alone.
    fn ask_one(
        &self,
        server: ServerId,
        field: &str,
        step: StepNumber,
        (region, shape): (Option<&Region>, Option<Dims>),
        deadline: Instant,
    ) -> Result<Found<'_>> {
        let question = |_| find_message(field, step, region, shape.clone(), left_until(deadline));
        let mut told = self.holders.ask_all([server], question, deadline + GRACE, "to find an array");
        let Some((_, told)) = told.pop() else { return Err(Error::internal("nobody was asked")) };
        let Told { message, rpc, request } = told?;
        let (held, term, report) = match message {
            ToClient::Found { held, term, report, .. } => (held, term, report),
            ToClient::NotOwned => return Err(not_owned(server, field, step)),
            other => return Err(unexpected(&other)),
        };
        let held = if held { vec![(rpc, request)] } else { Vec::new() };
        Ok(Found { space: self, report: *report, step, term, held })
    }

    /// Asks all owners of a region at once. `None` if they know different fields or, where they do not wait for it, if some
    /// do not know all of it yet.
    fn ask_owners(
        &self,
        owners: &[ServerId],
        field: &Field,
        step: StepNumber,
        region: &Region,
        (waits, deadline): (bool, Instant),
    ) -> Result<Option<Found<'_>>> {
        let question = |_| {
            let patience = if waits { left_until(deadline) } else { Duration::ZERO };
            find_message(&field.name, step, Some(region), field.shape.clone(), patience)
        };
        let owners = owners.iter().copied();
        let until = if waits { deadline } else { deadline.min(Instant::now()) } + GRACE;
        let answers = self.holders.ask_all(owners, question, until, "to find an array");
        let report = FieldReport::new(field.clone(), Vec::new());
        let mut found = Found { space: self, report, step, term: Epoch::MAX, held: Vec::new() };
        let mut descriptions = BTreeSet::new();
        let mut blocks = BTreeMap::new();
        let mut complete = true;
        let mut failure = None;
        for (owner, answer) in answers {
            let (message, over) = match answer {
                Ok(Told { message, rpc, request }) => (message, (rpc, request)),
                Err(error) if !waits && matches!(error.kind, ErrorKind::NotCovered | ErrorKind::Timeout) => {
                    complete = false;
                    continue;
                }
                Err(error) => {
                    failure = failure.or(Some(error));
                    continue;
                }
            };
            match message {
                ToClient::Found { held: true, description, term, report } => {
                    found.held.push(over);
                    found.term = found.term.min(term);
                    found.report.field = report.field;
                    descriptions.insert(description);
                    blocks.extend(report.blocks.into_iter().map(|block| (block.key, block)));
                }
                // Of another shape than thought.
                ToClient::Found { .. } => complete = false,
                ToClient::NotOwned => {
                    failure = failure.or(Some(not_owned(owner, &field.name, step)));
                }
                other => failure = failure.or(Some(unexpected(&other))),
            }
        }
        found.report.blocks = blocks.into_values().collect();
        match failure {
            Some(error) => Err(error),
            // What was found before and after a removal does not belong together.
            None => Ok((complete && descriptions.len() == 1).then_some(found)),
        }
    }

    /// Removes what was put of a field at a step, on every server. When it returns nobody finds it any more.
    pub fn remove(&self, field: &str, step: StepNumber) -> Result<()> {
        self.guard.check("space")?;
        let group = self.holders.group();
        group.outlive(Instant::now() + group.limit(), || {
            let describer = self.describer(field, step)?;
            let remove = ToServer::SpaceRemove { field: field.to_owned(), step };
            let answer = self.holders.connection(describer)?.call(&remove, "to remove an array")?;
            match answer.message {
                ToClient::NotOwned => Err(not_owned(describer, field, step)),
                _ => Ok(()),
            }
        })
    }
}

/// A number that nobody foresees.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The error of a server that does not own what the connection file has it own: one of the two is behind.
fn not_owned(server: ServerId, field: &str, step: StepNumber) -> Error {
    Error::unreachable(format!("{server} does not own what was asked of field '{field}' at step {step}"))
}

/// How much time is left.
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn find_message(
    field: &str,
    step: StepNumber,
    region: Option<&Region>,
    shape: Option<Dims>,
    patience: Duration,
) -> ToServer {
    let (field, region) = (field.to_owned(), region.cloned());
    ToServer::SpaceFind { field, step, region, shape, patience_ms: patience.as_millis() as u64 }
}

/// Blocks that were found; held until this is dropped.
#[derive(Debug)]
pub struct Found<'a> {
    space: &'a Space,
    report: FieldReport,
    step: StepNumber,
    /// The first epoch in which one of them was told.
    term: Epoch,
    /// Over which connections it is held, and under which numbers.
    held: Vec<(Arc<Rpc>, u64)>,
}

impl Found<'_> {
    /// The field.
    pub fn field(&self) -> &Field {
        &self.report.field
    }

    /// Copies exactly the selected elements into `target`.
    pub fn read(&self, selection: &Selection, target: &mut Target<'_>) -> Result<()> {
        let holders = &self.space.holders;
        holders.forget_unused_arenas(ARENAS_KEPT, self.term);
        let from = assemble::Origin { holders, step: format!("step {}", self.step), term: self.term };
        assemble::read(&from, &self.report.field, &self.report.blocks, selection, target)
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        // A forked child holds nothing, and waits for no lock.
        if self.space.guard.is_child() {
            return;
        }
        for (rpc, request) in self.held.drain(..) {
            rpc.release(request);
        }
    }
}
