//! Runs: one life of a stream, its ranks and its steps.

use crate::contract::{Field, Needs};
use crate::cut::Cuts;
use crate::demand::Demand;
use crate::identity::Identity;
use crate::ids::{Epoch, RunNumber, STATIC_STEP, ServerId, StepNumber, Timestamp, step_name};
use crate::seeded::{Bug, seeded};
use crate::steps::attachment::Attachment;
use crate::steps::contribution::StepContribution;
use crate::steps::counts::{HandedCounts, StepCounts};
use crate::steps::numbers::StepNumbers;
use crate::steps::offer::Offer;
use crate::steps::options::RunOptions;
use crate::steps::rank::{Rank, RankState};
use crate::steps::report::FieldReport;
use crate::steps::run_end::{RunOutcome, RunSummary};
use crate::steps::run_phase::{Admission, CutsKnown, Ending, Origin, Search, Stage};
use crate::steps::statics::Statics;
use crate::steps::step::Step;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many ranks a text names.
const RANKS_NAMED_MAX: usize = 4;
/// How many ranks that never came are looked for.
const RANKS_MISSING_MAX: usize = 1024;

/// One life of a stream.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: RunNumber,
    pub(super) options: RunOptions,
    /// When its first rank joined, as far as is known.
    pub(super) began: Timestamp,
    /// Those that have come.
    pub(super) ranks: BTreeMap<u32, Rank>,
    pub(super) offer: Offer,
    /// From which step each demand holds.
    pub(super) cuts: Cuts,
    /// The highest step begun by ranks that have left.
    pub(super) highest_left: Option<StepNumber>,
    pub(super) steps: BTreeMap<StepNumber, Step>,
    pub(super) statics: Statics,
    /// Those steps that are open.
    pub(super) open: BTreeSet<StepNumber>,
    /// The latest closed steps, which are kept although nobody reads them.
    pub(super) kept: BTreeSet<StepNumber>,
    pub(super) counts: StepCounts,
    /// Those that have been closed here, whether they are held or not.
    pub(super) closed: StepNumbers,
    /// The highest step that has been closed, here or as was handed over.
    pub(super) last_closed: Option<StepNumber>,
    /// The last closed step at which something of a field was staged, and how many bytes.
    pub(super) staged: BTreeMap<String, (StepNumber, u64)>,
    /// Up to which step all was counted by the coordinator before this one, which has handed over its counts.
    counted_up_to: Option<StepNumber>,
    /// In which term its steps began to be counted, if another server coordinated it before and has not handed its counts
    /// over; else 0.
    counted_since: Epoch,
    pub(super) origin: Origin,
    pub(super) admission: Admission,
    pub(super) ending: Ending,
    /// How it ended, once every server was told.
    pub(super) summary: Option<RunSummary>,
    /// Ranks that lost their home server and were given up.
    pub(super) lost: BTreeSet<u32>,
    /// Servers that hold blocks of steps of which no rank has told yet.
    pub(super) unclaimed: BTreeMap<StepNumber, BTreeSet<ServerId>>,
    /// The search for ranks that are away; `None` before the first look for them.
    pub(super) search: Option<Search>,
}

impl Run {
    /// A run whose first rank joins.
    pub(super) fn new(number: RunNumber, options: RunOptions, demand: Arc<Demand>, began: Timestamp) -> Run {
        Run {
            number,
            options,
            began,
            ranks: BTreeMap::new(),
            offer: Offer::default(),
            cuts: Cuts::new(demand),
            highest_left: None,
            steps: BTreeMap::new(),
            statics: Statics::default(),
            open: BTreeSet::new(),
            kept: BTreeSet::new(),
            counts: StepCounts::default(),
            closed: StepNumbers::default(),
            last_closed: None,
            staged: BTreeMap::new(),
            counted_up_to: None,
            counted_since: 0,
            origin: Origin::Joined,
            admission: Admission::Open,
            ending: Ending::Unknown,
            summary: None,
            lost: BTreeSet::new(),
            unclaimed: BTreeMap::new(),
            search: None,
        }
    }

    /// A run that another server has coordinated, of which homes begin to tell in this term.
    pub(super) fn inherited(number: RunNumber, options: RunOptions, term: Epoch) -> Run {
        let stage = Stage::Learning(term);
        let origin = Origin::Inherited { since: term, cuts: CutsKnown::No, stage };
        Run { origin, counted_since: term, ..Run::new(number, options, Arc::default(), Timestamp::default()) }
    }

