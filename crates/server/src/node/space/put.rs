//! Putting a block into the space: this server reserves memory, holds the block, registers it, and has copies made.

use super::Node;
use crate::held::Held;
use crate::space::FieldAtStep;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::space::SpacePut;
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use std::sync::Arc;
use std::time::Duration;

impl Node {
    /// Reserves a range for a block of the space, and says whether pages of it may be missing.
    pub(crate) fn space_reserve(&self, bytes: u64) -> Result<(Held, bool)> {
        let mut store = self.store.lock();
        let arena = store.network_arena()?;
        match store.reserve(arena, bytes)? {
            Some(range) => {
                Ok((Held { arena, offset: range.offset, generation: range.generation }, range.fresh))
            }
            None => {
                drop(store);
                Err(self.space_full(bytes))
            }
        }
    }

    /// The error for a block of the space that finds no room.
    pub(crate) fn space_full(&self, bytes: u64) -> Error {
        let usage = self.store.lock().usage();
        Error::new(
            ErrorKind::Full,
            format!(
                "{bytes} bytes do not fit on {}: {} of {} are held; remove what is no longer needed",
                self.id, usage.staged, usage.budget
            ),
        )
    }

    /// Puts a block whose bytes lie in this range: it stays once its owners know it, and other servers hold the copies that it
    /// is to have.
    pub(crate) async fn space_put(
        &self,
        put: SpacePut,
        bytes: u64,
        range: Held,
        patience: Duration,
    ) -> Result<()> {
        let SpacePut { field, step, by, replicas, block } = put;
        let record = record_of(self.id, by, block, bytes, range);
        let key = FieldAtStep::new(&field.name, step);
        let field = Arc::new(field);
        let begun = self.in_space(|space, _, _| {
            space.holder.begin_put(range, field.clone(), key.clone(), record.clone())
        });
        if let Some(done) = begun {
            self.free([range]);
            return done;
        }
        let put = match field.whole {
            true => self.space_replace((&key, &field, &record), range, replicas - 1, patience).await,
            false => self.space_add((&key, &field, &record), range, replicas - 1, patience).await,
        };
        self.in_space(|space, _, _| space.holder.end_put(range));
        put
    }

    /// Registers a block, and has copies made of it.
    async fn space_add(
        &self,
        (key, field, record): (&FieldAtStep, &Field, &BlockRecord),
        range: Held,
        copies: u32,
        patience: Duration,
    ) -> Result<()> {
        let before = self.standing();
        let description = self.space_register(key, field, record).await?;
        self.in_space(|space, cx, group| {
            let (holder, shards) = (&mut space.holder, &before.roster.shards);
            holder.on_registered_everywhere(cx, group, range, description, shards);
        });
        self.space_copy(record, range, copies, patience).await
    }

    /// Has other servers hold copies of a block that its owners know; if they cannot, its owners let go of it.
    async fn space_copy(
        &self,
        record: &BlockRecord,
        range: Held,
        copies: u32,
        patience: Duration,
    ) -> Result<()> {
        if copies == 0 {
            return Ok(());
        }
        let ranges = vec![BlockRange::from(&record.location)];
        let copied = self.replicate_in_time(ReplicaUnit::Space(record.key), copies, ranges, patience).await;
        if copied.is_err() {
            self.in_space(|space, cx, _| space.holder.withdraw(cx, range));
        }
        copied
    }
}

/// What owners are to know of a block that a client puts to this server.
fn record_of(server: ServerId, by: u32, block: PutBlock, bytes: u64, range: Held) -> BlockRecord {
    let Held { arena, offset, generation } = range;
    let inline = match block.bytes {
        BytesLocation::Inline(given) if given.len() <= INLINE_MAX => Some(given),
        _ => None,
    };
    BlockRecord {
        key: BlockKey::whole(by, block.number),
        level: block.level,
        extent: block.extent,
        location: Location { server, arena, offset, bytes, generation },
        inline,
        stats: block.stats,
    }
}
