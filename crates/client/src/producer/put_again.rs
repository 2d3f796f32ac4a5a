//! The home server dies while a step is open: the step goes on at another one, where all that was put in it is put again.
//!
//! It can be, since what a rank puts through shared memory lies in an arena that stays mapped here when its server is dead,
//! and since small blocks are remembered. What went over the network only the home had: if other servers hold copies of it,
//! the new home is told where; else the step is lost with the server, and told as torn. A block has a number within its
//! step, so that it harms nobody if some of it was known already.
//!
//! Where the home dies as it answers that the step has ended, with its copies, the new home says so: then nothing is put again,
//! and it may have been read and freed meanwhile.

use super::come_back::{DEATHS_MAX, Found};
use super::ended::Ended;
use super::joiners::Members;
use super::{Open, Producer, State};
use crate::connection::rpc::{GRACE, Payload, lock, unexpected};
use crate::put_target::PutTarget;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::steps::Durability;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{Bytes, Grant, PutBlock};
use forebay_wire::client::producer::{Reply, Request};
use std::sync::Arc;
use std::time::Instant;

/// A block that was put.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// As the home was told of it.
    pub(crate) put: PutBlock,
    pub(crate) bytes: WhereBytes,
}

/// Where the bytes of a block are that was put.
#[derive(Debug, Clone)]
pub(crate) enum WhereBytes {
    /// What the home was told has them, or says which other server has.
    Told,
    /// In an arena that is mapped here.
    Mapped(Arc<PutTarget>, Grant),
    /// Only the home has them.
    Away,
}

impl Producer {
    /// Tells the home of a block, at the latest when the step ends: a step's blocks are told of together. Where a put is to
    /// be safe when it returns, waits until it is. An error if that home is the home no more: put it at the new one.
    pub(super) fn publish(&self, home: &Arc<PutTarget>, written: Written) -> Result<()> {
        let written = self.tell_of(home, written)?;
        self.note_written(home, written)
    }

    /// Tells a server of a block.
    fn tell_of(&self, home: &PutTarget, written: Written) -> Result<Written> {
        let message = Request::Put(written.put);
        match self.options.durability {
            Durability::Replicated if self.options.copies() > 0 => {
                let patience = home.rpc.patience() + GRACE;
                home.rpc.call_within(&message, None, patience, "to hold copies")?;
            }
            _ => home.rpc.queue(&message)?,
        }
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        Ok(Written { put, ..written })
    }

    /// Sends a block with its bytes to a server and waits until it has them.
    pub(super) fn send_to(&self, home: &PutTarget, mut put: PutBlock, dense: &[u8]) -> Result<Written> {
        put.bytes = Bytes::Payload;
        let message = Request::Put(put);
        let patience = home.rpc.patience();
        let answer = home.rpc.call_within(&message, Some(Payload(dense)), patience, "to hold a block")?;
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        Ok(Written::sent(put, &answer.message))
    }

    /// Remembers a block that a home was told of; an error if that home is the home no more.
    pub(crate) fn note_written(&self, home: &Arc<PutTarget>, written: Written) -> Result<()> {
        let mut state = lock(&self.state);
        if !Arc::ptr_eq(home, &self.home()) {
            return Err(Error::unreachable(format!("{} is not the home of this rank any more", home.server)));
        }
        if let Some(open) = state.open.as_mut() {
            open.written.push(written);
        }
        Ok(())
    }

    /// After this error of the home within a step: on return another server is the home, which has all that was put before.
    /// Waits for seconds at most, with `on_loss="fail"` as long as the deadline allows. If it is an error still, staging is
    /// given up until the next step begins.
    pub(crate) fn go_on_elsewhere(&self, home: &Arc<PutTarget>, error: Error) -> Result<()> {
        if error.kind != ErrorKind::Unreachable {
            return Err(error);
        }
        let mut moving = lock(&self.moving);
        let is_lost = lock(&self.state).lost.is_some();
        if is_lost || !Arc::ptr_eq(home, &self.home()) {
            return if is_lost { Err(error) } else { Ok(()) };
        }
        if !home.rpc.is_broken() {
            return Err(error);
        }
        // Another thread may have tried in vain.
        if let Some((_, error)) = moving.as_ref().filter(|(of, _)| Arc::ptr_eq(of, home)) {
            return Err(error.clone());
        }
        match self.move_open_step() {
            Ok(server) => {
                tracing::info!("stream '{}': its open step goes on at {server}: {error}", self.stream);
                Ok(())
            }
            Err(why) => {
                let text = format!("{}; the step does not go on at another server: {}", error.text, why.text);
                let error = Error::unreachable(text);
                *moving = Some((home.clone(), error.clone()));
                Err(error)
            }
        }
    }

