//! What the ranks of one collective must agree on: which one it is, its root, and what it computes.
//!
//! It goes with each message, so that ranks which do different things are told instead of taking each other's bytes.

use crate::reduction::{Reduction, name_of};
use std::fmt;

/// Which collective it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Barrier,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    Composite,
}

impl What {
    const ALL: [(What, &'static str); 12] = [
        (What::Barrier, "barrier"),
        (What::Bcast, "bcast"),
        (What::Gather, "gather"),
        (What::Scatter, "scatter"),
        (What::Allgather, "allgather"),
        (What::Alltoall, "alltoall"),
        (What::Reduce, "reduce"),
        (What::Allreduce, "allreduce"),
        (What::ReduceScatter, "reduce_scatter"),
        (What::Scan, "scan"),
        (What::Exscan, "exscan"),
        (What::Composite, "composite"),
    ];
}

/// What ranks must agree on, as it stands in the tags of their messages. 0 is a message that is no part of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kind(u32);

/// From here on it stands in a tag; below is which message of the collective it is.
const SHIFT: u32 = 32;
/// And from here on, which way of the collective it belongs to.
pub(crate) const WAY: u32 = 20;

impl Kind {
    /// One without a root, which computes nothing.
    pub(crate) fn of(what: What) -> Kind {
        Kind(what as u32 + 1)
    }

    /// The same with a root.
    pub(crate) fn at(self, root: u32) -> Kind {
        Kind(self.0 | (root & 0xffff) << 15 | 1 << 31)
    }

    /// The same with what is computed.
    pub(crate) fn with(self, reduction: &Reduction) -> Kind {
        Kind(self.0 | u32::from(reduction.code()) << 5)
    }

    /// Which collective it is, for people.
    pub(crate) fn name(self) -> &'static str {
        let what = (self.0 & 31).checked_sub(1).and_then(|what| What::ALL.get(what as usize));
        what.map_or("collective that is not known", |(_, name)| name)
    }

    /// Which of several ways of a collective a message belongs to, by its tag: all ranks go the same one if they give as many bytes.
    pub(crate) fn way_of(tag: u64) -> u64 {
        (tag & u64::from(u32::MAX)) >> WAY
    }

    /// What stands in a tag.
    pub(crate) fn in_tag(tag: u64) -> Kind {
        Kind((tag >> SHIFT) as u32)
    }

    /// A tag of a message of such a collective; a user's is his.
    pub(crate) fn tag(self, tag: u64) -> u64 {
        tag | u64::from(self.0) << SHIFT
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.0 >> 31 != 0 {
            write!(f, " with root {}", self.0 >> 15 & 0xffff)?;
        }
        match (self.0 >> 5 & 1023) as u16 {
            0 => Ok(()),
            code => write!(f, ", {}", name_of(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Datatype, Operation};

    #[test]
    fn what_ranks_agree_on_is_in_their_tags_and_has_words() {
        let sum = Reduction::new(Datatype::Float64, Operation::Sum).unwrap();
        let kind = Kind::of(What::Reduce).at(3).with(&sum);
        assert_eq!(Kind::in_tag(kind.tag(u64::from(u32::MAX))), kind);
        assert_eq!(kind.to_string(), "reduce with root 3, Sum of Float64");
        assert_ne!(kind, Kind::of(What::Reduce).at(0).with(&sum));
        assert_eq!(Kind::of(What::Barrier).to_string(), "barrier");
        assert_eq!(Kind::default().tag(u64::MAX), u64::MAX);
        for ((what, name), number) in What::ALL.into_iter().zip(0..) {
            assert_eq!((what as u32, Kind::of(what).name()), (number, name));
        }
        let last = Reduction::new(Datatype::Int16Int, Operation::MaxLocation).unwrap();
        assert_eq!(Kind::of(What::Exscan).with(&last).to_string(), "exscan, MaxLocation of Int16Int");
    }
}
