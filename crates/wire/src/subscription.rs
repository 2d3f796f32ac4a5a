//! Subscriptions, as subscribers and servers speak of them.

use forebay_core::contract::Needs;
use forebay_core::ids::{DescriptionNumber, RunNumber, StepNumber};
use forebay_core::steps::AttachmentId;
use forebay_query::subscription::{Definition, Event, EventLog, State};
use serde::{Deserialize, Serialize};

/// With which event of a subscription a subscriber begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum From {
    /// The next one.
    #[default]
    Next,
    /// The first that is remembered.
    First,
    /// The one after the last with which a subscriber has finished.
    Resume,
    /// The one after that of this number.
    After(u64),
}

/// What a subscriber attaches with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// The subscription's name.
    pub name: String,
    /// With which event to begin.
    pub from: From,
    /// Of which subscription of this name `from` counts the events, if it is known: those of another one are told from the first on.
    pub creation: Option<u64>,
    /// The subscription, if it is to be made where there is none of this name: of a subscriber that comes back.
    pub definition: Option<Box<Definition>>,
}

/// What is done with a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Nothing is evaluated until it is resumed.
    Pause,
    /// It goes on.
    Resume,
    /// It ends.
    Remove,
}

/// A step that is held for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFor {
    /// The run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// Whether the subscription keeps it; else an event waits for subscribers.
    pub is_kept: bool,
}

/// All that is known of a subscription, for the server that takes the place of one that coordinated it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionCopy {
    /// Tells it from earlier ones of the same name.
    pub creation: u64,
    /// What is asked for.
    pub definition: Definition,
    /// What it remembers.
    pub state: State,
    /// Its latest events.
    pub log: EventLog,
    /// The number of the last event with which a subscriber has finished.
    pub finished: u64,
    /// The attachment through which it is told of steps.
    pub attachment: AttachmentId,
    /// What that needs.
    pub needs: Needs,
    /// The steps that are held for it.
    pub held: Vec<HeldFor>,
}

/// Under which descriptions the fields that a subscription watches in the space are put at a step: one that is removed and put again, or
/// replaced, has another.
pub type Completion = Vec<DescriptionNumber>;

/// How far a subscription has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub creation: u64,
    /// What it remembers.
    pub state: State,
    /// Its latest event, if it is new.
    pub event: Option<Box<Event>>,
    /// The number of the last event with which a subscriber has finished.
    pub finished: u64,
    /// The steps that are held for it.
    pub held: Vec<HeldFor>,
}
