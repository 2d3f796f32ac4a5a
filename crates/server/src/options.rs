//! What a server is started with.

use forebay_cluster::ClusterOptions;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Its part in the group.
    pub cluster: ClusterOptions,
    /// Bytes of blocks that this server may hold; by default a share of what memory is left.
    pub budget: Option<u64>,
    /// A process whose end ends this server.
    pub watch_parent: Option<u32>,
    /// A directory of the group's own, with its connection file in it: removed when the watched process has ended.
    pub private_place: Option<PathBuf>,
    /// The reading end of a pipe, not blocking: where it ends before a byte came for this server, the server ends.
    /// So servers that are started together, to stay, end together if what starts them dies amid that.
    pub leash: Option<Arc<OwnedFd>>,
}
