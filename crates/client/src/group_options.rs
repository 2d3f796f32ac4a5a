//! How a group is found and reached, as the user says.

use crate::choice::Choice;
use crate::seconds::sane;
use forebay_core::Result;
use std::time::Duration;

/// Which transport to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory where the server is on this host, else TCP.
    #[default]
    Auto,
    /// Shared memory or nothing.
    Shm,
    /// TCP, even on one host.
    Tcp,
}

impl TransportChoice {
    /// The choice of this name: `auto`, `shm` or `tcp`.
    pub fn parse(name: &str) -> Result<TransportChoice> {
        Choice::of_name(name)
    }
}

/// How to find and reach a group, and what the handle that does so is called.
#[derive(Debug, Clone, Default)]
pub struct GroupOptions {
    /// A connection file's path, a group's name, or a connection file's text (it then begins with `{`);
    /// `None`: `FOREBAY_GROUP`, else the group named `default`.
    pub group: Option<String>,
    /// Which transport to use.
    pub transport: TransportChoice,
    /// The deadline of every wait; `None`: 30 seconds.
    pub timeout: Option<Duration>,
    /// What the handle is called in errors, by `status` and in logs; `None`: its host and process say which it is.
    pub name: Option<String>,
}

impl GroupOptions {
    /// The deadline of every wait.
    pub fn patience(&self) -> Duration {
        sane(self.timeout.unwrap_or(Duration::from_secs(30)))
    }
}
