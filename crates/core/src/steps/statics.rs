//! The static fields of a run, which belong to no step: held as a step that never closes, until the run is held no more.

use crate::ids::{Epoch, ServerId};
use crate::steps::report::FieldReport;
use crate::steps::step::Step;
use std::collections::BTreeSet;

/// The static fields of a run.
#[derive(Debug, Default)]
pub(super) struct Statics {
    /// What ranks have put of them; `None` if none has, or if it was freed.
    content: Option<Step>,
    /// How often a rank has told of some.
    version: u64,
}

impl Statics {
    /// A rank tells of some. Until then nobody knew of them but that these servers hold some.
    pub(super) fn on_told(&mut self, servers: BTreeSet<ServerId>, unseen_before: Epoch) -> &mut Step {
        self.version += 1;
        let content = self.content.get_or_insert_with(|| Step::new(BTreeSet::new(), unseen_before));
        content.servers.extend(servers);
        content
    }

    pub(super) fn content(&self) -> Option<&Step> {
        self.content.as_ref()
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Step> {
        self.content.as_mut()
    }

    /// Grows with each change; 0 if there are none.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// How many bytes were put of one.
    pub(super) fn bytes_of(&self, field: &str) -> Option<u64> {
        let mut fields = self.content.iter().flat_map(Step::bytes_of_fields);
        fields.find(|(name, _)| *name == field).map(|(_, bytes)| bytes)
    }

    /// As everybody is told of them.
    pub(super) fn report(&self) -> Option<Vec<FieldReport>> {
        self.content.as_ref().map(Step::whole_fields)
    }

    /// Takes them out if nobody holds them.
    pub(super) fn take_unheld(&mut self) -> Option<Step> {
        self.content.take_if(|content| content.holds == 0)
    }
}
