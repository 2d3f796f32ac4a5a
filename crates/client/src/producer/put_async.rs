//! Puts whose answers are not waited for: a wait in the step, or its end, collects the answers.
//!
//! Only over TCP there is an answer to wait for. Bytes are handed to the socket before a put returns, so that
//! what is outstanding are answers, a few bytes each; how many is bounded all the same, since the other side's
//! buffers are.

use crate::connection::rpc::{Payload, lock};
use crate::outcome::Outcome;
use crate::producer::block::{Block, BlockPart};
use crate::producer::block_bytes::{StatsOnTheWay, gather, put_block};
use crate::producer::outstanding::OutstandingPut;
use crate::producer::rank::{Producer, RankLock};
use crate::producer::state::{ProducerState, no_step};
use crate::producer::stored_block::{BytesPlace, StoredBlock};
use crate::put_target::PutTarget;
use forebay_core::block::INLINE_MAX;
use forebay_core::contract::Field;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Source;
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::producer::Request;
use std::sync::{Arc, MutexGuard};

/// How many puts may be unanswered. One more waits for the oldest.
const OUTSTANDING_MAX: usize = 256;

impl Producer {
    /// As [`Producer::put`], but does not wait for the server's answer: `wait` and `end` do, and tell what
    /// failed. The array is the caller's again on return.
    ///
    /// In shared memory there is no answer to wait for, and this is `put`. Over TCP the bytes are handed to
    /// the socket, which waits while the server does not take them; at most 256 answers are outstanding, one
    /// more put waits for the oldest. `Outcome::Staged` then means that the block is on its way.
    pub fn put_async(&self, block: &Block<'_>, source: &Source<'_>) -> Result<Outcome> {
        self.put_by(block, source, |part, field, source| self.post(part, field, source))
    }

    fn post(&self, block: &BlockPart<'_>, field: &Field, source: &Source<'_>) -> Result<Outcome> {
        let home = self.home();
        if home.arena.is_some() || block.extent.bytes(field.dtype)? <= INLINE_MAX as u64 {
            return self.stage(block, field, source);
        }
        // Of a block that another server is to hold, the home is told only when that server has it.
        if !Arc::ptr_eq(&self.target_of(block, field, &home)?, &home) {
            return self.stage(block, field, source);
        }
        self.make_way()?;
        match self.post_to(&home, block, field, source) {
            Err(error) => {
                self.on_home_lost_in_step(&home, error)?;
                self.post(block, field, source)
            }
            posted => posted,
        }
    }

    fn post_to(
        &self,
        home: &Arc<PutTarget>,
        block: &BlockPart<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let mut stats = StatsOnTheWay::new(field, block);
        let dense = gather(source, stats.while_copied());
        let message = Request::Put(put_block(block, BytesLocation::Payload, stats.done(&dense)));
        let request = home.rpc.post(&message, Some(Payload(&dense)))?;
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        self.note_stored(home, StoredBlock { put, place: BytesPlace::HomeOnly })?;
        let mut state = lock(&self.state);
        let (field, number, part) = (block.field.to_owned(), block.number, block.part);
        let waiting = &mut state.open_for("a put")?.outstanding.waiting;
        waiting.push_back(OutstandingPut { request, field, number, part });
        Ok(Outcome::Staged)
    }

    /// Waits until the server holds all that was put in this step with [`Producer::put_async`], or says what
    /// failed: then such a block may be put again. Returns how many of them found no room so far and were
    /// dropped, as the stream's policy says. Waits up to the deadline for each answer; in shared memory
    /// there is nothing to wait for.
    pub fn wait(&self) -> Result<u64> {
        let rank = self.lock_rank()?;
        let state = self.state()?;
        if state.open.is_none() {
            return Err(no_step("a wait"));
        }
        self.wait_for_all(&rank, state).1
    }

    /// As `wait`; outside a step there is nothing to wait for. Gives the state back as it is then.
    pub(super) fn wait_for_all<'a>(
        &'a self,
        rank: &RankLock<'_>,
        state: MutexGuard<'a, ProducerState>,
    ) -> (MutexGuard<'a, ProducerState>, Result<u64>) {
        let (mut state, collected) = self.collect(rank, state, 0);
        if let Err(error) = collected {
            return (state, Err(error));
        }
        let Some(open) = state.open.as_mut() else { return (state, Ok(0)) };
        let told = match open.outstanding.take_failure() {
            None => Ok(open.outstanding.dropped),
            Some(error) => Err(error),
        };
        (state, told)
    }

    /// Waits while as many puts are unanswered as may be.
    fn make_way(&self) -> Result<()> {
        let full = |state: &ProducerState| {
            state.open.as_ref().is_some_and(|open| open.outstanding.waiting.len() >= OUTSTANDING_MAX)
        };
        if !full(&lock(&self.state)) {
            return Ok(());
        }
        let rank = self.lock_rank()?;
        self.collect(&rank, lock(&self.state), OUTSTANDING_MAX - 1).1
    }

    /// Collects answers until no more than so many are outstanding. What failed is remembered; this fails where
    /// an answer did not come. The state is not locked while the rank waits for one.
    fn collect<'a>(
        &'a self,
        _rank: &RankLock<'_>,
        mut state: MutexGuard<'a, ProducerState>,
        outstanding: usize,
    ) -> (MutexGuard<'a, ProducerState>, Result<()>) {
        while let Some(open) = state.open.as_mut() {
            if open.outstanding.waiting.len() <= outstanding {
                break;
            }
            let Some(posted) = open.outstanding.waiting.pop_front() else { break };
            drop(state);
            let answer = self.home().rpc.collect::<Request>(posted.request, "to hold a block");
            state = lock(&self.state);
            match (answer, state.open.as_mut()) {
                (Ok(answer), Some(open)) => open.note_held(&posted, &answer),
                (Err(error), Some(_)) => {
                    if let Err(error) = self.on_put_failed(&mut state, posted, error) {
                        return (state, Err(error));
                    }
                }
                // Whoever holds the lock of the whole rank ends a step, and nobody else.
                (_, None) => {}
            }
        }
        (state, Ok(()))
    }

    /// The home server did not take a block that was posted, for this reason. Fails if that concerns more than the block.
    fn on_put_failed(&self, state: &mut ProducerState, posted: OutstandingPut, error: Error) -> Result<()> {
        let Some(open) = state.open.as_mut() else { return Err(error) };
        match error.kind {
            ErrorKind::Timeout => {
                open.outstanding.waiting.push_front(posted);
                return Err(error);
            }
            ErrorKind::Full if self.drops() => {
                open.blocks -= 1;
                open.dropped = true;
                open.outstanding.dropped += 1;
                open.stored.retain(|block| !posted.is_of(&block.put));
            }
            ErrorKind::Unreachable => {
                open.dropped = true;
                open.outstanding.dropped += 1 + open.outstanding.waiting.len() as u64;
                let home = self.home();
                open.forget_outstanding(&home);
                home.rpc.forget(posted.request);
                return self.on_staging_lost(state, error);
            }
            _ => {
                open.blocks -= 1;
                open.outstanding.note_failure(error);
                open.stored.retain(|block| !posted.is_of(&block.put));
                let is_of_it = |put: &PutBlock| put.number == posted.number && put.field == posted.field;
                if !open.stored.iter().any(|block| is_of_it(&block.put)) {
                    state.forget(&posted.field, posted.number);
                }
            }
        }
        Ok(())
    }
}
