//! The coordinator of one stream.

mod cohorts;
mod cursors;
mod demand;
mod producers;
mod readers;
mod retention;
mod sanity;
mod sharing;
mod takeover;

use crate::attr::Attrs;
use crate::contract::{Field, Needs};
use crate::cut::CutCoordinator;
use crate::demand::Demand;
use crate::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber, Timestamp};
use crate::steps::attachment::{Attachment, AttachmentId};
use crate::steps::counts::StepCounts;
use crate::steps::gathering::Gathering;
use crate::steps::matching::{Matching, Offered, ReaderMatches};
use crate::steps::options::Policy;
use crate::steps::rank::RankState;
use crate::steps::reader_status::ReaderStatus;
use crate::steps::run::Run;
use crate::steps::run_end::RunSummary;
use crate::steps::takeover::Takeover;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use cohorts::Arrival;

/// The state of one stream at the server that coordinates it.
#[derive(Debug)]
pub struct StreamCoordinator {
    name: String,
    members: Vec<ServerId>,
    /// The runs that still have steps, the last one first to be joined.
    runs: BTreeMap<RunNumber, Run>,
    last_run: RunNumber,
    /// The number before that of its first run.
    first_after: RunNumber,
    attachments: BTreeMap<AttachmentId, Attachment>,
    /// Cohorts of which not all ranks have come, by their names.
    gatherings: BTreeMap<String, Gathering>,
    /// Cohorts that had gathered and could not attach, until each rank has heard why.
    refused_gatherings: Vec<Gathering>,
    /// Where readers of these names have stopped, of those that are about to attach.
    cursors: BTreeMap<String, (RunNumber, StepNumber)>,
    demand: Arc<Demand>,
    cut: CutCoordinator,
    survivors: Survivors,
    takeover: Takeover,
    /// The epoch in which it took the place of another one; 0 if there was none.
    term: Epoch,
    /// What the clock said last.
    now: Timestamp,
}

/// Whether the servers that hold copies for one that has died have told what they know.
///
/// ```text
///               a server dies that was the home of ranks of a run with copies
///   HaveTold ─────────────────────────────────────────────────────────────────► AreToTell
///       ▲                                                                           │
///       └──────────────────────────── all_have_told ────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Survivors {
    #[default]
    HaveTold,
    /// They may know of steps that its ranks have ended: until they have told, no change of the demand is decided.
    AreToTell,
}

/// What `status` shows of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// The latest run.
    pub run: RunNumber,
    /// How many ranks it has, and how many of them are open now.
    pub ranks: (u32, u32),
    /// How many steps of that run have been closed, dropped, and torn.
    pub steps: StepCounts,
    /// The epoch from which on they are counted, if another server coordinated the run before; else 0.
    pub counted_since: Epoch,
    /// The latest closed step that is still held.
    pub latest: Option<StepNumber>,
    /// The highest step that has been closed, as far as is known, whether it is held or not.
    pub last_closed: Option<StepNumber>,
    /// Closed steps of which something is held, of all runs.
    pub held_steps: u64,
    /// Bytes and blocks of the steps that are held.
    pub held: (u64, u64),
    /// The consumers and pipelines that are attached.
    pub readers: Vec<ReaderStatus>,
    /// What becomes of its steps when readers or memory cannot keep up.
    pub policy: Option<Policy>,
    /// Whether the latest run goes on, or how it ended.
    pub phase: StreamPhase,
    /// The highest step that a rank of the latest run is known to have begun.
    pub reached: Option<StepNumber>,
}

/// Whether a stream's latest run goes on, or how it ended.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamPhase {
    /// Readers wait; it has had no run yet that is known.
    Awaited,
    /// Its ranks are there, or on their way to another home, since then; those that are not, if some have died.
    Running(Timestamp, Option<String>),
    /// It is over.
    Over(RunSummary),
}

impl StreamCoordinator {
    /// A stream that nobody has opened yet.
    pub fn new(name: &str, members: Vec<ServerId>) -> StreamCoordinator {
        StreamCoordinator {
            name: name.to_owned(),
            members,
            runs: BTreeMap::new(),
            last_run: 0,
            first_after: 0,
            attachments: BTreeMap::new(),
            gatherings: BTreeMap::new(),
            refused_gatherings: Vec::new(),
            cursors: BTreeMap::new(),
            demand: Arc::new(Demand::default()),
            cut: CutCoordinator::default(),
            survivors: Survivors::default(),
            takeover: Takeover::default(),
            term: 0,
            now: Timestamp::default(),
        }
    }

    /// What the clock says: told before each event.
    pub fn note_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Its runs get higher numbers than this one, since a stream of its name may have been forgotten.
    #[must_use]
    pub fn with_runs_after(mut self, run: RunNumber) -> StreamCoordinator {
        (self.last_run, self.first_after) = (run, run);
        self
    }

