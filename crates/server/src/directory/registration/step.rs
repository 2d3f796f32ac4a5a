//! A step that a rank has ended: who is to register its blocks, who has, and what the coordinator is told then.

use forebay_cluster::environment::HashMap;
use forebay_core::block::BlockRecord;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::shards::Shards;
use forebay_core::steps::{FieldContribution, FieldReport, RegisteredBlocks, StepContribution};
use forebay_core::tiles::{TileCache, hash_in_stream};
use forebay_core::{Error, Result};
use forebay_wire::peer::directory::Message;
use forebay_wire::peer::replication::BlockRange;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Who waits until a step is as safe as it is to be.
pub(crate) type Done = oneshot::Sender<Result<()>>;

/// A step that a rank has ended.
#[derive(Debug)]
pub(super) struct StepRegistration {
    id: StepId,
    rank: u32,
    ended: StepContribution,
    /// The owners of the tiles that each block touches.
    owners: HashMap<(String, BlockKey), Vec<ServerId>>,
    /// Who is still to answer, by token.
    waiting: BTreeMap<u64, ServerId>,
    since: Instant,
    /// Owners that do not know what they should.
    failed: BTreeSet<ServerId>,
    refused: BTreeSet<(String, BlockKey)>,
    /// Whether the other owners were told of what was refused.
    cleaned: bool,
    error: Option<Error>,
    /// How many copies are to be made, and who waits for that.
    copies: u32,
    done: Option<Done>,
}

/// A step that is registered.
#[derive(Debug)]
pub(crate) struct RegisteredStep {
    pub(crate) id: StepId,
    pub(crate) rank: u32,
    /// What the coordinator is told: how many blocks are registered, and the records of all others.
    pub(crate) ended: Arc<StepContribution>,
    /// Why blocks were refused, if some were.
    pub(crate) error: Option<Error>,
    /// Where blocks are that this server holds.
    pub(crate) ranges: Vec<BlockRange>,
    /// How many copies are to be made, and who waits for that.
    pub(crate) copies: u32,
    pub(crate) done: Option<Done>,
}

/// What one server is to register of a step, by field.
#[derive(Debug, Default)]
struct Batch {
    /// Blocks that touch its tiles.
    owned: BTreeMap<String, FieldReport>,
    /// Blocks that it holds.
    held: BTreeMap<String, FieldReport>,
}

impl StepRegistration {
    pub(super) fn new(
        id: StepId,
        rank: u32,
        ended: StepContribution,
        copies: u32,
        done: Option<Done>,
    ) -> StepRegistration {
        StepRegistration {
            id,
            rank,
            ended,
            owners: HashMap::default(),
            waiting: BTreeMap::new(),
            since: Instant::now(),
            failed: BTreeSet::new(),
            refused: BTreeSet::new(),
            cleaned: false,
            error: None,
            copies,
            done,
        }
    }

    /// Whom to ask to register which blocks.
    pub(super) fn questions(
        &mut self,
        shards: &Shards,
        tiles: &mut TileCache,
    ) -> impl Iterator<Item = (ServerId, impl FnOnce(u64) -> Message + use<>)> + use<> {
        let mut batches: BTreeMap<ServerId, Batch> = BTreeMap::new();
        let placed = self.ended.fields.iter().filter(|ended| ended.field.shape.is_some());
        for FieldContribution { field, blocks, .. } in placed {
            let hash = hash_in_stream(&self.id, &field.name);
            let tiles = tiles.map(shards, hash, field.shape.as_deref());
            let report = || FieldReport::new(field.clone(), Vec::new());
            // A refined level has an index space of its own, which is not cut into tiles: its blocks travel.
            for block in blocks.iter().filter(|block| block.level == 0) {
                let touched = tiles.owners_of(&block.extent.interior());
                for owner in &touched {
                    let owned = &mut batches.entry(*owner).or_default().owned;
                    owned.entry(field.name.clone()).or_insert_with(report).blocks.push(block.clone());
                }
                let held = &mut batches.entry(block.location.server).or_default().held;
                held.entry(field.name.clone()).or_insert_with(report).blocks.push(block.clone());
                self.owners.insert((field.name.clone(), block.key), touched);
            }
        }
        let id = self.id.clone();
        batches.into_iter().map(move |(server, Batch { owned, held })| {
            let (owned, held) = (owned.into_values().collect(), held.into_values().collect());
            let id = id.clone();
            (server, move |token| Message::Register { token, id, owned, held })
        })
    }

