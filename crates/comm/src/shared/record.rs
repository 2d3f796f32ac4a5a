//! What stands in a ring: records, each a head of fixed length and bytes.

use super::ring::LINE;
use super::segment::RING;
use forebay_core::{Error, Result};
use forebay_wire::comm::Label;

/// Bytes of a head. With eight more a record takes one line.
pub(crate) const HEAD: usize = 56;
/// Bytes that one record carries at most.
pub(crate) const PIECE: usize = RING / 4;

// As `Memory::largest` says.
const _: () = assert!(HEAD + 8 <= LINE && PIECE == RING / 4);

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message.
    Whole,
    /// The beginning of a long one, which has a number from here on.
    Begin,
    /// More of it.
    More,
    /// The rest of it will not come.
    Abandon,
    /// A long one that lies with its sender, at the address that follows.
    Loan,
}

/// A record's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// How many bytes follow.
    pub(crate) bytes: u32,
    pub(crate) comm: u64,
    pub(crate) label: Label,
    /// Tells long messages apart; of a loan the place of its word.
    pub(crate) number: u32,
    /// Of a loan, which one it is at its place.
    pub(crate) turn: u32,
    /// The length of the message.
    pub(crate) total: u64,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD] {
        let Head { kind, bytes, comm, label, number, turn, total } = *self;
        let mut head = [0; HEAD];
        head[0] = kind as u8;
        head[4..8].copy_from_slice(&bytes.to_le_bytes());
        head[8..12].copy_from_slice(&number.to_le_bytes());
        head[12..16].copy_from_slice(&turn.to_le_bytes());
        head[16..20].copy_from_slice(&label.source.to_le_bytes());
        head[24..32].copy_from_slice(&comm.to_le_bytes());
        head[32..40].copy_from_slice(&label.space.to_le_bytes());
        head[40..48].copy_from_slice(&label.tag.to_le_bytes());
        head[48..56].copy_from_slice(&total.to_le_bytes());
        head
    }

    pub(crate) fn decode(head: &[u8; HEAD]) -> Result<Head> {
        let four = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        let kind = match head[0] {
            0 => Kind::Whole,
            1 => Kind::Begin,
            2 => Kind::More,
            3 => Kind::Abandon,
            4 => Kind::Loan,
            other => return Err(Error::protocol(format!("there is no record of kind {other}"))),
        };
        let label = Label { source: four(16), space: eight(32), tag: eight(40) };
        let head = Head {
            kind,
            bytes: four(4),
            comm: eight(24),
            label,
            number: four(8),
            turn: four(12),
            total: eight(48),
        };
        let fits = head.bytes as usize <= PIECE
            && match kind {
                Kind::Whole => u64::from(head.bytes) == head.total,
                Kind::Begin => u64::from(head.bytes) <= head.total,
                Kind::More => head.bytes > 0,
                Kind::Abandon => head.bytes == 0,
                Kind::Loan => head.bytes == 8,
            };
        if !fits {
            return Err(Error::protocol("the lengths of a record contradict each other"));
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_an_error(head in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform24(any::<u8>()), kind in 0u8..8) {
            let mut bytes = [0; HEAD];
            bytes[..32].copy_from_slice(&head);
            bytes[32..].copy_from_slice(&rest);
            bytes[0] = kind;
            if let Ok(head) = Head::decode(&bytes) {
                prop_assert_eq!(Head::decode(&head.encode()).unwrap(), head);
            }
        }
    }
}
