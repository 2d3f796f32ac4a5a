//! A subscription from step to step: what is watched, what has come of it, and the events that subscribers may still ask for.
//!
//! - [`definition`]: what is asked for;
//! - [`event`]: what subscribers are told, and the latest of that;
//! - [`counts`]: how often what has happened;
//! - [`state`]: all that is remembered.

mod counts;
mod definition;
mod event;
mod state;

pub use counts::{Counts, ResponseTime};
pub use definition::{Definition, KeptSteps, Missing, On};
pub use event::{EVENTS_MAX, Event, EventLog};
pub use state::{Evaluated, Settled, State};
