//! Subscriptions: texts that the servers watch from step to step, and the events of these.
//!
//! [`submit`]: making a subscription over a connection that stays; [`listening`]: where its events are told; [`handle`]: the
//! handle of one; [`manage`]: pausing, resuming and removing any.

mod handle;
mod listening;
mod manage;
mod submit;

pub use handle::{Notice, Subscription, SubscriptionEvent};
pub use submit::Subscriber;
