//! From when on what is watched holds, until when.

use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// A time during which what is watched holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    /// Its number, counted from 1.
    pub number: u64,
    /// The step at which it began.
    pub first: StepNumber,
    /// How many evaluations in it gave nothing that is known.
    pub missing: u64,
}

/// What an evaluation is in an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    /// The first at which it holds.
    Rose,
    /// One of those after that.
    Holds,
    /// The first at which it holds no more.
    Fell,
}

impl Turn {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Turn::Rose => "rose",
            Turn::Holds => "holds",
            Turn::Fell => "fell",
        }
    }
}
