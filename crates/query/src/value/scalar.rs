//! A number, a condition, or why there is none.

use crate::value::number::Number;
use forebay_core::ids::BlockKey;
use forebay_core::region::Dims;
use forebay_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of what sort something unknown is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnknownKind {
    /// The step is torn.
    Torn,
    /// The region is not filled by what was put, or no longer lies in the array.
    NotCovered,
    /// What was put is lost.
    Lost,
    /// The field is not offered at this step.
    NotOffered,
    /// An integer is beyond 64 bits, or was divided by 0.
    Overflow,
    /// There were too few evaluations before.
    History,
    /// Another stream has no such step.
    NoPartner,
    /// What the fields are at this step does not fit the text.
    Mismatch,
}

/// Why something is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// Of what sort.
    pub kind: UnknownKind,
    /// For people.
    pub text: String,
}

impl Unknown {
    /// With a text.
    pub fn new(kind: UnknownKind, text: impl Into<String>) -> Unknown {
        Unknown { kind, text: text.into() }
    }

    /// The same as an error, for one who has asked for a value.
    pub fn error(self) -> Error {
        let kind = match self.kind {
            UnknownKind::Torn => ErrorKind::Torn,
            UnknownKind::NotCovered => ErrorKind::NotCovered,
            UnknownKind::Lost => ErrorKind::Lost,
            UnknownKind::NotOffered | UnknownKind::NoPartner => ErrorKind::NotFound,
            UnknownKind::Overflow | UnknownKind::History => ErrorKind::Invalid,
            UnknownKind::Mismatch => ErrorKind::TypeMismatch,
        };
        Error::new(kind, self.text)
    }
}

/// Where an element lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Its refinement level.
    pub level: u32,
    /// Its block, if blocks have no place in a global array.
    pub block: Option<BlockKey>,
    /// Its index in the global array, or in the interior of its block.
    pub index: Dims,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.index[..])?;
        if let Some(block) = &self.block {
            write!(f, " of {block}")?;
        }
        if self.level > 0 { write!(f, " of level {}", self.level) } else { Ok(()) }
    }
}

/// What a part of an expression gives that is no array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// A number.
    Number(Number),
    /// A condition.
    Condition(bool),
    /// Where an extreme lies; `None` if there are no numbers.
    Place(Option<Place>),
    /// Nothing, and why.
    Unknown(Unknown),
}

impl Scalar {
    /// A number, or why there is none.
    pub fn number(&self) -> Result<Number, Unknown> {
        match self {
            Scalar::Number(number) => Ok(*number),
            Scalar::Unknown(why) => Err(why.clone()),
            other => Err(Unknown::new(UnknownKind::Mismatch, format!("{other:?} is no number"))),
        }
    }

    /// Whether a condition holds, or why that is not known.
    pub fn condition(&self) -> Result<bool, Unknown> {
        match self {
            Scalar::Condition(condition) => Ok(*condition),
            Scalar::Unknown(why) => Err(why.clone()),
            other => Err(Unknown::new(UnknownKind::Mismatch, format!("{other:?} is no condition"))),
        }
    }

    /// Whether both hold: false if one does not, whatever the other is (Kleene's logic).
    pub fn and(self, other: Scalar) -> Scalar {
        match (&self, &other) {
            (Scalar::Condition(false), _) | (_, Scalar::Condition(false)) => Scalar::Condition(false),
            (Scalar::Condition(true), _) => other,
            _ => self,
        }
    }

    /// Whether one of them holds: true if one does, whatever the other is.
    pub fn or(self, other: Scalar) -> Scalar {
        match (&self, &other) {
            (Scalar::Condition(true), _) | (_, Scalar::Condition(true)) => Scalar::Condition(true),
            (Scalar::Condition(false), _) => other,
            _ => self,
        }
    }
}

impl std::ops::Not for Scalar {
    type Output = Scalar;
    fn not(self) -> Scalar {
        match self {
            Scalar::Condition(condition) => Scalar::Condition(!condition),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_decides_nothing() {
        let unknown = || Scalar::Unknown(Unknown::new(UnknownKind::Torn, "torn"));
        let (yes, no) = (|| Scalar::Condition(true), || Scalar::Condition(false));
        assert_eq!((unknown().and(no()), no().and(unknown())), (no(), no()));
        assert_eq!((unknown().or(yes()), yes().or(unknown())), (yes(), yes()));
        assert_eq!(
            (unknown().and(yes()), yes().and(unknown()), !unknown()),
            (unknown(), unknown(), unknown())
        );
        assert_eq!((unknown().or(no()), no().or(unknown()), yes().and(yes())), (unknown(), unknown(), yes()));
        assert_eq!((no().or(no()), !no()), (no(), yes()));
    }
}
