//! The ranks whose home this server is: what they may begin, what is still to be told to them, and the ledger of what this
//! server has told coordinators of them.

use super::begin_page::BeginPage;
use forebay_cluster::environment::HashMap;
use forebay_core::attr::Attr;
use forebay_core::contract::Field;
use forebay_core::cut::{Begin, CutMember, Cuts};
use forebay_core::demand::Demand;
use forebay_core::ids::{RunNumber, StepId, StepNumber};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{Ledger, RankEnd, RunSummary, StepContribution};
use forebay_core::{Error, Result};
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::peer::streams::JoinedRun;
use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// How many bytes of earlier demands are told at most: they travel in one message.
const CUTS_TOLD_MAX: usize = BODY_MAX / 2;

/// A rank of a run of a stream.
pub(crate) type RankKey = (String, RunNumber, u32);

/// A demand, and from which later steps other demands hold.
pub(crate) type CutsReport = (Demand, Vec<(StepNumber, Demand)>);

/// Whether a rank may begin a step.
pub(crate) enum MayBegin {
    /// It may, with this demand.
    Now(Arc<Demand>),
    /// Not before this ends: the demand is about to change.
    Wait(Pin<Box<OwnedNotified>>),
}

/// All ranks whose home this server is, by stream.
#[derive(Debug, Default)]
pub(crate) struct LocalRanks {
    streams: HashMap<String, LocalStream>,
    /// What coordinators were told of ranks whose home this server is or was.
    ledger: Ledger,
}

/// A stream with ranks here.
#[derive(Debug, Default)]
struct LocalStream {
    cut: CutMember,
    /// The cut changed: those who wait to begin a step look again.
    changed: Arc<Notify>,
    ranks: HashMap<(RunNumber, u32), LocalRank>,
}

/// A rank whose home this server is.
#[derive(Debug, Default)]
struct LocalRank {
    /// What went wrong for the rank and is still to be told to it.
    deferred: Option<Error>,
    /// How it begins steps by itself, if it shares memory.
    page: Option<BeginPage>,
    /// With which attempt it came back.
    attempt: u32,
}

impl LocalStream {
    /// From now on every rank of a run asks before it begins another step; what they have begun by themselves
    /// counts as begun here.
    fn revoke_begins_of(&mut self, run: RunNumber) {
        for (_, rank) in self.ranks.iter().filter(|((of, _), _)| *of == run) {
            if let Some(step) = rank.page.as_ref().and_then(BeginPage::revoke_begin) {
                self.cut.note_begun(run, step);
            }
        }
    }
}

/// From which step each demand holds, as far as it fits into a message: no rank is likely to begin steps from the time of
/// the oldest.
pub(crate) fn cuts_to_tell(cuts: &Cuts) -> CutsReport {
    let (demand, mut cuts) = cuts.to_parts();
    while encoded_bytes(&cuts).unwrap_or(0) > CUTS_TOLD_MAX {
        cuts.remove(0);
    }
    (demand, cuts)
}

// What a rank does, over its connection.
impl LocalRanks {
    /// A rank has joined a run through this server.
    pub(crate) fn on_joined(&mut self, stream: &str, rank: u32, joined: &JoinedRun) {
        let JoinedRun { run, joining, demand, cuts, agreeing, began, .. } = joined;
        let local = self.streams.entry(stream.to_owned()).or_default();
        let cuts = Cuts::from_parts(demand.clone(), cuts.clone());
        local.cut.open_run(*run, cuts, *agreeing);
        local.ranks.insert((*run, rank), LocalRank::default());
        self.ledger.on_joined(stream, *run, (**joining).clone(), *began);
    }

    /// The connection of a rank that has joined: the page by which the rank begins steps, and with which attempt it came back.
    pub(crate) fn on_connected(
        &mut self,
        (stream, run, rank): &RankKey,
        page: Option<BeginPage>,
        attempt: u32,
    ) {
        let stream = self.streams.get_mut(stream);
        if let Some(local) = stream.and_then(|stream| stream.ranks.get_mut(&(*run, *rank))) {
            (local.page, local.attempt) = (page, attempt);
        }
    }

    /// A rank offers a field: the demand in force, if it is known.
    pub(crate) fn on_defined(&mut self, stream: &str, run: RunNumber, field: Field) -> Option<Arc<Demand>> {
        self.ledger.on_defined(stream, run, field);
        self.demand_at(stream, run, StepNumber::MAX)
    }

    /// A rank has set an attribute.
    pub(crate) fn on_attr_set(
        &mut self,
        stream: &str,
        run: RunNumber,
        field: Option<&str>,
        key: &str,
        attr: Attr,
    ) {
        self.ledger.on_attr_set(stream, run, field, key, attr);
    }

