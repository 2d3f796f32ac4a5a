//! What a rank remembers from call to call: its contract, the demand, the open step.

use crate::connection::group::KnownGroup;
use crate::producer::fast_path::FastPath;
use crate::producer::home_choice::HomeChoice;
use crate::producer::outstanding::{OutstandingPut, OutstandingPuts};
use crate::producer::replay_log::ReplayLog;
use crate::producer::species::{Species, SpeciesCounts};
use crate::producer::staging::{OpenPhase, Staging};
use crate::producer::stored_block::StoredBlock;
use crate::put_target::PutTarget;
use forebay_core::attr::{Attr, Attrs};
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::stats::{Stats, StatsOfBlock};
use forebay_core::steps::RankCounts;
use forebay_core::{Error, Result};
use forebay_wire::client::block::{Grant, PutBlock};
use forebay_wire::client::producer::Reply;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct ProducerState {
    /// Shared, since each put looks at one while the state is not locked.
    pub(super) fields: BTreeMap<String, Arc<Field>>,
    pub(super) species: Species,
    /// Attributes that were set, by field (of the stream itself where there is none) and name.
    pub(super) attrs: BTreeMap<(Option<String>, String), Attr>,
    pub(super) demand: Demand,
    pub(super) fast_path: FastPath,
    pub(super) open: Option<OpenStep>,
    pub(super) replay_log: ReplayLog,
    /// The last step that was begun.
    pub(super) last: Option<StepNumber>,
    pub(super) staging: Staging,
    /// How many steps were begun, and how many of them while staging was given up.
    pub(super) counts: RankCounts,
    /// When the rank next looks for another home server, after it has looked in vain. It stays when the caller is told of that,
    /// with `on_loss="fail"`, and so staging counts as active again.
    pub(super) retry_at: Option<Instant>,
    /// How often the rank has asked a server to be its next home.
    pub(super) attempts: u32,
    pub(super) home_choice: HomeChoice,
    pub(super) next_allocation: u64,
    /// The handle was closed: calls fail.
    pub(super) closed: bool,
    /// It is being closed, and no server has said in time that it knows.
    pub(super) leaving: bool,
}

/// The step that is open.
#[derive(Debug, Default)]
pub(super) struct OpenStep {
    pub(super) step: StepNumber,
    pub(super) time: f64,
    pub(super) phase: OpenPhase,
    /// The members among which its blocks are placed.
    pub(super) members: Option<Arc<KnownGroup>>,
    /// Something was put that memory had to be found for.
    pub(super) needs_memory: bool,
    /// Ranges of the home server's arena that came with the step's beginning.
    pub(super) grants: Vec<Grant>,
    /// What the home server was told of.
    pub(super) stored: Vec<StoredBlock>,
    /// Field and number of each block, so that a mistake is told at once.
    pub(super) keys: HashSet<(String, u64)>,
    pub(super) blocks: u64,
    pub(super) dropped: bool,
    pub(super) allocations: HashMap<u64, AllocatedBlock>,
    /// Other servers than the home that blocks of this step went to.
    pub(super) elsewhere: BTreeMap<ServerId, Arc<PutTarget>>,
    pub(super) counts: SpeciesCounts,
    /// Of fields, the statistics of blocks that are not staged as they are.
    pub(super) stats: BTreeMap<String, Stats>,
    /// What the rank says of it.
    pub(super) attrs: Attrs,
    pub(super) outstanding: OutstandingPuts,
}

/// A block whose memory was given to the caller, and is not committed yet.
#[derive(Debug)]
pub(super) struct AllocatedBlock {
    pub(super) target: Arc<PutTarget>,
    /// `None` for a block without elements.
    pub(super) grant: Option<Grant>,
    pub(super) dtype: Dtype,
    pub(super) stats: StatsOfBlock,
    /// Whether these are to be counted among those of the field.
    pub(super) of_field: bool,
    pub(super) put: PutBlock,
}

impl ProducerState {
    /// The field of this name.
    pub(super) fn field(&self, stream: &str, name: &str) -> Result<&Arc<Field>> {
        self.fields.get(name).ok_or_else(|| {
            let known: Vec<_> = self.fields.keys().map(String::as_str).collect();
            Error::not_found(format!(
                "stream '{stream}' has no field '{name}'; this rank offers {}: declare it first",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// The open step; `what` was called outside one if there is none.
    pub(super) fn open_for(&mut self, what: &str) -> Result<&mut OpenStep> {
        self.open.as_mut().ok_or_else(|| no_step(what))
    }

    /// A block was not put after all: its number may be used again.
    pub(super) fn forget(&mut self, field: &str, number: u64) {
        if let Some(open) = self.open.as_mut() {
            open.keys.remove(&(field.to_owned(), number));
            open.stored.retain(|block| block.put.number != number || block.put.field != field);
            self.species.forget(&mut open.counts, &open.keys, field, number);
        }
    }
}

impl OpenStep {
    /// The home server holds a block that was posted; its answer says where, if other servers hold it too.
    pub(super) fn note_held(&mut self, posted: &OutstandingPut, answer: &Reply) {
        let is_placed = matches!(answer, Reply::Placed(_));
        let block = self.stored.iter_mut().find(|block| is_placed && posted.is_of(&block.put));
        if let Some(block) = block {
            *block = StoredBlock::sent(block.put.clone(), answer);
        }
    }

    /// Nobody waits any more for the answers of the home server to what was posted.
    pub(super) fn forget_outstanding(&mut self, home: &PutTarget) {
        self.outstanding.waiting.drain(..).for_each(|posted| home.rpc.forget(posted.request));
    }

    /// The step goes on at another home server, where all these blocks were put again but for so many that were dropped.
    pub(super) fn resume_elsewhere(&mut self, stored: Vec<StoredBlock>, grants: Vec<Grant>, dropped: u64) {
        self.stored = stored;
        self.grants = grants;
        self.blocks = self.blocks.saturating_sub(dropped);
        self.dropped |= dropped > 0;
        self.needs_memory = true;
    }
}

/// The error for a call that needs an open step.
pub(super) fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}
