//! Producers: one rank of a simulation.

mod candidates;
mod come_back;
mod ended;
mod joiners;
mod options;
mod put;
mod put_again;

pub use options::{Allocation, Block, OnLoss, Outcome};
pub(crate) use put::{Counted, gather, put_block};
pub(crate) use put_again::{WhereBytes, Written};

use crate::declared::ProducerOptions;
use crate::fork::ForkGuard;
use crate::group::{Group, Known};
use crate::particles::Species;
use crate::pending::Pending;
use crate::rpc::{lock, unexpected};
use crate::storage::{GRACE, Storage};
use come_back::DEATHS_MAX;
use ended::{Ended, EndedSteps};
use forebay_core::attr::Attr;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::steps::{Policy, RunOptions};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::message::{Grant, PutBlock, Role, ToClient, ToServer};
use joiners::Members;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// One rank of a simulation. Puts may come from many threads; begin and end from one.
#[derive(Debug)]
pub struct Producer {
    guard: ForkGuard,
    group: Group,
    /// Another one when it has died.
    home: Mutex<Arc<Storage>>,
    /// Other servers that hold blocks of this rank, as its placement says; connected at first use. `None` for those that
    /// are gone: the home holds blocks in their place.
    others: Mutex<BTreeMap<ServerId, Option<Arc<Storage>>>>,
    stream: String,
    run: RunNumber,
    rank: u32,
    /// What all ranks agree on.
    options: RunOptions,
    pub(crate) policy: Policy,
    on_loss: OnLoss,
    /// A user's function may hold what holds this handle: it is let go when the handle is closed.
    placement: Mutex<Placement>,
    /// Held by calls that wait in the name of the whole rank: they take turns.
    pub(crate) turn: Mutex<()>,
    /// Held by the call that finds another home within a step: the home for which none was found last, and why.
    moving: Mutex<Option<(Arc<Storage>, Error)>>,
    /// Never held while something is waited for, so that whoever only looks needs not wait either.
    pub(crate) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last step that was asked for was answered: without its answer the demand may be an old one, and the
    /// word that is shared with the server says nothing.
    answered: bool,
    /// Shared, since each put looks at one while the state is not locked.
    fields: BTreeMap<String, Arc<Field>>,
    pub(crate) species: Species,
    demand: Demand,
    pub(crate) open: Option<Open>,
    ended: EndedSteps,
    last: Option<StepNumber>,
    /// The last step that the home server was told of, if the next like it needs no memory.
    small: Option<StepNumber>,
    /// Why the servers were given up, if they were.
    pub(crate) lost: Option<Error>,
    skipped: u64,
    /// When it is next tried to go on with another server.
    come_back_at: Option<Instant>,
    /// How often it was tried.
    attempts: u32,
    /// The members of which this rank has chosen its home.
    members: Members,
    /// Attributes that were set, by field (of the stream itself where there is none) and name.
    pub(crate) attrs: BTreeMap<(Option<String>, String), Attr>,
    next_allocation: u64,
    closed: bool,
}

