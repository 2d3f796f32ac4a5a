//! About subscriptions: from the server that coordinates their stream to those that would take its place.

use crate::protocol::speaks;
use crate::subscription::{Completion, Progress, SubscriptionCopy};
use forebay_core::ids::{DescriptionNumber, Epoch, StepNumber};
use forebay_core::steps::AttachmentId;
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
        /// In the space: through which attachment it is watched, the step that was complete, and what tells that from other times.
        completed: Option<(AttachmentId, StepNumber, Completion)>,
    },
    /// What is watched in the space was complete at these steps. Answer: `Kept`.
    Completed {
        /// Ties the answer to it.
        token: u64,
        /// Through which attachment it is watched.
        attachment: AttachmentId,
        /// The steps, each with what tells this completion from others of it.
        steps: Vec<(StepNumber, Completion)>,
        /// Whether it is known which were complete before it was watched.
        is_ready: bool,
    },
    /// To every server: from now on it tells the sender what is registered with it, as an owner in the space, of fields of these names,
    /// and nothing of others. Answer: what it knows already of some of them, as `Known`, and then `Watching`.
    WatchSpace {
        /// Ties the answer to it.
        token: u64,
        /// The names.
        fields: Vec<String>,
        /// Of which all that is known is told.
        again: Vec<String>,
    },
    /// To `WatchSpace`.
    Watching {
        /// The question's token.
        token: u64,
    },
    /// To a server that watches the space: blocks of this field were registered at these steps.
    Known {
        /// Of the question that this answers; 0 of what has just been registered.
        token: u64,
        /// The field's name.
        field: String,
        /// The steps, each with the description in force.
        steps: Vec<(StepNumber, DescriptionNumber)>,
    },
    /// To a server that watches the space: what was registered of this field at this step under this description is removed.
    Gone {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The description.
        description: DescriptionNumber,
    },
    /// To `Keep`, `Progress` and `Completed`: it is kept.
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
    /// To the same server: what is watched in the space was complete at these steps. Goes before `TakeOverSubscription`.
    TakeOverCompleted {
        /// The epoch in which the sender tells it.
        epoch: Epoch,
        /// Through which attachment it was watched.
        attachment: AttachmentId,
        /// The steps, each with what tells this completion from others of it.
        steps: Vec<(StepNumber, Completion)>,
        /// Whether it was known which were complete before it was watched.
        is_ready: bool,
    },
}

speaks!(Subscriptions: Message);
