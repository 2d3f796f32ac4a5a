//! Runs: one life of a stream, its ranks and its steps.

use super::StepReport;
use crate::attr::Attrs;
use crate::block::BlockRecord;
use crate::contract::{Field, Needs};
use crate::cut::Cuts;
use crate::demand::Demand;
use crate::directory::{FieldIndex, check_blocks};
use crate::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber};
use crate::seeded::{Bug, seeded};
use crate::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What happens to closed steps when readers or memory cannot keep up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// The oldest closed steps go; they are counted and readers see a gap.
    #[default]
    DropOldest,
    /// A put that finds no room waits for it, up to the producer's deadline.
    Block,
    /// Only the latest closed step waits for each reader.
    Latest,
}

/// When blocks of which several servers hold copies are safe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// When a flush or the end of the step has returned.
    #[default]
    Local,
    /// When the put has returned.
    Replicated,
}

/// The most servers that may hold a block.
const REPLICAS_MAX: u32 = 8;

/// Whether a block may be held by so many servers.
pub fn check_replicas(replicas: u32) -> Result<()> {
    if (1..=REPLICAS_MAX).contains(&replicas) {
        return Ok(());
    }
    Err(Error::invalid(format!("replicas is {replicas}: 1 to {REPLICAS_MAX} servers can hold a block")))
}

/// Whether a block may be held by so many servers of a group that has so many.
pub fn check_replicas_among(replicas: u32, servers: usize) -> Result<()> {
    check_replicas(replicas)?;
    if replicas as usize > servers {
        return Err(Error::invalid(format!(
            "replicas is {replicas}, more than the group has servers ({servers}): add some with `forebay add`, or ask for \
             fewer"
        )));
    }
    Ok(())
}

/// What the ranks of a run agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// How many ranks there are.
    pub size: u32,
    /// What happens when readers or memory cannot keep up.
    pub policy: Policy,
    /// How many closed steps are kept although nobody reads them.
    pub keep: u32,
    /// Bytes of closed steps that may wait for readers; beyond, the policy decides.
    pub queue_bytes: u64,
    /// The run and the last step of it that this one continues.
    pub continues: Option<(RunNumber, StepNumber)>,
    /// How many servers hold each block: all but one may die.
    pub replicas: u32,
    /// When a block's copies are made.
    pub durability: Durability,
}

impl fmt::Display for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunOptions { size, policy, keep, queue_bytes, continues, replicas, durability } = self;
        let policy = match policy {
            Policy::DropOldest => "drop-oldest",
            Policy::Block => "block",
            Policy::Latest => "latest",
        };
        write!(f, "{size} ranks, policy {policy}, keep {keep}, queue_bytes {queue_bytes}")?;
        if *replicas > 1 {
            let durability = match durability {
                Durability::Local => "local",
                Durability::Replicated => "replicated",
            };
            write!(f, ", replicas {replicas}, durability {durability}")?;
        }
        match continues {
            Some((run, step)) => write!(f, ", continuing run {run} from step {step}"),
            None => Ok(()),
        }
    }
}

impl RunOptions {
    /// Checks what can be wrong in itself.
    pub fn check(&self, rank: u32) -> Result<()> {
        if self.size == 0 || rank >= self.size {
            return Err(Error::invalid(format!("rank {rank} of {}: ranks count from 0", self.size)));
        }
        check_replicas(self.replicas)
    }

    /// How many servers hold copies of a block beside the one that it was put to.
    pub fn copies(&self) -> u32 {
        self.replicas.saturating_sub(1)
    }
}

/// How a rank comes back to its run through another server, since its home has died or lets it go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackTo {
    /// The run.
    pub run: RunNumber,
    /// The demand that it knows.
    pub demand: Demand,
    /// Which attempt of this rank it is. A server that stood still may ask with one that the rank has given up.
    pub attempt: u32,
}

/// One field of what a rank put in a step. What is decoded was checked, as a [`super::FieldReport`] is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct EndedField {
    /// The field, with its shape at this step.
    pub field: Field,
    /// What this rank put, as far as it is told.
    pub blocks: Vec<BlockRecord>,
    /// What it put besides, and is registered with the owners of tiles.
    pub registered: Registered,
}

