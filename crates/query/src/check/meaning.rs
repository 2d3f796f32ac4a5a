//! What a part of a text means.

use crate::plan::{Lane, Register, ScalarId};
use crate::value::Kind;

/// What a part means: of which type it is, and where it is computed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meaning {
    /// A number.
    Number(ScalarId, Kind),
    /// A condition.
    Condition(ScalarId),
    /// A number or a condition for each element.
    Elements(Elements),
    /// A field that nobody has used yet: by its place among those of the tree. It may also be the name of a dimension.
    Field(usize),
    /// Where the extreme of an aggregate lies.
    Place(ScalarId, usize),
    /// The coordinates of that.
    Position(usize),
}

/// Something for each element of a domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Elements {
    pub(super) register: Register,
    pub(super) lane: Lane,
    pub(super) domain: usize,
}

/// A number, the same for all elements or one for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Numeric {
    One(ScalarId, Kind),
    Each(Elements),
}

impl Numeric {
    pub(super) fn kind(self) -> Kind {
        match self {
            Numeric::One(_, kind) => kind,
            Numeric::Each(elements) => elements.lane.kind(),
        }
    }
}

/// A condition, the same for all elements or one for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Logical {
    One(ScalarId),
    Each(Elements),
}

impl From<Numeric> for Meaning {
    fn from(numeric: Numeric) -> Meaning {
        match numeric {
            Numeric::One(id, kind) => Meaning::Number(id, kind),
            Numeric::Each(elements) => Meaning::Elements(elements),
        }
    }
}

impl From<Logical> for Meaning {
    fn from(logical: Logical) -> Meaning {
        match logical {
            Logical::One(id) => Meaning::Condition(id),
            Logical::Each(elements) => Meaning::Elements(elements),
        }
    }
}
