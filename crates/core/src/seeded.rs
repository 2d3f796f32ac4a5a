//! Bugs that tests seed on purpose, to show that the simulator would notice such ones. Outside tests there are none.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
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
    /// Ids of members that are gone are given again.
    GivesIdsAgain,
    /// The witness has forgotten everything when it is asked again.
    #[cfg(test)]
    WitnessForgets,
}

/// There are no bugs.
#[cfg(not(test))]
pub(crate) const fn seeded(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub(crate) use switch::{seed, seeded};

#[cfg(test)]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static SEEDED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is there now, on this thread.
    pub(crate) fn seeded(bug: Bug) -> bool {
        SEEDED.get() == Some(bug)
    }

    /// Seeds a bug, or none.
    pub(crate) fn seed(bug: Option<Bug>) {
        SEEDED.set(bug);
    }
}