    /// As `move_open_step_to`, to the server that takes this rank; where that dies, too, to the next one.
    fn move_open_step(&self) -> Result<ServerId> {
        let deadline = Instant::now() + self.patience_to_go_on();
        let mut deaths = 0;
        loop {
            self.check_open_step()?;
            let found = self.find_home(deadline, None)?;
            self.check_goes_on(&found)?;
            match self.move_open_step_to(&found) {
                Err(error) if error.kind == ErrorKind::Unreachable && deaths < DEATHS_MAX => {
                    tracing::info!("stream '{}': {} died, too: {error}", self.stream, found.home.server);
                    deaths += 1;
                }
                moved => return moved,
            }
        }
    }

    /// The open step, if all that was put in it can be put again, or the home may have told others of its end.
    fn check_open_step(&self) -> Result<(StepNumber, f64)> {
        let state = lock(&self.state);
        let open = state.open.as_ref().filter(|open| !open.passing);
        let open = open.ok_or_else(|| Error::not_found("no step is open"))?;
        if !(open.is_ending && self.options.copies() > 0) {
            check_all_there(&open.written)?;
        }
        Ok((open.step, open.time))
    }

    /// An error if the open step has not ended, and cannot be put again either.
    fn check_goes_on(&self, found: &Found) -> Result<()> {
        let state = lock(&self.state);
        let open = state.open.as_ref().filter(|open| open.step >= found.below);
        open.map_or(Ok(()), |open| check_all_there(&open.written))
    }

    /// Begins the open step at another server, puts there what was put in it, and makes that one the home; if the step has
    /// ended, does only the last.
    fn move_open_step_to(&self, Found { home, below }: &Found) -> Result<ServerId> {
        let (step, time) = self.check_open_step()?;
        if step < *below {
            let mut state = lock(&self.state);
            let Some(open) = state.open.as_mut() else { return Err(Error::not_found("the step was ended")) };
            open.has_ended = true;
            self.stays_at(&mut state, home);
            return Ok(home.server);
        }
        let (demand, grants) = begin_again(home, step, time)?;
        let (mut again, mut done, mut dropped) = (Vec::new(), 0, 0);
        loop {
            // Other threads put meanwhile: what they told the old home of is here, too.
            let next = {
                let mut state = lock(&self.state);
                let State { open: Some(open), fields, demand: before, .. } = &mut *state else {
                    return Err(Error::not_found("the step was ended"));
                };
                let next = open.written[done..].to_vec();
                if next.is_empty() {
                    // What was not wanted before may have been put, and was not taken.
                    let taken = |field: &Field| before.wants(field, step) || !demand.wants(field, step);
                    open.dropped |= !fields.values().all(|field| taken(field));
                    open.go_on(again, grants, dropped);
                    state.demand = demand;
                    self.stays_at(&mut state, home);
                    state.answered = true;
                    return Ok(home.server);
                }
                check_all_there(&next)?;
                next
            };
            done += next.len();
            for written in next {
                match self.put_again(home, written)? {
                    Some(written) => again.push(written),
                    None => dropped += 1,
                }
            }
        }
    }

    /// This server is the home from now on, before anybody puts there. If it dies just now, the next question to it finds it.
    fn stays_at(&self, state: &mut State, home: &Arc<PutTarget>) {
        let _ = home.rpc.tell(&Request::Settle);
        state.answered = false;
        state.small = None;
        state.come_back_at = None;
        state.members = Members::new(&self.group.known());
        *lock(&self.home) = home.clone();
    }

    /// The rank has ended a step, and its home was told. That may not have told anybody when it dies; where copies are made,
    /// they are there.
    pub(super) fn note_ended(&self, ended: Ended) {
        if self.options.copies() == 0 && check_all_there(&ended.written).is_ok() {
            lock(&self.state).ended.push(ended);
        }
    }

    /// Puts again at another home what the coordinator was not told of: steps that the rank has ended, from this one on.
    pub(super) fn put_ended_again(&self, home: &Arc<PutTarget>, below: StepNumber) -> Result<()> {
        let before = lock(&self.state).ended.since(below);
        let mut put = Vec::new();
        for mut ended in before {
            let step = ended.step;
            let written = std::mem::take(&mut ended.written);
            let again = begin_again(home, step, ended.time).and_then(|(demand, _)| {
                ended.dropped |= self.lacks_wanted(&ended, &demand, &written);
                written.into_iter().map(|written| self.put_again(home, written)).collect()
            });
            match again {
                Ok(again) => {
                    let again: Vec<Option<Written>> = again;
                    let dropped = again.iter().filter(|written| written.is_none()).count() as u64;
                    ended.written = again.into_iter().flatten().collect();
                    ended.blocks = ended.blocks.saturating_sub(dropped);
                    ended.dropped |= dropped > 0;
                    let (blocks, dropped) = (ended.blocks, ended.dropped);
                    home.rpc.tell(&Request::End { step, blocks, dropped })?;
                    tracing::info!("stream '{}': step {step} was put again at {}", self.stream, home.server);
                    put.push(ended);
                }
                Err(error) if error.kind == ErrorKind::Unreachable => return Err(error),
                Err(error) => {
                    tracing::warn!("stream '{}': step {step} is lost with a server: {error}", self.stream);
                }
            }
        }
        lock(&self.state).ended.replace(put);
        Ok(())
    }

