//! What the ranks of a run agree on when they join.

use crate::ids::{RunNumber, StepNumber};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What happens to closed steps when readers or memory cannot keep up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// The oldest closed steps go; they are counted and readers see a gap.
    #[default]
    DropOldest,
    /// A put that finds no room waits for it, up to the producer's deadline.
    Block,
    /// Only the latest closed step waits for each reader.
    Latest,
}

/// When blocks of which several servers hold copies are safe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// When a flush or the end of the step has returned.
    #[default]
    Local,
    /// When the put has returned.
    Replicated,
}

/// The most servers that may hold a block.
const REPLICAS_MAX: u32 = 8;

/// Whether a block may be held by so many servers.
pub fn check_replicas(replicas: u32) -> Result<()> {
    if (1..=REPLICAS_MAX).contains(&replicas) {
        return Ok(());
    }
    Err(Error::invalid(format!("replicas is {replicas}: 1 to {REPLICAS_MAX} servers can hold a block")))
}

/// Whether a block may be held by so many servers of a group that has so many.
pub fn check_replicas_among(replicas: u32, servers: usize) -> Result<()> {
    check_replicas(replicas)?;
    if replicas as usize > servers {
        return Err(Error::invalid(format!(
            "replicas is {replicas}, more than the group has servers ({servers}): add some with `forebay add`, or ask for \
             fewer"
        )));
    }
    Ok(())
}

/// What the ranks of a run agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// How many ranks there are.
    pub size: u32,
    /// What happens when readers or memory cannot keep up.
    pub policy: Policy,
    /// How many closed steps are kept although nobody reads them.
    pub keep: u32,
    /// Bytes of closed steps that may wait for readers; beyond, the policy decides.
    pub queue_bytes: u64,
    /// The run and the last step of it that this one continues.
    pub continues: Option<(RunNumber, StepNumber)>,
    /// How many servers hold each block: all but one may die.
    pub replicas: u32,
    /// When a block's copies are made.
    pub durability: Durability,
    /// How many readers with different names are to be there before the first step begins.
    pub wait_for_readers: u32,
    /// What names the job that the ranks belong to; empty if nothing does.
    pub job: String,
}

/// How long a job's name may be, in bytes.
const JOB_MAX: usize = 255;

impl fmt::Display for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The job is not what ranks choose: it is told apart.
        let RunOptions {
            size,
            policy,
            keep,
            queue_bytes,
            continues,
            replicas,
            durability,
            wait_for_readers,
            job: _,
        } = self;
        let policy = match policy {
            Policy::DropOldest => "drop-oldest",
            Policy::Block => "block",
            Policy::Latest => "latest",
        };
        write!(f, "{size} ranks, policy {policy}, keep {keep}, queue_bytes {queue_bytes}")?;
        if *replicas > 1 {
            let durability = match durability {
                Durability::Local => "local",
                Durability::Replicated => "replicated",
            };
            write!(f, ", replicas {replicas}, durability {durability}")?;
        }
        if *wait_for_readers > 0 {
            write!(f, ", wait_for_readers {wait_for_readers}")?;
        }
        match continues {
            Some((run, step)) => write!(f, ", continuing run {run} from step {step}"),
            None => Ok(()),
        }
    }
}

impl RunOptions {
    /// Checks what can be wrong in itself.
    pub fn check(&self, rank: u32) -> Result<()> {
        if self.size == 0 || rank >= self.size {
            return Err(Error::invalid(format!("rank {rank} of {}: ranks count from 0", self.size)));
        }
        if self.job.len() > JOB_MAX || self.job.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "job {:?} has {} bytes: up to {JOB_MAX} are possible, without control characters",
                self.job.chars().take(40).collect::<String>(),
                self.job.len()
            )));
        }
        check_replicas(self.replicas)
    }

    /// What names the job, as people read it.
    pub(super) fn job_text(&self) -> String {
        if self.job.is_empty() { "no job that is known".into() } else { format!("job '{}'", self.job) }
    }

    /// How many servers hold copies of a block beside the one that it was put to.
    pub fn copies(&self) -> u32 {
        self.replicas.saturating_sub(1)
    }
}
