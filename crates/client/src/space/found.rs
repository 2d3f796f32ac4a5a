//! Blocks of the space that were found, and are held until they were read.

use crate::connection::rpc::Rpc;
use crate::holes::Holes;
use crate::reading::assemble;
use crate::reading::block_access::ARENAS_KEPT;
use crate::space::handle::Space;
use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_core::ids::{Epoch, StepNumber};
use forebay_core::selection::Selection;
use forebay_core::steps::FieldReport;
use forebay_store::strided::Target;
use std::sync::Arc;

/// Blocks that were found; held until this is dropped.
#[derive(Debug)]
pub struct FoundBlocks<'a> {
    pub(super) space: &'a Space,
    pub(super) report: FieldReport,
    pub(super) step: StepNumber,
    /// The first term in which a server told of one of the blocks.
    pub(super) term: Epoch,
    /// The connections over which servers hold the blocks, and the numbers of the requests.
    pub(super) held: Vec<(Arc<Rpc>, u64)>,
}

impl FoundBlocks<'_> {
    /// The field.
    pub fn field(&self) -> &Field {
        &self.report.field
    }

    /// Copies exactly the selected elements into `target`.
    pub fn read(&self, selection: &Selection, target: &mut Target<'_>) -> Result<()> {
        let pool = &self.space.pool;
        pool.forget_unused_arenas(ARENAS_KEPT, self.term);
        let from = assemble::BlockSource { pool, step: format!("step {}", self.step), term: self.term };
        assemble::read(&from, &self.report.field, &self.report.blocks, selection, Holes::Refused, target)
    }
}

impl Drop for FoundBlocks<'_> {
    fn drop(&mut self) {
        // A forked child holds nothing, and waits for no lock.
        if self.space.guard.is_child() {
            return;
        }
        for (rpc, request) in self.held.drain(..) {
            rpc.release(request);
        }
    }
}
