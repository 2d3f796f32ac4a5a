//! Puts whose answer is not waited for: the step, or a wait in it, collects the answers.
//!
//! Only over TCP there is an answer to wait for. Bytes are handed to the socket before a put returns, so that
//! what is outstanding are answers, a few bytes each; how many is bounded all the same, since the other side's
//! buffers are.

use crate::connection::rpc::{Payload, Rpc, lock};
use crate::producer::{
    Block, Counted, Open, Outcome, Producer, State, WhereBytes, Written, gather, no_step, put_block,
};
use crate::put_target::PutTarget;
use forebay_core::block::INLINE_MAX;
use forebay_core::contract::Field;
use forebay_core::steps::Policy;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Source;
use forebay_wire::client::block::{Bytes, PutBlock};
use forebay_wire::client::producer::{Reply, Request};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

/// How many puts may be unanswered. One more waits for the oldest.
const OUTSTANDING_MAX: usize = 256;

/// The puts of a step that were not answered when they returned.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    waiting: VecDeque<Posted>,
    /// How many of them found no room, and were dropped as the stream's policy says.
    dropped: u64,
    /// The first one that failed and nobody was told of, and how many more there are.
    failed: Option<(Error, u64)>,
}

#[derive(Debug)]
struct Posted {
    request: u64,
    field: String,
    number: u64,
}

impl Producer {
    /// As [`Producer::put`], but does not wait for the server's answer: `wait` and `end` do, and tell what
    /// failed. The array is the caller's again on return.
    ///
    /// In shared memory there is no answer to wait for, and this is `put`. Over TCP the bytes are handed to
    /// the socket, which waits while the server does not take them; at most 256 answers are outstanding, one
    /// more put waits for the oldest. `Outcome::Staged` then means that the block is on its way.
    pub fn put_async(&self, block: &Block<'_>, source: &Source<'_>) -> Result<Outcome> {
        self.put_by(block, source, |field| self.post(block, field, source))
    }

    fn post(&self, block: &Block<'_>, field: &Field, source: &Source<'_>) -> Result<Outcome> {
        let home = self.home();
        if home.arena.is_some() || block.extent.bytes(field.dtype)? <= INLINE_MAX as u64 {
            return self.stage(block, field, source);
        }
        // Of a block that another server is to hold, the home is told once that one has it.
        if !Arc::ptr_eq(&self.storage_for(block, &home)?, &home) {
            return self.stage(block, field, source);
        }
        self.make_way()?;
        match self.post_to(&home, block, field, source) {
            Err(error) => {
                self.go_on_elsewhere(&home, error)?;
                self.post(block, field, source)
            }
            posted => posted,
        }
    }

    fn post_to(
        &self,
        home: &Arc<PutTarget>,
        block: &Block<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let mut counted = Counted::new(field, block);
        let dense = gather(source, counted.while_copied());
        let message = Request::Put(put_block(block, Bytes::Payload, counted.done(&dense)));
        let request = home.rpc.post(&message, Some(Payload(&dense)))?;
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        self.note_written(home, Written { put, bytes: WhereBytes::Away })?;
        match lock(&self.state).open.as_mut() {
            Some(open) => {
                let (field, number) = (block.field.to_owned(), block.number);
                open.pending.waiting.push_back(Posted { request, field, number });
                Ok(Outcome::Staged)
            }
            None => Err(no_step("a put")),
        }
    }

    /// Waits until the server holds all that was put in this step with [`Producer::put_async`], or says what
    /// failed: then such a block may be put again. Returns how many of them found no room so far and were
    /// dropped, as the stream's policy says. Waits up to the deadline for each answer; in shared memory
    /// there is nothing to wait for.
    pub fn wait(&self) -> Result<u64> {
        let turn = self.turn()?;
        let state = self.state()?;
        if state.open.is_none() {
            return Err(no_step("a wait"));
        }
        self.wait_for_all(&turn, state).1
    }

