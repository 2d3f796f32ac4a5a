//! What always holds of a stream's coordinator between two events: tests and simulations check it.

use super::StreamCoordinator;
use crate::ids::{RunNumber, StepNumber, step_name};
use crate::steps::attachment::{Attachment, Phase};
use std::collections::BTreeMap;

impl StreamCoordinator {
    /// Whether what the parts of its state say of one another agrees. The error says what does not.
    pub fn sanity_check(&self) -> Result<(), String> {
        self.check_parts().map_err(|text| format!("stream '{}': {text}", self.name))
    }

    fn check_parts(&self) -> Result<(), String> {
        for (number, run) in &self.runs {
            if *number != run.number || *number > self.last_run {
                return Err(format!("run {} stands as {number}, the last is {}", run.number, self.last_run));
            }
            run.sanity_check()?;
        }
        if self.first_after > self.last_run {
            return Err(format!("runs begin after {}, the last is {}", self.first_after, self.last_run));
        }
        self.check_cohorts()?;
        let mut holds: BTreeMap<(RunNumber, StepNumber), u32> = BTreeMap::new();
        for (id, attachment) in &self.attachments {
            attachment.sanity_check().map_err(|text| format!("attachment {}: {text}", id.0))?;
            for step in attachment.holds() {
                *holds.entry(step).or_default() += 1;
            }
        }
        for (number, run) in &self.runs {
            for (step_number, step) in run.all_held() {
                let counted = holds.remove(&(*number, step_number)).unwrap_or(0);
                if counted != step.holds {
                    let text = format!("{counted} attachments hold it, but {} are counted", step.holds);
                    return Err(format!("run {number}, {}: {text}", step_name(step_number)));
                }
            }
        }
        match holds.pop_first() {
            None => Ok(()),
            Some(((run, step), _)) => Err(format!("{} of run {run}: held, but free", step_name(step))),
        }
    }
}

impl Attachment {
    fn sanity_check(&self) -> Result<(), String> {
        if let Some(step) = self.delivered.intersection(&self.pinned).next() {
            return Err(format!("step {step:?} is both read and finished with"));
        }
        if self.is_stand_in() && !self.delivered.is_empty() {
            return Err(format!("nobody reads {:?}", self.delivered));
        }
        if let Some(share) = &self.share
            && let Some(step) = self.delivered.iter().find(|step| share.holders.readers_of(**step).is_empty())
        {
            return Err(format!("step {step:?} was given to one of those that share steps, and none has it"));
        }
        match self.phase {
            Phase::Ended(..) if !self.queue.is_empty() => Err("steps wait after its end".into()),
            Phase::Closing(_) if !self.queue.is_empty() => Err("steps wait for a closed handle".into()),
            _ => Ok(()),
        }
    }
}