impl EndedField {
    /// A field all of whose blocks are told.
    pub fn new(field: Field, blocks: Vec<BlockRecord>) -> EndedField {
        EndedField { field, blocks, registered: Registered::default() }
    }
}

/// Blocks that are registered with the owners of their tiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// How many.
    pub blocks: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

impl Serialize for EndedField {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        EndedField::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for EndedField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<EndedField, D::Error> {
        let ended = EndedField::deserialize(deserializer)?;
        check_blocks(&ended.field, &ended.blocks).map_err(D::Error::custom)?;
        Ok(ended)
    }
}

/// A rank ended a step, or is gone in the middle of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnded {
    /// Which step.
    pub step: StepNumber,
    /// Physical time.
    pub time: f64,
    /// What was put.
    pub fields: Vec<EndedField>,
    /// Whether something of it did not fit and was dropped by policy.
    pub dropped: bool,
    /// Whether the rank is gone and did not end the step: this is what it had put.
    pub torn: bool,
    /// The servers that hold or know blocks which are not told here.
    pub servers: Vec<ServerId>,
}

/// Where a rank is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rank {
    pub(super) server: ServerId,
    pub(super) state: RankState,
    /// It has finished all steps below this one, whether it ended them or left them out.
    pub(super) below: StepNumber,
    /// The same, as far as others have told in the place of its home, while it is away. Several do, each of some steps: what
    /// is missing between them may only not have been told yet.
    pub(super) told_below: StepNumber,
    /// All that it ended below this step had as many copies as it was to have, or is needed no more.
    pub(super) safe_below: StepNumber,
    /// Whether it has begun a step, and so knows that it has joined.
    pub(super) begun: bool,
    /// It went away after its home had told all of it: nobody tells of it in the place of that.
    pub(super) moved: bool,
    /// Servers other than its home that hold blocks of a step which the home may not have told of.
    pub(super) stranded: Vec<(StepNumber, ServerId)>,
    /// The attempt with which it came back last; 0 if it has not.
    pub(super) attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankState {
    Open,
    /// Its home server has died or left: it may come back through another one.
    Away,
    Closed,
    Dead,
}

impl Rank {
    pub(super) fn new(server: ServerId, state: RankState, below: StepNumber) -> Rank {
        Rank {
            server,
            state,
            below,
            told_below: 0,
            safe_below: 0,
            begun: false,
            moved: false,
            stranded: Vec::new(),
            attempt: 0,
        }
    }
}

impl Rank {
    /// All that it ended below this step has its copies, or is needed no more.
    pub(super) fn is_safe_below(&mut self, step: StepNumber) {
        self.safe_below = self.safe_below.max(step);
    }

    /// Whether it may not know that it has joined, since its home has died: it joins once more. It has begun no step.
    pub(super) fn may_not_know(&self) -> bool {
        let has_ended_none = self.below.max(self.told_below) == 0;
        self.state == RankState::Away && has_ended_none && !self.begun && !seeded(Bug::BeginsAnotherRun)
    }
}

impl RankState {
    /// Whether it has gone for good.
    pub(super) fn is_gone(self) -> bool {
        matches!(self, RankState::Closed | RankState::Dead)
    }
}

/// How many steps of a run have come to what end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// All ranks have ended them, or are gone.
    pub closed: u64,
    /// Those of them that had no room.
    pub dropped: u64,
    /// Those of them in which a rank died.
    pub torn: u64,
}