    /// A rank asks to begin a step.
    pub(crate) fn begin(&mut self, stream: &str, run: RunNumber, step: StepNumber) -> Result<MayBegin> {
        let local = self.streams.entry(stream.to_owned()).or_default();
        match local.cut.begin(run, step) {
            Begin::Now(demand) => Ok(MayBegin::Now(demand)),
            Begin::UnknownRun => Err(Error::internal("the run is not known at its home server")),
            // Registered before the lock is released, so that no change is missed.
            Begin::Wait => {
                let mut changed = Box::pin(local.changed.clone().notified_owned());
                changed.as_mut().enable();
                Ok(MayBegin::Wait(changed))
            }
        }
    }

    /// Lets a rank that shares memory begin later steps by itself, as long as the demand holds that it is now told, if
    /// nothing is to be told to it.
    pub(crate) fn allow_begin_after(&self, (stream, run, rank): &RankKey, step: StepNumber) {
        let Some(local) = self.streams.get(stream).filter(|local| local.cut.is_settled(*run, step)) else {
            return;
        };
        let rank = local.ranks.get(&(*run, *rank)).filter(|rank| rank.deferred.is_none());
        if let Some(page) = rank.and_then(|rank| rank.page.as_ref()) {
            page.allow_begin_after(step);
        }
    }

    /// Lets a rank know that this server has taken a step whole, unless something is to be told to the rank.
    pub(crate) fn say_taken(&self, (stream, run, rank): &RankKey, step: StepNumber) {
        let rank = self.streams.get(stream).and_then(|local| local.ranks.get(&(*run, *rank)));
        let rank = rank.filter(|rank| rank.deferred.is_none());
        if let Some(page) = rank.and_then(|rank| rank.page.as_ref()) {
            page.take(step);
        }
    }

    /// From now on a rank asks before it begins another step: the one that it has begun by itself last, and the demand there.
    pub(crate) fn stop_beginning_alone(
        &self,
        (stream, run, rank): &RankKey,
    ) -> Option<(StepNumber, Arc<Demand>)> {
        let local = self.streams.get(stream)?;
        let step = local.ranks.get(&(*run, *rank))?.page.as_ref()?.revoke_begin()?;
        Some((step, local.cut.demand_at(*run, step)?))
    }

    /// The ranks of a run wait with their next steps.
    pub(crate) fn revoke_begins(&mut self, stream: &str, run: RunNumber) {
        if let Some(local) = self.streams.get_mut(stream) {
            local.revoke_begins_of(run);
        }
    }

    /// Something went wrong for a rank: it must ask before its next step, and is told with the answer.
    pub(crate) fn defer_error(&mut self, (stream, run, rank): &RankKey, error: Error) {
        let local = self.streams.get_mut(stream).and_then(|local| local.ranks.get_mut(&(*run, *rank)));
        if let Some(local) = local {
            local.deferred.get_or_insert(error);
            if let Some(page) = &local.page {
                page.revoke_begin();
            }
        }
    }

    /// The highest step that a rank here has begun, of each run with ranks here, whether or not anybody asked for steps.
    pub(crate) fn begun(&self) -> Vec<((String, RunNumber), StepNumber)> {
        let mut begun = Vec::new();
        for (stream, local) in &self.streams {
            let runs: BTreeSet<RunNumber> = local.ranks.keys().map(|(run, _)| *run).collect();
            for run in runs {
                let of_run = local.ranks.iter().filter(|((of, _), _)| *of == run);
                let pages = of_run.filter_map(|(_, rank)| rank.page.as_ref()?.last_begun());
                let highest = pages.max().max(local.cut.highest_begun(run));
                begun.extend(highest.map(|step| ((stream.clone(), run), step)));
            }
        }
        begun
    }

    /// The last step in which a rank that shares memory has put something, whether or not this server was told of it.
    pub(crate) fn last_put(&self, (stream, run, rank): &RankKey) -> Option<StepNumber> {
        self.streams.get(stream)?.ranks.get(&(*run, *rank))?.page.as_ref()?.last_put()
    }

    /// What went wrong for a rank: it is told now.
    pub(crate) fn take_error(&mut self, (stream, run, rank): &RankKey) -> Option<Error> {
        self.streams.get_mut(stream)?.ranks.get_mut(&(*run, *rank))?.deferred.take()
    }

    /// A rank begins a step, and so has finished all before it.
    pub(crate) fn on_began(&mut self, (stream, run, rank): &RankKey, step: StepNumber) {
        self.ledger.on_begun(stream, *run, *rank, step);
    }

    /// A rank has its home here no more: the highest step of its run that was begun here, if there is one. `None` if it is not
    /// here, or has come back once more over another connection.
    pub(crate) fn on_left(
        &mut self,
        (stream, run, rank): &RankKey,
        attempt: u32,
    ) -> Option<Option<StepNumber>> {
        let local = self.streams.get_mut(stream)?;
        local.ranks.get(&(*run, *rank)).filter(|local| local.attempt == attempt)?;
        let left = local.ranks.remove(&(*run, *rank))?;
        if let Some(step) = left.page.as_ref().and_then(BeginPage::revoke_begin) {
            local.cut.note_begun(*run, step);
        }
        let highest = local.cut.highest_begun(*run);
        // Others of its run may still be before steps that it has ended: whoever has to know which demands hold at those may
        // have only this server to ask.
        if let Some(cuts) = local.cut.cuts(*run).map(cuts_to_tell)
            && !seeded(Bug::ForgetsCutsOfThoseGone)
        {
            self.ledger.keep_cuts(stream, *run, cuts);
        }
        if !local.ranks.keys().any(|(other, _)| other == run) {
            local.cut.close_run(*run);
        }
        if local.ranks.is_empty() {
            self.streams.remove(stream);
        }
        if let Some(step) = highest {
            self.ledger.note_highest_step_left(stream, *run, step);
        }
        Some(highest)
    }
}

