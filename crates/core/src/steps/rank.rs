//! Where a rank of a run is, and how far.

use crate::Result;
use crate::demand::Demand;
use crate::identity::Identity;
use crate::ids::{RunNumber, ServerId, StepNumber};
use crate::seeded::{Bug, seeded};
use crate::steps::options::RunOptions;
use crate::steps::run_end::RankCounts;
use serde::{Deserialize, Serialize};

/// A rank that joins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Joining {
    /// Its number.
    pub rank: u32,
    /// Which process it is.
    pub who: Identity,
    /// What all ranks agree on.
    pub options: RunOptions,
}

impl Joining {
    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        self.options.check(self.rank)?;
        self.who.check()
    }
}

/// How a rank comes back to its run through another server, since its home has died or lets it go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejoin {
    /// The run.
    pub run: RunNumber,
    /// The demand that it knows.
    pub demand: Demand,
    /// Which attempt of this rank it is. A server that stood still may ask with one that the rank has given up.
    pub attempt: u32,
}

/// What the coordinator knows of a rank that has joined.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rank {
    /// Which process it is.
    pub(super) who: Identity,
    /// Its home server, or the one that was.
    pub(super) server: ServerId,
    pub(super) state: RankState,
    /// The rank has finished all steps below this one, whether it ended them or left them out.
    pub(super) below: StepNumber,
    /// The same, as far as others have told in the place of its home, while the rank is away. Several do, each of some
    /// steps: what is missing between them may only not have been told yet.
    pub(super) told_below: StepNumber,
    /// All that the rank ended below this step had as many copies as it was to have, or is needed no more.
    pub(super) safe_below: StepNumber,
    /// Whether the rank has begun a step, and so knows that it has joined.
    pub(super) has_begun: bool,
    /// Servers other than its home that hold blocks of a step which the home may not have told of.
    pub(super) stranded: Vec<(StepNumber, ServerId)>,
    /// The attempt with which the rank came back last; 0 if it has not.
    pub(super) attempt: u32,
    /// What it counted, as it told when it closed.
    pub(super) counts: RankCounts,
}

/// Where a rank is.
///
/// ```text
///              join                rank_gone(Closed)
///   (awaited) ──────► Open ──────────────────────────────► Closed
///        ▲  never_came │ ▲                                   ▲
///        └─────────────┤ │ come_back                         │ settle, if the run had finished
///                      │ │                                   │ before its coordinator died
///   server_gone,       ▼ │                                   │
///   or its home is dead: Lost ───────────────────────────────┤
///   rank_moves: ───────► Moved ──────────────────────────────┘
///                          │ given up, or rank_gone(Died)
///                          └──────────────────────────────► Dead
/// ```
///
/// A rank that is awaited is not in [`Run::ranks`](super::run::Run::ranks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankState {
    /// At its home.
    Open,
    /// Its home server has died: the rank may come back through another one, and what it did is told by those that hold
    /// copies.
    Lost,
    /// Its home has let it go after it had told all of the rank: the rank may come back through another one.
    Moved,
    /// The rank has closed its handle.
    Closed,
    /// The rank has died, or was given up.
    Dead,
}

impl Rank {
    pub(super) fn new(who: Identity, server: ServerId, state: RankState, below: StepNumber) -> Rank {
        Rank {
            who,
            server,
            state,
            below,
            told_below: 0,
            safe_below: 0,
            has_begun: false,
            stranded: Vec::new(),
            attempt: 0,
            counts: RankCounts::default(),
        }
    }

    /// All that the rank ended below this step has its copies, or is needed no more.
    pub(super) fn note_safe_below(&mut self, step: StepNumber) {
        self.safe_below = self.safe_below.max(step);
    }

    /// Whether the rank may not know that it has joined, since its home has died: it joins once more. It has begun no step.
    pub(super) fn may_not_know(&self) -> bool {
        let has_ended_none = self.below.max(self.told_below) == 0;
        self.state.is_away() && has_ended_none && !self.has_begun && !seeded(Bug::BeginsAnotherRun)
    }
}

impl RankState {
    /// Whether the rank has gone for good.
    pub(super) fn is_gone(self) -> bool {
        matches!(self, RankState::Closed | RankState::Dead)
    }

    /// Whether the rank has no home now, and may find another one.
    pub(super) fn is_away(self) -> bool {
        matches!(self, RankState::Lost | RankState::Moved)
    }
}