/// One life of a stream.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: RunNumber,
    pub(super) options: RunOptions,
    pub(super) ranks: BTreeMap<u32, Rank>,
    pub(super) contract: BTreeMap<String, Field>,
    pub(super) attrs: Attrs,
    /// How often an attribute was set.
    pub(super) attrs_version: u64,
    /// Whether a rank has begun a step: the contract is then complete.
    pub(super) begun: bool,
    /// From which step each demand holds.
    pub(super) cuts: Cuts,
    /// The highest step begun by ranks that have left.
    pub(super) highest_left: Option<StepNumber>,
    pub(super) steps: BTreeMap<StepNumber, Step>,
    /// Those steps that are not closed.
    pub(super) open: BTreeSet<StepNumber>,
    /// The latest closed steps, which are kept although nobody reads them.
    pub(super) kept: BTreeSet<StepNumber>,
    /// Whether a later run has begun: ranks that have not come belong to that one.
    pub(super) followed: bool,
    /// Whether the coordinator before this one had told that all its ranks had come and gone.
    pub(super) was_over: bool,
    /// Whether this one has.
    pub(super) over_told: bool,
    /// Whether ranks were given up of which only the coordinator before this one may have known.
    pub(super) gave_up_lacking: bool,
    /// Why its ranks are gone, if that was the death of a server.
    pub(super) lost: Option<String>,
    /// Whether the coordinator learned of it from its ranks' homes, after another one had died.
    pub(super) inherited: bool,
    /// In which term it did last.
    pub(super) term: Epoch,
    /// In which term it did first.
    pub(super) counted_since: Epoch,
    /// Whether it was told which demands hold.
    pub(super) cuts_known: bool,
    /// Whether its readers got stand-ins.
    pub(super) stood_in: bool,
    /// Servers that hold blocks of steps of which no rank has told yet.
    pub(super) unclaimed: BTreeMap<StepNumber, BTreeSet<ServerId>>,
    /// How often was looked for ranks that are away.
    pub(super) away_looks: u32,
    /// How far others were at the first look.
    pub(super) away_since: StepNumber,
    pub(super) counts: StepCounts,
}

/// One step of a run.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) time: f64,
    pub(super) ended: BTreeSet<u32>,
    pub(super) fields: BTreeMap<String, FieldIndex>,
    /// Blocks of fields that owners of tiles know.
    pub(super) registered: BTreeMap<String, u64>,
    /// The servers that hold or know blocks of it.
    pub(super) servers: BTreeSet<ServerId>,
    /// As in [`super::Effect::Free`].
    pub(super) unseen_before: Epoch,
    pub(super) bytes: u64,
    pub(super) closed: bool,
    pub(super) torn: bool,
    pub(super) dropped: bool,
    /// How many attachments hold it, or will: it waits for them.
    pub(super) holds: u32,
}

impl Run {
    pub(super) fn new(number: RunNumber, options: RunOptions, demand: Arc<Demand>) -> Run {
        Run {
            number,
            options,
            ranks: BTreeMap::new(),
            contract: BTreeMap::new(),
            attrs: Attrs::default(),
            attrs_version: 0,
            begun: false,
            cuts: Cuts::new(demand),
            highest_left: None,
            steps: BTreeMap::new(),
            open: BTreeSet::new(),
            kept: BTreeSet::new(),
            followed: false,
            was_over: false,
            over_told: false,
            gave_up_lacking: false,
            lost: None,
            inherited: false,
            term: 0,
            counted_since: 0,
            cuts_known: false,
            stood_in: false,
            unclaimed: BTreeMap::new(),
            away_looks: 0,
            away_since: 0,
            counts: StepCounts::default(),
        }
    }

    /// Whether every rank that will ever come has come and gone.
    pub(super) fn is_over(&self) -> bool {
        let gone = |rank: &Rank| rank.state.is_gone();
        (self.followed || !self.ranks.is_empty()) && self.all_came() && self.ranks.values().all(gone)
    }

    /// Whether it is over, and that does not only seem so since a coordinator that is dead knew of further ranks.
    pub(super) fn is_known_to_be_over(&self) -> bool {
        let all_known = self.ranks.len() == self.options.size as usize || !self.inherited;
        self.is_over() && (all_known || self.was_over || self.gave_up_lacking)
    }

    /// Whether no further rank will come.
    fn all_came(&self) -> bool {
        self.ranks.len() == self.options.size as usize || self.has_dead() || self.followed
    }