/// What a step was begun with.
#[derive(Debug, Default)]
struct Begun {
    grants: Vec<Grant>,
    /// Without asking the server, since nothing of this rank is wanted.
    passing: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Open {
    step: StepNumber,
    time: f64,
    /// The members among which its blocks are placed.
    members: Option<Arc<Known>>,
    /// It was begun without asking the server, since nothing of this rank is wanted.
    passing: bool,
    /// Something was put that memory had to be found for.
    needs_memory: bool,
    grants: Vec<Grant>,
    /// What the home was told of.
    pub(crate) written: Vec<Written>,
    /// Field and number of each block, so that a mistake is told at once.
    pub(crate) keys: HashSet<(String, u64)>,
    pub(crate) blocks: u64,
    pub(crate) dropped: bool,
    allocations: HashMap<u64, Allocated>,
    /// Other servers than the home that blocks of this step went to.
    elsewhere: BTreeMap<ServerId, Arc<Storage>>,
    /// The count of each species and number, and the field that said so first.
    pub(crate) counts: HashMap<(String, u64), (u64, String)>,
    /// Puts that the server has not answered yet.
    pub(crate) pending: Pending,
    /// The home is being told of its end.
    is_ending: bool,
    /// A new home has said that the one before told others of its end.
    has_ended: bool,
}

/// Memory that was given and not yet committed.
#[derive(Debug)]
struct Allocated {
    storage: Arc<Storage>,
    /// `None` for a block without elements.
    grant: Option<Grant>,
    dtype: Dtype,
    stats: bool,
    put: PutBlock,
}

impl Producer {
    /// Joins a stream as one rank. Waits for a few answers of the home server.
    pub fn open(options: &ProducerOptions) -> Result<Producer> {
        let group = Group::find(&options.group)?;
        let run_options = RunOptions {
            size: options.size,
            policy: options.policy,
            keep: options.keep,
            queue_bytes: options.queue_bytes,
            continues: options.continues,
            replicas: options.replicas,
            durability: options.durability,
        };
        run_options.check(options.rank)?;
        let produce = ToServer::Produce {
            stream: options.stream.clone(),
            rank: options.rank,
            options: run_options.clone(),
            back_to: None,
        };
        let mut leaving = Vec::new();
        let deadline = Instant::now() + group.limit();
        let (server, rpc, answer) = group.outlive(deadline, || {
            loop {
                let server = group.home_of_but(options.rank, &leaving)?;
                let rpc = Arc::new(group.connect(server, Role::Producer)?);
                let answer = rpc.call(&produce, "to join the stream")?;
                match answer.message {
                    ToClient::Leaves => leaving.push(server),
                    _ => return Ok((server, rpc, answer)),
                }
            }
        })?;
        let ToClient::Producing { run, arena, .. } = answer.message else {
            return Err(unexpected(&answer.message));
        };
        let members = Members::new(&group.known());
        Ok(Producer {
            guard: ForkGuard::new(),
            home: Mutex::new(Arc::new(Storage::new(server, rpc, arena, &answer)?)),
            others: Mutex::default(),
            group,
            stream: options.stream.clone(),
            run,
            rank: options.rank,
            options: run_options,
            policy: options.policy,
            on_loss: options.on_loss,
            placement: Mutex::new(options.placement.clone()),
            turn: Mutex::default(),
            moving: Mutex::default(),
            state: Mutex::new(State { members, ..State::default() }),
        })
    }

    /// The home server.
    pub(crate) fn home(&self) -> Arc<Storage> {
        lock(&self.home).clone()
    }

    /// The group.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// This rank.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// What it does when its servers are gone.
    pub(crate) fn on_loss(&self) -> OnLoss {
        self.on_loss
    }

    /// Which servers hold its blocks from now on.
    pub(crate) fn place_by(&self, placement: Placement) {
        *lock(&self.placement) = placement;
    }

    /// The step that is open.
    pub(crate) fn open_step(&self) -> Result<Option<StepNumber>> {
        Ok(self.state()?.open.as_ref().map(|open| open.step))
    }

    /// The run that was joined.
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// How many steps were begun so far while staging was given up: nobody will read them. Does not wait.
    pub fn skipped(&self) -> u64 {
        if self.guard.is_child() { 0 } else { lock(&self.state).skipped }
    }

    /// Why staging was given up, and how many steps were skipped so far; `None` while all is well.
    pub fn lost(&self) -> Option<(Error, u64)> {
        if let Err(forked) = self.guard.check("producer") {
            return Some((forked, 0));
        }
        let state = lock(&self.state);
        state.lost.clone().map(|error| (error, state.skipped))
    }

    /// Which transport is used.
    pub fn transport(&self) -> forebay_transport::Kind {
        self.home().rpc.kind()
    }

    /// Servers that are gone are survived, if that is what was asked for.
    pub(crate) fn survive(&self, state: &mut State, error: Error) -> Result<()> {
        if error.kind == ErrorKind::Unreachable && self.on_loss == OnLoss::Skip {
            tracing::warn!("stream '{}': staging ends: {error}", self.stream);
            state.lost.get_or_insert(error);
            return Ok(());
        }
        Err(error)
    }