    /// A server was asked with this token.
    pub(super) fn on_asked(&mut self, token: u64, server: ServerId) {
        self.waiting.insert(token, server);
    }

    /// A server that is gone could not be asked.
    pub(super) fn on_failed(&mut self, server: ServerId) {
        self.failed.insert(server);
    }

    /// Whether the answer to the question of this token is still to come.
    pub(super) fn waits_for(&self, token: u64) -> bool {
        self.waiting.contains_key(&token)
    }

    /// Whether no answer is still to come.
    pub(super) fn is_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The tokens of the answers that are still to come.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }

    /// The answer has come to the question of this token.
    pub(super) fn on_registered(
        &mut self,
        token: u64,
        refused: Vec<(String, BlockKey)>,
        error: Option<Error>,
    ) {
        self.waiting.remove(&token);
        self.refused.extend(refused);
        self.error = self.error.take().or(error);
    }

    /// No answer is awaited from these servers any more: the tokens of the questions to them.
    pub(super) fn give_up(&mut self, is_hopeless: impl Fn(ServerId, Instant) -> bool) -> Vec<u64> {
        let since = self.since;
        let hopeless = self.waiting.extract_if(.., |_, server| is_hopeless(*server, since));
        let mut tokens = Vec::new();
        for (token, server) in hopeless {
            tracing::warn!("{server} does not register blocks of {}: they travel with it", self.id);
            self.failed.insert(server);
            tokens.push(token);
        }
        tokens
    }

    /// Whether others that know blocks which were refused are still to be told so; they are from now on.
    pub(super) fn begin_clean_up(&mut self) -> bool {
        let begins = !self.refused.is_empty() && !self.cleaned;
        if begins {
            self.cleaned = true;
            self.since = Instant::now();
        }
        begins
    }

    /// Whom to tell to forget which blocks, since others refused them.
    pub(super) fn clean_up_questions(
        &self,
    ) -> impl Iterator<Item = (ServerId, impl FnOnce(u64) -> Message + use<>)> + use<> {
        let mut by_server: BTreeMap<ServerId, Vec<(String, BlockKey)>> = BTreeMap::new();
        for refused in &self.refused {
            let field = self.ended.fields.iter().find(|ended| ended.field.name == refused.0);
            let block = field.and_then(|field| field.blocks.iter().find(|block| block.key == refused.1));
            let owners = self.owners.get(refused).into_iter().flatten().copied();
            let servers: BTreeSet<ServerId> =
                owners.chain(block.map(|block| block.location.server)).collect();
            for server in servers {
                by_server.entry(server).or_default().push(refused.clone());
            }
        }
        let id = self.id.clone();
        by_server.into_iter().map(move |(server, blocks)| {
            let id = id.clone();
            (server, move |token| Message::Unregister { token, id, blocks })
        })
    }

    /// All have answered; this server is `me`.
    pub(super) fn finish(self, me: ServerId) -> RegisteredStep {
        let ranges = self.ranges_on(me);
        let StepRegistration { id, rank, mut ended, owners, failed, refused, error, copies, done, .. } = self;
        let mut servers: BTreeSet<ServerId> = BTreeSet::new();
        for FieldContribution { field, blocks, registered, .. } in &mut ended.fields {
            let mut told: Vec<BlockRecord> = Vec::new();
            for block in std::mem::take(blocks) {
                servers.insert(block.location.server);
                let key = (field.name.clone(), block.key);
                let Some(owners) = owners.get(&key) else {
                    told.push(block);
                    continue;
                };
                servers.extend(owners);
                if refused.contains(&key) {
                    continue;
                }
                if owners.iter().any(|owner| failed.contains(owner)) {
                    told.push(block);
                } else {
                    *registered = RegisteredBlocks {
                        blocks: registered.blocks + 1,
                        bytes: registered.bytes + block.location.bytes,
                    };
                }
            }
            *blocks = told;
        }
        ended.servers = servers.into_iter().collect();
        RegisteredStep { id, rank, ended: Arc::new(ended), error, ranges, copies, done }
    }

    /// Where blocks are that this server holds.
    fn ranges_on(&self, server: ServerId) -> Vec<BlockRange> {
        let blocks = self.ended.fields.iter().flat_map(|field| &field.blocks);
        let here = blocks.filter(|block| block.location.server == server && block.inline.is_none());
        here.map(|block| BlockRange::from(&block.location)).collect()
    }
}
