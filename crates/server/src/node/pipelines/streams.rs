//! The streams of this server as its pipelines use them.

#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::pipelines::{StreamEvent, Streams};
use crate::streams::attachments::{Attachments, Delivery};
use crate::streams::coordination::Coordination;
use forebay_core::Result;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Effect, Start, StreamCoordinator};

/// The streams of this server while its pipelines handle an event.
pub(super) struct StreamsAtHand<'a> {
    pub(super) coordination: &'a mut Coordination,
    pub(super) attachments: &'a mut Attachments,
    pub(super) have_all_told: bool,
    pub(super) are_holders_members: bool,
    /// What is to be done after the event, in order.
    pub(super) consequences: Vec<Consequence>,
}

/// What follows for streams and pipelines from what pipelines did with a stream.
pub(super) enum Consequence {
    /// What a stream's coordinator says must be done.
    Effects(String, Vec<Effect>),
    /// A pipeline is to be told something after all that was to be done before.
    Tell(StreamEvent),
}

impl Streams for StreamsAtHand<'_> {
    fn attach(
        &mut self,
        cx: &Context<'_>,
        stream: &str,
        pipeline: &str,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()> {
        let pipeline = pipeline.to_owned();
        self.attachments.add(id, Delivery::Pipeline { name: pipeline.clone() });
        let effects = self.coordination.at(cx, stream).attach(id, attachment, start)?;
        self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        self.consequences.push(Consequence::Tell(StreamEvent::Attached { pipeline }));
        Ok(())
    }

    fn release(
        &mut self,
        stream: &str,
        id: AttachmentId,
        (run, step): (RunNumber, StepNumber),
        pinned: bool,
    ) {
        if let Some(coordinator) = self.coordination.get_mut(stream) {
            let effects = coordinator.release(id, run, step, pinned);
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
    }

    fn detach(&mut self, stream: &str, id: AttachmentId) {
        self.attachments.remove(id);
        if let Some(coordinator) = self.coordination.get_mut(stream) {
            let effects = coordinator.detach(id);
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
    }

    fn coordinator(&self, stream: &str) -> Option<&StreamCoordinator> {
        self.coordination.get(stream)
    }

    fn was_attached(&self, stream: &str, id: AttachmentId) -> bool {
        self.attachments.is_known(stream, id)
    }

    fn have_all_told(&self) -> bool {
        self.have_all_told
    }

    fn are_holders_members(&self) -> bool {
        self.are_holders_members
    }
}
