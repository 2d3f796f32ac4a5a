//! About subscriptions: from the server that coordinates their stream to those that would take its place.

use crate::protocol::speaks;
use crate::subscription::{Progress, SubscriptionCopy};
use forebay_core::ids::Epoch;
use serde::{Deserialize, Serialize};

/// What servers say about subscriptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Keep this, should the sender die. Answer: `Kept`.
    Keep {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The subscription.
        copy: Box<SubscriptionCopy>,
    },
    /// These have come so far. Answer: `Kept`.
    Progress {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The subscriptions.
        all: Vec<Progress>,
    },
    /// To `Keep` and `Progress`: it is kept.
    Kept {
        /// The question's token.
        token: u64,
    },
    /// A subscription has ended, or others keep it now.
    Forget {
        /// The stream.
        stream: String,
        /// Its name.
        name: String,
        /// Which one of that name.
        creation: u64,
    },
    /// To the server that takes the place of a stream's coordinator: there was this subscription.
    TakeOverSubscription {
        /// The epoch in which the sender tells it.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// What the sender knows of it.
        copy: Box<SubscriptionCopy>,
    },
}

speaks!(Subscriptions: Message);
