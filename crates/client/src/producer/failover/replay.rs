//! Putting again at another home server what was put at the one before.
//!
//! A rank can do so, since what it puts through shared memory lies in an arena that stays mapped here when its server is dead,
//! and since it remembers small blocks. What went over the network only the home had: if other servers hold copies of it, the
//! rank tells the new home where; else the step is lost with the server, and told as torn. A block has a number within its
//! step, so that it harms nobody if some of it was known already.

use crate::connection::rpc::{GRACE, lock, unexpected};
use crate::producer::rank::Producer;
use crate::producer::replay_log::ReplayStep;
use crate::producer::stored_block::{BytesPlace, StoredBlock, not_replayable};
use crate::put_target::PutTarget;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::ids::StepNumber;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, Grant};
use forebay_wire::client::producer::{Reply, Request};
use std::sync::Arc;

impl Producer {
    /// Puts a block again at another home server; `None` if that one has no room, and the policy is to go on.
    pub(in crate::producer) fn replay_block(
        &self,
        home: &Arc<PutTarget>,
        block: StoredBlock,
    ) -> Result<Option<StoredBlock>> {
        let StoredBlock { mut put, place } = block;
        let (target, grant) = match place {
            BytesPlace::Message => return self.announce(home, StoredBlock { put, place }).map(Some),
            BytesPlace::Mapped(target, grant) => (target, grant),
            BytesPlace::HomeOnly => return Err(not_replayable(&put)),
        };
        let Some(from) = &target.arena else { return Err(Error::internal("no arena holds a block")) };
        let Some(to) = &home.arena else {
            let send = |dense: &[u8]| self.send_with_bytes(home, put, dense);
            return match from.mapping.with_readable(grant.offset, grant.bytes, send)? {
                Err(error) if error.kind == ErrorKind::Full && self.drops() => Ok(None),
                sent => sent.map(Some),
            };
        };
        let Some(new) = home.reserve(grant.bytes)? else { return Ok(None) };
        to.populate(&new);
        let placed = Grant { offset: new.offset + forebay_store::lead(new.bytes), ..new };
        from.mapping
            .with_readable(grant.offset, grant.bytes, |dense| to.mapping.write(placed.offset, dense))??;
        put.bytes = BytesLocation::Granted {
            arena: placed.arena,
            offset: placed.offset,
            generation: placed.generation,
        };
        let place = BytesPlace::Mapped(home.clone(), placed);
        self.announce(home, StoredBlock { put, place }).map(Some)
    }

    /// Puts again at another home server what the coordinator was not told of: steps that the rank has ended, from `below` on.
    pub(super) fn replay_ended_steps(&self, home: &Arc<PutTarget>, below: StepNumber) -> Result<()> {
        let ended_steps = lock(&self.state).replay_log.since(below);
        let mut replayed = Vec::new();
        for ended in ended_steps {
            let step = ended.step;
            match self.replay_ended_step(home, ended) {
                Ok(ended) => {
                    let (blocks, dropped) = (ended.blocks, ended.dropped);
                    let stats = ended.stats.clone().into_iter().collect();
                    let attrs = ended.attrs.clone();
                    home.rpc.tell(&Request::End { step, blocks, dropped, stats, attrs })?;
                    tracing::info!("stream '{}': step {step} was put again at {}", self.stream, home.server);
                    replayed.push(ended);
                }
                Err(error) if error.kind == ErrorKind::Unreachable => return Err(error),
                Err(error) => {
                    tracing::warn!("stream '{}': step {step} is lost with a server: {error}", self.stream);
                }
            }
        }
        lock(&self.state).replay_log.replace(replayed);
        Ok(())
    }

    /// Begins a step again at another home server and puts its blocks there.
    fn replay_ended_step(&self, home: &Arc<PutTarget>, mut ended: ReplayStep) -> Result<ReplayStep> {
        let stored = std::mem::take(&mut ended.stored);
        let (demand, _) = begin_again(home, ended.step, ended.time)?;
        ended.dropped |= self.lacks_wanted(&ended, &demand, &stored);
        let all = stored.len();
        let again = stored.into_iter().map(|block| self.replay_block(home, block));
        let again: Vec<Option<StoredBlock>> = again.collect::<Result<_>>()?;
        ended.stored = again.into_iter().flatten().collect();
        let dropped = (all - ended.stored.len()) as u64;
        ended.blocks = ended.blocks.saturating_sub(dropped);
        ended.dropped |= dropped > 0;
        Ok(ended)
    }

    /// Whether a step that was ended may lack something, since this demand is not the one that was in force at it.
    fn lacks_wanted(&self, ended: &ReplayStep, demand: &Demand, stored: &[StoredBlock]) -> bool {
        let has = |field: &Field| {
            ended.stats.contains_key(&field.name) || stored.iter().any(|block| block.put.field == field.name)
        };
        let lacks = |field: &Field| demand.wants(field, ended.step) && !has(field);
        demand.version != ended.demand && lock(&self.state).fields.values().any(|field| lacks(field))
    }
}

/// Begins a step again at another home server: the demand, and ranges to write to.
pub(super) fn begin_again(home: &PutTarget, step: StepNumber, time: f64) -> Result<(Demand, Vec<Grant>)> {
    let patience = home.rpc.patience();
    let begin = Request::Begin { step, time, known: 0, patience_ms: patience.as_millis() as u64 };
    let answer = home.rpc.call_within(&begin, None, patience + GRACE, "to begin a step again")?;
    match answer.message {
        Reply::Begun { deferred: Some(error), .. } => Err(error),
        Reply::Begun { demand, grants, .. } => Ok((demand.unwrap_or_default(), grants)),
        Reply::LetGo => {
            Err(Error::unreachable(format!("{} leaves the group", home.server)).about(home.server))
        }
        other => Err(unexpected(&other)),
    }
}
