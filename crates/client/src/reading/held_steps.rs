//! The steps that a reader holds, and the server that is told when it has finished with them.

use crate::connection::rpc::{Rpc, lock};
use crate::reading::server_pool::ServerPool;
use forebay_core::ids::{RunNumber, STATIC_STEP, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, Sharer, StepReport};
use forebay_transport::fork::ForkGuard;
use forebay_wire::client::consumer::Request;
use forebay_wire::client::worker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a consumer shares with its steps and arrays, which may outlive it.
#[derive(Debug)]
pub(crate) struct HeldSteps {
    pub(crate) guard: ForkGuard,
    pub(crate) pool: Arc<ServerPool>,
    source: Mutex<CurrentSource>,
    /// The steps of which a handle or an array lives, and the runs whose static fields are held.
    held: Mutex<BTreeMap<(RunNumber, StepNumber), Counts>>,
    given_back: Mutex<GivenBack>,
}

/// The server that tells of steps: another one when the one that coordinated the stream has died.
#[derive(Debug)]
struct CurrentSource {
    source: StepSource,
    /// It is gone: of what it has told, and nobody has taken, the next one tells.
    is_lost: bool,
}

/// The steps that a reader has given back.
#[derive(Debug, Default)]
struct GivenBack {
    /// Those of which it was told last.
    steps: BTreeSet<(RunNumber, StepNumber)>,
    /// The first one after the last with which it has finished.
    first: Option<(RunNumber, StepNumber)>,
}

impl GivenBack {
    fn note(&mut self, step: (RunNumber, StepNumber)) {
        self.first = self.first.into_iter().chain([step]).min();
        self.steps.insert(step);
        if self.steps.len() > GIVEN_BACK_MAX {
            self.steps.pop_first();
        }
    }

    fn note_finished(&mut self, step: (RunNumber, StepNumber)) {
        if step.1 != STATIC_STEP {
            self.first = self.first.filter(|first| *first >= step);
        }
    }
}

/// How many steps are known that were given back: as many as one that comes back says that it was told of.
const GIVEN_BACK_MAX: usize = Sharer::TOLD_MAX;

/// How often this reader holds a step: more than once, if it was told of it again.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// How many of them the reader has not finished with.
    unfinished: u32,
    /// Of how many only arrays live.
    pinned: u32,
}

impl Counts {
    fn of(&mut self, pinned: bool) -> &mut u32 {
        if pinned { &mut self.pinned } else { &mut self.unfinished }
    }

    fn is_pinned(self) -> bool {
        self.unfinished == 0
    }
}

/// The server that told this reader of steps, and is told when the reader has finished with them.
#[derive(Debug, Clone)]
pub(crate) struct StepSource {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) server: ServerId,
    pub(crate) held_as: HoldOwner,
}

/// In whose name a step is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldOwner {
    /// Of a consumer.
    Attachment(AttachmentId),
    /// Of a worker's execution.
    Execution(u64),
}

impl StepSource {
    pub(crate) fn attachment(&self) -> Option<AttachmentId> {
        match self.held_as {
            HoldOwner::Attachment(id) => Some(id),
            HoldOwner::Execution(_) => None,
        }
    }

    /// Tells the server that the reader has finished with a step, or gives it back, or that only arrays of it live on (`pinned`).
    /// A server that is gone needs not be told.
    pub(crate) fn release(&self, (run, step): (RunNumber, StepNumber), pinned: bool, gives_back: bool) {
        let _ = match self.held_as {
            HoldOwner::Attachment(attachment) => {
                self.rpc.tell(&Request::Release { attachment, run, step, pinned, gives_back })
            }
            // A worker says by itself that it is done; its views may outlive that.
            HoldOwner::Execution(_) if pinned => return,
            HoldOwner::Execution(execution) => self.rpc.tell(&worker::Request::Released { execution }),
        };
    }
}

impl HeldSteps {
    pub(crate) fn new(pool: Arc<ServerPool>, source: StepSource) -> HeldSteps {
        HeldSteps {
            guard: ForkGuard::new(),
            pool,
            source: Mutex::new(CurrentSource { source, is_lost: false }),
            held: Mutex::default(),
            given_back: Mutex::default(),
        }
    }

    pub(crate) fn source(&self) -> StepSource {
        lock(&self.source).source.clone()
    }

    /// The server that told this reader is gone: nothing more is taken that it has told.
    pub(crate) fn note_lost(&self, gone: &StepSource) {
        let mut current = lock(&self.source);
        current.is_lost |= Arc::ptr_eq(&current.source.rpc, &gone.rpc);
    }

    /// Takes a step that a server has told: from now on it is held. `None` if that server is gone.
    pub(crate) fn take_told(self: &Arc<Self>, by: &StepSource, report: &StepReport) -> Option<Arc<Hold>> {
        let current = lock(&self.source);
        let takes = !current.is_lost && Arc::ptr_eq(&current.source.rpc, &by.rpc);
        takes.then(|| Arc::new(Hold::of_step(self.clone(), report)))
    }

