//! With what a member of a group is started.

use forebay_core::ids::Lineage;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// With what a member of a group is started.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The group's connection file.
    pub group: PathBuf,
    /// How many servers the group has; the founder decides.
    pub servers: u32,
    /// The lineage that the group must have: so that servers that were started together do not join another
    /// group that is just being founded at the same path.
    pub lineage: Option<Lineage>,
    /// Addresses to listen on for TCP; empty means shared memory only.
    pub bind: Vec<IpAddr>,
    /// The address to tell others, if it differs from `bind`.
    pub advertise: Option<IpAddr>,
    /// Ports that may be used, inclusive; by default the system chooses.
    pub ports: Option<(u16, u16)>,
    /// Whether bulk data is encrypted over TCP too; the founder decides for all.
    pub seal_payload: bool,
    /// How long another server may be silent before it is to go; by default ten seconds. The founder decides for all.
    pub silence: Option<Duration>,
}
