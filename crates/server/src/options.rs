//! What a server is started with.

use forebay_core::ids::Lineage;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The group's connection file.
    pub group: PathBuf,
    /// How many servers the group has; the founder decides.
    pub servers: u32,
    /// The lineage that the group must have: so that servers that were started together do not join another
    /// group that is just being founded at the same path.
    pub lineage: Option<Lineage>,
    /// Bytes of blocks that this server may hold; by default a share of what memory is left.
    pub budget: Option<u64>,
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
    /// A process whose end ends this server.
    pub watch_parent: Option<u32>,
    /// A directory of the group's own, with its connection file in it: removed when the watched process has ended.
    pub private_place: Option<PathBuf>,
    /// The reading end of a pipe, not blocking: where it ends before a byte came for this server, the server ends.
    /// So servers that are started together, to stay, end together if what starts them dies amid that.
    pub leash: Option<Arc<OwnedFd>>,
}