    /// As `wait`; outside a step there is nothing to wait for. Gives the state back as it is then.
    pub(crate) fn wait_for_all<'a>(
        &'a self,
        turn: &MutexGuard<'_, ()>,
        state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Result<u64>) {
        let (mut state, collected) = self.collect(turn, state, 0);
        if let Err(error) = collected {
            return (state, Err(error));
        }
        let Some(open) = state.open.as_mut() else { return (state, Ok(0)) };
        let told = match open.pending.failed.take() {
            None => Ok(open.pending.dropped),
            Some((error, 0)) => Err(error),
            Some((error, more)) => {
                let text = format!("{} (and {more} more of the puts that were not waited for)", error.text);
                Err(Error { text, ..error })
            }
        };
        (state, told)
    }

    /// Waits while as many puts are unanswered as may be.
    fn make_way(&self) -> Result<()> {
        let full = |state: &State| {
            state.open.as_ref().is_some_and(|open| open.pending.waiting.len() >= OUTSTANDING_MAX)
        };
        if !full(&lock(&self.state)) {
            return Ok(());
        }
        let turn = self.turn()?;
        self.collect(&turn, lock(&self.state), OUTSTANDING_MAX - 1).1
    }

    /// Collects answers until no more than so many are outstanding. What failed is remembered; an error means
    /// that an answer did not come. The state is not held while one is waited for.
    fn collect<'a>(
        &'a self,
        _turn: &MutexGuard<'_, ()>,
        mut state: MutexGuard<'a, State>,
        outstanding: usize,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        while let Some(open) = state.open.as_mut() {
            if open.pending.waiting.len() <= outstanding {
                break;
            }
            let Some(posted) = open.pending.waiting.pop_front() else { break };
            drop(state);
            let answer = self.home().rpc.collect::<Request>(posted.request, "to hold a block");
            state = lock(&self.state);
            // Only who has the turn ends a step.
            let Some(open) = state.open.as_mut() else { continue };
            let error = match answer {
                Ok(answer) => {
                    open.was_put(&posted, &answer);
                    continue;
                }
                Err(error) => error,
            };
            match error.kind {
                ErrorKind::Timeout => {
                    open.pending.waiting.push_front(posted);
                    return (state, Err(error));
                }
                ErrorKind::Full if self.policy != Policy::Block => {
                    open.blocks -= 1;
                    open.dropped = true;
                    open.pending.dropped += 1;
                    open.written.retain(|written| !posted.is_of(&written.put));
                }
                ErrorKind::Unreachable => {
                    open.dropped = true;
                    open.pending.dropped += 1 + open.pending.waiting.len() as u64;
                    open.pending.forget(&self.home().rpc);
                    self.home().rpc.forget(posted.request);
                    if let Err(error) = self.survive(&mut state, error) {
                        return (state, Err(error));
                    }
                }
                _ => {
                    open.blocks -= 1;
                    open.pending.note(error);
                    state.forget(&posted.field, posted.number);
                }
            }
        }
        (state, Ok(()))
    }
}

impl Posted {
    fn is_of(&self, put: &PutBlock) -> bool {
        put.number == self.number && put.field == self.field
    }
}

impl Open {
    /// A block that was posted has come; the answer says where it is, if other servers hold it too.
    fn was_put(&mut self, posted: &Posted, answer: &Reply) {
        let placed = matches!(answer, Reply::Placed(_));
        let written = self.written.iter_mut().find(|written| placed && posted.is_of(&written.put));
        if let Some(written) = written {
            *written = Written::sent(written.put.clone(), answer);
        }
    }
}

impl Pending {
    fn note(&mut self, error: Error) {
        match &mut self.failed {
            None => self.failed = Some((error, 0)),
            Some((_, more)) => *more += 1,
        }
    }

    /// Nobody waits for the answers any more.
    pub(crate) fn forget(&mut self, rpc: &Rpc) {
        self.waiting.drain(..).for_each(|posted| rpc.forget(posted.request));
    }
}
