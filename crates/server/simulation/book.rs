//! What ranks and readers of a simulation have seen, and what of it must never be.

use forebay_core::block::Location;
use forebay_core::contract::Needs;
use forebay_core::demand::Demand;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::view::mix;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was seen; all who see something share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Book(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    failure: Option<String>,
    /// The contracts that were in force at each step of a run.
    demands: BTreeMap<(RunNumber, StepNumber), Vec<Needs>>,
    /// What ranks were told is kept, and where its blocks were put, until the reader has it that reads all.
    acknowledged: BTreeMap<(RunNumber, StepNumber, u32), Vec<Location>>,
    /// The blocks of each rank's open step of which it was told that other servers hold them, too.
    open: BTreeMap<u32, (RunNumber, StepNumber, Vec<Location>)>,
    /// The last step that it has.
    read: Option<(RunNumber, StepNumber)>,
    /// The steps that readers have read of those that they share, and the first that was for them, by their name.
    shared: BTreeMap<String, (Option<StepNumber>, BTreeSet<StepNumber>)>,
    /// Subscriptions that are to go on, whoever dies.
    subscriptions: BTreeSet<String>,
    ranks_ended: usize,
    readers_ended: usize,
    steps_read: u64,
    blocks_read: u64,
}

impl Book {
    /// Something must not have happened.
    pub(super) fn failed(&self, what: String) {
        self.0.lock().failure.get_or_insert(what);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }

    /// A rank has ended a step, and was told this demand when it began it last: all ranks are told the same.
    pub(super) fn on_ended(&self, run: RunNumber, step: StepNumber, demand: &Demand) -> Result<()> {
        let mut contracts = demand.contracts().to_vec();
        contracts.sort_by_key(|needs| format!("{needs:?}"));
        let mut seen = self.0.lock();
        let first = seen.demands.entry((run, step)).or_insert_with(|| contracts.clone());
        if *first == contracts {
            return Ok(());
        }
        let text =
            format!("step {step} of run {run} was put with the demand {first:?} and with {contracts:?}");
        Err(Error::conflict(text))
    }

    /// A rank was told that these blocks of a step that it has not ended yet are held by several servers.
    pub(super) fn placed(&self, run: RunNumber, step: StepNumber, rank: u32, blocks: Vec<Location>) {
        self.0.lock().open.insert(rank, (run, step, blocks));
    }

    /// The blocks of steps that ranks have not ended yet, as far as they know, which several servers hold until they are read.
    pub(super) fn open(&self) -> Vec<(RunNumber, StepNumber, Vec<Location>)> {
        let seen = self.0.lock();
        let unread = |(run, step, _): &&(RunNumber, StepNumber, _)| seen.read < Some((*run, *step));
        seen.open.values().filter(unread).cloned().collect()
    }

    /// A rank was told that its step is kept.
    pub(super) fn acknowledged(&self, run: RunNumber, step: StepNumber, rank: u32, blocks: Vec<Location>) {
        let mut seen = self.0.lock();
        if seen.read < Some((run, step)) {
            seen.acknowledged.insert((run, step, rank), blocks);
        }
    }

    /// The reader that reads all has a step.
    pub(super) fn is_read(&self, run: RunNumber, step: StepNumber, blocks: u64) {
        let mut seen = self.0.lock();
        seen.acknowledged.retain(|(of, number, _), _| (*of, *number) > (run, step));
        seen.read = Some((run, step));
        seen.steps_read += 1;
        seen.blocks_read += blocks;
    }

    /// The reader that reads all has read all: nothing need be kept for it.
    pub(super) fn all_is_read(&self) {
        self.0.lock().acknowledged.clear();
    }

    /// A reader of this name comes that shares steps with others; the first that comes has this one first.
    pub(super) fn shares(&self, name: &str, from: StepNumber) {
        self.0.lock().shared.entry(name.to_owned()).or_default().0.get_or_insert(from);
    }

    /// One of the readers that share steps has read one.
    pub(super) fn is_read_by_one(&self, name: &str, step: StepNumber) {
        self.0.lock().shared.entry(name.to_owned()).or_default().1.insert(step);
    }

    /// Readers that share steps are told that there are no more: of so many, each that was for them was read.
    pub(super) fn shared_all(&self, name: &str, steps: StepNumber) -> Result<()> {
        let seen = self.0.lock();
        let Some((from, read)) = seen.shared.get(name) else { return Ok(()) };
        match (from.unwrap_or(0)..steps).find(|step| !read.contains(step)) {
            None => Ok(()),
            Some(step) => Err(Error::internal(format!("no reader '{name}' has read step {step}: {read:?}"))),
        }
    }

    /// What was acknowledged, and nobody has read yet who reads all.
    pub(super) fn to_be_kept(&self) -> BTreeMap<(RunNumber, StepNumber, u32), Vec<Location>> {
        self.0.lock().acknowledged.clone()
    }

    /// A subscription is in force.
    pub(super) fn subscribed(&self, name: &str) {
        self.0.lock().subscriptions.insert(name.to_owned());
    }

    /// A subscription is needed no more.
    pub(super) fn unsubscribed(&self, name: &str) {
        self.0.lock().subscriptions.remove(name);
    }

    /// The subscriptions that are in force.
    pub(super) fn subscriptions(&self) -> BTreeSet<String> {
        self.0.lock().subscriptions.clone()
    }

    pub(super) fn rank_ended(&self) {
        self.0.lock().ranks_ended += 1;
    }

    pub(super) fn reader_ended(&self) {
        self.0.lock().readers_ended += 1;
    }

    /// How many ranks and readers have ended.
    pub(super) fn all_ended(&self) -> (usize, usize) {
        let seen = self.0.lock();
        (seen.ranks_ended, seen.readers_ended)
    }

    /// How many steps and blocks were read and compared.
    pub(super) fn read(&self) -> (u64, u64) {
        let seen = self.0.lock();
        (seen.steps_read, seen.blocks_read)
    }
}

/// What a block holds: never the same as another one.
pub(super) fn content(run: RunNumber, step: StepNumber, rank: u32, number: u64) -> Vec<u8> {
    let seed = mix(mix(mix((run * 31).wrapping_add(step)) + u64::from(rank)) + number);
    (0..64 + seed % 4000).map(|i| mix(seed + i) as u8).collect()
}
