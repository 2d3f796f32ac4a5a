//! The blocks of steps in runs of many ranks: asked from the owners of their tiles, as the coordinator knows only how many there are.

use super::super::Node;
use super::Evaluating;
use forebay_core::block::BlockRecord;
use forebay_core::ids::{BlockKey, STATIC_STEP, ServerId, StepId};
use forebay_core::region::Region;
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::tiles::hash_in_stream;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::value::{Unknown, UnknownKind};
use forebay_wire::client::reading::{Reply, Request};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// How long owners may take, also if one has gone and others are to tell what it knew.
const OWNERS: Duration = Duration::from_secs(20);
/// How long to wait before owners are asked again, of which one has gone.
const AGAIN: Duration = Duration::from_millis(50);

/// What is known of a step in all its streams, with the records of blocks.
#[derive(Debug)]
pub(super) struct KnownBlocks<'a> {
    reports: Vec<Cow<'a, StepReport>>,
    /// Why the blocks of a field are not known, by its stream and name.
    pub(super) unknown: BTreeMap<(String, String), Unknown>,
}

impl KnownBlocks<'_> {
    /// The reports, of each stream one.
    pub(super) fn reports(&self) -> Vec<&StepReport> {
        self.reports.iter().map(|report| &**report).collect()
    }
}

impl Node {
    /// Reports with the records of all blocks of which the texts take something.
    pub(super) async fn with_all_records<'a>(
        self: &std::sync::Arc<Node>,
        reports: &[&'a StepReport],
        evaluating: &[Evaluating],
    ) -> KnownBlocks<'a> {
        let is_named = |found: &FieldReport| evaluating.iter().any(|one| one.text.names(&found.field.name));
        let mut known = KnownBlocks { reports: Vec::with_capacity(reports.len()), unknown: BTreeMap::new() };
        for report in reports {
            let lacks = |found: &FieldReport| found.registered > 0 && is_named(found);
            let all = || report.fields.iter().chain(report.statics.iter().flatten());
            if !all().any(lacks) {
                known.reports.push(Cow::Borrowed(report));
                continue;
            }
            let mut complete = (*report).clone();
            let statics = complete.statics.iter_mut().flatten();
            for found in complete.fields.iter_mut().chain(statics).filter(|found| lacks(found)) {
                let step = if found.field.is_static { STATIC_STEP } else { report.id.step };
                let id = StepId { step, ..report.id.clone() };
                match self.find_records(&id, found).await {
                    Ok(records) => found.blocks = records,
                    Err(error) => {
                        let key = (report.id.stream.clone(), found.field.name.clone());
                        known.unknown.insert(key, Unknown::new(UnknownKind::Lost, error.text));
                    }
                }
            }
            known.reports.push(Cow::Owned(complete));
        }
        known
    }

    /// The blocks of a field of which something is needed: as they were told, and as the owners of its tiles know them. An owner that
    /// has gone has a successor soon, which those that hold blocks tell of them.
    async fn find_records(
        self: &std::sync::Arc<Node>,
        id: &StepId,
        found: &FieldReport,
    ) -> Result<Vec<BlockRecord>> {
        let deadline = Instant::now() + OWNERS;
        loop {
            match self.find_records_now(id, found, deadline).await {
                Err(error) if error.kind == ErrorKind::Unreachable && Instant::now() < deadline => {
                    tokio::time::sleep(AGAIN).await;
                }
                records => return records,
            }
        }
    }

    async fn find_records_now(
        self: &std::sync::Arc<Node>,
        id: &StepId,
        found: &FieldReport,
        deadline: Instant,
    ) -> Result<Vec<BlockRecord>> {
        let region = needed_of(found);
        let owners = self.owners_of(id, found, region.as_ref());
        let mut asked: JoinSet<Result<Vec<BlockRecord>>> = JoinSet::new();
        for owner in owners {
            let (node, id, name, region) =
                (self.clone(), id.clone(), found.field.name.clone(), region.clone());
            asked.spawn(async move { node.records_of(owner, &id, &name, region.as_ref(), deadline).await });
        }
        let mut known: BTreeMap<BlockKey, BlockRecord> = BTreeMap::new();
        while let Some(answer) = asked.join_next().await {
            let records = answer.map_err(|error| Error::internal(error.to_string()))??;
            known.extend(records.into_iter().map(|record| (record.key, record)));
        }
        let (there, all) = (known.len() as u64, found.registered);
        if region.is_none() && there < all {
            let text =
                format!("field '{}' at {id}: {} of its {all} blocks are lost", found.field.name, all - there);
            return Err(Error::new(ErrorKind::Lost, text));
        }
        for block in &found.blocks {
            known.entry(block.key).or_insert_with(|| block.clone());
        }
        Ok(known.into_values().collect())
    }

    fn owners_of(&self, id: &StepId, found: &FieldReport, region: Option<&Region>) -> Vec<ServerId> {
        let hash = hash_in_stream(id, &found.field.name);
        let standing = self.standing();
        let tiles = self.state.lock().tiles.map(&standing.roster.shards, hash, found.field.shape.as_deref());
        region.map_or_else(|| tiles.owners(), |region| tiles.owners_of(region))
    }

    /// All records that an owner knows, page by page.
    async fn records_of(
        self: &std::sync::Arc<Node>,
        owner: ServerId,
        id: &StepId,
        name: &str,
        region: Option<&Region>,
        deadline: Instant,
    ) -> Result<Vec<BlockRecord>> {
        let mut records = Vec::new();
        loop {
            let skip = records.len() as u64;
            let reply = if owner == self.id {
                let late = |_| {
                    Error::timeout("it is not known in time who knows the blocks of a server that is gone")
                };
                timeout_at(deadline, self.find_blocks(id, name, region, skip as usize)).await.map_err(late)?
            } else {
                let (id, field, region) = (id.clone(), name.to_owned(), region.cloned());
                let question = Request::FindBlocks { id, field, region, skip };
                self.ask_holder(owner, &question, deadline, "where blocks are").await?
            };
            let Reply::Records { blocks, more } = reply else {
                return Err(Error::protocol(format!("{owner} tells something else than where blocks are")));
            };
            let is_empty = blocks.is_empty();
            records.extend(blocks);
            if !more || is_empty {
                return Ok(records);
            }
        }
    }
}

/// The region that all of a field that is needed lies in; `None`: all of it.
fn needed_of(found: &FieldReport) -> Option<Region> {
    let selection = found.part.as_ref()?.of(found.field.shape.as_ref()?)?;
    found.field.span_of(&selection).ok()
}
