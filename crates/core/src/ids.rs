//! Names and numbers that identify things, the same on every server.

pub use crate::server_id::ServerId;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of an iteration, as the producer gave it.
pub type StepNumber = u64;

/// The number under which the static fields of a run are held, as if they were a step: no step of a producer has it.
pub const STATIC_STEP: StepNumber = StepNumber::MAX;

/// A step, or the static fields of its run, as messages name them.
pub fn step_name(step: StepNumber) -> String {
    match step {
        STATIC_STEP => "the static fields".to_owned(),
        step => format!("step {step}"),
    }
}

/// One life of a stream, counted from 1 by its coordinator.
pub type RunNumber = u64;

/// When something was, in milliseconds since 1970 (UTC), as the clock of the server said that saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    /// Date and time, to the second, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
            Some(time) => write!(f, "{} UTC", time.strftime("%Y-%m-%d %H:%M:%S")),
            None => write!(f, "{} ms after 1970", self.0),
        }
    }
}

/// One line of a group's history: made at random when the group is founded, renewed by force only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lineage(pub [u8; 16]);

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Lineage {
    type Err = Error;
    fn from_str(text: &str) -> Result<Lineage> {
        let bad = || Error::invalid(format!("'{text}' is no lineage: 32 hexadecimal digits are needed"));
        let mut bytes = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return Err(bad());
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Lineage(bytes))
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lineage({self})")
    }
}

/// The number of a view within a lineage.
pub type Epoch = u64;

/// What tells one block from another within a stream, run, step and field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockKey {
    /// The rank that put it.
    pub rank: u32,
    /// Its number among the blocks of that rank.
    pub number: u64,
    /// Which part of that block it is, counted from 1; 0 if it is all of it.
    pub part: u32,
}

impl BlockKey {
    /// A block as it was put.
    pub fn whole(rank: u32, number: u64) -> BlockKey {
        BlockKey { rank, number, part: 0 }
    }

    /// Whether both are of one block, as that was put.
    pub fn is_of_block(&self, other: &BlockKey) -> bool {
        (self.rank, self.number) == (other.rank, other.number)
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part > 0 {
            write!(f, "part {} of ", self.part)?;
        }
        write!(f, "block {} of rank {}", self.number, self.rank)
    }
}

/// A step of a run of a stream, or the run's static fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId {
    /// The stream's name.
    pub stream: String,
    /// The run.
    pub run: RunNumber,
    /// The step's number, or [`STATIC_STEP`].
    pub step: StepNumber,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of run {} of stream '{}'", step_name(self.step), self.run, self.stream)
    }
}

/// Which description of a field of the space at a step; later ones are greater, whoever gives them. 0 is none.
pub type DescriptionNumber = u128;

/// The longest name of a stream, field, pipeline or dimension, in bytes.
pub const NAME_MAX: usize = 255;

/// Checks a name that a user chose: 1 to [`NAME_MAX`] bytes, and no control characters, which would spoil messages to people.
/// All else is allowed, dots in the names of streams too: an expression quotes a name that it could not tell from its own
/// signs.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::invalid(format!(
            "{what}: a name has 1 to {NAME_MAX} bytes, this one has {}",
            name.len()
        )));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control()) {
        return Err(Error::invalid(format!(
            "{what} {name:?}: the character {bad:?} is not allowed in a name"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(check_name("stream", "gray scott/π").is_ok());
        assert!(check_name("stream", "a.b").is_ok());
        assert!(check_name("stream", "").is_err());
        assert!(check_name("stream", "a\nb").is_err());
        assert!(check_name("stream", &"x".repeat(256)).is_err());
    }

    #[test]
    fn a_time_is_shown_in_utc_whatever_it_is() {
        assert_eq!(Timestamp(1_795_708_980_999).to_string(), "2026-11-26 16:03:00 UTC");
        assert!(Timestamp(u64::MAX).to_string().contains("after 1970"));
    }
}
