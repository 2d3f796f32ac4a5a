//! Messages that have arrived and were not yet received, and how many bytes of them there may be. Sans-IO.

use forebay_wire::comm::Label;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Bytes of messages for comms that are not open here yet. Beyond that their senders wait.
pub const EARLY_MAX: u64 = 256 << 20;
/// Bytes of messages for open comms that nobody has received. Beyond that their senders wait, except a rank
/// that somebody here is waiting for: what is awaited may be behind what is not.
pub const UNREAD_MAX: u64 = 256 << 20;
/// What a message costs besides its bytes.
const OVERHEAD: u64 = 128;

fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(OVERHEAD)
}

/// The messages of one comm.
#[derive(Debug, Default)]
struct Mailbox {
    messages: HashMap<Label, VecDeque<Vec<u8>>>,
    /// The cost of those, and of those that are just arriving.
    bytes: u64,
    /// By rank, how many of this process wait for it.
    wanted: HashMap<u32, usize>,
}

/// Whether a message may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Yes; room for it is reserved.
    Take,
    /// Nobody will receive it.
    Discard,
    /// Not now.
    Wait,
}

/// All messages of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    open: BTreeMap<u64, Mailbox>,
    early: BTreeMap<u64, Mailbox>,
    unread_bytes: u64,
    early_bytes: u64,
    newest_dropped: Option<u64>,
}

impl Mail {
    /// Whether this comm was open and is no more, or never will be.
    pub(crate) fn is_past(&self, comm: u64) -> bool {
        !self.open.contains_key(&comm) && self.newest_dropped.is_some_and(|newest| comm <= newest)
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self, comm: u64) -> bool {
        self.open.contains_key(&comm)
    }

    /// Opens a comm; what came early for it is its own now.
    pub(crate) fn open(&mut self, comm: u64) {
        let mailbox = self.early.remove(&comm).unwrap_or_default();
        self.early_bytes -= mailbox.bytes;
        self.unread_bytes += mailbox.bytes;
        self.open.insert(comm, mailbox);
    }

    /// Closes a comm: what was not received is gone, and so is all that came early for lower ones.
    pub(crate) fn close(&mut self, comm: u64) {
        self.unread_bytes -= self.open.remove(&comm).map_or(0, |mailbox| mailbox.bytes);
        let newest = self.newest_dropped.map_or(comm, |newest| newest.max(comm));
        self.newest_dropped = Some(newest);
        let later = self.early.split_off(&newest.saturating_add(1));
        let past = std::mem::replace(&mut self.early, later);
        self.early_bytes -= past.values().map(|mailbox| mailbox.bytes).sum::<u64>();
    }

    /// Whether a message of this many bytes may come from this rank.
    pub(crate) fn admit(&mut self, comm: u64, source: u32, bytes: u64) -> Admission {
        if self.is_past(comm) {
            return Admission::Discard;
        }
        let cost = cost(bytes);
        let (mailbox, total) = match self.open.get_mut(&comm) {
            Some(mailbox) => {
                let fits = self.unread_bytes == 0 || self.unread_bytes.saturating_add(cost) <= UNREAD_MAX;
                if !fits && !mailbox.wanted.contains_key(&source) {
                    return Admission::Wait;
                }
                (mailbox, &mut self.unread_bytes)
            }
            None if self.early_bytes.saturating_add(cost) > EARLY_MAX => return Admission::Wait,
            None => (self.early.entry(comm).or_default(), &mut self.early_bytes),
        };
        let (Some(sum), Some(own)) = (total.checked_add(cost), mailbox.bytes.checked_add(cost)) else {
            return Admission::Discard;
        };
        (*total, mailbox.bytes) = (sum, own);
        Admission::Take
    }

    /// An admitted message has come.
    pub(crate) fn deliver(&mut self, comm: u64, label: Label, message: Vec<u8>) {
        if let Some(mailbox) = self.open.get_mut(&comm).or_else(|| self.early.get_mut(&comm)) {
            mailbox.messages.entry(label).or_default().push_back(message);
        }
    }

