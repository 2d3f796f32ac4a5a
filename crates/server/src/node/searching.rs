//! Looking for arrays of the space until they are complete, for subscriptions that this server coordinates.

use super::Node;
use super::fetching::greet;
use crate::space::FieldAtStep;
use crate::subscriptions::{Asked, FoundArrays, Leases, SearchOrder, SpaceReader};
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, DescriptionNumber, ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::space::{Reply, Search};
use forebay_wire::connection::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait before a step is looked for again, after an owner could not be asked.
const AGAIN: Duration = Duration::from_millis(50);
/// How long an owner waits for what is not there. Then it is asked again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to reach an owner.
const GREETING: Duration = Duration::from_secs(10);

impl Node {
    /// Looks for the arrays of a step, until they are there or nobody needs them any more.
    pub(super) fn begin_search(&self, order: SearchOrder) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let over = order.over.clone();
            tokio::select! {
                () = over.notified() => {}
                found = node.search(&order) => {
                    let mut state = node.state.lock();
                    node.with_subscriptions(&mut state, |all, cx, streams| {
                        all.on_searched(cx, streams, &order, found);
                    });
                    node.drain(&mut state);
                }
            }
        });
    }

    async fn search(self: &Arc<Node>, order: &SearchOrder) -> Option<FoundArrays> {
        loop {
            match self.search_once(order).await {
                Ok(found) => return found,
                Err(error) if matches!(error.kind, ErrorKind::Timeout | ErrorKind::NotCovered) => {
                    if !order.waits {
                        return None;
                    }
                }
                Err(error) => {
                    tracing::debug!("step {} of the space is looked for again: {error}", order.step)
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// `None` if nobody watches any more.
    async fn search_once(self: &Arc<Node>, order: &SearchOrder) -> Result<Option<FoundArrays>> {
        let patience = if order.waits { PATIENCE } else { Duration::ZERO };
        let mut fields = Vec::with_capacity(order.fields.len());
        for name in &order.fields {
            fields.push(self.described(name, order.step, patience).await?);
        }
        let known: Vec<Field> = fields.iter().map(|(_, field)| field.clone()).collect();
        let Some(regions) = self.state.lock().subscriptions.regions(order.watch, &known) else {
            return Ok(None);
        };
        let mut found = FoundArrays { fields: Vec::new(), completion: Vec::new(), leases: Leases::default() };
        for ((description, field), regions) in fields.into_iter().zip(regions) {
            let mut blocks = BTreeMap::new();
            for region in regions {
                let place = (&field, order.step, &region);
                let (told, part) = self.blocks_of(place, patience, &mut found.leases).await?;
                if told != description {
                    return Err(put_anew());
                }
                blocks.extend(part);
            }
            found.completion.push(description);
            found.fields.push(FieldReport::new(field, blocks.into_values().collect()));
        }
        // While one field was waited for, another may have been removed.
        if order.fields.len() > 1 {
            for (name, description) in order.fields.iter().zip(&found.completion) {
                if self.described(name, order.step, Duration::ZERO).await?.0 != *description {
                    return Err(put_anew());
                }
            }
        }
        Ok(Some(found))
    }

    /// A field as it is at a step, and under which description.
    async fn described(
        &self,
        name: &str,
        step: StepNumber,
        patience: Duration,
    ) -> Result<(DescriptionNumber, Field)> {
        let describer = self.standing().roster.shards.owner_of(FieldAtStep::new(name, step).hash());
        let describer = describer.ok_or_else(|| Error::unreachable("the group has no server"))?;
        let search = search_for(name, step, None, (None, patience));
        let mut asked = self.ask_owner(describer, search).await?;
        match asked.answer().await? {
            Reply::Found { description, report, .. } => Ok((description, report.field)),
            Reply::NotOwned => Err(not_owned(describer, name, step)),
            _ => Err(Error::protocol("an owner answers something else than what it knows")),
        }
    }

    /// The blocks that meet a region, once they cover it: from all owners of its tiles.
    async fn blocks_of(
        &self,
        (field, step, region): (&Field, StepNumber, &Region),
        patience: Duration,
        leases: &mut Leases,
    ) -> Result<(DescriptionNumber, BTreeMap<BlockKey, BlockRecord>)> {
        let key = FieldAtStep::new(&field.name, step);
        let shards = self.standing().roster.shards.clone();
        let tiles = self.state.lock().tiles.map(&shards, key.hash(), field.tiled_shape());
        let shape = field.tiled_shape().map(Into::into);
        let mut all: Vec<(ServerId, Asked)> = Vec::new();
        for owner in tiles.owners_of(region) {
            let search = search_for(&field.name, step, Some(region.clone()), (shape.clone(), patience));
            all.push((owner, self.ask_owner(owner, search).await?));
        }
        let mut descriptions = BTreeSet::new();
        let mut blocks = BTreeMap::new();
        for (owner, mut asked) in all {
            match asked.answer().await? {
                Reply::Found { held: true, description, report, .. } => {
                    descriptions.insert(description);
                    blocks.extend(report.blocks.into_iter().map(|block| (block.key, block)));
                    leases.0.push(asked.lease);
                }
                Reply::Found { .. } => return Err(Error::unreachable("the field has another shape now")),
                Reply::NotOwned => return Err(not_owned(owner, &field.name, step)),
                _ => return Err(Error::protocol("an owner answers something else than what it knows")),
            }
        }
        // What was found before and after a removal does not belong together.
        let description =
            descriptions.pop_first().filter(|_| descriptions.is_empty()).ok_or_else(put_anew)?;
        Ok((description, blocks))
    }

    async fn ask_owner(&self, owner: ServerId, search: Search) -> Result<Asked> {
        let known = self.space_readers.to(owner);
        let mut known = known.lock().await;
        let reader = match known.as_ref().filter(|reader| reader.is_there()) {
            Some(reader) => reader.clone(),
            None => {
                let greeted = greet(self, (owner, Role::Space), Instant::now() + GREETING).await?;
                known.insert(Arc::new(SpaceReader::new(greeted.into_halves()))).clone()
            }
        };
        reader.look_for(|request| self.header(request), search)
    }
}

fn search_for(
    field: &str,
    step: StepNumber,
    region: Option<Region>,
    (shape, patience): (Option<forebay_core::region::Dims>, Duration),
) -> Search {
    Search { field: field.to_owned(), step, region, shape, patience_ms: patience.as_millis() as u64 }
}

/// The error of blocks that do not belong together.
fn put_anew() -> Error {
    Error::unreachable("the field was put anew meanwhile")
}

/// The error of an owner that this server knows as one, and that does not know itself as one, or not yet.
fn not_owned(server: ServerId, field: &str, step: StepNumber) -> Error {
    Error::unreachable(format!("{server} does not own what was asked of field '{field}' at step {step}"))
}
