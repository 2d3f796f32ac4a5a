//! Which attachments each stream has, as every server knows: should the stream's coordinator die, the one that takes its
//! place keeps theirs until they come back. (Design note 10.)

use crate::node::{Node, State};
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::steps::{AttachmentId, AttachmentRecord};
use forebay_wire::peer::streams;
use std::collections::BTreeMap;

/// How many attachments of a stream are remembered. Of more, some may miss steps when the coordinator dies.
const ATTACHMENTS_MAX: usize = 1 << 16;

/// All that this server was told of.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    streams: BTreeMap<String, BTreeMap<AttachmentId, AttachmentRecord>>,
}

impl Attachments {
    /// The streams that have some.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.streams.keys()
    }

    /// Those of a stream.
    fn of(&self, stream: &str) -> impl Iterator<Item = (&AttachmentId, &AttachmentRecord)> {
        self.streams.get(stream).into_iter().flatten()
    }

    /// Whether a stream has this one.
    pub(crate) fn contains(&self, stream: &str, id: AttachmentId) -> bool {
        self.streams.get(stream).is_some_and(|known| known.contains_key(&id))
    }

    fn note(&mut self, stream: &str, id: AttachmentId, record: Option<AttachmentRecord>) {
        match (record, self.streams.get_mut(stream)) {
            (Some(record), None) => {
                self.streams.insert(stream.to_owned(), BTreeMap::from([(id, record)]));
            }
            (Some(record), Some(known)) => {
                if known.len() < ATTACHMENTS_MAX || known.contains_key(&id) {
                    known.insert(id, record);
                }
            }
            (None, Some(known)) => {
                known.remove(&id);
                if known.is_empty() {
                    self.streams.remove(stream);
                }
            }
            (None, None) => {}
        }
    }
}

impl Node {
    /// Tells all servers of an attachment of a stream that this one coordinates, or that it is none any more.
    pub(crate) fn tell_of_attachment(
        &self,
        state: &mut State,
        stream: &str,
        id: AttachmentId,
        record: Option<Box<AttachmentRecord>>,
    ) {
        state.known_attachments.note(stream, id, record.as_deref().cloned());
        for server in self.standing().view.members.iter().filter(|server| **server != self.id) {
            let (stream, record) = (stream.to_owned(), record.clone());
            self.tell(state, *server, streams::Message::AttachmentChanged { stream, id, record });
        }
    }

    /// A server has joined: it is told of all attachments of streams that this one coordinates.
    pub(crate) fn tell_of_attachments(&self, state: &mut State, server: ServerId) {
        let known = &state.known_attachments;
        let messages: Vec<streams::Message> = state
            .coordinators
            .keys()
            .flat_map(|stream| {
                known.of(stream).map(|(id, record)| streams::Message::AttachmentChanged {
                    stream: stream.clone(),
                    id: *id,
                    record: Some(Box::new(record.clone())),
                })
            })
            .collect();
        for message in messages {
            self.tell(state, server, message);
        }
    }

    /// The coordinator of a stream tells of an attachment, or that it is none any more.
    pub(crate) fn told_of_attachment(
        &self,
        state: &mut State,
        from: ServerId,
        stream: &str,
        id: AttachmentId,
        record: Option<Box<AttachmentRecord>>,
    ) {
        // One that leaves or was evicted loses its readers to others.
        if self.standing().view.members.contains(&from) {
            state.known_attachments.note(stream, id, record.map(|record| *record));
        }
    }

    /// What a server that takes the place of a stream's coordinator is told of its attachments.
    pub(crate) fn inherited_attachments(
        &self,
        state: &State,
        epoch: Epoch,
        stream: &str,
    ) -> Vec<streams::Message> {
        let told = |(id, record): (&AttachmentId, &AttachmentRecord)| streams::Message::TakeOverAttachment {
            epoch,
            stream: stream.to_owned(),
            id: *id,
            record: Box::new(record.clone()),
        };
        state.known_attachments.of(stream).map(told).collect()
    }
}
