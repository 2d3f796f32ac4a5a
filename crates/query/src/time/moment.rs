//! When something was.

use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// A step, and its physical time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its number.
    pub step: StepNumber,
    /// Its time.
    pub time: f64,
}
