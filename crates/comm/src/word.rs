//! What the endpoints say to each other.

use forebay_wire::protocol::{Message, Protocol};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// A message of up to this many bytes travels inside its frame; a longer one as payloads of [`CHUNK`].
pub(crate) const INLINE_MAX: usize = 16 << 10;
/// How much of a long message one frame carries.
pub(crate) const CHUNK: usize = 512 << 10;

/// What tells messages apart, besides the comm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Label {
    /// The rank that sent it.
    pub(crate) source: u32,
    /// 0 for the user's messages, else the number of the collective: so neither mixes with the other, nor
    /// one collective with the next.
    pub(crate) space: u64,
    /// The user's tag, or the round of a collective.
    pub(crate) tag: u64,
}

/// One frame's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
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
    /// A rank of this comm is gone, as the sender knows: collectives cannot succeed any more.
    Gone {
        /// The comm.
        comm: u64,
        /// The rank.
        rank: u32,
        /// The whole story.
        why: String,
    },
    /// The sender's endpoint closes: all it had to say was said.
    Goodbye,
}

impl Message for Word {
    const PROTOCOL: Protocol = Protocol::Comm;
}

/// Bytes that are encoded as one run, not one by one.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

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
    use forebay_wire::frame::{Decoder, Frame, HEADER, Header, encode};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_word_or_an_error(mut body in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..9) {
            if let Some(first) = body.first_mut() {
                *first = kind;
            }
            let (header, protocol) = (Header::default(), Protocol::Comm as u8);
            if let Ok(word) = (Frame { header, protocol, body }).message::<Word>() {
                let mut bytes = Vec::new();
                encode(&header, &word, None, &mut bytes).unwrap();
                let body = bytes.split_off(HEADER);
                prop_assert_eq!((Frame { header, protocol, body }).message::<Word>().unwrap(), word);
            }
        }
    }

    #[test]
    fn words_round_trip() {
        let label = Label { source: 3, space: u64::MAX, tag: 1 << 40 };
        for word in [
            Word::Hello { addresses: vec!["tcp:[::1]:1".into()], name: "π".into() },
            Word::Data { comm: 7, label, number: 1, bytes: 3, inline: Bytes(vec![1, 200, 3]) },
            Word::Gone { comm: 7, rank: 2, why: "killed".into() },
            Word::Goodbye,
        ] {
            let mut bytes = Vec::new();
            encode(&Header::default(), &word, None, &mut bytes).unwrap();
            let mut decoder = Decoder::new(None);
            decoder.space()[..bytes.len()].copy_from_slice(&bytes);
            decoder.on_filled(bytes.len());
            assert_eq!(decoder.next_frame().unwrap().unwrap().message::<Word>().unwrap(), word);
        }
    }
}
