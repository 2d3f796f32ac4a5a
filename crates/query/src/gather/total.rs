//! A sum, exactly.

use forebay_core::exact_sum::ExactSum;
use serde::{Deserialize, Serialize};

/// A sum of numbers, exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Total {
    /// Of integers.
    Integer(i128),
    /// Of floats.
    Float(Box<ExactSum>),
}

impl Total {
    /// The same as a double.
    pub fn to_f64(&self) -> f64 {
        match self {
            Total::Integer(sum) => *sum as f64,
            Total::Float(sum) => sum.to_f64(),
        }
    }

    /// Takes in another one.
    pub fn add(&mut self, other: &Total) {
        match (self, other) {
            // 2^64 integers of 64 bits fit.
            (Total::Integer(own), Total::Integer(theirs)) => *own = own.wrapping_add(*theirs),
            (Total::Float(own), Total::Float(theirs)) => own.add_sum(theirs),
            // All that is merged is of one lane.
            (own, theirs) => *own = theirs.clone(),
        }
    }
}
