//! Putting an array into the space in the place of another one: the waits of `space/owner/replacing.rs`. Copies are made before
//! the new one is found, so that a put that fails takes nothing away.

use super::Node;
use super::registration::Block;
use crate::held::Held;
use crate::space::FieldAtStep;
use forebay_core::Result;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::DescriptionNumber;
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use std::time::Duration;
use tokio::time::Instant;

impl Node {
    /// Puts the whole of an array, whose bytes lie in this range, in the place of what there is.
    pub(super) async fn space_replace(
        &self,
        (key, field, record): (&FieldAtStep, &Field, &BlockRecord),
        range: Held,
        copies: u32,
        patience: Duration,
    ) -> Result<()> {
        let block = Block { key, field, record, deadline: Instant::now() };
        let number = self.space_describe(block).await?;
        let before = self.standing();
        self.in_space(|space, _, _| space.holder.on_described(range, number));
        if copies > 0 {
            let ranges = vec![BlockRange::from(&record.location)];
            self.replicate_in_time(ReplicaUnit::Space(record.key), copies, ranges, patience).await?;
        }
        self.space_swap(block, number).await?;
        self.in_space(|space, cx, group| {
            space.holder.on_registered_everywhere(cx, group, range, number, &before.roster.shards);
        });
        Ok(())
    }

    /// The number under which an array takes the place of another one.
    async fn space_describe(&self, block: Block<'_>) -> Result<DescriptionNumber> {
        let ask = || async move {
            let block = block.anew();
            let request = block.description_request(self.space_describer(&block));
            self.space_only_reply(&block, request).await
        };
        self.space_try_again(ask).await
    }

    /// Registers the array: a later one may have taken its place already.
    async fn space_swap(&self, block: Block<'_>, number: DescriptionNumber) -> Result<()> {
        let ask = || async move {
            let block = block.anew();
            let request = block.request(self.space_describer(&block), number);
            self.space_only_reply(&block, request).await
        };
        self.space_try_again(ask).await.map(drop)
    }
}