    /// Its demands get higher versions than this one: another coordinator of the stream, which died, gave other ones.
    #[must_use]
    pub fn with_versions_after(mut self, version: u64) -> StreamCoordinator {
        self.demand = Arc::new(Demand::union(version, std::iter::empty::<&Needs>()));
        self
    }

    /// Whether some rank of a run is there, or on its way to another home.
    pub fn has_ranks(&self) -> bool {
        self.runs.values().any(Run::has_ranks)
    }

    /// Whether nothing but what is told of its past would be lost by forgetting it.
    pub fn is_idle(&self) -> bool {
        let done = |run: &Run| (run.is_over() || run.ranks.is_empty()) && run.all_held().next().is_none();
        self.attachments.is_empty()
            && self.gatherings.is_empty()
            && self.refused_gatherings.is_empty()
            && !self.is_taking_over()
            && !self.cut.is_agreeing()
            && self.runs.values().all(done)
    }

    /// The latest run, if there has been one.
    pub fn last_run(&self) -> Option<RunNumber> {
        (self.last_run > self.first_after).then_some(self.last_run)
    }

    /// The demand as it was last decided or proposed.
    pub fn demand(&self) -> &Arc<Demand> {
        &self.demand
    }

    /// What `status` shows.
    pub fn status(&self) -> StreamStatus {
        let run = self.runs.get(&self.last_run);
        let open = |run: &Run| run.ranks.values().filter(|rank| rank.state == RankState::Open).count() as u32;
        let steps = || self.runs.values().flat_map(Run::all_held).map(|(_, step)| step);
        let attached = self.attachments.values().filter(|attachment| !attachment.is_stand_in());
        StreamStatus {
            name: self.name.clone(),
            run: self.last_run().unwrap_or(0),
            ranks: run.map_or((0, 0), |run| (run.options.size, open(run))),
            steps: run.map(|run| run.counts).unwrap_or_default(),
            counted_since: run.map_or(0, Run::counted_since),
            latest: run.and_then(|run| {
                run.steps.iter().filter(|(_, step)| step.is_closed()).map(|(number, _)| *number).next_back()
            }),
            last_closed: run.and_then(|run| run.last_closed),
            held_steps: steps().filter(|step| step.is_closed() && step.bytes > 0).count() as u64,
            held: (steps().map(|step| step.bytes).sum(), steps().map(|step| step.block_count()).sum()),
            readers: attached.map(|a| ReaderStatus::of(a, self.unmatched_text(a))).collect(),
            policy: run.map(|run| run.options.policy),
            phase: match run {
                None => StreamPhase::Awaited,
                Some(run) => match run.summary(self.now) {
                    Some(summary) => StreamPhase::Over(summary),
                    None => StreamPhase::Running(run.began, run.without()),
                },
            },
            reached: run.and_then(Run::reached),
        }
    }

    /// What all that is attached needs of the latest run's offer.
    pub fn matching(&self) -> Matching {
        let run = self.runs.get(&self.last_run);
        let offered = || run.into_iter().flat_map(|run| run.offer.fields.values());
        let attached = || self.attachments.values().filter(|attachment| !attachment.is_stand_in());
        let readers = attached().map(|attachment| ReaderMatches {
            reader: ReaderStatus::of(attachment, self.unmatched_text(attachment)),
            matches: attachment.matched.matches(self.last_run, attachment.demanded(), offered()),
            missing: attachment.demanded().missing_from(offered()),
        });
        let fields = offered().map(|field| Offered {
            field: field.name.clone(),
            dtype: field.dtype,
            steps: (!field.is_static).then(|| field.outputs()),
            bytes: field.bytes(),
            readers: attached().filter(|attachment| attachment.demanded().of(&field.name).is_some()).count()
                as u64,
            staged: run.and_then(|run| run.staged_of(field)),
        });
        Matching {
            run: self.last_run(),
            last_closed: run.and_then(|run| run.last_closed),
            readers: readers.collect(),
            fields: fields.collect(),
        }
    }

    /// How many blocks it knows itself, and about how many bytes that takes.
    pub fn directory_size(&self) -> (u64, u64) {
        let steps = self.runs.values().flat_map(Run::all_held);
        steps
            .flat_map(|(_, step)| step.fields.values())
            .fold((0, 0), |sum, index| (sum.0 + index.blocks().len() as u64, sum.1 + index.bytes()))
    }

    /// The fields that the latest run offers.
    pub fn contract(&self) -> impl Iterator<Item = &Field> {
        self.runs.get(&self.last_run).into_iter().flat_map(|run| run.offer.fields.values())
    }

    /// The attributes of the latest run.
    pub fn attrs(&self) -> Option<&Attrs> {
        self.runs.get(&self.last_run).map(|run| &run.offer.attrs)
    }

    pub(super) fn step_id(&self, run: RunNumber, step: StepNumber) -> StepId {
        StepId { stream: self.name.clone(), run, step }
    }
}

#[cfg(test)]
mod tests;
