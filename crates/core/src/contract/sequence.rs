//! Which numbers a producer's steps have.

use crate::ids::StepNumber;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The numbers of a producer's steps: the first, and each next one by so much later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// The number of its first step, or of one before that.
    pub first: StepNumber,
    /// The distance between two steps.
    pub stride: u64,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { first: 0, stride: 1 }
    }
}

impl Sequence {
    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        if self.stride == 0 {
            return Err(Error::invalid("stride is 0: step numbers grow by 1 or more"));
        }
        Ok(())
    }

    /// Which of its steps this number is, counted from 0; `None` if it is none.
    pub fn index_of(&self, step: StepNumber) -> Option<u64> {
        let distance = step.checked_sub(self.first)?;
        distance.is_multiple_of(self.stride).then(|| distance / self.stride)
    }

    /// How many of its steps have lower numbers.
    pub fn steps_before(&self, step: StepNumber) -> u64 {
        step.saturating_sub(self.first).div_ceil(self.stride)
    }

    /// An error that names the nearest numbers, if this is none of its steps.
    pub fn check_step(&self, stream: &str, step: StepNumber) -> Result<()> {
        if self.index_of(step).is_some() {
            return Ok(());
        }
        let after = self.steps_before(step).checked_mul(self.stride);
        let after = after.and_then(|distance| self.first.checked_add(distance));
        let nearest = match (step < self.first, after) {
            (true, _) => format!("the first is {}", self.first),
            (false, Some(after)) => format!("the nearest are {} and {after}", after - self.stride),
            (false, None) => "no later one is possible".to_owned(),
        };
        Err(Error::invalid(format!(
            "step {step} of stream '{stream}' is none of those that its producer announced with first={} and stride={}: \
             {nearest}",
            self.first, self.stride
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_announced_are_refused() {
        let sequence = Sequence { first: 1005, stride: 10 };
        assert_eq!([1005, 1015, 1035].map(|step| sequence.index_of(step)), [Some(0), Some(1), Some(3)]);
        assert_eq!([0, 995, 1004, 1006].map(|step| sequence.index_of(step)), [None; 4]);
        assert_eq!([0, 1005, 1006, 1015, 1016].map(|step| sequence.steps_before(step)), [0, 0, 1, 1, 2]);
        let text = sequence.check_step("s", 1019).unwrap_err().text;
        assert!(text.contains("nearest are 1015 and 1025"), "{text}");
        assert!(sequence.check_step("s", 7).unwrap_err().text.contains("the first is 1005"));
        let wide = Sequence { first: u64::MAX - 1, stride: u64::MAX };
        assert!(wide.check_step("s", u64::MAX).unwrap_err().text.contains("no later one"));
        assert!(Sequence { first: 0, stride: 0 }.check().is_err());
    }
}
