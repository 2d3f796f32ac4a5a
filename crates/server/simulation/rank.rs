//! A simulated rank: steps with blocks, put to its home, and again to another one where that dies or lets it go.

mod failover;

use super::book::{Book, content};
use super::caller::{Caller, Client, PATIENCE, unexpected};
use failover::{Moved, is_final};
use forebay_core::block::{Extent, Location};
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::dtype::Dtype;
use forebay_core::identity::Identity;
use forebay_core::ids::{RunNumber, STATIC_STEP, StepNumber};
use forebay_core::steps::{Joining, RankCounts, Rejoin, RunOptions};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{Access, Mapping, lead};
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::client::writing;
use forebay_wire::connection::Role;
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// The field that all ranks offer.
pub(super) const FIELD: &str = "U";
/// The one that belongs to the run: each rank puts one block of it in its first step, of this number.
pub(super) const MESH: &str = "mesh";
pub(super) const MESH_BLOCK: u64 = 0;
/// How far apart blocks begin.
pub(super) const APART: u64 = 8192;
/// How many ended steps are remembered, to be put again, where nobody says that copies of them are made.
const REMEMBERED: usize = 4;

/// What a rank does.
#[derive(Debug, Clone)]
pub(super) struct RankPlan {
    pub(super) stream: String,
    pub(super) rank: u32,
    pub(super) options: RunOptions,
    pub(super) steps: StepNumber,
    /// Blocks in a step.
    pub(super) blocks: u64,
    /// Whether it puts a static field, too.
    pub(super) statics: bool,
    /// The longest that it computes between two steps.
    pub(super) computes: Duration,
}

/// A rank that has joined.
struct Rank<'a> {
    client: &'a mut Client,
    plan: &'a RankPlan,
    book: &'a Book,
    home: Home,
    run: RunNumber,
    demand: Demand,
    attempts: u32,
    ended: VecDeque<Ended>,
}

struct Home {
    caller: Caller,
    arena: Option<Mapping>,
}

/// A step that was ended, and may have to be put again.
#[derive(Clone)]
struct Ended {
    step: StepNumber,
    written: Vec<Written>,
}

/// A block of a field.
#[derive(Clone, Copy)]
struct Block {
    number: u64,
    is_static: bool,
}

/// A block that was put.
#[derive(Clone)]
struct Written {
    block: Block,
    /// Where it is, if that is known.
    location: Option<Location>,
    /// Whether other servers hold it too: then it may be gone here.
    placed: bool,
}

/// Runs one until its last step.
pub(super) async fn run(mut client: Client, plan: RankPlan, book: Book) {
    if let Err(error) = steps(&mut client, &plan, &book).await {
        book.failed(format!("rank {} of stream '{}' failed: {error}", plan.rank, plan.stream));
    }
    book.rank_ended();
}

async fn steps(client: &mut Client, plan: &RankPlan, book: &Book) -> Result<()> {
    let mut rank = Rank::join(client, plan, book).await?;
    for step in 0..plan.steps {
        rank.step(step).await?;
        rank.client.pause(plan.computes).await;
        if rank.client.chance(40) == 0 {
            rank.go_elsewhere().await?;
        }
    }
    rank.leave().await
}

