//! What the workers of one pipeline say to each other; the crate `comm` is built on it. A message of a comm is one of the user's,
//! from one rank to another: a frame carries it whole, or a part of it.

use crate::protocol::speaks;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// A message of up to this many bytes travels inside its frame; a longer one as payloads of [`CHUNK`].
pub const INLINE_MAX: usize = 16 << 10;
/// How much of a long message one frame carries.
pub const CHUNK: usize = 512 << 10;

/// What tells messages apart, besides the comm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// The rank that sent it.
    pub source: u32,
    /// 0 for the user's messages, else the number of the collective: so neither mixes with the other, nor
    /// one collective with the next.
    pub space: u64,
    /// The user's tag, or the round of a collective.
    pub tag: u64,
}

/// One frame's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommMessage {
    /// The first from either side: who it is.
    Hello {
        /// Where it listens.
        addresses: Vec<String>,
        /// Its name, for people.
        name: String,
    },
    /// A message, or the beginning of one: then a payload follows, and more in `More`.
    Data {
        /// The comm.
        comm: u64,
        /// What it is.
        label: Label,
        /// Ties `More` to it.
        number: u64,
        /// Its length.
        bytes: u64,
        /// All of it, if it is short.
        inline: Bytes,
    },
    /// The next payload of a message.
    More {
        /// Which.
        number: u64,
    },
    /// The rest of a message will not come: its sender gave up.
    Abandon {
        /// Which.
        number: u64,
    },
    /// The sender waits for something of the receiver's in this comm: it is told if that cannot come.
    Wait {
        /// The comm.
        comm: u64,
    },
    /// The sender has closed this comm.
    Left {
        /// The comm.
        comm: u64,
    },
    /// Collectives with a rank of this comm cannot succeed any more, as the sender knows.
    Gone {
        /// The comm.
        comm: u64,
        /// In which part of it; `None`: in any, since the rank is gone.
        part: Option<u32>,
        /// The rank.
        rank: u32,
        /// The whole story.
        why: String,
    },
    /// The sender's endpoint closes: all it had to say was said.
    Goodbye,
    /// The sender, which has dialled from this host, offers memory through which messages go from now on. Two descriptors come along:
    /// that memory, and what wakes the sender.
    Share {
        /// Where a number lies in the sender's memory.
        probe: u64,
        /// That number: who finds it there can read what the sender lends.
        number: u128,
    },
    /// The sender takes what was offered. A descriptor comes along: what wakes the sender.
    Shared {
        /// Where a number lies in the sender's memory.
        probe: u64,
        /// That number.
        number: u128,
        /// Whether the sender can read the receiver's memory.
        reads: bool,
    },
    /// The answer to the same question of who has offered.
    Reads {
        /// Whether the sender can read the receiver's memory.
        reads: bool,
    },
    /// The sender shares no memory: messages go through this connection.
    Apart,
    /// Nothing in a part of a comm, the one that a rank is in, can succeed any more, as the sender knows.
    Revoked {
        /// The comm.
        comm: u64,
        /// Which part of it; 0 is all of it.
        part: u32,
        /// The rank that has revoked it.
        rank: u32,
        /// The whole story.
        why: String,
    },
}

speaks!(Comm: CommMessage);

/// Bytes that are encoded as one run, not one by one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Run;
        impl<'de> Visitor<'de> for Run {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_bytes(Run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decoder, Frame, HEADER, Header, encode};
    use crate::protocol::Protocol;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(mut body in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..14) {
            if let Some(first) = body.first_mut() {
                *first = kind;
            }
            let (header, protocol) = (Header::default(), Protocol::Comm as u8);
            if let Ok(message) = (Frame { header, protocol, body }).message::<CommMessage>() {
                let mut bytes = Vec::new();
                encode(&header, &message, None, &mut bytes).unwrap();
                let body = bytes.split_off(HEADER);
                prop_assert_eq!((Frame { header, protocol, body }).message::<CommMessage>().unwrap(), message);
            }
        }
    }

    #[test]
    fn messages_round_trip() {
        let label = Label { source: 3, space: u64::MAX, tag: 1 << 40 };
        for message in [
            CommMessage::Hello { addresses: vec!["tcp:[::1]:1".into()], name: "π".into() },
            CommMessage::Data { comm: 7, label, number: 1, bytes: 3, inline: Bytes(vec![1, 200, 3]) },
            CommMessage::Gone { comm: 7, part: Some(1), rank: 2, why: "killed".into() },
            CommMessage::Goodbye,
            CommMessage::Revoked { comm: 7, part: 1 << 23, rank: 2, why: "".into() },
            CommMessage::Shared { probe: 1 << 40, number: u128::MAX, reads: true },
        ] {
            let mut bytes = Vec::new();
            encode(&Header::default(), &message, None, &mut bytes).unwrap();
            let mut decoder = Decoder::new(None);
            decoder.space()[..bytes.len()].copy_from_slice(&bytes);
            decoder.on_filled(bytes.len());
            assert_eq!(decoder.next_frame().unwrap().unwrap().message::<CommMessage>().unwrap(), message);
        }
    }
}