    /// Homes tell of the run in this term.
    pub(super) fn note_term(&mut self, term: Epoch) {
        if let Origin::Inherited { stage: Stage::Learning(latest), .. } = &mut self.origin {
            *latest = term;
        }
    }

    /// A home tells from which step on each demand holds.
    pub(super) fn inherit_cuts(&mut self, told: Cuts) {
        let learns = match &mut self.origin {
            Origin::Joined => false,
            // Of a run that has gone on here, the homes were told from which step on each demand holds.
            Origin::Inherited { cuts, stage, .. } => {
                let is_first = std::mem::replace(cuts, CutsKnown::Yes) == CutsKnown::No;
                is_first || (*stage != Stage::Settled && self.cuts.are_before(&told))
            }
        };
        if learns || seeded(Bug::TakesCutsFromAnybody) {
            self.cuts = told;
        }
    }

    /// A rank that comes back tells which demand it knows: that is all there is if no home has told of any.
    pub(super) fn inherit_demand(&mut self, demand: Demand) {
        if let Origin::Inherited { cuts, .. } = &mut self.origin
            && std::mem::replace(cuts, CutsKnown::Yes) == CutsKnown::No
        {
            self.cuts = Cuts::new(Arc::new(demand));
        }
    }

    /// All homes have told. Returns whether the run was being learned of, so that its readers get stand-ins now.
    pub(super) fn settle(&mut self) -> bool {
        match &mut self.origin {
            Origin::Joined => false,
            Origin::Inherited { stage, .. } => std::mem::replace(stage, Stage::Settled) != Stage::Settled,
        }
    }

    /// The term in which homes tell of the run, if it is being learned of.
    pub(super) fn learning(&self) -> Option<Epoch> {
        match self.origin {
            Origin::Inherited { stage: Stage::Learning(term), .. } => Some(term),
            _ => None,
        }
    }

    /// In which term its steps began to be counted, if that was not the beginning of the run; else 0.
    pub(super) fn counted_since(&self) -> Epoch {
        self.counted_since
    }

    /// The coordinator before this one has left, and handed over what it had counted.
    pub(super) fn inherit_counts(&mut self, told: &HandedCounts) {
        // What was closed here before is counted here.
        if self.is_inherited() && self.counts == StepCounts::default() {
            (self.counts, self.counted_since) = (told.steps, told.since);
            (self.last_closed, self.counted_up_to) = (told.last_closed, told.last_closed);
        }
    }

    fn is_inherited(&self) -> bool {
        self.origin != Origin::Joined
    }

    /// The highest step that a rank is known to have begun.
    pub(super) fn reached(&self) -> Option<StepNumber> {
        let closed = self.steps.keys().next_back().copied();
        self.highest_left.max(closed).max(self.highest_ended())
    }

    /// How it ended, if it is over: as all servers were told, or as it is known now.
    pub(super) fn summary(&self, now: Timestamp) -> Option<RunSummary> {
        if !self.is_over() {
            return None;
        }
        let counts = self.ranks.values().map(|rank| rank.counts);
        let counts = counts.max_by_key(|counts| counts.begun).unwrap_or_default();
        let computed = || RunSummary { outcome: self.outcome(), at: now, reached: self.reached(), counts };
        Some(self.summary.clone().unwrap_or_else(computed))
    }

    /// How it ended, all ranks being gone that ever come.
    fn outcome(&self) -> RunOutcome {
        let mut why: Vec<String> = self.without().into_iter().collect();
        let missing = (0..self.options.size).filter(|rank| !self.ranks.contains_key(rank));
        let missing: Vec<u32> = missing.take(RANKS_MISSING_MAX).collect();
        if !missing.is_empty() {
            why.push(match self.is_inherited() {
                false => format!("{} never came", self.named(&missing)),
                // The coordinator that knew them has died.
                true => format!("nobody knows of {}", self.named(&missing)),
            });
        }
        if why.is_empty() { RunOutcome::Finished } else { RunOutcome::Crashed(why.join(", and ")) }
    }

