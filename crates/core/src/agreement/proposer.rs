//! One attempt after the other to have a value chosen.

use super::vote::{Answer, Ballot, Question, Voter, Voters};
use crate::ids::ServerId;
use crate::seeded::{Bug, seeded};
use std::collections::BTreeSet;

/// A member that tries to have a value chosen.
#[derive(Debug)]
pub struct Proposer<V> {
    voters: Voters,
    ballot: Ballot,
    value: V,
    /// What was accepted in the highest attempt that was told of: it takes the value's place.
    taken_over: Option<Ballot>,
    phase: Phase,
    agreed: BTreeSet<Voter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preparing,
    Accepting,
    Over,
}

/// What an answer led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<V> {
    /// More answers are needed.
    Waiting,
    /// A quorum has promised: ask every voter this.
    Ask(Question<V>),
    /// This value is chosen, for ever.
    Chosen(V),
    /// Somebody else's attempt is above this one: try again later, in a round above this.
    Outbid(u64),
}

impl<V: Clone> Proposer<V> {
    /// Begins an attempt: every voter is to be asked what comes with it.
    ///
    /// In round 0 the first phase is left out: only `first`, one member that all voters know, may use that round, and
    /// there is no attempt below it of which a voter could tell.
    pub fn attempt(
        voters: Voters,
        proposer: ServerId,
        first: ServerId,
        round: u64,
        value: V,
    ) -> (Proposer<V>, Question<V>) {
        let may_skip = proposer == first || seeded(Bug::EverybodySkipsTheFirstPhase);
        let round = if may_skip { round } else { round.max(1) };
        let ballot = Ballot { round, proposer };
        let (phase, question) = match round {
            0 => (Phase::Accepting, Question::Accept(ballot, value.clone())),
            _ => (Phase::Preparing, Question::Prepare(ballot)),
        };
        let proposer = Proposer { voters, ballot, value, taken_over: None, phase, agreed: BTreeSet::new() };
        (proposer, question)
    }

    /// The attempt.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// A voter has answered.
    pub fn on_answer(&mut self, voter: Voter, answer: Answer<V>) -> Progress<V> {
        if !self.voters.contains(voter) {
            return Progress::Waiting;
        }
        match answer {
            Answer::Promised(ballot, accepted) if ballot == self.ballot && self.phase == Phase::Preparing => {
                self.on_promise(voter, accepted)
            }
            Answer::Accepted(ballot) if ballot == self.ballot && self.phase == Phase::Accepting => {
                self.agreed.insert(voter);
                if !self.voters.are_enough(&self.agreed) {
                    return Progress::Waiting;
                }
                self.phase = Phase::Over;
                Progress::Chosen(self.value.clone())
            }
            Answer::Refused { asked, promised } if asked == self.ballot && self.phase != Phase::Over => {
                self.phase = Phase::Over;
                Progress::Outbid(promised.round)
            }
            _ => Progress::Waiting,
        }
    }

    fn on_promise(&mut self, voter: Voter, accepted: Option<(Ballot, V)>) -> Progress<V> {
        self.agreed.insert(voter);
        if let Some((ballot, value)) = accepted
            && self.taken_over.is_none_or(|highest| (ballot > highest) != seeded(Bug::TakesOverFromTheLowest))
            && !seeded(Bug::KeepsItsOwnValue)
        {
            self.taken_over = Some(ballot);
            self.value = value;
        }
        if !self.voters.are_enough(&self.agreed) {
            return Progress::Waiting;
        }
        self.phase = Phase::Accepting;
        self.agreed.clear();
        Progress::Ask(Question::Accept(self.ballot, self.value.clone()))
    }
}
