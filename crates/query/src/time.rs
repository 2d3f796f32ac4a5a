//! What was before: what functions of time remember, and since when something holds.
//!
//! Evaluations at which something is not known take no part: they neither count nor break what holds. A run that goes on at a step
//! forgets what came at or after it.
//!
//! - [`moment`]: when something was;
//! - [`timeline`]: the latest values, by their steps;
//! - [`remembered`]: what one function of time remembers;
//! - [`hold`]: for how long a condition holds;
//! - [`episode`]: from when on what is watched holds, until when;
//! - [`watch`]: all of this of one text.

mod episode;
mod hold;
mod moment;
mod remembered;
mod timeline;
mod watch;

pub use episode::{Episode, Turn};
pub use moment::Moment;
pub use watch::{Outcome, WatchState, Watched};
