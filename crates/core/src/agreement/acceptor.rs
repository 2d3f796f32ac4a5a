//! A voter's memory. A member keeps it for as long as it lives: one that died never comes back as the same member.

use super::vote::{Answer, Ballot, Question};
use crate::seeded::{Bug, seeded};
use serde::{Deserialize, Serialize};

/// What a voter has promised and accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptor<V> {
    promised: Option<Ballot>,
    accepted: Option<(Ballot, V)>,
}

impl<V> Default for Acceptor<V> {
    fn default() -> Self {
        Acceptor { promised: None, accepted: None }
    }
}

impl<V: Clone> Acceptor<V> {
    /// Answers a proposer. What is answered must be remembered before it is told.
    pub fn answer(&mut self, question: Question<V>) -> Answer<V> {
        let (Question::Prepare(asked) | Question::Accept(asked, _)) = &question;
        let asked = *asked;
        if let Some(promised) = self.promised.filter(|promised| *promised > asked)
            && !(seeded(Bug::AcceptsBelowItsPromise) && matches!(question, Question::Accept(..)))
        {
            return Answer::Refused { asked, promised };
        }
        self.promised = Some(asked);
        match question {
            Question::Prepare(ballot) if seeded(Bug::ForgetsWhatItAccepted) => Answer::Promised(ballot, None),
            Question::Prepare(ballot) => Answer::Promised(ballot, self.accepted.clone()),
            Question::Accept(ballot, value) => {
                self.accepted = Some((ballot, value));
                Answer::Accepted(ballot)
            }
        }
    }

    /// What it accepted last: it may have been chosen.
    pub fn accepted(&self) -> Option<&V> {
        self.accepted.as_ref().map(|(_, value)| value)
    }
}
