//! Shards have passed on: the holders of blocks tell the owners that took the dead ones' place.

use super::{HeldBlock, Holder};
use crate::context::Context;
use crate::directory::in_parts;
use crate::held::Held;
use crate::space::Group;
use crate::space::group::tiles_now;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_core::shards::Shards;
use forebay_core::steps::FieldReport;
use forebay_wire::peer::space::Message;
use std::collections::BTreeMap;

/// What owners are told: the blocks of each field under each description.
type Reports = BTreeMap<(ServerId, StepNumber, DescriptionNumber, String), FieldReport>;

impl Holder {
    /// Other servers own shards than did before: owners that do not know blocks of this server are told of them.
    pub(crate) fn on_shards_reassigned(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        before: &Shards,
    ) {
        let held: Vec<Held> = self.blocks.keys().copied().collect();
        self.hand_over(cx, group, &held, before);
    }

    /// A block is registered with all its owners under a description. Shards may have passed on meanwhile.
    pub(crate) fn on_registered_everywhere(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        range: Held,
        description: DescriptionNumber,
        before: &Shards,
    ) {
        if let Some(block) = self.blocks.get_mut(&range) {
            block.description = description;
        }
        self.hand_over(cx, group, &[range], before);
    }

    /// A block is about to take the place of what there is, under this description: copies are made with it.
    pub(crate) fn on_described(&mut self, range: Held, description: DescriptionNumber) {
        if let Some(block) = self.blocks.get_mut(&range) {
            block.description = description;
        }
    }

    fn hand_over(&mut self, cx: &mut Context<'_>, group: &mut dyn Group, ranges: &[Held], before: &Shards) {
        let mut reports = Reports::new();
        for range in ranges {
            if let Some(block) = self.blocks.get_mut(range).filter(|block| block.description > 0) {
                block.tell_new_owners(cx, group, before, &mut reports);
            }
        }
        for ((owner, step, description, _), report) in reports {
            let describes_only = report.blocks.is_empty().then(|| report.clone());
            for report in in_parts(report).chain(describes_only) {
                cx.tell(owner, Message::HandOver { step, description, report });
            }
        }
    }
}

impl HeldBlock {
    /// Adds to the reports what new owners of the block are to know.
    fn tell_new_owners(
        &mut self,
        cx: &Context<'_>,
        group: &mut dyn Group,
        before: &Shards,
        reports: &mut Reports,
    ) {
        let HeldBlock { owners: known, field, key, record, description, .. } = self;
        let describer = group.tiles(before, key, field.tiled_shape()).descriptor();
        let tiles = tiles_now(cx, group, key, field.tiled_shape());
        let owners = match tiles.is_single() {
            true => tiles.descriptor().into_iter().collect(),
            false => tiles.owners_of(&record.extent.interior()),
        };
        let of = |owner: ServerId| (owner, key.step, *description, key.field.clone());
        let new = || FieldReport::new((**field).clone(), Vec::new());
        // The server that describes the field now is to know it, even if it owns none of these tiles.
        if let Some(describer) = tiles.descriptor().filter(|new| Some(*new) != describer) {
            reports.entry(of(describer)).or_insert_with(new);
        }
        for owner in owners {
            if !known.contains(&owner) {
                reports.entry(of(owner)).or_insert_with(new).blocks.push(record.clone());
                known.push(owner);
            }
        }
        let standing = cx.server.standing();
        known.retain(|owner| standing.view.members.contains(owner));
    }
}
