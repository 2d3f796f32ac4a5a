//! Collectives that have ended, and what ranks say in them all the same: they do something else there than was done here.

use super::{Mail, Stray};
use crate::kind::Kind;
use crate::task::Space;
use forebay_wire::comm::Label;

/// How many collectives are remembered after they have ended.
const ENDED_MAX: usize = 32;
/// How many messages are remembered that came for them.
const STRAYS_MAX: usize = 16;

impl Mail {
    /// A collective has ended here, after this was done, or has failed.
    pub(crate) fn end(&mut self, comm: u64, space: Space, here: Option<Kind>) {
        let Some(mailbox) = self.open.get_mut(&comm) else { return };
        if mailbox.ended.len() == ENDED_MAX {
            mailbox.ended.pop_front();
        }
        mailbox.ended.push_back((space.0, here));
        for message in mailbox.arrived.remove(&space.0).into_iter().flatten() {
            self.note_stray(comm, &message.envelope.label, here);
            self.throw_away(comm, message);
        }
    }

    fn note_stray(&mut self, comm: u64, label: &Label, here: Option<Kind>) {
        // Of one that has failed something may always be left.
        if let Some(here) = here
            && self.strays.len() < STRAYS_MAX
        {
            let theirs = Kind::in_tag(label.tag);
            self.strays.push(Stray { comm, space: label.space, source: label.source, theirs, here });
        }
    }

    /// Messages that came for collectives that had ended.
    pub(crate) fn take_strays(&mut self) -> Vec<Stray> {
        std::mem::take(&mut self.strays)
    }

    /// Whether nobody will receive a message: its part of the comm is closed, or its collective has ended.
    pub(super) fn is_unwanted(&mut self, comm: u64, label: &Label) -> bool {
        let Some(mailbox) = self.open.get(&comm) else { return false };
        if let Some((_, here)) = mailbox.ended.iter().find(|(space, _)| *space == label.space) {
            self.note_stray(comm, label, *here);
            return true;
        }
        self.is_part_past(comm, label)
    }

    /// The tag of a rank's next message in a space that was not received, if one has come.
    pub(crate) fn next_tag_of(&self, comm: u64, space: u64, source: u32) -> Option<u64> {
        let queue = self.open.get(&comm)?.arrived.get(&space)?;
        let found = queue.iter().find(|message| message.envelope.label.source == source)?;
        Some(found.envelope.label.tag)
    }
}
