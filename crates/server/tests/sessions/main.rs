//! What a server says at its connections: to clients, to those that are none, and to its like. One program, since each is linked
//! with the whole server. [`Group`] are servers inside this process, [`Raw`] a plain connection that says whatever a test wants.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may panic, and wait for other threads"
)]

mod evicted;
mod group;
mod hostile;
mod late_answers;
mod raw;
mod roles;
mod status;

use group::Group;
use raw::Raw;
use std::time::Duration;

/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of blocks that each server may hold.
const BUDGET: u64 = 64 << 20;