    /// Whether a step that was ended may lack something, since this demand is not the one that was in force at it.
    fn lacks_wanted(&self, ended: &Ended, demand: &Demand, written: &[Written]) -> bool {
        let has = |field: &Field| written.iter().any(|written| written.put.field == field.name);
        let lacks = |field: &Field| demand.wants(field, ended.step) && !has(field);
        demand.version != ended.demand && lock(&self.state).fields.values().any(|field| lacks(field))
    }

    /// Puts a block at another home; `None` if that one has no room, and the policy is to go on.
    pub(super) fn put_again(&self, home: &Arc<PutTarget>, written: Written) -> Result<Option<Written>> {
        let Written { mut put, bytes } = written;
        let (storage, grant) = match bytes {
            WhereBytes::Told => return self.tell_of(home, Written { put, bytes }).map(Some),
            WhereBytes::Mapped(storage, grant) => (storage, grant),
            WhereBytes::Away => return Err(gone_with_it(&put)),
        };
        let Some(from) = &storage.arena else { return Err(Error::internal("no arena holds a block")) };
        let Some(to) = &home.arena else {
            let sent = from
                .mapping
                .with_readable(grant.offset, grant.bytes, |dense| self.send_to(home, put, dense))?;
            return match sent {
                Err(error) if error.kind == ErrorKind::Full && self.drops() => Ok(None),
                sent => sent.map(Some),
            };
        };
        let Some(new) = home.reserve(grant.bytes)? else { return Ok(None) };
        to.populate(&new);
        let placed = Grant { offset: new.offset + forebay_store::lead(new.bytes), ..new };
        from.mapping
            .with_readable(grant.offset, grant.bytes, |dense| to.mapping.write(placed.offset, dense))??;
        put.bytes =
            Bytes::Granted { arena: placed.arena, offset: placed.offset, generation: placed.generation };
        let bytes = WhereBytes::Mapped(home.clone(), placed);
        self.tell_of(home, Written { put, bytes }).map(Some)
    }
}

/// Begins a step again at another home: the demand, and ranges to write to.
fn begin_again(home: &PutTarget, step: StepNumber, time: f64) -> Result<(Demand, Vec<Grant>)> {
    let patience = home.rpc.patience();
    let begin = Request::Begin { step, time, known: 0, patience_ms: patience.as_millis() as u64 };
    let answer = home.rpc.call_within(&begin, None, patience + GRACE, "to begin a step again")?;
    match answer.message {
        Reply::Begun { deferred: Some(error), .. } => Err(error),
        Reply::Begun { demand, grants, .. } => Ok((demand.unwrap_or_default(), grants)),
        Reply::LetGo => Err(Error::unreachable(format!("{} leaves the group", home.server))),
        other => Err(unexpected(&other)),
    }
}

impl Written {
    /// A block whose bytes were sent to the home, which has answered: where it is, if other servers hold it too.
    pub(crate) fn sent(mut put: PutBlock, answer: &Reply) -> Written {
        let Reply::Placed(location) = answer else { return Written { put, bytes: WhereBytes::Away } };
        put.bytes = Bytes::Placed(*location);
        Written { put, bytes: WhereBytes::Told }
    }
}

impl Open {
    /// It goes on at another home, where all this was put again but for so many blocks that were dropped.
    fn go_on(&mut self, written: Vec<Written>, grants: Vec<Grant>, dropped: u64) {
        self.written = written;
        self.grants = grants;
        self.blocks = self.blocks.saturating_sub(dropped);
        self.dropped |= dropped > 0;
        self.needs_memory = true;
    }
}

fn check_all_there(written: &[Written]) -> Result<()> {
    let away = written.iter().find(|written| matches!(written.bytes, WhereBytes::Away));
    away.map_or(Ok(()), |written| Err(gone_with_it(&written.put)))
}

fn gone_with_it(put: &PutBlock) -> Error {
    Error::unreachable(format!(
        "block {} of field '{}' was sent over the network, and only the server had it",
        put.number, put.field
    ))
}
