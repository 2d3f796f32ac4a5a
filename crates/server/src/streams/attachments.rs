//! The attachments of streams: where the steps are told that this server coordinates, and which attachments each stream has,
//! as every server knows: should the stream's coordinator die, the one that takes its place keeps their places until they
//! come back. (Design note 10.)

use super::users::StreamUser;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, AttachmentRecord};
use forebay_transport::asynchronous::Outbox;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many attachments of a stream are remembered. Of more, some may miss steps when the coordinator dies.
const ATTACHMENTS_MAX: usize = 1 << 16;

/// Of how many names of a stream's readers it is remembered where they have stopped; of more the furthest.
const CURSORS_MAX: usize = 1024;
/// Of how many streams.
const STREAMS_WITH_CURSORS_MAX: usize = 4096;

/// Where an attachment's steps go.
#[derive(Debug, Clone)]
pub(crate) enum Delivery {
    /// To a consumer.
    Consumer {
        /// The connections of its ranks, or of the readers that share steps: of one reader there is one, of rank 0.
        outboxes: BTreeMap<u32, Arc<Outbox>>,
    },
    /// To one who uses it within this server.
    User(StreamUser),
}

/// All attachments that this server has to do with.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    /// Those of streams that this server coordinates.
    deliveries: HashMap<AttachmentId, Delivery>,
    /// Where readers of each stream have stopped, by their names.
    cursors: BTreeMap<String, BTreeMap<String, (RunNumber, StepNumber)>>,
    /// What is known of each stream's, on whatever server.
    records: BTreeMap<String, BTreeMap<AttachmentId, AttachmentRecord>>,
}

impl Attachments {
    /// An attachment's steps are told there from now on.
    pub(crate) fn add(&mut self, id: AttachmentId, delivery: Delivery) {
        self.deliveries.insert(id, delivery);
    }

    /// The steps of a consumer, or of a rank of a cohort, are told there from now on.
    pub(crate) fn add_rank(&mut self, id: AttachmentId, rank: u32, outbox: Arc<Outbox>) {
        let new = || Delivery::Consumer { outboxes: BTreeMap::new() };
        if let Delivery::Consumer { outboxes } = self.deliveries.entry(id).or_insert_with(new) {
            outboxes.insert(rank, outbox);
        }
    }

    /// They are told nothing any more there.
    pub(crate) fn remove_rank(&mut self, id: AttachmentId, rank: u32, outbox: &Arc<Outbox>) {
        if let Some(Delivery::Consumer { outboxes }) = self.deliveries.get_mut(&id) {
            if outboxes.get(&rank).is_some_and(|known| Arc::ptr_eq(known, outbox)) {
                outboxes.remove(&rank);
            }
            if outboxes.is_empty() {
                self.deliveries.remove(&id);
            }
        }
    }

    /// An attachment is told nothing any more: where it was told.
    pub(crate) fn remove(&mut self, id: AttachmentId) -> Option<Delivery> {
        self.deliveries.remove(&id)
    }

    /// Where an attachment's steps are told.
    pub(crate) fn delivery(&self, id: AttachmentId) -> Option<&Delivery> {
        self.deliveries.get(&id)
    }

    /// Whether any attachment is told of steps.
    #[cfg(test)]
    pub(crate) fn are_told_of_steps(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Whether the place of an attachment is kept that came back to this server, and has not been taken yet.
    pub(crate) fn is_place_kept(&self, stream: &str, id: AttachmentId) -> bool {
        self.is_known(stream, id) && !self.deliveries.contains_key(&id)
    }

    /// The streams that have attachments.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.records.keys()
    }

    /// What is known of a stream's attachments.
    pub(crate) fn records(&self, stream: &str) -> impl Iterator<Item = (&AttachmentId, &AttachmentRecord)> {
        self.records.get(stream).into_iter().flatten()
    }

    /// Whether a stream has this attachment.
    pub(crate) fn is_known(&self, stream: &str, id: AttachmentId) -> bool {
        self.records.get(stream).is_some_and(|known| known.contains_key(&id))
    }

    /// A stream has an attachment, or has it no more.
    pub(crate) fn note(&mut self, stream: &str, id: AttachmentId, record: Option<AttachmentRecord>) {
        match (record, self.records.get_mut(stream)) {
            (Some(record), None) => {
                self.records.insert(stream.to_owned(), BTreeMap::from([(id, record)]));
            }
            (Some(record), Some(known)) => {
                if known.len() < ATTACHMENTS_MAX || known.contains_key(&id) {
                    known.insert(id, record);
                }
            }
            (None, Some(known)) => {
                known.remove(&id);
                if known.is_empty() {
                    self.records.remove(stream);
                }
            }
            (None, None) => {}
        }
    }

    /// Where the last reader of this name has stopped.
    pub(crate) fn cursor(&self, stream: &str, name: &str) -> Option<(RunNumber, StepNumber)> {
        self.cursors.get(stream)?.get(name).copied()
    }

    /// The same of all readers of a stream.
    pub(crate) fn cursors(&self, stream: &str) -> impl Iterator<Item = (&String, &(RunNumber, StepNumber))> {
        self.cursors.get(stream).into_iter().flatten()
    }

    /// The next reader of this name goes on there.
    pub(crate) fn note_cursor(&mut self, stream: &str, name: String, cursor: (RunNumber, StepNumber)) {
        if self.cursors.len() >= STREAMS_WITH_CURSORS_MAX && !self.cursors.contains_key(stream) {
            return;
        }
        let known = self.cursors.entry(stream.to_owned()).or_default();
        known.insert(name, cursor);
        if known.len() > CURSORS_MAX
            && let Some(least) = known.iter().min_by_key(|(_, cursor)| **cursor).map(|(name, _)| name.clone())
        {
            known.remove(&least);
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        for (stream, known) in &self.records {
            if known.is_empty() || known.len() > ATTACHMENTS_MAX {
                return Err(format!("{} attachments of stream '{stream}' are remembered", known.len()));
            }
        }
        Ok(())
    }
}