impl<'a> Rank<'a> {
    async fn join(client: &'a mut Client, plan: &'a RankPlan, book: &'a Book) -> Result<Rank<'a>> {
        let produce = plan.produce(None);
        let began = Instant::now();
        loop {
            let server = client.any().await;
            let joined = match client.greet(server, Role::Producer).await {
                Ok(caller) => Home::join(caller, &produce).await,
                Err(error) => Err(error),
            };
            match joined {
                Ok(Some((home, run, _))) => {
                    let (demand, attempts, ended) = (Demand::default(), 0, VecDeque::new());
                    let mut rank = Rank { client, plan, book, home, run, demand, attempts, ended };
                    return match rank.home.define(plan).await {
                        Err(error) if error.kind == ErrorKind::Unreachable => {
                            rank.come_back().await.map(|()| rank)
                        }
                        defined => defined.map(|()| rank),
                    };
                }
                // Too few servers are there in this moment for the copies that it wants.
                Err(error) if is_final(&error) && error.kind != ErrorKind::Invalid => return Err(error),
                Err(error) if began.elapsed() > PATIENCE => return Err(error.during("joining")),
                _ => client.pause(Duration::from_millis(20)).await,
            }
        }
    }

    /// One step, whatever happens to servers meanwhile.
    async fn step(&mut self, step: StepNumber) -> Result<()> {
        let demand = loop {
            match self.begin(step).await {
                Err(error) if error.kind == ErrorKind::Unreachable => self.come_back().await?,
                begun => break begun?,
            }
        };
        let (rank, home) = (self.plan.rank, self.home.caller.server);
        tracing::info!(
            "rank {rank} has begun step {step} at {home}, where {:?} is wanted",
            demand.contracts()
        );
        let is_wanted = demand.wants(&field(), step);
        let puts_mesh = self.plan.statics && step == 0;
        if !is_wanted && !puts_mesh {
            self.book.on_ended(self.run, step, &demand)?;
            return self.end(step, &[]).await.or_else(|error| match error.kind {
                // It has put nothing: the next step finds another home.
                ErrorKind::Unreachable => Ok(()),
                _ => Err(error),
            });
        }
        let mut written = Vec::new();
        let blocks = if is_wanted { self.plan.blocks } else { 0 };
        let blocks = (0..blocks).map(|number| Block { number, is_static: false });
        let mesh = puts_mesh.then_some(Block { number: MESH_BLOCK, is_static: true });
        for block in blocks.chain(mesh) {
            loop {
                match self.put(step, block).await {
                    Err(error) if error.kind == ErrorKind::Unreachable => {
                        self.move_step(step, &mut written).await?;
                    }
                    put => {
                        written.push(put?);
                        self.note_placed(step, &written);
                        break;
                    }
                }
            }
            self.client.pause(self.plan.computes / 10).await;
        }
        loop {
            match self.end(step, &written).await {
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    if self.move_step(step, &mut written).await? == Moved::HasEnded {
                        break;
                    }
                }
                ended => break ended?,
            }
        }
        self.book.on_ended(self.run, step, &self.demand)?;
        self.note_placed(step, &[]);
        if self.plan.options.copies() > 0 {
            self.note_acknowledged(step, &written);
        } else {
            self.ended.push_back(Ended { step, written });
            if self.ended.len() > REMEMBERED {
                self.ended.pop_front();
            }
        }
        Ok(())
    }

    /// The group has said that what was put in a step is kept.
    fn note_acknowledged(&self, step: StepNumber, written: &[Written]) {
        let (mesh, blocks): (Vec<_>, Vec<_>) = written.iter().partition(|written| written.block.is_static);
        for (step, written) in [(step, blocks), (STATIC_STEP, mesh)] {
            if !written.is_empty() {
                let places = written.iter().filter_map(|written| written.location).collect();
                self.book.acknowledged(self.run, step, self.plan.rank, places);
            }
        }
    }

    /// Says which blocks of the open step others hold, too.
    fn note_placed(&self, step: StepNumber, written: &[Written]) {
        let of_step = written.iter().filter(|written| written.placed && !written.block.is_static);
        let placed = of_step.filter_map(|written| written.location);
        self.book.placed(self.run, step, self.plan.rank, placed.collect());
    }

    async fn begin(&mut self, step: StepNumber) -> Result<Demand> {
        let patience_ms = PATIENCE.as_millis() as u64;
        let begin = Request::Begin { step, time: step as f64, known: self.demand.version, patience_ms };
        match self.home.caller.call(&begin).await? {
            Reply::Begun { deferred: Some(error), .. } => Err(error.during(format!("step {step}"))),
            Reply::Begun { demand, .. } => {
                self.demand = demand.unwrap_or_else(|| self.demand.clone());
                Ok(self.demand.clone())
            }
            Reply::LetGo => Err(Error::unreachable("the home leaves")),
            other => Err(unexpected(&other)),
        }
    }

    async fn put(&mut self, step: StepNumber, block: Block) -> Result<Written> {
        let step = if block.is_static { STATIC_STEP } else { step };
        let bytes = content(self.run, step, self.plan.rank, block.number);
        let shape = [bytes.len() as u64];
        let mut put = self.message(block, shape[0], BytesLocation::Payload)?;
        let home = &mut self.home;
        let Some(arena) = &home.arena else {
            let (answer, _) = home.caller.ask(&Request::Put(put), Some(bytes)).await?;
            return written(block, None, &answer);
        };
        let reserve = writing::Request::Reserve { bytes: shape[0], patience_ms: PATIENCE.as_millis() as u64 };
        let writing::Reply::Granted(grant) = home.caller.call(&reserve).await?;
        let grant = grant.ok_or_else(|| Error::internal("no room"))?;
        let offset = grant.offset + lead(grant.bytes);
        arena.write(offset, &bytes)?;
        put.bytes = BytesLocation::Granted { arena: grant.arena, offset, generation: grant.generation };
        let (server, generation) = (home.caller.server, grant.generation);
        let mine = Location { server, arena: grant.arena, offset, bytes: shape[0], generation };
        let answer = home.caller.call(&Request::Put(put)).await?;
        written(block, Some(mine), &answer)
    }

