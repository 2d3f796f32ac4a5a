//! A server that this process puts blocks to: the connection to it, and its arena, mapped for writing.

use crate::connection::call::Answer;
use crate::connection::rpc::{GRACE, Rpc, lock, unexpected};
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::{Error, Result};
use forebay_store::ranges::RangeSet;
use forebay_store::stats::Accumulator;
use forebay_store::strided::Source;
use forebay_store::{Access, BeginWord, Mapping, PAGE, PutWord, TakenWord};
use forebay_wire::client::block::Grant;
use forebay_wire::client::writing;
use forebay_wire::protocol::Request;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// A server that this process puts blocks to.
#[derive(Debug)]
pub(crate) struct PutTarget {
    pub(crate) server: ServerId,
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) arena: Option<WritableArena>,
}

/// An arena, mapped for writing.
#[derive(Debug)]
pub(crate) struct WritableArena {
    pub(crate) mapping: Arc<Mapping>,
    /// Ranges that this process has brought into its mapping.
    populated: Mutex<RangeSet>,
}

impl PutTarget {
    /// A server that has answered with an arena to write to, if memory is shared.
    pub(crate) fn new(
        server: ServerId,
        rpc: Arc<Rpc>,
        arena: Option<(u32, u64)>,
        descriptors: &[OwnedFd],
    ) -> Result<PutTarget> {
        let arena = match (arena, descriptors.first()) {
            (Some((_, bytes)), Some(file)) => {
                let mapping = Arc::new(Mapping::new(file.as_fd(), bytes, Access::Write)?);
                if bytes < PAGE {
                    return Err(Error::protocol("an arena without a page of words"));
                }
                Some(WritableArena { mapping, populated: Mutex::default() })
            }
            _ => None,
        };
        Ok(PutTarget { server, rpc, arena })
    }

    /// Asks a server for an arena to write to; `opened` takes that out of the answer.
    pub(crate) fn open<Q: Request>(
        server: ServerId,
        rpc: Arc<Rpc>,
        question: &Q,
        opened: impl FnOnce(&Q::Reply) -> Option<Option<(u32, u64)>>,
    ) -> Result<PutTarget> {
        let Answer { message, descriptors, .. } = rpc.call(question, "to store blocks")?;
        let arena = opened(&message).ok_or_else(|| unexpected(&message))?;
        PutTarget::new(server, rpc, arena, &descriptors)
    }

    /// A range of this many bytes to write to; `None` if there is no room and the policy is not to wait. Waits
    /// for one answer, which may wait for memory.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Option<Grant>> {
        let patience = self.rpc.patience();
        let reserve = writing::Request::Reserve { bytes, patience_ms: patience.as_millis() as u64 };
        let answer = self.rpc.call_within(&reserve, None, patience + GRACE, "to find room")?;
        let writing::Reply::Granted(grant) = answer.message;
        Ok(grant)
    }

    /// Copies an array into a range that the server granted; returns where the block lies in it. If the copy fails, gives the
    /// range back.
    pub(crate) fn copy_in(
        &self,
        arena: &WritableArena,
        grant: Grant,
        source: &Source<'_>,
        stats: Option<&mut Accumulator>,
    ) -> Result<Grant> {
        arena.populate(&grant);
        let placed = Grant { offset: grant.offset + forebay_store::lead(grant.bytes), ..grant };
        match source.copy_to_mapping(&arena.mapping, placed.offset, stats) {
            Ok(()) => Ok(placed),
            Err(error) => {
                self.give_back(&grant)?;
                Err(error)
            }
        }
    }

    /// Gives a range back, unused.
    pub(crate) fn give_back(&self, grant: &Grant) -> Result<()> {
        self.rpc.tell(&writing::Request::Abort {
            arena: grant.arena,
            offset: grant.offset,
            generation: grant.generation,
        })
    }
}

impl WritableArena {
    /// Begins a step by the word that this rank shares with the server, if the word lets it.
    pub(crate) fn try_begin(&self, step: StepNumber) -> bool {
        let word = self.mapping.atomic(self.mapping.len() - PAGE);
        word.is_ok_and(|word| BeginWord(word).try_begin(step))
    }

    /// Whether the server has taken this step whole, and has nothing to say of it.
    pub(crate) fn is_taken(&self, step: StepNumber) -> bool {
        let word = self.mapping.atomic(self.mapping.len() - PAGE + 8);
        word.is_ok_and(|word| TakenWord(word).is_taken(step))
    }

    /// Lets the server know, should this process die, that something was put in this step.
    pub(crate) fn note_put(&self, step: StepNumber) {
        if let Ok(word) = self.mapping.atomic(self.mapping.len() - PAGE + 16) {
            PutWord(word).note(step);
        }
    }

    /// Brings a range into this mapping in one go, if it is not there.
    pub(crate) fn populate(&self, grant: &Grant) {
        let mut populated = lock(&self.populated);
        let bytes = forebay_store::pages(grant.bytes + forebay_store::lead(grant.bytes));
        let (start, end) = (grant.offset, grant.offset + bytes);
        if grant.fresh {
            populated.remove(start, end);
        }
        if populated.contains(start, end) {
            return;
        }
        self.mapping.populate(start, bytes);
        populated.insert(start, end);
    }
}
