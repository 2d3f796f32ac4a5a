//! Where the blocks of a step in a run of many ranks are: asked from the owners of the field's tiles.

use crate::connection::group::pause_before_retry;
use crate::connection::probe::RetryWindow;
use crate::connection::rpc::unexpected;
use crate::reading::server_pool::ServerPool;
use forebay_core::block::BlockRecord;
use forebay_core::coverage;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_core::tiles::hash_in_stream;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::reading::{Reply, Request};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// How many answers a step keeps.
const ANSWERS_MAX: usize = 64;

/// The records of a field's blocks.
#[derive(Debug, Clone)]
pub enum Records<'a> {
    /// As they were told with the step.
    Told(&'a [BlockRecord]),
    /// As the servers that know them answered.
    Asked(Arc<Vec<BlockRecord>>),
}

impl Deref for Records<'_> {
    type Target = [BlockRecord];
    fn deref(&self) -> &[BlockRecord] {
        match self {
            Records::Told(records) => records,
            Records::Asked(records) => records,
        }
    }
}

/// Answers that a step keeps: by field, and by region if this reader did not ask for all blocks.
#[derive(Debug, Default)]
pub(crate) struct LookupCache(VecDeque<(String, Option<Region>, Arc<Vec<BlockRecord>>)>);

impl LookupCache {
    /// An answer that holds all that meets this region, or all.
    pub(crate) fn get(&self, field: &str, region: Option<&Region>) -> Option<Arc<Vec<BlockRecord>>> {
        let holds = |known: &Option<Region>| match (known, region) {
            (None, _) => true,
            (Some(known), Some(region)) => known.contains(region),
            (Some(_), None) => false,
        };
        let found = self.0.iter().find(|(name, known, _)| name == field && holds(known));
        found.map(|(_, _, records)| records.clone())
    }

    /// Keeps an answer, in the place of the oldest if there are many.
    pub(crate) fn put(&mut self, field: &str, region: Option<&Region>, records: Arc<Vec<BlockRecord>>) {
        if self.0.len() >= ANSWERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((field.to_owned(), region.cloned(), records));
    }
}

/// Asks the owners of a field's tiles, all at once, for its blocks or for those that meet a region. An owner that has
/// gone has a successor soon, which those that hold blocks tell of them. Blocks that nobody knows any more are said to be
/// lost.
pub(crate) fn find_records(
    pool: &ServerPool,
    id: &StepId,
    found: &FieldReport,
    region: Option<&Region>,
) -> Result<Vec<BlockRecord>> {
    let group = pool.group();
    let mut window = RetryWindow::until(Instant::now() + group.limit());
    loop {
        match find_records_now(pool, id, found, region) {
            Err(error) if error.kind != ErrorKind::Unreachable => return Err(error),
            Err(_) if blocking::interrupted() => {
                return Err(blocking::interrupted_while("servers to tell where blocks are"));
            }
            Err(_) if window.may_retry(group) => {
                pause_before_retry();
                let _ = group.refresh();
            }
            // The silent server may know them.
            Err(error) if group.is_any_silent() => return Err(error),
            Err(error) => {
                let name = &found.field.name;
                let text = format!(
                    "field '{name}' at {id}: where some of its blocks are is not known any more: {error}"
                );
                return Err(Error::new(ErrorKind::Lost, text).about_that_of(&error));
            }
            records => return records,
        }
    }
}

fn find_records_now(
    pool: &ServerPool,
    id: &StepId,
    found: &FieldReport,
    region: Option<&Region>,
) -> Result<Vec<BlockRecord>> {
    let name = &found.field.name;
    let tiles = pool.tiles(hash_in_stream(id, name), found.field.shape.as_deref());
    let owners = region.map_or_else(|| tiles.owners(), |region| tiles.owners_of(region));
    let mut known: BTreeMap<BlockKey, BlockRecord> = BTreeMap::new();
    let mut gone = None;
    let mut rest: Vec<(ServerId, u64)> = owners.into_iter().map(|owner| (owner, 0)).collect();
    while !rest.is_empty() {
        let told_by =
            |owner| rest.iter().find(|(asked, _)| *asked == owner).map_or(0, |(_, skip): &(_, u64)| *skip);
        let question = |owner| {
            let (id, field, region) = (id.clone(), name.clone(), region.cloned());
            Request::FindBlocks { id, field, region, skip: told_by(owner) }
        };
        let deadline = Instant::now() + pool.group().options().patience();
        let owners = rest.iter().map(|(owner, _)| *owner);
        let answers = pool.ask_all(owners, question, deadline, "to tell blocks");
        let mut next = Vec::new();
        for (owner, answer) in answers {
            match answer.map(|answer| answer.message) {
                Ok(Reply::Records { blocks, more }) => {
                    if more {
                        next.push((owner, told_by(owner) + blocks.len() as u64));
                    }
                    known.extend(blocks.into_iter().map(|block| (block.key, block)));
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if error.kind == ErrorKind::Unreachable => gone = Some(error),
                Err(error) => return Err(error),
            }
        }
        rest = next;
    }
    let from_owners = known.len() as u64;
    for block in &found.blocks {
        known.entry(block.key).or_insert_with(|| block.clone());
    }
    let records: Vec<BlockRecord> = known.into_values().collect();
    if let Some(region) = region {
        // Whether what is missing was never put or is lost, the number of all blocks tells.
        return match is_covered(region, &records) {
            true => Ok(records),
            false => find_records_now(pool, id, found, None).map(|_| records),
        };
    }
    if from_owners < found.registered {
        let lost = || {
            let (there, all) = (from_owners, found.registered);
            let text =
                format!("field '{name}' at {id}: {} of its {all} blocks are lost with a server", all - there);
            Error::new(ErrorKind::Lost, text)
        };
        return Err(gone.unwrap_or_else(lost));
    }
    Ok(records)
}

fn is_covered(region: &Region, records: &[BlockRecord]) -> bool {
    let placed = records.iter().filter(|block| block.level == 0 && block.extent.offset().is_some());
    let interiors: Vec<Region> = placed.map(|block| block.extent.interior()).collect();
    coverage::missing(region, interiors.iter()).is_none()
}
