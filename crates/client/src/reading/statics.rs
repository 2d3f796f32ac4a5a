//! The static fields of a run: a reader is told of them once, and holds them while it reads steps of that run.

use crate::connection::rpc::lock;
use crate::reading::block_lookup::LookupCache;
use crate::reading::held_steps::{HeldSteps, Hold};
use forebay_core::ids::{Epoch, RunNumber, STATIC_STEP, StepId};
use forebay_core::steps::{FieldReport, StepReport};
use std::sync::{Arc, Mutex};

/// The static fields of a run, as they were told.
#[derive(Debug)]
pub(crate) struct StaticFields {
    /// What they are held under.
    pub(super) id: StepId,
    pub(super) fields: Vec<FieldReport>,
    /// In which term they were told.
    pub(super) term: Epoch,
    pub(super) lookups: Mutex<LookupCache>,
}

impl StaticFields {
    /// Those that were told with a step.
    pub(crate) fn told_with(report: &StepReport, fields: Vec<FieldReport>) -> StaticFields {
        let id = StepId { step: STATIC_STEP, ..report.id.clone() };
        StaticFields { id, fields, term: report.term, lookups: Mutex::default() }
    }

    fn bytes(&self) -> u64 {
        self.fields.iter().flat_map(|field| &field.blocks).map(|block| block.location.bytes).sum()
    }
}

/// The static fields of a run, and the hold on them: `None` where they are held as long as the step.
#[derive(Debug, Clone)]
pub(crate) struct RunStatics {
    pub(super) fields: Arc<StaticFields>,
    pub(super) hold: Option<Arc<Hold>>,
}

impl RunStatics {
    /// Static fields that are held as long as the step with which they were told.
    pub(crate) fn held_with_step(fields: StaticFields) -> RunStatics {
        RunStatics { fields: Arc::new(fields), hold: None }
    }
}

/// What a reader remembers of the static fields that it was told of last.
#[derive(Debug, Default)]
pub(crate) struct LatestStatics(Mutex<Option<RunStatics>>);

impl LatestStatics {
    /// A step was told, maybe with static fields: those of its run, and what is remembered no longer, which is let go of when it
    /// is dropped.
    pub(crate) fn on_step(
        &self,
        held: &Arc<HeldSteps>,
        report: &mut StepReport,
    ) -> (Option<RunStatics>, Option<RunStatics>) {
        let mut latest = lock(&self.0);
        let known = latest.take();
        let run: RunNumber = report.id.run;
        let is_same_run = known.as_ref().is_some_and(|known| known.fields.id.run == run);
        let Some(told) = report.statics.take() else {
            let (current, outdated) = if is_same_run { (known, None) } else { (None, known) };
            latest.clone_from(&current);
            return (current, outdated);
        };
        let fields = Arc::new(StaticFields::told_with(report, told));
        // Told again, they are held already.
        let hold = known.as_ref().filter(|_| is_same_run).and_then(|known| known.hold.clone());
        let bytes = fields.bytes();
        let hold = hold.unwrap_or_else(|| Arc::new(Hold::new(held.clone(), run, STATIC_STEP, bytes)));
        let current = Some(RunStatics { fields, hold: Some(hold) });
        latest.clone_from(&current);
        (current, known)
    }

    /// Nothing is remembered any more.
    pub(crate) fn take(&self) -> Option<RunStatics> {
        lock(&self.0).take()
    }
}
