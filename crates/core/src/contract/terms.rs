//! What is needed of a field.

use super::{Field, Sequence, Slices};
use crate::ids::StepNumber;
use crate::stats::StatsOfBlock;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// At which of the steps at which a field is offered it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Period {
    /// Every so many of them.
    pub every: u32,
    /// The first one is the first from this step on; `None`: the first of all.
    pub first: Option<StepNumber>,
}

impl Period {
    /// At each.
    pub const ALL: Period = Period { every: 1, first: None };

    /// At every so many, from the first of all on.
    pub fn every(every: u32) -> Period {
        Period { every, first: None }
    }

    /// The steps at which a field is needed.
    pub fn steps_of(&self, field: &Field) -> Sequence {
        let offered = field.outputs();
        let before = self.first.map_or(0, |first| field.outputs_before(first));
        Sequence {
            first: offered.first.saturating_add(before.saturating_mul(offered.stride)),
            stride: offered.stride.saturating_mul(u64::from(self.every.max(1))),
        }
    }

    /// Whether a field is needed at a step.
    pub fn includes(&self, field: &Field, step: StepNumber) -> bool {
        let Some(output) = field.output_at(step) else { return false };
        let first = self.first.map_or(0, |first| field.outputs_before(first));
        output.checked_sub(first).is_some_and(|since| since.is_multiple_of(u64::from(self.every.max(1))))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every={}", self.every)?;
        self.first.map_or(Ok(()), |first| write!(f, ", first={first}"))
    }
}

/// Which statistics of a field are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Statistics {
    /// None.
    #[default]
    None,
    /// Those of each block, and of the whole field, along with the data.
    Along,
    /// Those of the whole field, and no data.
    Alone,
    /// The extremes of each block, along with the data: what decides about conditions.
    Extremes,
}

impl Statistics {
    /// Those of a block whose data is needed, too.
    pub fn of_block(self) -> StatsOfBlock {
        match self {
            Statistics::None | Statistics::Alone => StatsOfBlock::Nothing,
            Statistics::Extremes => StatsOfBlock::Extremes,
            Statistics::Along => StatsOfBlock::All,
        }
    }

    /// Whether those of the whole field are among them.
    pub fn is_of_field(self) -> bool {
        matches!(self, Statistics::Along | Statistics::Alone)
    }

    /// What two need together; if both need data, it is needed.
    pub fn and(self, other: Statistics) -> Statistics {
        match (self, other) {
            (own, other) if own == other => own,
            (Statistics::None, Statistics::Extremes) | (Statistics::Extremes, Statistics::None) => {
                Statistics::Extremes
            }
            (_, _) => Statistics::Along,
        }
    }
}

/// What is needed of a field: at which steps, and which part. What a producer has to know of a contract.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// At which steps.
    pub period: Period,
    /// Which part of its global shape; `None`: all of it.
    pub part: Option<Slices>,
    /// Which statistics.
    pub statistics: Statistics,
}

impl Terms {
    /// All of it, each time.
    pub const ALL: Terms = Terms { period: Period::ALL, part: None, statistics: Statistics::None };

    /// All of it, every so many times.
    pub fn every(every: u32) -> Terms {
        Terms { period: Period::every(every), ..Terms::ALL }
    }

    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        if self.period.every == 0 {
            return Err(Error::invalid("its period is 0; use 1 for every step"));
        }
        if let (Statistics::Alone, Some(part)) = (self.statistics, &self.part) {
            return Err(Error::invalid(format!(
                "statistics alone are those of the whole field, and region {part} is asked for: leave the region out, or ask for \
                 the data along with them"
            )));
        }
        Ok(())
    }

    /// Checks that a field has what is needed of it.
    pub fn check_against(&self, field: &Field) -> Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        match &field.shape {
            Some(shape) => part.check_in(shape),
            None => Err(Error::invalid(format!(
                "region {part} of a field without a global shape: all of its blocks are needed, or none"
            ))),
        }
    }

    /// Whether all that another one needs, of the same field, is needed by this one.
    pub fn cover(&self, other: &Terms) -> bool {
        (self.period == other.period || self.period == Period::ALL)
            && (self.part.is_none() || self.part == other.part)
            && match self.statistics {
                Statistics::Along => {
                    self.part == other.part
                        || matches!(other.statistics, Statistics::None | Statistics::Extremes)
                }
                Statistics::Extremes => matches!(other.statistics, Statistics::None | Statistics::Extremes),
                own => own == other.statistics,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    #[test]
    fn periods_multiply() {
        let mut field = Field::new("U", Dtype::F64, Some(&[4, 5]), 2);
        field.every = 3;
        let at = |period: Period| (0..20).filter(|step| period.includes(&field, *step)).collect::<Vec<_>>();
        assert_eq!(at(Period::every(2)), [0, 6, 12, 18]);
        assert_eq!(at(Period { every: 2, first: Some(7) }), [9, 15]);
        assert_eq!(at(Period { every: 1, first: Some(16) }), [18]);
    }

    #[test]
    fn periods_count_what_the_producer_makes_available() {
        let mut field = Field::new("U", Dtype::F64, None, 1);
        field.sequence = Sequence { first: 1, stride: 10 };
        let at = |period: Period| (0..250).filter(|step| period.includes(&field, *step)).collect::<Vec<_>>();
        assert_eq!(at(Period::every(10)), [1, 101, 201]);
        assert_eq!(at(Period { every: 10, first: Some(50) }), [51, 151]);
    }
}