    /// The message with which a consumer detaches, or says that it has failed.
    pub(crate) fn detach(&self, source: &StepSource, failed: bool) -> Option<Request> {
        let held = lock(&self.held).keys().copied().collect();
        Some(Request::Detach { attachment: source.attachment()?, held, failed })
    }

    pub(crate) fn held_steps(&self) -> Vec<HeldStep> {
        let held = lock(&self.held);
        held.iter().map(|(&(run, step), counts)| HeldStep { run, step, pinned: counts.is_pinned() }).collect()
    }

    /// The numbers of the steps that the reader has not finished with.
    pub(crate) fn unreleased(&self) -> Vec<StepNumber> {
        lock(&self.held)
            .iter()
            .filter(|(_, counts)| !counts.is_pinned())
            .map(|((_, step), _)| *step)
            .collect()
    }

    /// A step is held once more.
    fn hold(&self, step: (RunNumber, StepNumber), pinned: bool) {
        lock(&self.given_back).steps.remove(&step);
        *lock(&self.held).entry(step).or_default().of(pinned) += 1;
    }

    /// Whether the reader has given a step back that it was told of.
    pub(crate) fn is_given_back(&self, step: (RunNumber, StepNumber)) -> bool {
        lock(&self.given_back).steps.contains(&step)
    }

    /// The first step that the reader has given back after the last one with which it has finished.
    pub(crate) fn first_given_back(&self) -> Option<(RunNumber, StepNumber)> {
        lock(&self.given_back).first
    }

    /// One that held a step does no more; only arrays live on (`to_arrays`), or nothing. The server is told if that is so of all.
    fn let_go(&self, step: (RunNumber, StepNumber), was_pinned: bool, to_arrays: bool) {
        let tells = {
            let mut held = lock(&self.held);
            let Some(counts) = held.get_mut(&step) else { return };
            *counts.of(was_pinned) -= 1;
            counts.pinned += u32::from(to_arrays);
            match *counts {
                Counts { unfinished: 0, pinned: 0 } => {
                    held.remove(&step);
                    Some(false)
                }
                Counts { unfinished: 0, .. } if !was_pinned => Some(true),
                _ => None,
            }
        };
        let Some(pinned) = tells else { return };
        let gives_back = !was_pinned && self.is_given_back(step);
        if !was_pinned && !gives_back {
            lock(&self.given_back).note_finished(step);
        }
        self.source().release(step, pinned, gives_back);
    }

    /// From now on another server is told with what the reader has finished. It was told that `told` are held; what the reader has
    /// released since then only the server before was told.
    pub(crate) fn switch_to(&self, source: StepSource, told: &[HeldStep]) {
        *lock(&self.source) = CurrentSource { source: source.clone(), is_lost: false };
        for HeldStep { run, step, pinned } in told {
            let now = lock(&self.held).get(&(*run, *step)).copied().map(Counts::is_pinned);
            if now != Some(*pinned) {
                let gives_back = !pinned && self.is_given_back((*run, *step));
                source.release((*run, *step), now.is_some(), gives_back);
            }
        }
    }
}

/// Keeps a step's blocks: released when the last view is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    held: Arc<HeldSteps>,
    run: RunNumber,
    step: StepNumber,
    /// Bytes of the blocks that it keeps, as far as they are known.
    pub(super) bytes: AtomicU64,
    /// Whether only arrays live.
    is_pinned: AtomicBool,
    /// What is counted as pinned, once the step was released while views of it live.
    pinned: AtomicU64,
}

impl Hold {
    /// Holds a step as it was told.
    pub(crate) fn of_step(held: Arc<HeldSteps>, report: &StepReport) -> Hold {
        let blocks = report.fields.iter().flat_map(|field| &field.blocks);
        let bytes = blocks.map(|block| block.location.bytes).sum();
        Hold::new(held, report.id.run, report.id.step, bytes)
    }

    /// What it belongs to.
    pub(super) fn held(&self) -> &Arc<HeldSteps> {
        &self.held
    }

    /// Holds a step whose blocks have so many bytes, as far as they are known. With static fields nobody has to finish.
    pub(super) fn new(held: Arc<HeldSteps>, run: RunNumber, step: StepNumber, bytes: u64) -> Hold {
        let is_pinned = step == STATIC_STEP;
        held.hold((run, step), is_pinned);
        Hold {
            held,
            run,
            step,
            bytes: AtomicU64::new(bytes),
            is_pinned: AtomicBool::new(is_pinned),
            pinned: AtomicU64::new(0),
        }
    }

    /// The reader could not do with the step what it wanted: once it is released, another one may be given it.
    pub(super) fn give_back(&self) {
        lock(&self.held.given_back).note((self.run, self.step));
    }

    /// The step is released, but views of it live.
    pub(super) fn pin(&self) {
        if self.is_pinned.swap(true, Ordering::Relaxed) {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.pinned.store(bytes, Ordering::Relaxed);
        self.held.pool.pins.pin(bytes);
        self.held.let_go((self.run, self.step), false, true);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.held.guard.is_child() {
            return;
        }
        self.held.pool.pins.unpin(self.pinned.load(Ordering::Relaxed));
        self.held.let_go((self.run, self.step), self.is_pinned.load(Ordering::Relaxed), false);
    }
}
