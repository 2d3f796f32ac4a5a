//! What members tell one another about who the members are.

use super::suspicions::Evidence;
use crate::agreement::{Answer, Question};
use crate::error::{Error, Result};
use crate::ids::{Epoch, ServerId};
use crate::roster::{Change, Roster};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What members tell one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To a voter: a question about the roster of this epoch.
    Ask(Epoch, Question<Arc<Roster>>),
    /// A voter's answer.
    Answer(Epoch, Answer<Arc<Roster>>),
    /// This roster is in force.
    InForce(Arc<Roster>),
    /// To who proposes: this change is wished for.
    Wish(Change),
    /// It is wished for no more.
    Withdraw(Change),
    /// To who proposes, or has asked: I take this member for gone.
    Suspect(ServerId, Evidence),
    /// I do not any more, or was asked and do not.
    Trust(ServerId),
    /// Somebody takes this member for gone: see whether it answers you, and tell me.
    Ping(ServerId),
    /// I know the roster of this epoch: tell me yours if it is later, as I do.
    Know(Epoch),
    /// Grant me a lease in this epoch; the number comes back with the answer.
    Renew(Epoch, u64),
    /// Granted.
    Granted(Epoch, u64),
}

impl Message {
    /// Whether what it tells can be true at all.
    pub fn check(&self) -> Result<()> {
        match self {
            Message::Ask(_, Question::Accept(_, roster))
            | Message::Answer(_, Answer::Promised(_, Some((_, roster))))
            | Message::InForce(roster) => roster.check(),
            Message::Wish(Change::Evict(id)) | Message::Withdraw(Change::Evict(id)) => {
                Err(Error::protocol(format!("nobody wishes {id} to go: it is suspected, or not")))
            }
            _ => Ok(()),
        }
    }

    /// The latest epoch that who tells this is certain to know, or 0.
    pub(super) fn epoch_known(&self) -> Epoch {
        match self {
            Message::Ask(next, _) | Message::Answer(next, _) => next.saturating_sub(1),
            Message::InForce(roster) => roster.epoch,
            Message::Know(epoch) | Message::Renew(epoch, _) | Message::Granted(epoch, _) => *epoch,
            Message::Wish(_)
            | Message::Withdraw(_)
            | Message::Suspect(..)
            | Message::Trust(_)
            | Message::Ping(_) => 0,
        }
    }
}
