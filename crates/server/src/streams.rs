//! Streams, at this server: which it coordinates, where others are coordinated, and the ranks whose home it is.
//!
//! - [`coordination`]: the streams that this server coordinates;
//! - [`locations`]: which servers coordinate the others;
//! - [`local_ranks`]: the ranks whose home this server is, and what it has told of them;
//! - [`begin_page`]: how such a rank begins steps without a question; [`progress`]: how fast they go on;
//! - [`attachments`]: where an attachment's steps are told, and which attachments each stream has;
//! - [`users`]: what pipelines and subscriptions need of streams, and are told by them;
//! - [`holdings`]: the blocks of steps that are in this server's memory.

pub(crate) mod attachments;
pub(crate) mod begin_page;
pub(crate) mod coordination;
pub(crate) mod holdings;
pub(crate) mod local_ranks;
pub(crate) mod locations;
pub(crate) mod progress;
pub(crate) mod users;
