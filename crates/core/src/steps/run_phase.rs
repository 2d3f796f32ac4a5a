//! The phases of a run: who may still join, who knows that it is over, and how the coordinator came to know of it.

use crate::ids::{Epoch, StepNumber};

/// Whether ranks that have not come yet may still join a run.
///
/// ```text
///          a later run begins, the missing ranks are given up,
///          or the run turns out to have been over before its coordinator died
///   Open ────────────────────────────────────────────────────────────────────► Shut
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Open,
    /// Ranks that have not come belong to a later run.
    Shut,
}

/// Who knows that all ranks of a run have come and gone, beside the ranks that this coordinator knows.
///
/// ```text
///   Unknown             ──the missing ranks are given up────►  GivenUp
///   Unknown, GivenUp    ──a home tells that it was over─────►  Inherited
///   Unknown, GivenUp    ──it is over: tell every server─────►  Announced
///   Inherited           ──it is over: tell every server─────►  InheritedAndAnnounced
///   Announced           ──a home tells that it was over─────►  InheritedAndAnnounced
///   any                 ──a rank comes back─────────────────►  Unknown
/// ```
///
/// When a rank comes back, the run only seemed to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody has said so.
    Unknown,
    /// Ranks were given up of which only the coordinator before this one may have known.
    GivenUp,
    /// The coordinator before this one had told every server.
    Inherited,
    /// This coordinator has told every server.
    Announced,
    /// This coordinator has told every server, and so had the one before.
    InheritedAndAnnounced,
}

impl Ending {
    /// The coordinator before this one had told every server that the run is over.
    pub(super) fn note_inherited(&mut self) {
        *self = match *self {
            Ending::Unknown | Ending::GivenUp | Ending::Inherited => Ending::Inherited,
            Ending::Announced | Ending::InheritedAndAnnounced => Ending::InheritedAndAnnounced,
        };
    }

    /// Ranks were given up of which only the coordinator before this one may have known.
    pub(super) fn note_given_up(&mut self) {
        if *self == Ending::Unknown {
            *self = Ending::GivenUp;
        }
    }

    /// This coordinator tells every server that the run is over. Returns whether it has not done so before.
    pub(super) fn announce(&mut self) -> bool {
        let (next, first) = match *self {
            Ending::Unknown | Ending::GivenUp => (Ending::Announced, true),
            Ending::Inherited => (Ending::InheritedAndAnnounced, true),
            Ending::Announced | Ending::InheritedAndAnnounced => (*self, false),
        };
        *self = next;
        first
    }

    /// Whether the coordinator before this one had told every server.
    pub(super) fn was_inherited(self) -> bool {
        matches!(self, Ending::Inherited | Ending::InheritedAndAnnounced)
    }
}

/// How this coordinator came to know of a run.
///
/// ```text
///   join:                            Joined
///   a home or a returning rank       Inherited { stage: Learning }  ───settle───►  Inherited { stage: Settled }
///   tells of it:
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Its ranks joined here.
    Joined,
    /// The homes of its ranks have told of it, after another coordinator had died.
    Inherited {
        /// In which term they did first: steps are counted from then on.
        since: Epoch,
        cuts: CutsKnown,
        stage: Stage,
    },
}

/// Whether somebody has told from which step on each demand of an inherited run holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutsKnown {
    No,
    Yes,
}

/// How far the coordinator is with what it learns of an inherited run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Homes tell of it in this term, the latest: its steps may have had readers that have not come back yet.
    Learning(Epoch),
    /// All homes have told, and its readers have got stand-ins.
    Settled,
}

/// For how long ranks that are away, or missing, were looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    pub(super) looks: u32,
    /// How far other ranks were at the first look.
    pub(super) since: StepNumber,
}
