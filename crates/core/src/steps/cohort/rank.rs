//! What a rank of a cohort says of itself when it comes, or comes back.

use crate::ids::{RunNumber, StepNumber};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How many ranks a cohort may have.
const SIZE_MAX: u32 = 1 << 16;
/// How many steps a rank tells that it was told of: no more than it can hold.
const TOLD_MAX: usize = 1024;
/// How long the name of a host may be, in bytes.
const HOST_MAX: usize = 255;

/// A step that a rank was told of by the coordinator before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToldStep {
    /// The run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// How many steps it was told to have missed before this one.
    pub missed: u64,
    /// Whether it was told that the run went back.
    pub rewound: bool,
}

/// Which rank of a cohort a reader is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortRank {
    /// Its number, from 0.
    pub rank: u32,
    /// How many ranks the cohort has.
    pub size: u32,
    /// Its host, as servers name theirs.
    pub host: String,
    /// Whether the others go on without a rank that dies; else its end is theirs.
    pub goes_on: bool,
    /// The latest steps that it was told of, if it comes back: others may not have heard of all of them.
    pub told: Vec<ToldStep>,
}

impl CohortRank {
    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        let CohortRank { rank, size, host, goes_on: _, told } = self;
        if *size == 0 || *size > SIZE_MAX {
            return Err(Error::invalid(format!("size is {size}: a reader has 1 to {SIZE_MAX} ranks")));
        }
        if rank >= size {
            return Err(Error::invalid(format!("rank is {rank} of {size}: ranks count from 0")));
        }
        if told.len() > TOLD_MAX || host.len() > HOST_MAX {
            let text =
                format!("{} steps are told, of a host whose name has {} bytes", told.len(), host.len());
            return Err(Error::protocol(text));
        }
        Ok(())
    }
}