    /// What a home is told of a block of so many bytes.
    fn message(&self, block: Block, bytes: u64, place: BytesLocation) -> Result<PutBlock> {
        let at = self.begins(block.number);
        Ok(PutBlock {
            field: if block.is_static { MESH } else { FIELD }.into(),
            number: block.number,
            part: 0,
            level: 0,
            extent: Extent::new(Some(&[at]), &[bytes], &[], &[])?,
            stats: None,
            of_field: false,
            bytes: place,
        })
    }

    /// Where a block begins in the field: none is longer than it is far to the next one.
    fn begins(&self, number: u64) -> u64 {
        (u64::from(self.plan.rank) * self.plan.blocks + number) * APART
    }

    /// Tells the home of a block that other servers hold.
    async fn put_placed(&mut self, block: Block, location: Location) -> Result<()> {
        let put = self.message(block, location.bytes, BytesLocation::Placed(location))?;
        self.home.caller.call(&Request::Put(put)).await.map(drop)
    }

    async fn end(&mut self, step: StepNumber, written: &[Written]) -> Result<()> {
        let end = Request::End {
            step,
            blocks: written.len() as u64,
            dropped: false,
            stats: Vec::new(),
            attrs: Default::default(),
        };
        match self.plan.options.copies() {
            0 => self.home.caller.tell(&end),
            _ => self.home.caller.call(&end).await.map(drop),
        }
    }

    async fn leave(&mut self) -> Result<()> {
        loop {
            match self.home.caller.call(&Request::Close(RankCounts::default())).await {
                Err(error) if error.kind == ErrorKind::Unreachable => match self.come_back().await {
                    // The leaving was heard, and not answered.
                    Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
                    back => back?,
                },
                left => return left.map(drop),
            }
        }
    }
}

impl RankPlan {
    fn produce(&self, back_to: Option<Rejoin>) -> Request {
        let joining = Joining { rank: self.rank, who: Identity::default(), options: self.options.clone() };
        Request::Join { stream: self.stream.clone(), joining: Box::new(joining), back_to }
    }
}

impl Home {
    /// Joins a stream through a server; `None` if that leaves its group.
    async fn join(mut caller: Caller, produce: &Request) -> Result<Option<(Home, RunNumber, StepNumber)>> {
        let (answer, files) = caller.ask(produce, None).await?;
        let (run, below, arena) = match answer {
            Reply::Joined { run, below, arena } => (run, below, arena),
            Reply::LetGo => return Ok(None),
            other => return Err(unexpected(&other)),
        };
        let arena = match (arena, files.first()) {
            (Some((_, bytes)), Some(file)) => Some(Mapping::new(file.as_fd(), bytes, Access::Write)?),
            _ => None,
        };
        Ok(Some((Home { caller, arena }, run, below)))
    }

    /// Tells what the rank offers.
    async fn define(&mut self, plan: &RankPlan) -> Result<()> {
        for field in fields().into_iter().filter(|field| plan.statics || !field.is_static) {
            self.caller.call(&Request::Define(field)).await?;
        }
        Ok(())
    }
}

/// Where a block is that was put: where the answer says that others hold it too, or where it was written to.
fn written(block: Block, mine: Option<Location>, answer: &Reply) -> Result<Written> {
    match answer {
        Reply::Placed(location) => {
            // What lies in memory that is shared can be put again from there.
            Ok(Written { block, location: Some(*location), placed: mine.is_none() })
        }
        Reply::Done => Ok(Written { block, location: mine, placed: false }),
        other => Err(unexpected(other)),
    }
}

pub(super) fn field() -> Field {
    Field::new(FIELD, Dtype::U8, Some(&[128 * APART]), 1)
}

/// All that a rank offers.
fn fields() -> [Field; 2] {
    let mesh = Field::new(MESH, Dtype::U8, Some(&[128 * APART]), 1);
    [field(), Field { is_static: true, ..mesh }]
}
