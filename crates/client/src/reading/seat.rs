//! Which rank of a parallel reader this one is.

use crate::connection::group::Group;
use forebay_core::assign::{Assign, Reader};
use forebay_core::ids::ServerId;

/// Which rank of a parallel reader this one is, and which blocks are whose there.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) rank: u32,
    pub(crate) assign: Assign,
    /// The hosts of all ranks.
    pub(crate) hosts: Vec<String>,
    pub(crate) group: Group,
}

impl Seat {
    /// The ranks that read, without those that are gone.
    pub(super) fn readers(&self, absent: &[u32]) -> Vec<Reader<'_>> {
        let ranks = (0..).zip(&self.hosts).map(|(rank, host)| Reader { rank, host });
        ranks.filter(|reader| !absent.contains(&reader.rank)).collect()
    }

    /// The host of a server, if it is known.
    pub(super) fn host_of(&self, server: ServerId) -> Option<String> {
        self.group.host_of(server)
    }
}