    /// An admitted message will not come.
    pub(crate) fn abandon(&mut self, comm: u64, bytes: u64) {
        self.release(comm, cost(bytes));
    }

    fn release(&mut self, comm: u64, cost: u64) {
        if let Some(mailbox) = self.open.get_mut(&comm) {
            mailbox.bytes -= cost;
            self.unread_bytes -= cost;
        } else if let Some(mailbox) = self.early.get_mut(&comm) {
            mailbox.bytes -= cost;
            self.early_bytes -= cost;
        }
    }

    /// Takes the first message with this label.
    pub(crate) fn take(&mut self, comm: u64, label: Label) -> Option<Vec<u8>> {
        let messages = &mut self.open.get_mut(&comm)?.messages;
        let queue = messages.get_mut(&label)?;
        let message = queue.pop_front()?;
        if queue.is_empty() {
            messages.remove(&label);
        }
        self.release(comm, cost(message.len() as u64));
        Some(message)
    }

    /// Somebody begins to wait for this rank, or ends.
    pub(crate) fn want(&mut self, comm: u64, source: u32, begins: bool) {
        let Some(mailbox) = self.open.get_mut(&comm) else { return };
        let count = mailbox.wanted.entry(source).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            mailbox.wanted.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label { source: 1, space: 0, tag: 5 };

    #[test]
    fn early_messages_are_bounded_and_found_when_the_comm_opens() {
        let mut mail = Mail::default();
        let quarter = EARLY_MAX / 4;
        for _ in 0..3 {
            assert_eq!(mail.admit(7, 1, quarter), Admission::Take);
        }
        assert_eq!(mail.admit(8, 1, quarter), Admission::Wait);
        mail.deliver(7, LABEL, vec![0; quarter as usize]);
        mail.open(7);
        assert_eq!(mail.early_bytes, 0);
        assert_eq!(mail.admit(8, 1, quarter), Admission::Take);
        assert!(mail.take(7, LABEL).is_some() && mail.take(7, LABEL).is_none());
        assert_eq!(mail.unread_bytes, 2 * cost(quarter));
        mail.close(7);
        assert_eq!(mail.unread_bytes, 0);
        assert_eq!(mail.admit(7, 1, 0), Admission::Discard);
        mail.deliver(7, LABEL, Vec::new());
        mail.abandon(7, quarter);
        mail.close(9);
        assert_eq!((mail.early_bytes, mail.early.len()), (0, 0));
    }

    #[test]
    fn the_bound_yields_to_who_is_awaited() {
        let mut mail = Mail::default();
        mail.open(1);
        assert_eq!(mail.admit(1, 0, 2 * UNREAD_MAX), Admission::Take, "alone, any size passes");
        assert_eq!(mail.admit(1, 2, 1), Admission::Wait);
        mail.want(1, 2, true);
        assert_eq!(mail.admit(1, 2, 1), Admission::Take);
        assert_eq!(mail.admit(1, 3, 1), Admission::Wait);
        mail.want(1, 2, false);
        assert_eq!(mail.admit(1, 2, 1), Admission::Wait);
        mail.close(1);
        mail.open(2);
        assert_eq!(mail.admit(1, 2, 1), Admission::Discard);
    }

    #[test]
    fn absurd_lengths_upset_no_account() {
        let mut mail = Mail::default();
        mail.open(1);
        mail.want(1, 2, true);
        assert_eq!(mail.admit(1, 0, u64::MAX), Admission::Take, "alone, any size passes");
        assert_eq!(mail.admit(1, 2, 1), Admission::Discard, "more than can be counted");
        mail.abandon(1, u64::MAX);
        assert_eq!(mail.unread_bytes, 0);
        assert_eq!(mail.admit(1, 2, 1), Admission::Take);
    }
}
