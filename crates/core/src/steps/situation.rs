//! What a reader waits for, and which readers there are, as the stream's coordinator sees it.

use crate::identity::Identity;
use crate::ids::{RunNumber, StepNumber};
use crate::steps::run_end::RunEnd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The readers that take part in a run, as far as simulations wait for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadersThere {
    /// Those with names, by their names.
    pub named: BTreeMap<String, Identity>,
    /// Some of those without.
    pub unnamed: Vec<Identity>,
    /// Whether a rank has begun a step of the run: nobody waits for readers any more.
    pub has_begun: bool,
}

impl ReadersThere {
    /// Whether a run that waits for so many readers may begin.
    pub fn are_enough(&self, wanted: u32) -> bool {
        self.has_begun || self.named.len() >= wanted as usize
    }
}

impl fmt::Display for ReadersThere {
    /// Who has come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |readers: &mut dyn Iterator<Item = &Identity>| {
            readers.map(Identity::to_string).collect::<Vec<_>>().join(", ")
        };
        match self.named.is_empty() {
            true => write!(f, "none with a name has come")?,
            false => write!(f, "those that have come are {}", listed(&mut self.named.values()))?,
        }
        if !self.unnamed.is_empty() {
            let unnamed = listed(&mut self.unnamed.iter());
            write!(f, "; without a name, and so not counted: {unnamed} (give each reader a `name`)")?;
        }
        Ok(())
    }
}

/// How many fields are named.
const FIELDS_NAMED_MAX: usize = 8;

/// What a reader waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Situation {
    /// The stream's latest run, if it has had one.
    pub run: Option<RunNumber>,
    /// Whether it is over.
    pub is_over: bool,
    /// Whether some rank of it is there, or on its way to another home.
    pub has_ranks: bool,
    /// Whether the reader takes part in it.
    pub takes_part: bool,
    /// The highest step that a rank of it is known to have begun.
    pub reached: Option<StepNumber>,
    /// The fields that it offers, some of them if there are many.
    pub offered: Vec<String>,
    /// Whether any of them is one that the reader wants.
    pub is_any_wanted: bool,
    /// What is said of a contract that has met none of the latest steps.
    pub unmatched: Option<String>,
    /// Which ranks of the reader's cohort, or readers that share steps with it, have not finished with steps for which the others
    /// wait.
    pub behind: Option<String>,
    /// Whether the reader may yet be given steps that others have which share its steps.
    pub waits_for_others: bool,
    /// The end of the run, of which the reader is told once it has finished with what it holds itself: nothing else is left.
    pub end: Option<Box<RunEnd>>,
}

impl Situation {
    /// Names those of these fields that are shown.
    pub fn name_fields<'a>(&mut self, fields: impl Iterator<Item = &'a String>) {
        let mut fields = fields.cloned();
        self.offered = fields.by_ref().take(FIELDS_NAMED_MAX).collect();
        let more = fields.count();
        if more > 0 {
            self.offered.push(format!("{more} more"));
        }
    }

    /// Whether steps may come without anything else being done: the simulation runs, and the reader takes part.
    pub fn may_go_on(&self) -> bool {
        self.has_ranks && self.takes_part && self.unmatched.is_none()
    }

    /// Whether steps may come though the simulation has ended: from others that share them, and may not finish with all.
    pub fn may_be_given_more(&self) -> bool {
        !self.has_ranks && self.waits_for_others
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(run) = self.run else {
            return write!(f, "it has had no run yet: is the simulation running?");
        };
        let reached = self.reached.map(|step| format!(", at step {step}")).unwrap_or_default();
        if self.is_over {
            return match &self.behind {
                Some(behind) => write!(f, "its run {run} is over; {behind}"),
                None => write!(f, "its run {run} is over, and no other one has begun"),
            };
        }
        if !self.has_ranks {
            return write!(
                f,
                "of its run {run}{reached} no rank is there, and not all have come: is the simulation running?"
            );
        }
        if !self.takes_part {
            return write!(
                f,
                "its run {run} had begun when this reader came{reached}: it waits for the next one (`start`)"
            );
        }
        write!(f, "its run {run} is running{reached}")?;
        if !self.is_any_wanted {
            let offered = if self.offered.is_empty() { "none".into() } else { self.offered.join(", ") };
            write!(f, ", and offers nothing that this reader wants; its fields are: {offered}")?;
        } else if let Some(unmatched) = &self.unmatched {
            write!(f, ", but {unmatched}")?;
        }
        match &self.behind {
            Some(behind) => write!(f, "; {behind}"),
            None => Ok(()),
        }
    }
}
