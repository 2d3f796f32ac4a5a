//! Bugs that tests seed on purpose, to show that the simulators would notice such ones. Outside tests there are none: the
//! feature `seeded-bugs` is for the tests of other crates.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A voter accepts although it has promised a higher attempt.
    AcceptsBelowItsPromise,
    /// A voter's promise does not tell what it has accepted.
    ForgetsWhatItAccepted,
    /// A proposer insists on its own value.
    KeepsItsOwnValue,
    /// A proposer takes over from the lowest attempt, not the highest.
    TakesOverFromTheLowest,
    /// Half of the voters are taken for a quorum.
    HalfIsEnough,
    /// Every member leaves out the first phase.
    EverybodySkipsTheFirstPhase,
    /// A voter answers about other epochs than the next.
    AnswersAboutAnyEpoch,
    /// A voter takes for decided what it has accepted.
    TakesAcceptedForDecided,
    /// A roster comes into force without waiting for leases.
    DoesNotWaitForLeases,
    /// A roster comes into force although members may not know of the one before it.
    DoesNotWaitForTheFormer,
    /// A voter that has accepted a next roster grants leases in the old one for ever.
    StandsByForEver,
    /// A lease counts from when it was granted.
    LeaseCountsFromItsGrant,
    /// Who has voted a member out still grants it leases.
    GrantsToTheEvicted,
    /// Who is out does not know that its lease is worth nothing.
    AcknowledgesWithoutALease,
    /// Who wishes to leave acknowledges still, although nobody waits for its lease to end.
    AcknowledgesWhileItLeaves,
    /// A server leaves with the same roster that gives another one up.
    LeavesAmidEvictions,
    /// A member has so many others given up that they would have to vote for it themselves.
    GivesUpTooMany,
    /// Who has joined is taken for alive before anything is heard of it.
    CountsTheUnheard,
    /// Who is taken for gone by one member is taken for gone by all.
    BelievesEachSuspicion,
    /// Ids of members that are gone are given again.
    GivesIdsAgain,
    /// The witness has forgotten everything when it is asked again.
    WitnessForgets,
    /// A server that is out tells only the members of the first roster without it.
    TellsOnlyTheFirstWithoutIt,
    /// A change of the demand is decided before it is known what ranks have ended whose home has died.
    DecidesBeforeAllHaveTold,
    /// A server that took something over believes what it knew of the demand long ago.
    BelievesItsOldCuts,
    /// What is told of a run that goes on changes the demand in it.
    TakesCutsFromAnybody,
    /// Nobody but its coordinator knows how far a subscription has come.
    KeepsProgressToItself,
    /// A coordinator that takes over closes steps before all have told.
    ClosesBeforeAllHaveTold,
    /// A rank that may not know that it has joined begins another run when it joins again.
    BeginsAnotherRun,
    /// Backups tell only of ranks that have no home beside them.
    TellsOnlyOfRanksAway,
    /// Backups are not told again which ranks have gone, and nobody that all of a run have.
    TellsOnceWhoHasGone,
    /// A server that leaves gives away a part of a step for all of it.
    GivesAPartForAll,
    /// A server that takes a stream over yields to one that was given up before.
    YieldsToTheGivenUp,
    /// A next roster that some have accepted is given up when nobody wishes for it any more.
    LeavesRostersUnfinished,
    /// A stream of which a server is told after all have told goes on when the first has told of it.
    SettlesWhatComesLate,
    /// A server that wakes asks only those that it knew.
    AsksOnlyThoseItKnew,
    /// Nobody remembers which demands held when all ranks of a run with their home on a server have gone.
    ForgetsCutsOfThoseGone,
    /// A rank's leaving is answered before the coordinator knows of it.
    AnswersLeavesAtOnce,
    /// A server that coordinates a stream tells no other one that a rank whose home it is has closed.
    KeepsLeavesToItself,
    /// A backup says that it keeps what it does not.
    KeepsNothing,
    /// Copies that a dead backup had are not made again.
    MakesNoCopiesAgain,
    /// Backups are not told what is needed no more.
    FreesOnlyItsOwn,
    /// What ranks told a dead home is not told to coordinators by who kept it.
    TellsNothingForTheDead,
}

/// There are no bugs.
#[cfg(not(any(test, feature = "seeded-bugs")))]
pub const fn seeded(_: Bug) -> bool {
    false
}

#[cfg(any(test, feature = "seeded-bugs"))]
pub use switch::{seed, seeded};

#[cfg(any(test, feature = "seeded-bugs"))]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static SEEDED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is there now, on this thread.
    pub fn seeded(bug: Bug) -> bool {
        SEEDED.get() == Some(bug)
    }

    /// Seeds a bug on this thread, or none.
    pub fn seed(bug: Option<Bug>) {
        SEEDED.set(bug);
    }
}
