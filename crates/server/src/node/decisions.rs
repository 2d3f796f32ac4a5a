//! What follows from what a stream's coordinator decides: others are told, attachments are told of steps, streams are forgotten.

use super::{Components, Node};
use crate::streams::attachments::Delivery;
use crate::streams::local_ranks::cuts_to_tell;
use crate::streams::users::StreamEvent;
use forebay_core::ids::RunNumber;
use forebay_core::steps::{AttachmentId, Effect, StepReport};
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::consumer::Event;
use forebay_wire::peer::streams;

impl Node {
    /// Does what a stream's coordinator says must be done.
    pub(crate) fn apply(&self, state: &mut Components, stream: &str, effects: Vec<Effect>) {
        let name = || stream.to_owned();
        for effect in effects {
            match effect {
                Effect::Prepare { run, version } => self.prepare(state, stream, run, version),
                Effect::Decide(decision) => {
                    let (run, from) = (decision.run, decision.from);
                    let demand = (*decision.demand).clone();
                    self.tell_members(state, &streams::Message::Cut { stream: name(), run, from, demand });
                }
                Effect::Deliver(attachment, report) => {
                    self.deliver(state, stream, attachment, None, report);
                }
                Effect::DeliverTo(attachment, ranks, report) => {
                    self.deliver(state, stream, attachment, Some(&ranks), report);
                }
                Effect::Ended(attachment, end) => {
                    if let Some(Delivery::Consumer { outboxes }) = state.attachments.delivery(attachment) {
                        let event = Event::Ended { attachment, end };
                        outboxes.values().for_each(|outbox| self.tell_client(outbox, &event));
                    }
                }
                Effect::Attachment(id, record) => self.tell_of_attachment(state, stream, id, record),
                Effect::Cursor(reader, cursor) => self.tell_of_cursor(state, stream, reader, cursor),
                // Its contract meets none of the latest steps.
                Effect::Unmatched(who, text) => tracing::warn!("stream '{stream}', {who}: {text}"),
                Effect::NotOffered(attachment, run, step) => {
                    if let Some(Delivery::User(user)) = state.attachments.delivery(attachment).cloned() {
                        state.stream_events.push_back(StreamEvent::NotOffered { user, run, step });
                    }
                }
                Effect::Failed(attachment, error) => match state.attachments.remove(attachment) {
                    Some(Delivery::Consumer { outboxes }) => {
                        let event = Event::Detached { attachment, error };
                        outboxes.values().for_each(|outbox| self.tell_client(outbox, &event));
                    }
                    Some(Delivery::User(user)) => {
                        state.stream_events.push_back(StreamEvent::Failed { user, error });
                    }
                    None => {}
                },
                Effect::Free { id, servers, unseen_before } => {
                    for server in servers {
                        self.tell(state, server, streams::Message::Free { id: id.clone(), unseen_before });
                    }
                }
                Effect::Cuts { run, cuts, agreeing } => {
                    let (stream, (demand, cuts)) = (name(), cuts_to_tell(&cuts));
                    let told = streams::Message::Cuts { stream, run, demand, cuts, agreeing };
                    self.tell_members(state, &told);
                }
                Effect::Over(run, summary) => {
                    tracing::info!("run {run} of stream '{stream}' {}", summary.to_text());
                    self.tell_members(state, &streams::Message::RunOver { stream: name(), run, summary });
                }
                Effect::RankError { server, run, rank, error } => {
                    self.tell(
                        state,
                        server,
                        streams::Message::RankFailed { stream: name(), run, rank, error },
                    );
                }
            }
        }
        if state.common.members.this_one_leaves() {
            self.hand_over_counts(state, stream);
        }
        self.forget_idle(state, stream);
    }

    /// Asks all members to prepare a change of the demand.
    fn prepare(&self, state: &mut Components, stream: &str, run: RunNumber, version: u64) {
        for server in self.standing().view.members.iter().copied() {
            let question = streams::Message::PrepareCut { stream: stream.to_owned(), run, version };
            if !self.tell(state, server, question) {
                let effects = self.coordinator(state, stream).on_prepared(server, version, None);
                self.apply(state, stream, effects);
            }
        }
    }

    /// This server leaves: tells the others what it has counted of a stream, if they do not know.
    pub(crate) fn hand_over_counts(&self, state: &mut Components, stream: &str) {
        let Some(counts) = state.coordination.counts_to_tell(stream) else { return };
        for server in self.others(state) {
            let (stream, counts) = (stream.to_owned(), counts.clone());
            self.tell(state, server, streams::Message::Counted { stream, counts });
        }
    }

    /// Tells all members the same, this server among them.
    fn tell_members(&self, state: &mut Components, message: &streams::Message) {
        for server in self.standing().view.members.iter().copied() {
            self.tell(state, server, message.clone());
        }
    }

    /// Tells an attachment of a step; of a cohort all ranks, or these.
    fn deliver(
        &self,
        state: &mut Components,
        stream: &str,
        attachment: AttachmentId,
        ranks: Option<&[u32]>,
        report: Box<StepReport>,
    ) {
        match state.attachments.delivery(attachment).cloned() {
            Some(Delivery::Consumer { outboxes }) => {
                let id = report.id.clone();
                let event = Event::Step { attachment, report };
                let told = outboxes.iter().filter(|(rank, _)| ranks.is_none_or(|ranks| ranks.contains(rank)));
                let told = told.map(|(_, outbox)| outbox.push(self.header(0), &event));
                let too_large =
                    |told: Result<()>| told.err().filter(|error| error.kind == ErrorKind::Invalid);
                // Each is told, whatever has become of the others.
                if let Some(error) = told.filter_map(too_large).last() {
                    // The step's blocks fill more than one message: its reader would wait for ever.
                    let error = error.during(id.to_string());
                    let coordinator = self.coordinator(state, stream);
                    let effects = coordinator.fail(attachment, error, Some((id.run, id.step)));
                    self.apply(state, stream, effects);
                }
            }
            Some(Delivery::User(user)) => {
                state.stream_events.push_back(StreamEvent::Step { user, report });
            }
            None => {
                // It failed at a step before this one: nobody will release what was not told.
                let (run, step) = (report.id.run, report.id.step);
                let effects = self.coordinator(state, stream).release(attachment, run, step, false);
                self.apply(state, stream, effects);
            }
        }
    }

    /// Forgets a stream that nobody uses any more, if it never ran or too many others were used since.
    pub(crate) fn forget_idle(&self, state: &mut Components, stream: &str) {
        for forgotten in state.coordination.note_idle(stream) {
            self.forget_stream(state, &forgotten);
        }
    }

    fn forget_stream(&self, state: &mut Components, stream: &str) {
        state.coordination.remove(stream);
        state.locations.forget(stream, self.id);
        for server in self.standing().view.members.iter().filter(|id| **id != self.id) {
            self.tell(state, *server, streams::Message::StreamForgotten { stream: stream.to_owned() });
        }
    }
}
