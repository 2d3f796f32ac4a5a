//! A simulated reader: is told of steps, fetches all their blocks and compares them, and comes back where servers go.

mod company;

use super::book::{Book, content};
use super::caller::{Caller, Client, PATIENCE, SHORT, late, may_pass, unexpected};
use super::rank::{FIELD, MESH, MESH_BLOCK, field};
pub(super) use company::Company;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::{Needs, NeedsByStep};
use forebay_core::ids::{RunNumber, STATIC_STEP, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, FieldReport, HeldStep, Start, StepReport, Take, ToldStep};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{Mapping, Store};
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::client::reading::{self, Fetch, Part};
use forebay_wire::connection::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The longest period of a contract.
const EVERY_MAX: u64 = 3;

/// What a reader does.
#[derive(Debug, Clone)]
pub(super) struct ReaderPlan {
    pub(super) stream: String,
    pub(super) every: u32,
    /// Whether it changes its contract now and then.
    pub(super) changes: bool,
    pub(super) company: Company,
    /// How many steps it may hold.
    pub(super) window: u32,
    /// How many ranks there are, how many blocks each puts in a step, and how many steps it has.
    pub(super) ranks: u32,
    pub(super) blocks: u64,
    /// Whether they put a static field, too.
    pub(super) statics: bool,
    pub(super) steps: StepNumber,
    /// After so many steps it detaches; one that reads all does not.
    pub(super) until: Option<u64>,
    /// The longest that it looks at a step.
    pub(super) looks: Duration,
}

impl ReaderPlan {
    /// Whether it is the one for which all is kept.
    fn reads_all(&self) -> bool {
        self.until.is_none() && self.every == 1 && matches!(self.company, Company::Alone)
    }
}

struct Reader<'a> {
    client: &'a mut Client,
    plan: &'a ReaderPlan,
    book: &'a Book,
    home: Caller,
    id: AttachmentId,
    /// The step that is to be told next, or one before that, once that is known.
    next: Option<(RunNumber, StepNumber)>,
    needs: NeedsByStep,
    /// The latest steps that it was told of.
    told: Vec<ToldStep>,
    /// Its number among those with whom it shares steps.
    number: Option<u32>,
    /// Whether it has asked for a step, of those that are shared out on demand.
    has_asked: bool,
    /// The static field of its run.
    mesh: Option<(RunNumber, FieldReport)>,
    /// A step that it has given back, and of which it holds arrays.
    arrays: Option<(RunNumber, StepNumber)>,
    servers: BTreeMap<ServerId, Caller>,
    /// Where bytes are fetched to.
    scratch: Arc<Mapping>,
}

/// Runs one until its stream has ended, or it has seen enough.
pub(super) async fn run(mut client: Client, plan: ReaderPlan, book: Book) {
    if let Err(error) = read(&mut client, &plan, &book).await {
        book.failed(format!("a reader of stream '{}' ({:?}) failed: {error}", plan.stream, plan.company));
    }
    book.reader_ended();
}

async fn read(client: &mut Client, plan: &ReaderPlan, book: &Book) -> Result<()> {
    let mut store = Store::new(1 << 20);
    let (arena, _) = store.create_arena()?;
    let needs = NeedsByStep::from(Needs::all(plan.every));
    let attached = attach(client, plan, &needs, Back::default()).await?;
    let Attached { home, id, from: next, number } = attached;
    if let Some(name) = plan.company.name() {
        book.shares(&name, next.map_or(0, |(_, step)| step));
    }
    let (servers, scratch) = (BTreeMap::new(), store.mapping(arena)?);
    let mut reader = Reader {
        client,
        plan,
        book,
        home,
        id,
        next,
        needs,
        told: Vec::new(),
        number,
        has_asked: false,
        mesh: None,
        arrays: None,
        servers,
        scratch,
    };
    let mut steps = 0;
    while plan.until != Some(steps) {
        reader.drop_arrays().await;
        if plan.company.asks() && !reader.has_asked {
            reader.ask().await?;
        }
        let told = match timeout(PATIENCE * 2, reader.home.next_message()).await {
            Ok(told) => told,
            // It was cut off until all was over, and waits for another run.
            Err(_) if reader.next.is_none() && book.all_ended().0 == plan.ranks as usize => return Ok(()),
            Err(_) => return Err(late(&format!("a step after {:?}", reader.next))),
        };
        match told {
            Ok(Event::Step { attachment, report }) if attachment == reader.id => {
                if !plan.company.has_all() && reader.client.chance(40) == 0 {
                    // It dies, and another one reads the step.
                    return Ok(());
                }
                reader.step(*report).await?;
                steps += 1;
                if plan.changes && reader.client.chance(6) == 0 {
                    reader.change_contract().await?;
                }
            }
            Ok(Event::Ended { attachment, end }) if attachment == reader.id => {
                return reader.end(end.error(&plan.stream), end.missed);
            }
            Ok(Event::Detached { attachment, error }) if attachment == reader.id => {
                return reader.end(error, 0);
            }
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Unreachable => reader.come_back().await?,
            Err(error) => return Err(error),
        }
    }
    let detach = Request::Detach { attachment: reader.id, held: Vec::new(), failed: false };
    match reader.home.call(&detach).await {
        Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
        _ => Ok(()),
    }
}

