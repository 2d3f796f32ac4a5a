//! The number of a server; apart from [`crate::ids`], since errors say which server they are about.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A server's place in the view that created the group; it never changes and is never given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server{}", self.0)
    }
}