    /// Which ranks have gone without closing it, and what became of them; `None` if there is none.
    pub(super) fn without(&self) -> Option<String> {
        // Once it is over, whoever has not closed it has not.
        let is_over = self.is_over();
        let is_unclosed =
            |rank: &Rank| rank.state == RankState::Dead || (is_over && rank.state != RankState::Closed);
        let unclosed = self.ranks.iter().filter(|(_, rank)| is_unclosed(rank));
        let (lost, dead): (Vec<u32>, Vec<u32>) =
            unclosed.map(|(rank, _)| *rank).partition(|rank| self.lost.contains(rank));
        let mut why = Vec::new();
        if !lost.is_empty() {
            why.push(format!(
                "{} lost {} home server and did not come back",
                self.named(&lost),
                if lost.len() == 1 { "its" } else { "their" }
            ));
        }
        if !dead.is_empty() {
            why.push(format!("{} ended without closing it", self.named(&dead)));
        }
        (!why.is_empty()).then(|| why.join(", and "))
    }

    /// Ranks, as messages name them.
    fn named(&self, ranks: &[u32]) -> String {
        let of = self.options.size;
        let more = ranks.len().saturating_sub(RANKS_NAMED_MAX);
        let who = |rank: &u32| self.ranks.get(rank).map(|known| known.who.in_brackets()).unwrap_or_default();
        if let [rank] = ranks {
            return format!("rank {rank} of {of}{}", who(rank));
        }
        let named = ranks.iter().take(RANKS_NAMED_MAX).map(|rank| format!("{rank}{}", who(rank)));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("ranks {}{more} of {of}", named.collect::<Vec<String>>().join(", "))
    }

    /// Whether some rank is there, or on its way to another home.
    pub(super) fn has_ranks(&self) -> bool {
        self.ranks.values().any(|rank| !rank.state.is_gone())
    }

    /// Whether some rank has begun a step.
    pub(super) fn has_begun(&self) -> bool {
        self.ranks.values().any(|rank| rank.has_begun)
    }

    /// Whether every rank that will ever come has come and gone.
    pub(super) fn is_over(&self) -> bool {
        let gone = |rank: &Rank| rank.state.is_gone();
        (self.admission == Admission::Shut || !self.ranks.is_empty())
            && self.all_came()
            && self.ranks.values().all(gone)
    }

    /// Whether it is over, and that does not only seem so since a coordinator that is dead knew of further ranks.
    pub(super) fn is_known_to_be_over(&self) -> bool {
        let all_known = self.ranks.len() == self.options.size as usize || !self.is_inherited();
        self.is_over() && (all_known || self.ending != Ending::Unknown)
    }

    /// Whether no further rank will come.
    fn all_came(&self) -> bool {
        self.ranks.len() == self.options.size as usize || self.has_dead() || self.admission == Admission::Shut
    }

    /// Whether ranks are missing of which the coordinator before this one may have known.
    pub(super) fn lacks_ranks(&self) -> bool {
        self.is_inherited() && !self.all_came()
    }

    /// The step below which the first of its ranks has finished all.
    pub(super) fn furthest(&self) -> StepNumber {
        self.ranks.values().map(|rank| rank.below).max().unwrap_or(0)
    }

    /// The highest step that one of its ranks has ended or left out, as far as is known.
    pub(super) fn highest_ended(&self) -> Option<StepNumber> {
        self.ranks.values().map(|rank| rank.below.max(rank.told_below)).max()?.checked_sub(1)
    }

    /// Whether those of its ranks that are there have come this far, or have all gone.
    pub(super) fn is_gone_on_since(&self, step: StepNumber) -> bool {
        let here = || self.ranks.values().filter(|rank| rank.state == RankState::Open);
        let gone = self.ranks.values().any(|rank| rank.state.is_gone());
        here().any(|rank| rank.below >= step) || (gone && here().next().is_none())
    }

    /// Takes out what is held of steps that all ranks have passed without telling of them.
    pub(super) fn take_unclaimed(&mut self) -> Vec<(StepNumber, Vec<ServerId>)> {
        let open = self.ranks.values().filter(|rank| !rank.state.is_gone()).map(|rank| rank.below);
        let passed = if self.all_came() { open.min().unwrap_or(StepNumber::MAX) } else { 0 };
        let taken: Vec<StepNumber> = self.unclaimed.range(..passed).map(|(step, _)| *step).collect();
        taken
            .into_iter()
            .filter_map(|step| {
                self.unclaimed.remove(&step).map(|servers| (step, servers.into_iter().collect()))
            })
            .collect()
    }

    /// Whether a rank died: those that have not come yet belong to another run.
    fn has_dead(&self) -> bool {
        self.ranks.values().any(|rank| rank.state == RankState::Dead)
    }

