//! Who a client is, for people: its name, if it has one, and where its process is.

use crate::Result;
use crate::ids::check_name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who a client is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What its user calls it.
    pub name: Option<String>,
    /// The name of its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
}

impl Identity {
    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        self.name.iter().try_for_each(|name| check_name("name", name))?;
        if self.host.is_empty() { Ok(()) } else { check_name("host", &self.host) }
    }
}

impl Identity {
    /// Who it is, in brackets; nothing if that is not known.
    pub(crate) fn in_brackets(&self) -> String {
        let Identity { name, host, pid } = self;
        let name = name.iter().map(|name| format!("'{name}', ")).collect::<String>();
        if host.is_empty() { String::new() } else { format!(" ({name}process {pid} on {host})") }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, host, pid } = self;
        match name {
            Some(name) => write!(f, "'{name}' (process {pid} on {host})"),
            None => write!(f, "process {pid} on {host}"),
        }
    }
}
