//! What servers tell each other of the attachments of streams. (Design note 10.)

use super::{Components, Node};
use forebay_core::ids::{Epoch, RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, AttachmentRecord, StreamCoordinator};
use forebay_wire::peer::streams;

impl Node {
    /// Tells all servers of an attachment of a stream that this one coordinates, or that it is none any more.
    pub(crate) fn tell_of_attachment(
        &self,
        state: &mut Components,
        stream: &str,
        id: AttachmentId,
        record: Option<Box<AttachmentRecord>>,
    ) {
        state.attachments.note(stream, id, record.as_deref().cloned());
        for server in self.standing().view.members.iter().filter(|server| **server != self.id) {
            let (stream, record) = (stream.to_owned(), record.clone());
            self.tell(state, *server, streams::Message::AttachmentChanged { stream, id, record });
        }
    }

    /// A server has joined: it is told of all attachments of streams that this one coordinates.
    pub(crate) fn tell_of_attachments(&self, state: &mut Components, server: ServerId) {
        let known = &state.attachments;
        let messages: Vec<streams::Message> = state
            .coordination
            .all()
            .flat_map(|(stream, _)| {
                known.records(stream).map(|(id, record)| streams::Message::AttachmentChanged {
                    stream: stream.clone(),
                    id: *id,
                    record: Some(Box::new(record.clone())),
                })
            })
            .collect();
        let cursors: Vec<streams::Message> = state
            .coordination
            .all()
            .flat_map(|(stream, _)| {
                known.cursors(stream).map(|(name, (run, step))| streams::Message::CursorKept {
                    stream: stream.clone(),
                    name: name.clone(),
                    run: *run,
                    step: *step,
                })
            })
            .collect();
        for message in messages.into_iter().chain(cursors) {
            self.tell(state, server, message);
        }
    }

    /// Tells all servers where the next reader of this name goes on in a stream that this one coordinates.
    pub(crate) fn tell_of_cursor(
        &self,
        state: &mut Components,
        stream: &str,
        name: String,
        (run, step): (RunNumber, StepNumber),
    ) {
        state.attachments.note_cursor(stream, name.clone(), (run, step));
        for server in self.standing().view.members.iter().filter(|server| **server != self.id) {
            let (stream, name) = (stream.to_owned(), name.clone());
            self.tell(state, *server, streams::Message::CursorKept { stream, name, run, step });
        }
    }

    /// This server leaves: tells the others how far readers are in the streams that it coordinates.
    pub(crate) fn hand_over_cursors(&self, state: &mut Components) {
        for stream in state.coordination.streams() {
            let places = state.coordination.get(&stream).map(StreamCoordinator::places).unwrap_or_default();
            for (name, cursor) in places {
                self.tell_of_cursor(state, &stream, name, cursor);
            }
        }
    }

    /// The coordinator of a stream tells of an attachment, or that it is none any more.
    pub(crate) fn told_of_attachment(
        &self,
        state: &mut Components,
        from: ServerId,
        stream: &str,
        id: AttachmentId,
        record: Option<Box<AttachmentRecord>>,
    ) {
        // One that leaves or was evicted loses its readers to others.
        if self.standing().view.members.contains(&from) {
            state.attachments.note(stream, id, record.map(|record| *record));
        }
    }

    /// What a server that takes the place of a stream's coordinator is told of its attachments.
    pub(crate) fn inherited_attachments(
        &self,
        state: &Components,
        epoch: Epoch,
        stream: &str,
    ) -> Vec<streams::Message> {
        let told = |(id, record): (&AttachmentId, &AttachmentRecord)| streams::Message::TakeOverAttachment {
            epoch,
            stream: stream.to_owned(),
            id: *id,
            record: Box::new(record.clone()),
        };
        state.attachments.records(stream).map(told).collect()
    }
}
