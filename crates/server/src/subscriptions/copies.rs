//! What is kept of subscriptions besides where they are coordinated.

use super::completed::Completed;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::AttachmentId;
use forebay_wire::subscription::SubscriptionCopy;
use std::collections::{BTreeMap, BTreeSet};

/// A stream, and the name of a subscription.
pub(super) type Key = (String, String);

/// What other servers were told to keep, and have not answered yet: by token.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) waiting: BTreeMap<u64, Waiting>,
    /// By stream: which servers keep its subscriptions.
    pub(super) heirs: BTreeMap<String, BTreeSet<ServerId>>,
}

/// Servers that have not answered yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) servers: BTreeSet<ServerId>,
    pub(super) about: About,
}

/// What others were told to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// All of a subscription.
    Subscription(Key),
    /// When what a watch watches in the space was complete.
    Completed(AttachmentId),
    /// What came of a step of a watch, that is let go of then.
    Step(AttachmentId, (RunNumber, StepNumber)),
}

/// What this server keeps of subscriptions that others coordinate.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) known: BTreeMap<Key, SubscriptionCopy>,
    /// When what they watch in the space was complete, by their attachments.
    pub(super) completed: BTreeMap<AttachmentId, Completed>,
}
