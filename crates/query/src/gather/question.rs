//! What is asked in a round of all that hold elements.

use crate::value::Scalar;
use serde::{Deserialize, Serialize};

/// What a round asks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// What the measure says; of percentiles what [`Stage::Keys`] asks of all numbers.
    First,
    /// The sum of the squared distances from a mean.
    Squares(f64),
    /// How many numbers have their key in each of the buckets that begin at `low`, each `2^shift` wide.
    Keys {
        /// The first key of the first bucket.
        low: u64,
        /// How wide a bucket is.
        shift: u8,
    },
    /// The numbers themselves whose keys lie between these, both included.
    Values {
        /// The first key.
        low: u64,
        /// The last key.
        high: u64,
    },
    /// How many lie in each of the bins between the smallest and the largest.
    Bins {
        /// The smallest that is finite.
        low: f64,
        /// The largest that is finite.
        high: f64,
    },
}

/// What is asked of all that hold elements of an aggregate of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Which aggregate.
    pub aggregate: u16,
    /// What of it.
    pub stage: Stage,
    /// The scalars that its program takes.
    pub inputs: Vec<Scalar>,
}
