//! The streams of this server as its pipelines use them.

use crate::attachments::Attachments;
use crate::context::Context;
use crate::handle;
use crate::node::Attached;
use crate::pipelines::{StreamEvent, Streams};
use crate::surroundings::HashMap;
use forebay_core::Result;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Effect, Start, StreamCoordinator};
use std::collections::BTreeMap;

/// The streams of this server while its pipelines handle an event.
pub(super) struct StreamsAtHand<'a> {
    pub(super) coordinators: &'a mut BTreeMap<String, StreamCoordinator>,
    pub(super) forgotten_run: RunNumber,
    pub(super) attachments: &'a mut HashMap<AttachmentId, Attached>,
    pub(super) known_attachments: &'a Attachments,
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
        self.attachments.insert(id, Attached::Pipeline { name: pipeline.clone() });
        let coordinator = handle::coordinator_in(self.coordinators, self.forgotten_run, cx, stream);
        let effects = coordinator.attach(id, attachment, start)?;
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
        if let Some(coordinator) = self.coordinators.get_mut(stream) {
            let effects = coordinator.release(id, run, step, pinned);
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
    }

    fn detach(&mut self, stream: &str, id: AttachmentId) {
        self.attachments.remove(&id);
        if let Some(coordinator) = self.coordinators.get_mut(stream) {
            let effects = coordinator.detach(id);
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
    }

    fn coordinator(&self, stream: &str) -> Option<&StreamCoordinator> {
        self.coordinators.get(stream)
    }

    fn was_attached(&self, stream: &str, id: AttachmentId) -> bool {
        self.known_attachments.contains(stream, id)
    }

    fn have_all_told(&self) -> bool {
        self.have_all_told
    }

    fn are_holders_members(&self) -> bool {
        self.are_holders_members
    }
}