/// What a reader says that comes back.
#[derive(Default)]
struct Back<'a> {
    start: Start,
    id: Option<AttachmentId>,
    number: Option<u32>,
    told: &'a [ToldStep],
    held: Vec<HeldStep>,
}

/// What it is told.
struct Attached {
    home: Caller,
    id: AttachmentId,
    from: Option<(RunNumber, StepNumber)>,
    number: Option<u32>,
}

/// Attaches at the server that coordinates the stream.
async fn attach(
    client: &mut Client,
    plan: &ReaderPlan,
    needs: &NeedsByStep,
    back: Back<'_>,
) -> Result<Attached> {
    let attach = Attach {
        stream: plan.stream.clone(),
        needs: needs.clone(),
        window: plan.window,
        start: back.start,
        follow: false,
        take: Take::All,
        reader: plan.company.identity(),
        held: back.held,
        given_back: None,
        back: back.id,
        patience_ms: 20_000,
        cohort: plan.company.rank(back.told),
        sharer: plan.company.sharer(back.number, back.told),
        listen: None,
        is_followed: false,
    };
    let began = Instant::now();
    // A rank waits for the others.
    let patience = if attach.cohort.is_some() { PATIENCE } else { SHORT * 2 };
    let mut server = client.any().await;
    loop {
        let asked = async {
            let mut caller = client.greet(server, Role::Consumer).await?;
            let answer = timeout(patience, caller.call(&Request::Attach(Box::new(attach.clone())))).await;
            Ok((caller, answer.unwrap_or_else(|_| Err(late("an attachment")))?))
        };
        match asked.await {
            Ok((_, Reply::Redirect(other))) => {
                tracing::info!("a reader is sent from {server} to {other}");
                server = other;
            }
            Ok((home, Reply::Attached { attachment: id, from, hosts: _, number })) => {
                return Ok(Attached { home, id, from, number });
            }
            Ok((_, other)) => return Err(unexpected(&other)),
            Err(error) if began.elapsed() > PATIENCE * 2 || !may_pass(&error) => {
                return Err(error.during("attaching"));
            }
            Err(error) => {
                tracing::info!("a reader does not attach at {server}: {error}");
                server = client.any().await;
            }
        }
        client.pause(Duration::from_millis(20)).await;
    }
}

