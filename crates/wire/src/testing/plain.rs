//! Messages as bytes.

use crate::frame::{Frame, HEADER, Header, encode};
use crate::peer::PeerMessage;
use crate::protocol::{Message, Protocol};
use serde::de;
use serde::ser::SerializeTuple;
use serde::{Deserialize, Serialize, Serializer};

/// Bytes in the place of a message of some protocol: encoded as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// The protocol's number.
    pub protocol: u8,
    /// The encoding.
    pub bytes: Vec<u8>,
}

impl Plain {
    /// A message as it is encoded.
    pub fn of<M: Message>(message: &M) -> Plain {
        let mut bytes = Vec::new();
        encode(&Header::default(), message, None, &mut bytes).unwrap();
        Plain { protocol: message.protocol_number(), bytes: bytes.split_off(HEADER) }
    }

    /// As it comes off the wire.
    pub fn frame(&self) -> Frame {
        Frame { header: Header::default(), protocol: self.protocol, body: self.bytes.clone() }
    }
}

impl From<&PeerMessage> for Plain {
    fn from(message: &PeerMessage) -> Plain {
        match message {
            PeerMessage::Cluster(message) => Plain::of(message),
            PeerMessage::Streams(message) => Plain::of(message),
            PeerMessage::Replication(message) => Plain::of(message),
            PeerMessage::Directory(message) => Plain::of(message),
            PeerMessage::Space(message) => Plain::of(message),
            PeerMessage::Pipelines(message) => Plain::of(message),
            PeerMessage::Evaluation(message) => Plain::of(message),
            PeerMessage::Subscriptions(message) => Plain::of(message),
        }
    }
}

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_tuple(self.bytes.len())?;
        self.bytes.iter().try_for_each(|byte| all.serialize_element(byte))?;
        all.end()
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Plain, D::Error> {
        Err(de::Error::custom("it is only ever sent"))
    }
}

impl Message for Plain {
    const PROTOCOL: Protocol = Protocol::Connection;

    fn protocol_number(&self) -> u8 {
        self.protocol
    }
}