// What the coordinators of streams say.
impl LocalRanks {
    /// The demand of a run is about to change: the highest step that was begun here.
    pub(crate) fn on_prepare_cut(
        &mut self,
        stream: &str,
        run: RunNumber,
        version: u64,
    ) -> Option<StepNumber> {
        let local = self.streams.get_mut(stream)?;
        local.revoke_begins_of(run);
        local.cut.prepare(run, version)
    }

    /// A demand holds from a step on.
    pub(crate) fn on_cut(&mut self, stream: &str, run: RunNumber, from: StepNumber, demand: Demand) {
        if let Some(local) = self.streams.get_mut(stream) {
            local.cut.decide(run, from, Arc::new(demand));
            local.changed.notify_waiters();
            self.ledger.on_demand_changed(stream, run);
        }
    }

    /// From which step of a run each demand holds, as the server tells it that coordinates the stream now.
    pub(crate) fn on_cuts(&mut self, stream: &str, run: RunNumber, cuts: CutsReport, agreeing: Option<u64>) {
        if let Some(local) = self.streams.get_mut(stream) {
            // Whatever was in force before may not be any more.
            local.revoke_begins_of(run);
            local.cut.adopt_run(run, Cuts::from_parts(cuts.0, cuts.1), agreeing);
            local.changed.notify_waiters();
            self.ledger.on_demand_changed(stream, run);
        }
    }

    /// All ranks of a run have come and gone.
    pub(crate) fn on_run_over(&mut self, stream: &str, run: RunNumber, summary: RunSummary) {
        self.ledger.on_run_over(stream, run, summary);
    }
}

// What is told of ranks.
impl LocalRanks {
    /// A rank has ended a step, which its coordinator is about to be told; returns how many steps of the rank are kept.
    pub(crate) fn on_ended(
        &mut self,
        (stream, run, rank): &RankKey,
        ended: Arc<StepContribution>,
        copied: bool,
    ) -> usize {
        let step = ended.step;
        let kept = self.ledger.on_ended(stream, *run, *rank, ended);
        if copied {
            self.ledger.on_replicated(stream, *run, *rank, step);
        }
        kept
    }

    /// A coordinator is about to be told that a rank is gone.
    pub(crate) fn on_gone(&mut self, stream: &str, run: RunNumber, rank: u32, end: RankEnd) {
        self.ledger.on_gone(stream, run, rank, end);
    }

    /// A coordinator is about to be told that a rank goes on at another home.
    pub(crate) fn on_moved(&mut self, stream: &str, run: RunNumber, rank: u32) {
        self.ledger.on_released(stream, run, rank);
    }

    /// Nobody needs a step any more.
    pub(crate) fn on_freed(&mut self, id: &StepId) {
        self.ledger.on_freed(id);
    }

    /// This server takes the place of a home that is dead.
    pub(crate) fn take_over(&mut self, ledger: Ledger) {
        self.ledger.absorb(ledger);
    }

    /// What coordinators were told.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The demand at a step of a run, if it is known here.
    pub(crate) fn demand_at(&self, stream: &str, run: RunNumber, step: StepNumber) -> Option<Arc<Demand>> {
        self.streams.get(stream)?.cut.demand_at(run, step)
    }

    /// Whether anything is wanted at one of these steps of a run.
    pub(crate) fn wants_any(&self, stream: &str, run: RunNumber, steps: Range<StepNumber>) -> bool {
        self.streams.get(stream).is_some_and(|local| local.cut.wants_any(run, steps))
    }

    /// From which step of a run each demand holds, if it is known here, as far as it fits into a message.
    pub(crate) fn cuts_of(&self, stream: &str, run: RunNumber) -> Option<CutsReport> {
        self.streams.get(stream)?.cut.cuts(run).map(cuts_to_tell)
    }

    /// The streams that have ranks here, or had some whose demands are known.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.streams.keys()
    }

    /// Whether a stream has ranks here.
    pub(crate) fn has_stream(&self, stream: &str) -> bool {
        self.streams.contains_key(stream)
    }

    /// A rank that is here still, with its stream.
    pub(crate) fn first(&self) -> Option<(&String, u32)> {
        let (stream, local) = self.streams.iter().find(|(_, local)| !local.ranks.is_empty())?;
        Some((stream, local.ranks.keys().map(|(_, rank)| *rank).min().unwrap_or(0)))
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> std::result::Result<(), String> {
        self.ledger.sanity_check()
    }
}
