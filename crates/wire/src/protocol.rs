//! The protocols of a group, and what makes a type a message of one of them.
//!
//! Each protocol is an enumeration with an owner: the component of the server, or the role of a client, that speaks it. A
//! frame's header names the protocol, and a message is decoded only as one of that. So what another role would say does not
//! parse on a connection. `docs/protocols.md` has a table of all messages.
//!
//! Enumerations are append-only within a version ([`crate::VERSION`]).

use forebay_core::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What a frame's message belongs to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Protocol {
            $($(#[$doc])* $name = $number,)*
        }

        impl Protocol {
            /// All of them.
            pub const ALL: &'static [Protocol] = &[$(Protocol::$name,)*];

            /// The protocol of this number, as it stands in a frame's header.
            pub fn of_number(number: u8) -> Option<Protocol> {
                match number {
                    $($number => Some(Protocol::$name),)*
                    _ => None,
                }
            }

            /// Its name, for people.
            pub fn name(self) -> &'static str {
                match self {
                    $(Protocol::$name => $text,)*
                }
            }
        }
    };
}

protocols! {
    /// The greeting on each connection, and the last words on it: [`crate::connection`].
    Connection = 1, "connection";
    /// A rank of a simulation and its home server: [`crate::client::producer`].
    Producer = 2, "producer";
    /// A rank and a server that is not its home but holds blocks of it: [`crate::client::placement`].
    Placement = 3, "placement";
    /// Who writes blocks, and the server that gives it memory: [`crate::client::writing`].
    Writing = 4, "writing";
    /// A reader and the coordinator of its stream: [`crate::client::consumer`].
    Consumer = 5, "consumer";
    /// Who reads blocks, and the servers that hold or know them: [`crate::client::reading`].
    Reading = 6, "reading";
    /// A user of the space and any server: [`crate::client::space`].
    Space = 7, "space";
    /// A pipeline's worker and the server beside it: [`crate::client::worker`].
    Worker = 8, "worker";
    /// An administrator and any server: [`crate::client::admin`].
    Admin = 9, "admin";
    /// The ranks of a communicator among themselves: [`crate::comm`].
    Comm = 10, "comm";
    /// A process that opens a communicator by its name, and the server at which its ranks meet: [`crate::client::meeting`].
    Meeting = 11, "meeting";
    /// Servers, about who is a member: [`crate::peer::cluster`].
    Cluster = 16, "cluster";
    /// Servers, about streams, their ranks and their readers: [`crate::peer::streams`].
    Streams = 17, "streams";
    /// Servers, about copies: [`crate::peer::replication`].
    Replication = 18, "replication";
    /// Servers, about the blocks of large runs: [`crate::peer::directory`].
    Directory = 19, "directory";
    /// Servers, about blocks of the space: [`crate::peer::space`].
    SpaceDirectory = 20, "space-directory";
    /// Servers, about pipelines: [`crate::peer::pipelines`].
    Pipelines = 21, "pipelines";
    /// Servers, about evaluations of expressions: [`crate::peer::evaluation`].
    Evaluation = 22, "evaluation";
    /// Servers, about subscriptions: [`crate::peer::subscriptions`].
    Subscriptions = 23, "subscriptions";
}

/// A message of a protocol.
pub trait Message: Serialize + DeserializeOwned {
    /// The protocol.
    const PROTOCOL: Protocol;

    /// The number that stands in the frame's header. Tests that say what no honest peer says choose it themselves.
    fn protocol_number(&self) -> u8 {
        Self::PROTOCOL as u8
    }
}

/// A message that asks, if its frame has a request number: the answer has the same, and is a [`Reply`] or an error.
pub trait Request: Message {
    /// What answers are.
    type Reply: Reply;

    /// Whether the server holds what it finds, under the number of the question, until it is told that the client has
    /// finished with it.
    fn holds_what_is_found(&self) -> bool {
        false
    }
}

/// What answers of a protocol are. On the wire an answer is a `Result`: what failed is said alike in all protocols.
pub trait Reply: Serialize + DeserializeOwned + std::fmt::Debug {
    /// The protocol.
    const PROTOCOL: Protocol;
}

impl<R: Reply> Message for Result<R, Error> {
    const PROTOCOL: Protocol = R::PROTOCOL;
}

/// Says of which protocol messages are: what asks, what answers, and what is told without being asked for.
macro_rules! speaks {
    ($protocol:ident: $request:ty => $reply:ty $(, events $event:ty)? $(, holds $holds:expr)?) => {
        impl $crate::protocol::Message for $request {
            const PROTOCOL: $crate::protocol::Protocol = $crate::protocol::Protocol::$protocol;
        }
        impl $crate::protocol::Request for $request {
            type Reply = $reply;
            $(fn holds_what_is_found(&self) -> bool {
                let holds: fn(&$request) -> bool = $holds;
                holds(self)
            })?
        }
        impl $crate::protocol::Reply for $reply {
            const PROTOCOL: $crate::protocol::Protocol = $crate::protocol::Protocol::$protocol;
        }
        $(impl $crate::protocol::Message for $event {
            const PROTOCOL: $crate::protocol::Protocol = $crate::protocol::Protocol::$protocol;
        })?
    };
    ($protocol:ident: $message:ty) => {
        impl $crate::protocol::Message for $message {
            const PROTOCOL: $crate::protocol::Protocol = $crate::protocol::Protocol::$protocol;
        }
    };
}
pub(crate) use speaks;
