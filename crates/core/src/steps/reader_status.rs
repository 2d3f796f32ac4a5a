//! What `status` shows of those who are attached to a stream.

use crate::contract::Needs;
use crate::identity::Identity;
use crate::ids::{RunNumber, STATIC_STEP, ServerId, StepNumber};
use crate::steps::attachment::{Attachment, Take};
use crate::steps::share::Share;

/// A consumer, a pipeline, or subscriptions.
#[derive(Debug, Clone, PartialEq)]
pub struct ReaderStatus {
    /// Who reads, one of them if they are several; `None` of a pipeline.
    pub who: Option<Identity>,
    /// The name of the pipeline, if it is one.
    pub pipeline: Option<String>,
    /// Whether it is of subscriptions that need the same.
    pub is_of_subscriptions: bool,
    /// How many read: 1, unless it is a cohort, or several share its steps.
    pub ranks: u64,
    /// The server that it is connected to.
    pub server: ServerId,
    /// What it needs.
    pub needs: Needs,
    /// Which of the steps that wait for it, it is given.
    pub take: Take,
    /// How many steps it may hold, of several that share steps all together; and how many it holds: arrays of earlier ones may
    /// live, too.
    pub window: u64,
    /// How many it holds.
    pub held: u64,
    /// How many closed steps wait for it.
    pub waiting: u64,
    /// How many steps it has missed, in all.
    pub missed: u64,
    /// The last step that it was told of.
    pub last: Option<(RunNumber, StepNumber)>,
    /// What is said of a contract that has met none of the latest steps.
    pub unmatched: Option<String>,
}

impl ReaderStatus {
    /// Of an attachment that stands in for nobody.
    pub(super) fn of(attachment: &Attachment, unmatched: Option<String>) -> ReaderStatus {
        let pinned = attachment.pinned.iter().filter(|(_, step)| *step != STATIC_STEP).count();
        ReaderStatus {
            who: attachment
                .share
                .as_ref()
                .and_then(Share::one_of_them)
                .or(attachment.reader.as_ref())
                .cloned(),
            pipeline: attachment.pipeline.clone(),
            is_of_subscriptions: attachment.is_of_subscriptions,
            ranks: attachment.readers(),
            server: attachment.server,
            needs: attachment.demanded().clone(),
            take: attachment.take,
            window: attachment.share.as_ref().map_or(u64::from(attachment.window), Share::window),
            held: (attachment.delivered.len() + pinned) as u64,
            waiting: attachment.queue.len() as u64,
            missed: attachment.missed_in_all(),
            last: attachment.last,
            unmatched,
        }
    }
}
