//! Servers inside this process ([`group`]), and plain connections to them that say whatever a test wants ([`raw`]).

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod group;
mod raw;

pub(crate) use group::Group;
pub(crate) use raw::Raw;

use std::time::Duration;

/// Nothing that is waited for takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of blocks that each server may hold.
pub(crate) const BUDGET: u64 = 64 << 20;
