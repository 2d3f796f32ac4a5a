//! For tests of what uses a cluster: members of a group that nobody has formed, whose roster the test decides; and
//! [`environment`], the suite that every [`crate::environment::Environment`] passes.

pub mod environment;

use crate::cluster::Cluster;
use crate::environment::Machine;
use crate::forming::FormedMember;
use crate::membership::CurrentRoster;
use forebay_core::ids::ServerId;
use forebay_core::roster::Roster;
use forebay_core::{Error, Result};
use forebay_transport::witness::Witness;
use forebay_wire::handshake::Secret;
use std::path::PathBuf;
use std::sync::Arc;

impl FormedMember {
    /// A member of this group, that no other member knows of.
    pub fn alone(roster: Arc<Roster>, id: ServerId, connection_file: PathBuf) -> Result<FormedMember> {
        let own = roster.members.iter().find(|member| member.id == id);
        let own = own.ok_or_else(|| Error::internal("this server is no member"))?;
        Ok(FormedMember {
            environment: Arc::new(Machine::this()),
            id,
            incarnation: own.server.incarnation,
            secret: Secret([7; 32]),
            witness: Witness::create(&connection_file, roster.lineage)?,
            connection_file,
            addresses: own.server.addresses.clone(),
            roster,
        })
    }
}

impl Cluster {
    /// Another roster is in force, and nothing follows from that.
    pub fn set_roster(&self, roster: Arc<Roster>) {
        *self.roster.write() = Arc::new(CurrentRoster::new(roster));
    }
}
