//! About who is a member of the group: joining, the agreement, failure detection, leaving.

use crate::protocol::speaks;
use forebay_core::error::Error;
use forebay_core::membership;
use forebay_core::roster::{Candidate, Roster};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What servers say about the group's members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To any member: a server wants to be one. Answer, on the same connection: `Admission`.
    Join(Candidate),
    /// To any member: which roster is in force? Answer, on the same connection: `Admission`.
    QueryRoster,
    /// The roster in force; after `Join`, the first that the sender knows of in which the receiver is a member, or why it
    /// cannot be one.
    Admission(Result<Arc<Roster>, Error>),
    /// What members agree on: questions, promises, votes, leases ([`membership::Message`]).
    Agreement(membership::Message),
    /// Is the receiver there? Answer: `Pong`, with the same number.
    Ping(u64),
    /// To `Ping`.
    Pong(u64),
    /// What SWIM says, where its datagrams do not come through.
    Swim(Vec<u8>),
    /// The sender leaves the group: it is given nothing more to hold. Answer: `LeavingAnswer`, once the receiver has handled
    /// all that the sender told before, and, if it is asked whether the sender may go, needs nothing of it any more.
    Leaving {
        /// Ties the answer to it.
        token: u64,
        /// Whether this asks if the sender may go.
        may_go: bool,
    },
    /// To `Leaving`.
    LeavingAnswer {
        /// The question's token.
        token: u64,
        /// Whether the receiver agrees.
        result: Result<(), Error>,
    },
    /// The sender does not leave after all.
    Stays,
    /// The group was told to end, and the sender does: the receiver is to end, too. One that stands still finds it when it
    /// goes on.
    GroupEnds,
}

speaks!(Cluster: Message);