    /// Takes it for over, if the coordinator before this one had told so: whoever seems to be away has left another home.
    pub(super) fn end_if_reported_over(&mut self) {
        if self.ending.was_inherited() {
            self.admission = Admission::Shut;
            let crashed = self.summary.as_ref().is_some_and(|summary| summary.why_crashed().is_some());
            let state = if crashed { RankState::Dead } else { RankState::Closed };
            self.ranks.values_mut().filter(|rank| rank.state.is_away()).for_each(|rank| rank.state = state);
        }
    }

    /// A rank comes back: the run only seemed to be over.
    pub(super) fn note_alive(&mut self) {
        self.ending = Ending::Unknown;
        self.summary = None;
    }

    /// The error of a rank whose job is not that of the ranks before it.
    pub(super) fn other_job(
        &self,
        stream: &str,
        rank: u32,
        who: &Identity,
        options: &RunOptions,
    ) -> Option<Error> {
        let (first, known) = self.ranks.first_key_value()?;
        if self.options.job == options.job {
            return None;
        }
        Some(Error::conflict(format!(
            "rank {rank} of stream '{stream}' is {who} of {}; rank {first}, which has opened it before, is {} of {}: ranks \
             of two jobs make no run. Two simulations that run at once need streams of two names; ranks of one that were \
             not started together are given one name for their `job`",
            options.job_text(),
            known.who,
            self.options.job_text()
        )))
    }

    /// Whether this rank, newly opened, belongs to this run: it has not come yet, no other has died, and not all that came
    /// have left. One of another job belongs to another run, once those that came have left.
    pub(super) fn expects(&self, rank: u32, job: &str) -> bool {
        let known = self.ranks.get(&rank);
        let all_left = !self.ranks.is_empty() && self.ranks.values().all(|rank| rank.state.is_gone());
        !self.has_dead()
            && !self.is_over()
            && (job == self.options.job || !all_left)
            && known.is_none_or(|known| known.state == RankState::Open || known.may_not_know())
    }

    /// A look for ranks that are away or missing. Returns at which step others were at the first look, and how many looks
    /// there have been.
    pub(super) fn next_search(&mut self) -> Search {
        let since = self.furthest();
        let search = self.search.get_or_insert(Search { looks: 0, since });
        search.looks += 1;
        *search
    }

    pub(super) fn step_mut(&mut self, step: StepNumber) -> &mut Step {
        let (unseen_before, servers) = (self.learning().unwrap_or(0), self.unclaimed.remove(&step));
        self.steps.entry(step).or_insert_with(|| {
            self.open.insert(step);
            Step::new(servers.unwrap_or_default(), unseen_before)
        })
    }

    /// A rank tells of static fields that it has put.
    pub(super) fn register_statics(
        &mut self,
        rank: u32,
        server: ServerId,
        put: StepContribution,
    ) -> Result<()> {
        let (unseen_before, servers) = (self.learning().unwrap_or(0), self.unclaimed.remove(&STATIC_STEP));
        self.statics.on_told(servers.unwrap_or_default(), unseen_before).register(rank, server, put)
    }

    /// The static fields, if an attachment, or one of the readers that share its steps, was not told of all of them: it holds
    /// them from now on.
    pub(super) fn statics_to_tell(
        &mut self,
        attachment: &mut Attachment,
        sharer: Option<u32>,
    ) -> Option<Vec<FieldReport>> {
        let version = self.statics.version();
        let tells = attachment.note_statics_told(sharer, self.number, version);
        let sharer = sharer.map(|number| [number]);
        tells.then(|| self.give_statics(attachment, sharer.as_ref().map(|one| &one[..])))?
    }

    /// The static fields, if there are some: an attachment that is told of them, or these of its several readers, holds them from
    /// now on.
    pub(super) fn give_statics(
        &mut self,
        attachment: &mut Attachment,
        readers: Option<&[u32]>,
    ) -> Option<Vec<FieldReport>> {
        let content = self.statics.content_mut()?;
        content.holds += u32::from(attachment.note_statics_held(readers, self.number));
        self.statics.report()
    }

    /// A step of which something is known, or the static fields.
    pub(super) fn held_mut(&mut self, step: StepNumber) -> Option<&mut Step> {
        match step {
            STATIC_STEP => self.statics.content_mut(),
            step => self.steps.get_mut(&step),
        }
    }

    /// Whether something is known of a step, or of static fields.
    pub(super) fn has(&self, step: StepNumber) -> bool {
        match step {
            STATIC_STEP => self.statics.content().is_some(),
            step => self.steps.contains_key(&step),
        }
    }

