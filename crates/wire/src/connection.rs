//! The first and the last that is said on a connection, after the handshake: who greets whom, in which role, and why a server
//! ends the connection.

use crate::protocol::speaks;
use forebay_core::error::Error;
use forebay_core::identity::Identity;
use forebay_core::ids::ServerId;
use serde::{Deserialize, Serialize};

/// What tells whether two processes are on one host: the machine's boot, and the namespace that matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId(pub String);

/// What a connection is for. It decides which protocols are spoken on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A rank of a simulation, to its home server: speaks `producer` and `writing`.
    Producer,
    /// A rank of a simulation, to another server that holds blocks of it: speaks `placement` and `writing`.
    Placement,
    /// A reader: speaks `consumer` and `reading`.
    Consumer,
    /// A user of the space: speaks `space`, `writing` and `reading`.
    Space,
    /// The process that runs one pipeline beside one server: speaks `worker` and `reading`.
    Worker {
        /// The pipeline.
        pipeline: String,
        /// Which start of it, as the server told the process.
        instance: u64,
    },
    /// An administrator or a tool: speaks `admin`.
    Admin,
    /// Another server of the group: speaks the protocols between servers.
    Server(ServerId),
    /// A process that opens a communicator by its name: speaks `meeting`.
    Meeting,
}

impl Role {
    /// What connections of this role are called where they are counted.
    pub fn name(&self) -> &'static str {
        match self {
            Role::Producer => "producers",
            Role::Placement => "placements",
            Role::Consumer => "consumers",
            Role::Space => "spaces",
            Role::Worker { .. } => "workers",
            Role::Admin => "admins",
            Role::Server(_) => "servers",
            Role::Meeting => "meetings",
        }
    }
}

/// The first message on every connection. Clients ask with it; a server that connects to another one only tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for.
    pub role: Role,
    /// Who dials, for messages to people; its process, to prove its death on the same host.
    pub who: Identity,
    /// Where the process's number has its meaning: the machine's boot and the process's PID namespace.
    pub host: HostId,
    /// Whether descriptors can be passed on this connection.
    pub shared_memory: bool,
    /// How long the client waits for an answer by default, in milliseconds.
    pub patience_ms: u64,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Which server this is.
    pub server: ServerId,
    /// The members of the current view.
    pub members: Vec<ServerId>,
    /// Whether payloads are to be sealed on connections that are sealed.
    pub seal_payload: bool,
}

/// The last that a server says: why it ends the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CloseReason(pub Error);

speaks!(Connection: Hello => Welcome, events CloseReason);
