//! What proposers ask voters and voters answer, and how many voters are enough.

use crate::ids::ServerId;
use crate::seeded::{Bug, seeded};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Orders the attempts of all proposers; no two attempts have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// Grows with each attempt.
    pub round: u64,
    /// Whose attempt it is.
    pub proposer: ServerId,
}

/// Who has a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Voter {
    /// A member of the view in force.
    Member(ServerId),
    /// The record beside the connection file.
    Witness,
}

/// What a proposer asks a voter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question<V> {
    /// Promise to take part in no attempt below this one, and tell what you accepted.
    Prepare(Ballot),
    /// Accept this value in this attempt.
    Accept(Ballot, V),
}

/// What a voter answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer<V> {
    /// Promised; and what it accepted last, if anything.
    Promised(Ballot, Option<(Ballot, V)>),
    /// Accepted in this attempt.
    Accepted(Ballot),
    /// It has promised this attempt, which is above the one that was asked about.
    Refused {
        /// What was asked about.
        asked: Ballot,
        /// What it promised.
        promised: Ballot,
    },
}

/// All that have a vote. They are always an odd number, so that a majority of them is the only quorum there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voters(BTreeSet<Voter>);

impl Voters {
    /// The members, and the witness if they are an even number.
    pub fn of(members: impl IntoIterator<Item = ServerId>) -> Voters {
        let mut voters: BTreeSet<Voter> = members.into_iter().map(Voter::Member).collect();
        if voters.len().is_multiple_of(2) {
            voters.insert(Voter::Witness);
        }
        Voters(voters)
    }

    /// Whether these are enough to choose.
    pub fn are_enough(&self, who: &BTreeSet<Voter>) -> bool {
        let voting = who.intersection(&self.0).count();
        voting > self.0.len() / 2 || (seeded(Bug::HalfIsEnough) && voting == self.0.len() / 2 && voting > 0)
    }

    /// Whether it has a vote.
    pub fn contains(&self, voter: Voter) -> bool {
        self.0.contains(&voter)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Voter> + '_ {
        self.0.iter().copied()
    }
}
