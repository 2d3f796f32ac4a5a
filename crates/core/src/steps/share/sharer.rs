//! What a reader that shares steps with others says of itself when it comes, or comes back.

use crate::ids::{RunNumber, StepNumber};
use crate::steps::cohort::ToldStep;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// How the steps of a stream are shared out among readers of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// They are not: each reader is told of all.
    #[default]
    None,
    /// Each step goes to the reader that has asked for one first.
    OnDemand,
    /// Each step goes to the next reader in turn.
    RoundRobin,
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sharing::None => "none",
            Sharing::OnDemand => "on-demand",
            Sharing::RoundRobin => "round-robin",
        })
    }
}

/// A reader that shares steps with others of its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharer {
    /// How they are shared out.
    pub sharing: Sharing,
    /// Its number among those readers, if it comes back.
    pub number: Option<u32>,
    /// The latest steps that it was told of, if it comes back.
    pub told: Vec<ToldStep>,
}

impl Sharer {
    /// How many steps a reader tells that it was told of: no more than it can hold.
    pub const TOLD_MAX: usize = 1024;

    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        if self.sharing == Sharing::None || self.told.len() > Self::TOLD_MAX {
            let text =
                format!("a reader that shares steps ({}) was told of {}", self.sharing, self.told.len());
            return Err(Error::protocol(text));
        }
        Ok(())
    }

    /// The steps that it was told of.
    pub(in crate::steps) fn told_steps(&self) -> BTreeSet<(RunNumber, StepNumber)> {
        self.told.iter().map(|told| (told.run, told.step)).collect()
    }
}
