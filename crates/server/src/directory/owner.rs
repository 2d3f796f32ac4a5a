//! This server as an owner of tiles: which blocks of each step touch them.

use super::parts::some_of;
use crate::members::Members;
use forebay_cluster::environment::HashMap;
use forebay_core::Error;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, StepId};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_wire::client::reading::Reply;
use std::collections::{BTreeMap, HashSet};

/// Blocks that touch tiles which this server owns, by step and field.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    steps: HashMap<StepId, BTreeMap<String, FieldIndex>>,
}

impl Owner {
    /// How many blocks are known, and about how many bytes that takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.steps
            .values()
            .flat_map(BTreeMap::values)
            .fold((0, 0), |sum, index| (sum.0 + index.blocks().len() as u64, sum.1 + index.bytes()))
    }

    /// The steps of which this server owns parts.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepId> {
        self.steps.keys()
    }

    /// Nobody needs a step any more.
    pub(super) fn forget(&mut self, id: &StepId) {
        self.steps.remove(id);
    }

    /// Blocks of a step touch tiles of this server: those that are refused, and why the first of them is.
    pub(super) fn register(
        &mut self,
        members: &Members,
        id: &StepId,
        reports: Vec<FieldReport>,
    ) -> (Vec<(String, BlockKey)>, Option<Error>) {
        let mut refused = Vec::new();
        let mut error = None;
        for report in reports {
            let fields = self.steps.entry(id.clone()).or_default();
            let name = report.field.name.clone();
            let index = fields.entry(name.clone()).or_insert_with(|| FieldIndex::new(report.field));
            for block in report.blocks {
                let key = block.key;
                let mut inserted = index.insert(block.clone());
                if inserted.is_err() && !members.gone().is_empty() {
                    // A rank that put it at a server which is dead puts it again.
                    index.remove(|known| known.key == key && members.is_gone(known.location.server));
                    inserted = index.insert(block);
                }
                if let Err(problem) = inserted {
                    refused.push((name.clone(), key));
                    error.get_or_insert(problem);
                }
            }
        }
        (refused, error)
    }

    /// Other owners refused these blocks.
    pub(super) fn unregister(&mut self, id: &StepId, blocks: &[(String, BlockKey)]) {
        let Some(fields) = self.steps.get_mut(id) else { return };
        for (name, index) in fields {
            let keys: HashSet<BlockKey> =
                blocks.iter().filter(|(of, _)| of == name).map(|(_, key)| *key).collect();
            if !keys.is_empty() {
                index.remove(|block| keys.contains(&block.key));
            }
        }
    }

    /// A holder tells of blocks that touch tiles which this server owns now.
    pub(crate) fn on_hand_over(&mut self, id: &StepId, reports: Vec<FieldReport>) {
        for report in reports {
            let fields = self.steps.entry(id.clone()).or_default();
            let index =
                fields.entry(report.field.name.clone()).or_insert_with(|| FieldIndex::new(report.field));
            for block in report.blocks {
                if let Err(error) = index.insert(block) {
                    tracing::warn!("a block of {id} is not taken over: {error}");
                }
            }
        }
    }

    /// The blocks of a step that touch a region, or all, apart from so many that were told before.
    pub(crate) fn find(&self, id: &StepId, field: &str, region: Option<&Region>, skip: usize) -> Reply {
        let index = self.steps.get(id).and_then(|fields| fields.get(field));
        match (index, region) {
            (None, _) => Reply::Records { blocks: Vec::new(), more: false },
            (Some(index), None) => some_of(index.blocks().iter().skip(skip)),
            (Some(index), Some(region)) => some_of(index.find(region).skip(skip)),
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> Result<(), String> {
        for (id, fields) in &self.steps {
            if fields.is_empty() {
                return Err(format!("no field of {id} is known"));
            }
            for (name, index) in fields {
                index.sanity_check().map_err(|error| format!("field '{name}' of {id}: {error}"))?;
            }
        }
        Ok(())
    }
}