    /// Whether ranks are missing of which the coordinator before this one may have known.
    pub(super) fn lacks_ranks(&self) -> bool {
        self.inherited && !self.all_came()
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

    /// Takes it for over, as the coordinator before this one had told: whoever seems to be away has left another home.
    pub(super) fn end_if_it_was_over(&mut self) {
        if self.was_over {
            self.followed = true;
            let away = self.ranks.values_mut().filter(|rank| rank.state == RankState::Away);
            away.for_each(|rank| rank.state = RankState::Closed);
        }
    }

    /// Whether this rank, newly opened, belongs to this run: it has not come yet, no other has died, and not all that came
    /// have left.
    pub(super) fn expects(&self, rank: u32) -> bool {
        let known = self.ranks.get(&rank);
        !self.has_dead()
            && !self.is_over()
            && known.is_none_or(|known| known.state == RankState::Open || known.may_not_know())
    }

    pub(super) fn step_mut(&mut self, step: StepNumber, time: f64) -> &mut Step {
        let (inherited, servers) = (self.inherited && !self.stood_in, self.unclaimed.remove(&step));
        self.steps.entry(step).or_insert_with(|| {
            self.open.insert(step);
            Step {
                time,
                ended: BTreeSet::new(),
                fields: BTreeMap::new(),
                registered: BTreeMap::new(),
                servers: servers.unwrap_or_default(),
                unseen_before: if inherited { self.term } else { 0 },
                bytes: 0,
                closed: false,
                torn: false,
                dropped: false,
                holds: 0,
            }
        })
    }

    /// Whether every rank has ended this step or will not.
    pub(super) fn is_complete(&self, number: StepNumber, step: &Step) -> bool {
        let missing = |(rank, state): (&u32, &Rank)| {
            !state.state.is_gone() && state.below <= number && !step.ended.contains(rank)
        };
        self.all_came() && !self.ranks.iter().any(missing)
    }
}

impl Run {
    /// Whether something of a step is needed.
    pub(super) fn is_wanted(&self, needs: &Needs, step: StepNumber) -> bool {
        self.contract.values().any(|field| needs.wants(field, step))
    }

    /// Whether something of a step that is needed was asked of the ranks.
    pub(super) fn is_staged(&self, needs: &Needs, step: StepNumber) -> bool {
        let demand = self.cuts.at(step);
        self.contract.values().any(|field| needs.wants(field, step) && demand.wants(field, step))
    }
}

impl Step {
    /// Takes in what a rank put. The first problem is returned; what fits is kept.
    pub(super) fn register(&mut self, rank: u32, server: ServerId, ended: StepEnded) -> Result<()> {
        let mut result = Ok(());
        // It keeps what it told until the step is free.
        self.servers.insert(server);
        if !self.ended.insert(rank) {
            // Another server told the same, and has died.
            return Ok(());
        }
        self.dropped |= ended.dropped;
        self.torn |= ended.torn;
        self.servers.extend(&ended.servers);
        for EndedField { field, blocks, registered } in ended.fields {
            if registered.blocks > 0 {
                *self.registered.entry(field.name.clone()).or_default() += registered.blocks;
                self.bytes += registered.bytes;
            }
            let index =
                self.fields.entry(field.name.clone()).or_insert_with(|| FieldIndex::new(field.clone()));
            if index.field() != &field && result.is_ok() {
                result = Err(Error::conflict(format!(
                    "rank {rank} gives field '{}' as {} at step {}, another rank as {}; all ranks of a step must agree",
                    field.name,
                    field.kind_and_shape(),
                    ended.step,
                    index.field().kind_and_shape()
                )));
            }
            for block in blocks {
                self.servers.insert(block.location.server);
                let bytes = block.location.bytes;
                match index.insert(block) {
                    Ok(true) => self.bytes = self.bytes.saturating_add(bytes),
                    Ok(false) => {}
                    Err(error) if result.is_ok() => {
                        result = Err(error.during(format!("step {}", ended.step)))
                    }
                    Err(_) => {}
                }
            }
        }
        result
    }

    /// The step as it is told to somebody with these needs.
    pub(super) fn report(&self, id: StepId, needs: &Needs) -> StepReport {
        let wanted = self.fields.values().filter(|index| needs.wants(index.field(), id.step));
        let fields = wanted
            .map(|index| super::FieldReport {
                field: index.field().clone(),
                blocks: index.blocks().to_vec(),
                registered: self.registered.get(&index.field().name).copied().unwrap_or(0),
            })
            .collect();
        StepReport {
            id,
            time: self.time,
            missed: 0,
            rewound: false,
            torn: self.torn,
            dropped: self.dropped,
            fields,
            attrs: None,
            term: 0,
        }
    }

    /// How many blocks it has, here or with the owners of their tiles.
    pub(super) fn block_count(&self) -> u64 {
        let told: usize = self.fields.values().map(|index| index.blocks().len()).sum();
        told as u64 + self.registered.values().sum::<u64>()
    }
}
