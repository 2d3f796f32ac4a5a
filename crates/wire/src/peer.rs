//! What servers say to each other: one protocol for each component.
//!
//! Each message flows one way, on a connection that its sender dialled; an answer is a message of its own, with the token of
//! its question. All that one server tells another arrives in order, whatever the protocol.

pub mod cluster;
pub mod directory;
pub mod evaluation;
pub mod pipelines;
pub mod replication;
mod size;
pub mod space;
pub mod streams;
pub mod subscriptions;

use crate::frame::Frame;
use crate::protocol::Message;
use forebay_core::{Error, Result};

/// A message between servers, of any protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerMessage {
    /// About who is a member.
    Cluster(cluster::Message),
    /// About streams, their ranks and their readers.
    Streams(streams::Message),
    /// About copies.
    Replication(replication::Message),
    /// About the blocks of large runs.
    Directory(directory::Message),
    /// About blocks of the space.
    Space(space::Message),
    /// About pipelines.
    Pipelines(pipelines::Message),
    /// About evaluations of expressions.
    Evaluation(evaluation::Message),
    /// About subscriptions.
    Subscriptions(subscriptions::Message),
}

macro_rules! of_protocol {
    ($($variant:ident($module:ident),)*) => {
        $(impl From<$module::Message> for PeerMessage {
            fn from(message: $module::Message) -> PeerMessage {
                PeerMessage::$variant(message)
            }
        })*

        impl PeerMessage {
            /// The message that a frame holds; an error if it is of no protocol between servers.
            pub fn read(frame: &Frame) -> Result<PeerMessage> {
                match frame.protocol()? {
                    $(<$module::Message as Message>::PROTOCOL => frame.message().map(PeerMessage::$variant),)*
                    other => Err(Error::protocol(format!("servers do not speak '{}' to each other", other.name()))),
                }
            }
        }
    };
}

of_protocol! {
    Cluster(cluster),
    Streams(streams),
    Replication(replication),
    Directory(directory),
    Space(space),
    Pipelines(pipelines),
    Evaluation(evaluation),
    Subscriptions(subscriptions),
}
