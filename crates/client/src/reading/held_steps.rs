//! The steps that a reader holds, and the server that is told when it has finished with them.

use crate::connection::rpc::{Rpc, lock};
use crate::fork::ForkGuard;
use crate::reading::server_pool::ServerPool;
use forebay_core::ids::{RunNumber, STATIC_STEP, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep};
use forebay_wire::client::consumer::Request;
use forebay_wire::client::worker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a consumer shares with its steps and arrays, which may outlive it.
#[derive(Debug)]
pub(crate) struct HeldSteps {
    pub(crate) guard: ForkGuard,
    pub(crate) pool: Arc<ServerPool>,
    /// Replaced when the server that coordinated the stream has died.
    source: Mutex<StepSource>,
    /// The steps of which a handle or an array lives, and the runs whose static fields are held; whether only arrays live.
    held: Mutex<BTreeMap<(RunNumber, StepNumber), bool>>,
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

    /// Tells the server that the reader has finished with a step, or that only arrays of it live on (`pinned`). A server that is
    /// gone needs not be told.
    pub(crate) fn release(&self, run: RunNumber, step: StepNumber, pinned: bool) {
        let _ = match self.held_as {
            HoldOwner::Attachment(attachment) => {
                self.rpc.tell(&Request::Release { attachment, run, step, pinned })
            }
            // A worker says by itself that it is done; its views may outlive that.
            HoldOwner::Execution(_) if pinned => return,
            HoldOwner::Execution(execution) => self.rpc.tell(&worker::Request::Released { execution }),
        };
    }
}

impl HeldSteps {
    pub(crate) fn new(pool: Arc<ServerPool>, source: StepSource) -> HeldSteps {
        HeldSteps { guard: ForkGuard::new(), pool, source: Mutex::new(source), held: Mutex::default() }
    }

    pub(crate) fn source(&self) -> StepSource {
        lock(&self.source).clone()
    }

    /// The message with which a consumer detaches.
    pub(crate) fn detach(&self, source: &StepSource) -> Option<Request> {
        let held = lock(&self.held).keys().copied().collect();
        Some(Request::Detach { attachment: source.attachment()?, held })
    }

    pub(crate) fn held_steps(&self) -> Vec<HeldStep> {
        let held = lock(&self.held);
        held.iter().map(|(&(run, step), &pinned)| HeldStep { run, step, pinned }).collect()
    }

    /// The numbers of the steps that the reader has not finished with.
    pub(crate) fn unreleased(&self) -> Vec<StepNumber> {
        lock(&self.held).iter().filter(|(_, pinned)| !**pinned).map(|((_, step), _)| *step).collect()
    }

    /// Only arrays of a step live on.
    pub(crate) fn pin(&self, run: RunNumber, step: StepNumber) {
        if let Some(pinned) = lock(&self.held).get_mut(&(run, step)) {
            *pinned = true;
        }
        self.source().release(run, step, true);
    }

    /// The reader has finished with a step.
    pub(crate) fn release(&self, run: RunNumber, step: StepNumber) {
        lock(&self.held).remove(&(run, step));
        self.source().release(run, step, false);
    }

    /// From now on another server is told with what the reader has finished. It was told that `told` are held; what the reader has
    /// released since then only the server before was told.
    pub(crate) fn switch_to(&self, source: StepSource, told: &[HeldStep]) {
        *lock(&self.source) = source.clone();
        for HeldStep { run, step, pinned } in told {
            let now = lock(&self.held).get(&(*run, *step)).copied();
            if now != Some(*pinned) {
                source.release(*run, *step, now.is_some());
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
    /// What is counted as pinned, once the step was released while views of it live.
    pinned: AtomicU64,
}

impl Hold {
    /// Holds a step whose blocks have so many bytes, as far as they are known. With static fields nobody has to finish.
    pub(super) fn new(held: Arc<HeldSteps>, run: RunNumber, step: StepNumber, bytes: u64) -> Hold {
        lock(&held.held).insert((run, step), step == STATIC_STEP);
        Hold { held, run, step, bytes: AtomicU64::new(bytes), pinned: AtomicU64::new(0) }
    }

    /// The step is released, but views of it live.
    pub(super) fn pin(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.pinned.store(bytes, Ordering::Relaxed);
        self.held.pool.pins.pin(bytes);
        self.held.pin(self.run, self.step);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.held.guard.is_child() {
            return;
        }
        self.held.pool.pins.unpin(self.pinned.load(Ordering::Relaxed));
        self.held.release(self.run, self.step);
    }
}
