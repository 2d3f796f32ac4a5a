//! The streams of this server as its pipelines and subscriptions use them.

#[cfg(test)]
mod tests;

use super::{Components, Node};
use crate::context::Context;
use crate::pipelines::Pipelines;
use crate::streams::attachments::{Attachments, Delivery};
use crate::streams::coordination::Coordination;
use crate::streams::users::{StreamEvent, StreamUser, Streams};
use crate::subscriptions::Subscriptions;
use forebay_core::Result;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Effect, Start, StreamCoordinator};

/// The streams of this server while one who uses them handles an event.
pub(crate) struct StreamsAtHand<'a> {
    pub(crate) coordination: &'a mut Coordination,
    pub(crate) attachments: &'a mut Attachments,
    pub(crate) have_all_told: bool,
    pub(crate) are_holders_members: bool,
    /// What is to be done after the event, in order.
    pub(crate) consequences: Vec<Consequence>,
}

/// What follows for streams and their users from what one of these did with a stream.
pub(crate) enum Consequence {
    /// What a stream's coordinator says must be done.
    Effects(String, Vec<Effect>),
    /// A user is to be told something after all that was to be done before.
    Tell(StreamEvent),
}

/// Those who use streams within this server.
pub(crate) struct Users<'a> {
    pub(crate) pipelines: &'a mut Pipelines,
    pub(crate) subscriptions: &'a mut Subscriptions,
}

impl Node {
    /// Tells one who uses streams of an event, and then does what follows for streams.
    ///
    /// Of steps that this delivers to users, they are told with the next `drain`, before any other message: each caller
    /// calls that before it unlocks the state. That is as good as telling them amid their event, since whatever is told of a
    /// step neither takes back what the event has decided, nor is looked at by what is left of it: a step is put behind those
    /// that wait, and begins to run if none does.
    pub(crate) fn with_streams<T>(
        &self,
        state: &mut Components,
        event: impl FnOnce(Users<'_>, &mut Context<'_>, &mut StreamsAtHand<'_>) -> T,
    ) -> T {
        let have_all_told = self.all_told(state);
        let mut streams = StreamsAtHand {
            coordination: &mut state.coordination,
            attachments: &mut state.attachments,
            have_all_told,
            are_holders_members: state.replication.successors.is_empty(),
            consequences: Vec::new(),
        };
        let mut cx = Context { server: &self.shared, common: &mut state.common };
        let users = Users { pipelines: &mut state.pipelines, subscriptions: &mut state.subscriptions };
        let result = event(users, &mut cx, &mut streams);
        for consequence in streams.consequences {
            match consequence {
                Consequence::Effects(stream, effects) => self.apply(state, &stream, effects),
                Consequence::Tell(event) => state.stream_events.push_back(event),
            }
        }
        result
    }
}

impl Streams for StreamsAtHand<'_> {
    fn attach(
        &mut self,
        cx: &Context<'_>,
        stream: &str,
        user: StreamUser,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()> {
        self.attachments.add(id, Delivery::User(user.clone()));
        let effects = self.coordination.at(cx, stream).attach(id, attachment, start)?;
        self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        self.consequences.push(Consequence::Tell(StreamEvent::Attached { user }));
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

    fn choose(&mut self, stream: &str, id: AttachmentId, (run, step): (RunNumber, StepNumber)) {
        if let Some(coordinator) = self.coordination.get_mut(stream) {
            let effects = coordinator.choose(id, run, step);
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
    }

    fn change_needs(&mut self, stream: &str, id: AttachmentId, needs: Needs) -> Result<()> {
        if let Some(coordinator) = self.coordination.get_mut(stream) {
            let effects = coordinator.change_needs(id, needs)?;
            self.consequences.push(Consequence::Effects(stream.to_owned(), effects));
        }
        Ok(())
    }

    fn set_window(&mut self, stream: &str, id: AttachmentId, window: u32) {
        if let Some(coordinator) = self.coordination.get_mut(stream) {
            let effects = coordinator.set_window(id, window);
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
