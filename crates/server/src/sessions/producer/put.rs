//! Putting a block in the step that is open.

use super::steps::no_step;
use super::{Session, not_joined};
use crate::sessions::payload;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::directory::{check_block_fits, check_blocks};
use forebay_core::ids::{STATIC_STEP, StepId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::producer::Reply;
use forebay_wire::client::reading::SUCCESSORS_PATIENCE;
use forebay_wire::frame::{BODY_MAX, Header, encoded_bytes};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use tokio::time::Instant;

/// How much a rank may tell of a step, in bytes as they are encoded: its blocks go to the coordinator in one
/// message. The rest is for what is around them, and for statistics of as many fields as there can be.
const TOLD_MAX: usize = BODY_MAX - (2 << 20);

impl Session {
    /// Takes a block; says where it is if other servers hold it too.
    pub(super) async fn put(&mut self, header: &Header, block: PutBlock) -> Result<Reply> {
        let node = self.client.node.clone();
        let told = match self.check_put(&block) {
            Ok(told) => told,
            Err(error) => {
                let writing = self.rank.as_mut().map(|rank| &mut rank.writing);
                payload::refuse(&mut self.client, writing, header, &block.bytes).await?;
                return Err(error);
            }
        };
        let field = self.rank()?.field(&block.field)?;
        let bytes = block.extent.bytes(field.dtype)?;
        let location = self.take(header, &block.bytes, bytes).await?;
        let rank = self.rank()?;
        let (key, at_once) = (block.key(rank.rank), rank.copies_at_once());
        let Some(field) = rank.fields.get(&block.field) else { return Err(no_step("a put")) };
        let Some(open) = rank.open.as_mut() else { return Err(no_step("a put")) };
        let (inline, here) = match block.bytes {
            BytesLocation::Inline(given) => (Some(given), false),
            BytesLocation::Placed(_) => (None, false),
            _ => (None, true),
        };
        let PutBlock { level, extent, stats, .. } = block;
        let counted = stats.as_ref().filter(|_| block.of_field).and_then(|stats| stats.whole());
        let record = BlockRecord { key, level, extent, location, inline, stats };
        // The servers that are told of it refuse anything else, and all of the step with it.
        check_blocks(field, std::slice::from_ref(&record))?;
        if let Some(counted) = counted {
            open.count(&block.field, &counted);
        }
        open.add(field, record, told, here);
        if !here || !at_once {
            return Ok(Reply::Done);
        }
        let step = if field.is_static { STATIC_STEP } else { open.number };
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step };
        let (unit, copies) = (ReplicaUnit::Step(id), rank.copies);
        let ranges = vec![BlockRange::from(&location)];
        node.replicate_in_time(unit, copies, ranges, self.client.patience).await?;
        Ok(Reply::Placed(location))
    }

    /// Takes the bytes of a block, so many, unless the message has them or another server holds them: where the block is.
    async fn take(&mut self, header: &Header, given: &BytesLocation, bytes: u64) -> Result<Location> {
        let server = self.client.node.id;
        match given {
            BytesLocation::Inline(inline) if inline.len() as u64 != bytes || inline.len() > INLINE_MAX => {
                Err(Error::protocol(format!(
                    "{} bytes inside a message for a block of {bytes}",
                    inline.len()
                )))
            }
            BytesLocation::Inline(_) => Ok(Location { server, arena: 0, offset: 0, bytes, generation: 0 }),
            BytesLocation::Placed(location) if location.bytes != bytes => {
                Err(Error::protocol(format!("{} bytes for a block of {bytes}", location.bytes)))
            }
            BytesLocation::Placed(location) => self.check_there(location).await.map(|()| *location),
            _ => {
                let Some(rank) = &mut self.rank else { return Err(not_joined()) };
                rank.target().take_bytes(&mut self.client, header, given, bytes).await
            }
        }
    }

    /// Checks that another server holds a block: of one that is gone, somebody who answers for what that held.
    async fn check_there(&self, location: &Location) -> Result<()> {
        if self.client.node.standing().view.members.contains(&location.server) {
            return Ok(());
        }
        let deadline = Instant::now() + self.client.patience.min(SUCCESSORS_PATIENCE);
        self.client.node.who_answers(location.server, location.arena, deadline).await.map(drop)
    }

    /// Checks a block against its field and the step so far; returns how many bytes telling of it takes at most.
    fn check_put(&mut self, block: &PutBlock) -> Result<usize> {
        let rank = self.rank()?;
        let field = rank.field(&block.field)?;
        let name = block.key(rank.rank);
        check_block_fits(field, name, block.level, &block.extent)?;
        let Some(open) = &rank.open else { return Err(no_step("a put")) };
        if field.is_static && rank.has_told_statics {
            return Err(Error::step_order(format!(
                "field '{}' is static: rank {} has put its static fields in an earlier step",
                block.field, rank.rank
            )));
        }
        if open.keys.contains(&(block.field.clone(), name)) {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.number
            )));
        }
        let first = !open.has(&block.field);
        let told = block.record_bytes_max() + if first { encoded_bytes(field)? } else { 0 };
        if open.told + told > TOLD_MAX {
            return Err(Error::new(
                ErrorKind::OverBudget,
                format!(
                    "{name} of field '{}' at step {}: what rank {} has put in this step already fills a message \
                     of {BODY_MAX} bytes; put fewer blocks a step, or larger ones",
                    block.field, open.number, rank.rank
                ),
            ));
        }
        Ok(told)
    }
}
