//! Finding blocks at an owner.

use super::{Change, FieldAtStep, Owner};
use crate::context::Context;
use crate::space::Group;
use crate::space::field_at_step::check_inside;
use crate::space::group::{describer_of, tiles_now};
use crate::space::owner::field::OwnedField;
use forebay_core::ids::DescriptionNumber;
use forebay_core::region::{Dims, Region};
use forebay_core::steps::FieldReport;
use forebay_core::{Error, Result};

/// What a reader looks for.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) key: FieldAtStep,
    /// `None` if the reader wants to know the field's description alone.
    region: Option<Region>,
    /// The field's shape, as far as the reader knows it.
    shape: Option<Dims>,
    /// How far the blocks that this owner knew covered its tiles of the region, when it looked last.
    coverage: Option<Coverage>,
}

/// How far blocks cover an owner's tiles of a region, so that each block is looked at once, however many come.
#[derive(Debug)]
struct Coverage {
    description: DescriptionNumber,
    removals: u64,
    /// How many blocks of the index were looked at.
    blocks: usize,
    /// How many elements are in none of them.
    missing: u64,
}

/// What an owner says to a search.
#[derive(Debug)]
pub(crate) enum SearchOutcome {
    /// All is there.
    Found(Box<SearchAnswer>),
    /// Not all is there: the search is to be made again after this change.
    Missing(Change),
    /// Other servers own all of it, or describe it.
    NotOwned,
}

/// What an owner answers to a reader.
#[derive(Debug)]
pub(crate) struct SearchAnswer {
    /// 0 if the owner only describes the field.
    pub(crate) lease: u64,
    pub(crate) description: DescriptionNumber,
    pub(crate) report: FieldReport,
}

impl Search {
    pub(crate) fn new(key: FieldAtStep, region: Option<Region>, shape: Option<Dims>) -> Search {
        Search { key, region, shape, coverage: None }
    }
}

impl Coverage {
    /// What is known after looking at all blocks that are new since `before`.
    fn of(owned: &OwnedField, parts: &[Region], before: Option<Coverage>) -> Coverage {
        let (description, removals) = (owned.description(), owned.index().removals());
        let same = |known: &Coverage| (known.description, known.removals) == (description, removals);
        let mut now = before.filter(same).unwrap_or_else(|| Coverage {
            description,
            removals,
            blocks: 0,
            missing: parts.iter().map(Region::volume).fold(0, u64::saturating_add),
        });
        let blocks = owned.index().blocks();
        for block in &blocks[now.blocks..] {
            if block.level == 0 && block.extent.offset().is_some() {
                let interior = block.extent.interior();
                let inside = parts.iter().filter_map(|part| part.intersect(&interior));
                // Interiors do not overlap.
                now.missing = now.missing.saturating_sub(inside.map(|part| part.volume()).sum());
            }
        }
        now.blocks = blocks.len();
        now
    }
}

impl Owner {
    /// A reader looks for the blocks that meet a region: all that this owner knows, if they cover its tiles of the region.
    pub(crate) fn on_search(
        &mut self,
        cx: &Context<'_>,
        group: &mut dyn Group,
        search: &mut Search,
    ) -> Result<SearchOutcome> {
        let wants_description = search.region.is_none() || search.shape.is_none();
        if wants_description && describer_of(cx, &search.key) != cx.me() {
            return Ok(SearchOutcome::NotOwned);
        }
        let Some(owned) = self.fields.get(&search.key) else {
            return Ok(SearchOutcome::Missing(self.changes.next(&search.key)));
        };
        let (field, description) = (owned.field().clone(), owned.description());
        let tiles = tiles_now(cx, group, &search.key, field.tiled_shape());
        // A reader that knows no shape, or another one, does not know which owners to ask.
        let asks_anew = match &search.shape {
            Some(shape) => field.tiled_shape() != Some(&shape[..]),
            None => !tiles.is_single(),
        };
        let Some(region) = search.region.as_ref().filter(|_| !asks_anew) else {
            let report = FieldReport::new(field, Vec::new());
            return Ok(SearchOutcome::Found(Box::new(SearchAnswer { lease: 0, description, report })));
        };
        check_inside(&field, region)?;
        let parts = tiles.parts_of(cx.me(), region);
        if parts.is_empty() && tiles.descriptor() != Some(cx.me()) {
            return Ok(SearchOutcome::NotOwned);
        }
        let coverage = Coverage::of(owned, &parts, search.coverage.take());
        let is_covered = coverage.missing == 0;
        search.coverage = Some(coverage);
        if !is_covered {
            return Ok(SearchOutcome::Missing(self.changes.next(&search.key)));
        }
        let blocks = owned.index().find(region).cloned().collect();
        let lease = cx.server.unique();
        self.leases.grant(lease, search.key.clone());
        let report = FieldReport::new(field, blocks);
        Ok(SearchOutcome::Found(Box::new(SearchAnswer { lease, description, report })))
    }

    /// A reader's patience is over: fails with what is missing of this owner's tiles, unless that came at the last moment.
    pub(crate) fn on_patience_over(
        &self,
        cx: &Context<'_>,
        group: &mut dyn Group,
        search: &mut Search,
    ) -> Result<()> {
        let key = &search.key;
        let Some(owned) = self.fields.get(key) else {
            let FieldAtStep { field, step } = key;
            return Err(Error::timeout(format!("nothing of field '{field}' was put at step {step} in time")));
        };
        search.coverage = None;
        let Some(region) = &search.region else { return Ok(()) };
        let tiles = tiles_now(cx, group, key, owned.field().tiled_shape());
        let parts = tiles.parts_of(cx.me(), region);
        owned.index().check_parts_covered(&format!("step {}", key.step), region, &parts)
    }
}