    /// The turn of a call that waits. A forked child is told before it could wait for it.
    pub(crate) fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        self.guard.check("producer")?;
        Ok(lock(&self.turn))
    }

    /// The state, if the handle can be used. A forked child is told before it could wait for a lock that was
    /// held in its parent when it was forked.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.guard.check("producer")?;
        let state = lock(&self.state);
        if state.closed {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("the producer of stream '{}' was closed", self.stream),
            ));
        }
        Ok(state)
    }

    /// Adds a field to the output contract, or changes its global shape from the next step on. Waits for an
    /// answer.
    pub fn array(&self, field: Field) -> Result<()> {
        let _turn = self.turn()?;
        let state = self.state()?;
        field.check()?;
        if state.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        drop(state);
        self.ask_home(|home| home.call(&ToServer::Define(field.clone()), "to take a field"))?;
        lock(&self.state).fields.insert(field.name.clone(), Arc::new(field));
        Ok(())
    }

    /// Whether a step can begin without asking: the server has not said that it must be asked, and would have
    /// nothing to give or to tell. Costs a look at the connection, so that a server's death is noticed.
    fn may_begin_alone(&self, state: &State, wanted: bool, step: StepNumber) -> bool {
        let home = self.home();
        let Some(arena) = &home.arena else { return false };
        let nothing_to_ask = !wanted || state.small.is_some_and(|last| arena.is_taken(last));
        state.answered && nothing_to_ask && home.rpc.is_quiet() && arena.try_begin(step)
    }

    /// Begins a step at the home server. `None` if staging is given up.
    fn ask_to_begin<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        step: StepNumber,
        time: f64,
    ) -> Result<(MutexGuard<'a, State>, Option<Begun>)> {
        if state.lost.is_some() {
            return Ok((state, None));
        }
        let home = self.home();
        let wanted = state.fields.values().any(|field| state.demand.wants(field, step));
        if self.may_begin_alone(&state, wanted, step) {
            if wanted {
                let began = ToServer::Began { step, time };
                // At once where steps were left out: others may wait for this rank there.
                let next = state.last.and_then(|last| last.checked_add(1)) == Some(step);
                let told = if next { home.rpc.queue(&began) } else { home.rpc.tell(&began) };
                told.or_else(|error| self.give_up(&mut state, error))?;
            }
            let begun = state.lost.is_none().then_some(Begun { grants: Vec::new(), passing: !wanted });
            return Ok((state, begun));
        }
        state.answered = false;
        let patience = home.rpc.patience();
        let patience_ms = patience.as_millis() as u64;
        let begin = ToServer::Begin { step, time, known: state.demand.version, patience_ms };
        drop(state);
        // The server gives up first, and says what it was waiting for.
        let answer = home.rpc.call_within(&begin, None, patience + GRACE, "to begin a step");
        let mut state = lock(&self.state);
        match answer.map(|answer| answer.message) {
            Ok(ToClient::Begun { demand, grants, trouble }) => {
                state.answered = true;
                if let Some(demand) = demand {
                    state.demand = demand;
                }
                if let Some(error) = trouble {
                    drop(state);
                    // The step is begun at the server: end it there, so that the next one can begin.
                    home.rpc.tell(&ToServer::End { step, blocks: 0, dropped: true })?;
                    lock(&self.state).last = Some(step);
                    return Err(error);
                }
                Ok((state, Some(Begun { grants, passing: false })))
            }
            Ok(ToClient::Leaves) => {
                self.let_go(&mut state);
                Ok((state, None))
            }
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.kind == ErrorKind::Unreachable && home.rpc.was_let_go() => {
                self.let_go(&mut state);
                Ok((state, None))
            }
            Err(error) => {
                self.give_up(&mut state, error)?;
                Ok((state, None))
            }
        }
    }

    /// Begins a step. Waits for one answer of the home server, unless memory is shared and nothing of this
    /// rank is wanted, or it put only blocks of up to 1024 bytes in the step before and the server has taken them. Where a
    /// server has joined that is to be this rank's home from now on, waits for a few answers of that.
    pub fn begin(&self, step: StepNumber, time: f64) -> Result<()> {
        let _turn = self.turn()?;
        let state = self.state()?;
        if let Some(open) = &state.open {
            return Err(Error::step_order(format!(
                "step {} is begun, end it before step {step}; one that an exception left cannot be ended: close the \
                 producer, which tells readers that it is torn, and open the stream again",
                open.step
            )));
        }
        if let Some(last) = state.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!(
                "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
                 (with `continues`)"
            )));
        }
        let state = self.come_back(state);
        let state = self.look_for_joiners(state);
        let (mut state, mut begun) = self.ask_to_begin(state, step, time)?;
        // Where the server was found dead just now, another one may take this rank at once.
        let mut deaths = 0;
        while begun.is_none() && deaths < DEATHS_MAX {
            deaths += 1;
            state = self.go_on(state)?;
            if state.lost.is_some() {
                break;
            }
            (state, begun) = self.ask_to_begin(state, step, time)?;
        }
        if let Some(error) = state.lost.take_if(|_| self.on_loss == OnLoss::Fail) {
            return Err(error);
        }
        let Begun { grants, passing } = begun.unwrap_or_default();
        if state.lost.is_some() {
            state.skipped += 1;
        }
        state.last = Some(step);
        let members = Some(self.group.known());
        state.open = Some(Open { step, time, members, passing, grants, ..Open::default() });
        Ok(())
    }

    /// Whether something wants this field at the current step. Never waits.
    pub fn demanded(&self, field: &str) -> Result<bool> {
        let state = self.state()?;
        let step = state.open.as_ref().ok_or_else(|| no_step("asking for demand"))?.step;
        Ok(state.lost.is_none() && state.demand.wants(self.find(&state, field)?, step))
    }

    pub(crate) fn find<'a>(&self, state: &'a State, name: &str) -> Result<&'a Arc<Field>> {
        state.fields.get(name).ok_or_else(|| {
            let known: Vec<_> = state.fields.keys().map(String::as_str).collect();
            Error::not_found(format!(
                "stream '{}' has no field '{name}'; this rank offers {}: declare it with array()",
                self.stream,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// Ends the step of this rank. Memory that was allocated and not committed is given back. Waits for the answers to
    /// what was put with [`Producer::put_async`], and until other servers hold copies if there are to be some; if one says what failed, that is returned, and
    /// the step is ended all the same and counted as dropped.
    pub fn end(&self) -> Result<()> {
        let turn = self.turn()?;
        let (mut state, waited) = self.wait_for_all(&turn, self.state()?);
        let Some(mut open) = state.open.take() else { return Err(no_step("an end")) };
        let (lost, wanted, demand) = (state.lost.is_some(), !state.demand.is_empty(), state.demand.version);
        if !open.passing {
            let small = !open.needs_memory && open.elsewhere.is_empty();
            state.small = small.then_some(open.step);
        } else if wanted {
            state.small = state.small.map(|_| open.step);
        }
        drop(state);
        open.pending.forget(&self.home().rpc);
        if lost {
            return waited.map(drop);
        }
        open.dropped |= waited.is_err();
        let (passing, ended) =
            (open.passing, Ended { step: open.step, time: open.time, demand, ..Ended::default() });
        let (told, ended) = if !passing {
            // The home is told first: from then on it answers for the blocks that other servers hold.
            let (open, told) = self.tell_home_of_end(open);
            let end = open.end();
            let told = open
                .elsewhere
                .values()
                .fold(told, |told, storage| told.and(self.tell_end_elsewhere(storage, &end)));
            let Open { blocks, dropped, written, .. } = open;
            (told, Some(Ended { blocks, dropped, written, ..ended }))
        } else if wanted {
            (self.home().rpc.tell(&ToServer::Passed { step: ended.step, time: ended.time }), Some(ended))
        } else {
            // Where nothing of the stream is wanted, nobody needs to know of the step.
            (Ok(()), None)
        };
        if let Some(ended) = ended {
            self.note_ended(ended);
        }
        told.or_else(|error| self.survive(&mut lock(&self.state), error)).and(waited).map(drop)
    }

    /// As `tell_end`, for the home, or for another one where the step goes on when that has died.
    fn tell_home_of_end(&self, mut open: Open) -> (Open, Result<()>) {
        open.is_ending = true;
        while !open.has_ended {
            let home = self.home();
            let told = self.tell_end(&home, &open.end());
            let Err(error) = told else { return (open, told) };
            lock(&self.state).open = Some(open);
            let goes_on = self.go_on_elsewhere(&home, error);
            match lock(&self.state).open.take() {
                Some(taken) => open = taken,
                None => return (Open::default(), Err(no_step("an end"))),
            }
            if let Err(error) = goes_on {
                return (open, Err(error));
            }
        }
        (open, Ok(()))
    }

    /// As `tell_end`, for a server that is not the home. What one held that has died is lost, and said so to those who
    /// read it.
    fn tell_end_elsewhere(&self, storage: &Arc<Storage>, end: &ToServer) -> Result<()> {
        match self.tell_end(storage, end) {
            Err(error) if self.is_gone(storage, &self.home(), &error) => {
                let needs_copies = self.options.copies() > 0 && !storage.rpc.was_let_go();
                if needs_copies && self.on_loss == OnLoss::Fail {
                    return Err(error);
                }
                tracing::warn!("stream '{}': {error}", self.stream);
                Ok(())
            }
            told => told,
        }
    }

    /// Tells a server that the step has ended; waits until there are copies of it, if there are to be some.
    fn tell_end(&self, storage: &Storage, end: &ToServer) -> Result<()> {
        match self.options.copies() {
            0 => storage.rpc.tell(end),
            _ => {
                storage.rpc.call_within(end, None, storage.rpc.patience() + GRACE, "to hold copies").map(drop)
            }
        }
    }

    /// Waits until the home server holds all that was put, or says what failed.
    pub fn flush(&self) -> Result<()> {
        let turn = self.turn()?;
        let (state, waited) = self.wait_for_all(&turn, self.state()?);
        waited?;
        if state.lost.is_some() {
            return Ok(());
        }
        drop(state);
        self.ask_any_home(&turn, |home| home.call(&ToServer::Flush, "to hold what was put")).map(drop)
    }

    /// Ends the stream for this rank; an open step is left torn. Later calls fail. Closing twice is harmless.
    pub fn close(&self) -> Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        let _turn = lock(&self.turn);
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        state.closed = true;
        let lost = state.lost.is_some();
        drop(state);
        lock(&self.others).clear();
        *lock(&self.placement) = Placement::Nearest;
        let left = if lost { Ok(()) } else { self.leave_home() };
        // Where its home is gone, another one tells the others that this rank has left.
        let mut state = lock(&self.state);
        if state.lost.is_some() {
            state.open = None;
            let state = self.come_back(state);
            if state.lost.is_none() {
                drop(state);
                return self.leave_home();
            }
            if let Some(error) = state.lost.clone().filter(|_| !lost && self.on_loss == OnLoss::Fail) {
                return Err(error);
            }
        }
        left
    }

    /// Tells the home that this rank leaves.
    fn leave_home(&self) -> Result<()> {
        let home = self.home();
        let flushed = home.rpc.call(&ToServer::Flush, "to hold what was put");
        let left = home.rpc.call(&ToServer::Leave, "to let this rank go");
        let left = flushed.and(left);
        let let_go = left.is_err() && home.rpc.was_let_go();
        home.rpc.hang_up();
        let mut state = lock(&self.state);
        match left {
            Ok(_) => Ok(()),
            Err(_) if let_go => {
                self.let_go(&mut state);
                Ok(())
            }
            Err(error) => self.give_up(&mut state, error),
        }
    }
}

impl Open {
    /// What its servers are told at its end.
    fn end(&self) -> ToServer {
        ToServer::End { step: self.step, blocks: self.blocks, dropped: self.dropped }
    }
}

impl State {
    /// A block was not put after all: its number may be used again.
    pub(crate) fn forget(&mut self, field: &str, number: u64) {
        if let Some(open) = self.open.as_mut() {
            open.keys.remove(&(field.to_owned(), number));
            open.written.retain(|written| written.put.number != number || written.put.field != field);
            self.species.forget(open, field, number);
        }
    }
}

pub(crate) fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}