impl Reader<'_> {
    /// The server that coordinates the stream is another one.
    async fn come_back(&mut self) -> Result<()> {
        let start = self.next.map_or(Start::Next, |(run, step)| Start::Rejoin(run, step));
        let mesh = self.mesh.as_ref().map(|(run, _)| HeldStep { run: *run, step: STATIC_STEP, pinned: true });
        let arrays = self.arrays.map(|(run, step)| HeldStep { run, step, pinned: true });
        let (id, held) = (Some(self.id), mesh.into_iter().chain(arrays).collect());
        let back = Back { start, id, number: self.number, told: &self.told, held };
        let Attached { home, id, from, number } = attach(self.client, self.plan, &self.needs, back).await?;
        tracing::info!("a reader goes on at {} from {:?} on", home.server, self.next);
        (self.home, self.id, self.number, self.has_asked) = (home, id, number, false);
        self.next = self.next.or(from);
        Ok(())
    }

    /// Asks for a step, of those that are shared out.
    async fn ask(&mut self) -> Result<()> {
        while !self.has_asked {
            let next = Request::Next { attachment: self.id, has_spare: false, after: None };
            match self.home.call(&next).await {
                Err(error) if error.kind == ErrorKind::Unreachable => self.come_back().await?,
                asked => {
                    asked?;
                    self.has_asked = true;
                }
            }
        }
        Ok(())
    }

    /// Needs something else from some step on.
    async fn change_contract(&mut self) -> Result<()> {
        let needs = Needs::all(1 + self.client.chance(EVERY_MAX) as u32);
        loop {
            let change = Request::Need { attachment: self.id, needs: Box::new(needs.clone()) };
            match self.home.call(&change).await {
                Ok(Reply::Needed { from: Some((run, step)) }) => {
                    tracing::info!("a reader needs {needs:?} from step {step} on");
                    self.needs.change(run, step, needs);
                    return Ok(());
                }
                Ok(Reply::Needed { from: None }) => {
                    self.needs = needs.into();
                    return Ok(());
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if error.kind == ErrorKind::Unreachable => self.come_back().await?,
                // It holds later.
                Err(error) if error.kind == ErrorKind::Timeout => {}
                Err(error) => return Err(error.during("changing a contract")),
            }
        }
    }

    /// There are no more steps, for this reason, and so many were missed.
    fn end(&self, error: Error, missed: u64) -> Result<()> {
        let has_none = self.next.is_none() || self.told.is_empty();
        match (error.kind, missed) {
            (ErrorKind::Ended, 0) => {}
            // It was cut off until all was over.
            (ErrorKind::NotFound, 0) if has_none => return Ok(()),
            // It was cut off for so long that the others went on without it.
            (ErrorKind::Lost, 0) if matches!(self.plan.company, Company::Ranks { .. }) => return Ok(()),
            // All ranks close their stream, but for those that cannot.
            _ => return Err(error),
        }
        if self.plan.reads_all() {
            self.book.all_is_read();
        }
        match self.plan.company.name().filter(|_| !self.plan.company.has_all()) {
            Some(name) => self.book.shared_all(&name, self.plan.steps),
            None => Ok(()),
        }
    }

    /// The number of the step that is to be told next, once it is known.
    fn expected(&self) -> Option<StepNumber> {
        let (run, next) = self.next.filter(|_| self.plan.company.has_all())?;
        let is_wanted = |step: &StepNumber| self.needs.at(run, *step).wants(&field(), *step);
        (next..=next + EVERY_MAX * EVERY_MAX).find(is_wanted)
    }

    /// Looks at a step: it is the next one, whole, and all its blocks hold what was put.
    async fn step(&mut self, report: StepReport) -> Result<()> {
        let (run, step) = (report.id.run, report.id.step);
        let wrong = |what: String| Err(Error::internal(format!("step {step} of run {run}: {what}")));
        if report.missed > 0 || report.torn || report.dropped {
            return wrong(format!(
                "torn: {}, dropped: {}, missed: {}",
                report.torn, report.dropped, report.missed
            ));
        }
        let expected = self.expected();
        if expected.is_some_and(|expected| expected != step) {
            return wrong(format!("told instead of {expected:?}, with {:?}", self.needs));
        }
        self.next = self.next.max(Some((run, step + 1)));
        self.has_asked = false;
        self.told.push(ToldStep { run, step, missed: report.missed, rewound: report.rewound });
        let surplus = self.told.len().saturating_sub(self.plan.window as usize);
        self.told.drain(..surplus);
        let field = report.fields.iter().find(|field| field.field.name == FIELD);
        let blocks = field.map_or(&[][..], |field| &field.blocks[..]);
        if let Err(what) = self.check_blocks(blocks, self.plan.blocks) {
            return wrong(what);
        }
        tracing::info!("a reader is told of step {step}");
        if self.plan.statics {
            self.look_at_mesh(run, report.statics.as_deref()).await?;
        }
        self.client.pause(self.plan.looks).await;
        for block in blocks {
            let bytes = self.fetch(block).await.map_err(|error| error.during(format!("{}", report.id)))?;
            if bytes != content(run, step, block.key.rank, block.key.number) {
                return wrong(format!("{} holds other bytes than were put", block.key));
            }
        }
        if self.plan.reads_all() {
            self.book.is_read(run, step, blocks.len() as u64);
        }
        // Now and then one of those that share steps fails, and another one is given what it had.
        let gives_back = !self.plan.company.has_all() && report.attempt == 0 && self.client.chance(8) == 0;
        if gives_back {
            self.told.retain(|told| (told.run, told.step) != (run, step));
        } else if let Some(name) = self.plan.company.name() {
            self.book.is_read_by_one(&name, step);
        }
        let pinned = gives_back && self.client.chance(2) == 0;
        self.arrays = pinned.then_some((run, step));
        // Where its server is gone, the next one is told with what it comes back.
        let _ = self.home.tell(&Request::Release { attachment: self.id, run, step, pinned, gives_back });
        Ok(())
    }

    /// After a while no arrays live of what it has given back: until then it is not told of that.
    async fn drop_arrays(&mut self) {
        let Some((run, step)) = self.arrays else { return };
        self.client.pause(self.plan.looks * 2).await;
        self.arrays = None;
        let attachment = self.id;
        let dropped = Request::Release { attachment, run, step, pinned: false, gives_back: false };
        let _ = self.home.tell(&dropped);
    }

    /// The static field is there with the first step of a run, and later; now and then it is read.
    async fn look_at_mesh(&mut self, run: RunNumber, told: Option<&[FieldReport]>) -> Result<()> {
        let wrong = |what: String| Err(Error::internal(format!("field '{MESH}' of run {run}: {what}")));
        if let Some(mesh) = told.and_then(|told| told.iter().find(|field| field.field.name == MESH)) {
            self.mesh = Some((run, mesh.clone()));
        }
        let Some((_, mesh)) = self.mesh.clone().filter(|(of, _)| *of == run) else {
            return wrong("it was not told".into());
        };
        if let Err(what) = self.check_blocks(&mesh.blocks, 1) {
            return wrong(what);
        }
        if told.is_none() && self.client.chance(8) > 0 {
            return Ok(());
        }
        for block in &mesh.blocks {
            let bytes = self.fetch(block).await.map_err(|error| error.during(MESH))?;
            if bytes != content(run, STATIC_STEP, block.key.rank, MESH_BLOCK) {
                return wrong(format!("{} holds other bytes than were put", block.key));
            }
        }
        Ok(())
    }

    /// Whether these are so many blocks of each rank.
    fn check_blocks(&self, blocks: &[BlockRecord], of_each: u64) -> std::result::Result<(), String> {
        let found: BTreeSet<(u32, u64)> = blocks.iter().map(|b| (b.key.rank, b.key.number)).collect();
        let all: BTreeSet<(u32, u64)> =
            (0..self.plan.ranks).flat_map(|rank| (0..of_each).map(move |n| (rank, n))).collect();
        if found == all && blocks.len() == all.len() {
            return Ok(());
        }
        let missing: Vec<_> = all.difference(&found).collect();
        Err(format!("{} blocks were told, {missing:?} are missing", blocks.len()))
    }

    /// The bytes of a block, from whoever has them.
    async fn fetch(&mut self, block: &BlockRecord) -> Result<Vec<u8>> {
        if let Some(inline) = &block.inline {
            return Ok(inline.to_vec());
        }
        let location = block.location;
        let began = Instant::now();
        loop {
            let error = match self.fetch_at(location.server, location.arena, &location).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            let others = self.who_answers(&location).await;
            for (server, arena) in others.as_deref().unwrap_or_default() {
                if let Ok(bytes) = self.fetch_at(*server, *arena, &location).await {
                    return Ok(bytes);
                }
            }
            let lost = others.as_ref().is_err_and(|error| error.kind == ErrorKind::Lost);
            if lost || began.elapsed() > PATIENCE {
                let text = format!("{} at {location:?}: {error}; others: {others:?}", block.key);
                return Err(Error::new(ErrorKind::Lost, text));
            }
            tracing::info!("a reader does not get {}: {error}; {others:?} answer", block.key);
            self.client.pause(Duration::from_millis(20)).await;
        }
    }

    async fn fetch_at(&mut self, server: ServerId, arena: u32, location: &Location) -> Result<Vec<u8>> {
        let caller = match self.servers.remove(&server) {
            Some(caller) => caller,
            None => self.client.greet(server, Role::Consumer).await?,
        };
        let mut caller = caller;
        let one = |n: u64| [n][..].into();
        let Location { offset, bytes, generation, .. } = *location;
        let part = Part { offset: one(0), shape: one(bytes), step: one(1) };
        let fetch = reading::Request::Fetch(Fetch {
            arena,
            offset,
            bytes,
            generation,
            stored: one(bytes),
            element: 1,
            part,
        });
        let mut into = vec![0; bytes as usize];
        match timeout(SHORT, caller.fetch(&fetch, &self.scratch, &mut into)).await {
            Ok(fetched) => {
                // The connection is as good as before where only the block is not there.
                if fetched.as_ref().map_or_else(|error| error.kind != ErrorKind::Unreachable, |()| true) {
                    self.servers.insert(server, caller);
                }
                fetched.map(|()| into)
            }
            Err(_) => Err(late("a block")),
        }
    }

    async fn who_answers(&mut self, location: &Location) -> Result<Vec<(ServerId, u32)>> {
        let server = self.client.any().await;
        let mut caller = self.client.greet(server, Role::Consumer).await?;
        let question = reading::Request::FindSuccessors { server: location.server, arena: location.arena };
        match timeout(SHORT * 2, caller.call(&question)).await {
            Ok(Ok(reading::Reply::Successors { servers })) => Ok(servers),
            Ok(Ok(other)) => Err(unexpected(&other)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(late("who answers")),
        }
    }
}