    /// All steps of which something is known, and the static fields.
    pub(super) fn all_held(&self) -> impl Iterator<Item = (StepNumber, &Step)> {
        let steps = self.steps.iter().map(|(number, step)| (*number, step));
        steps.chain(self.statics.content().map(|content| (STATIC_STEP, content)))
    }

    /// Whether every rank has ended this step or will not.
    pub(super) fn is_complete(&self, number: StepNumber, step: &Step) -> bool {
        let missing = |(rank, state): (&u32, &Rank)| {
            !state.state.is_gone() && state.below <= number && !step.ended.contains(rank)
        };
        self.all_came() && !self.ranks.iter().any(missing)
    }

    /// Closes a step, and counts it.
    pub(super) fn close_step(&mut self, number: StepNumber) -> Option<&mut Step> {
        self.open.remove(&number);
        let step = self.steps.get_mut(&number)?;
        step.close(self.options.size as usize);
        self.last_closed = self.last_closed.max(Some(number));
        self.closed.push(number);
        if self.counted_up_to.is_none_or(|counted| number > counted) {
            self.counts.closed += 1;
            self.counts.dropped += u64::from(step.dropped);
            self.counts.torn += u64::from(step.torn);
        }
        for (field, bytes) in step.bytes_of_fields() {
            match self.staged.get_mut(field) {
                Some(last) => *last = (*last).max((number, bytes)),
                None => drop(self.staged.insert(field.clone(), (number, bytes))),
            }
        }
        Some(step)
    }

    /// How many bytes were staged of a field, and at which step that was; the latest, as far as is known.
    pub(super) fn staged_of(&self, field: &Field) -> Option<(Option<StepNumber>, u64)> {
        match field.is_static {
            true => Some((None, self.statics.bytes_of(&field.name)?)),
            false => self.staged.get(&field.name).map(|(step, bytes)| (Some(*step), *bytes)),
        }
    }

    /// Whether something of a step is needed.
    pub(super) fn is_wanted(&self, needs: &Needs, step: StepNumber) -> bool {
        self.offer.is_wanted(needs, step)
    }

    /// Whether something of a step that is needed was asked of the ranks.
    pub(super) fn is_staged(&self, needs: &Needs, step: StepNumber) -> bool {
        let demand = self.cuts.at(step);
        self.offer.fields.values().any(|field| needs.wants(field, step) && demand.wants(field, step))
            || self.offer.needs_static_alone(needs)
    }

    /// Whether what the run's parts say of one another agrees: checked after each event in tests.
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        let fail = |text: String| Err(format!("run {}: {text}", self.number));
        if self.ranks.len() > self.options.size as usize {
            return fail(format!("it has {} ranks, of {}", self.ranks.len(), self.options.size));
        }
        if let Some(rank) = self.ranks.keys().find(|rank| **rank >= self.options.size) {
            return fail(format!("it has rank {rank}, of {}", self.options.size));
        }
        if self.ending == Ending::GivenUp && self.admission == Admission::Open {
            return fail("ranks that are missing were given up, and may still join".into());
        }
        let open: BTreeSet<StepNumber> =
            self.steps.iter().filter(|(_, step)| !step.is_closed()).map(|(number, _)| *number).collect();
        if open != self.open {
            return fail(format!("steps {open:?} are open, but {:?} are known to be", self.open));
        }
        if self.kept.len() > self.options.keep as usize {
            return fail(format!("it keeps {} steps, more than {}", self.kept.len(), self.options.keep));
        }
        if let Some(step) = self.kept.iter().find(|step| !self.steps.get(step).is_some_and(Step::is_closed)) {
            return fail(format!("it keeps step {step}, which is open or free"));
        }
        if let Some(step) = self.unclaimed.keys().find(|step| self.has(**step)) {
            return fail(format!("nobody has told of step {step}, which is known"));
        }
        for (number, step) in &self.steps {
            if step.is_closed() && step.holds == 0 && !self.kept.contains(number) {
                return fail(format!("step {number} is closed, and nobody needs it"));
            }
            if step.is_closed() && !step.torn && step.ended.len() < self.options.size as usize {
                return fail(format!("step {number} is closed and whole, but not all ranks have ended it"));
            }
        }
        for (number, step) in self.all_held() {
            for index in step.fields.values() {
                index
                    .sanity_check()
                    .map_err(|text| format!("run {}, {}: {text}", self.number, step_name(number)))?;
            }
        }
        Ok(())
    }
}
