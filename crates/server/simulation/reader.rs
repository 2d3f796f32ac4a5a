//! A simulated reader: is told of steps, fetches all their blocks and compares them, and comes back where servers go.

use super::book::{Book, content};
use super::caller::{Caller, Client, PATIENCE, SHORT, late, unexpected};
use super::rank::FIELD;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Needs;
use forebay_core::identity::Identity;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, Start, StepReport, Take};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{Mapping, Store};
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::client::reading::{self, Fetch, Part};
use forebay_wire::connection::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What a reader does.
#[derive(Debug, Clone)]
pub(super) struct ReaderPlan {
    pub(super) stream: String,
    pub(super) every: u32,
    /// How many steps it may hold.
    pub(super) window: u32,
    /// How many ranks there are, and how many blocks each puts in a step.
    pub(super) ranks: u32,
    pub(super) blocks: u64,
    /// After so many steps it detaches; one that reads all does not.
    pub(super) until: Option<u64>,
    /// The longest that it looks at a step.
    pub(super) looks: Duration,
}

struct Reader<'a> {
    client: &'a mut Client,
    plan: &'a ReaderPlan,
    book: &'a Book,
    home: Caller,
    id: AttachmentId,
    /// The step that is to be told next, once that is known.
    next: Option<(RunNumber, StepNumber)>,
    servers: BTreeMap<ServerId, Caller>,
    /// Where bytes are fetched to.
    scratch: Arc<Mapping>,
}

/// Runs one until its stream has ended, or it has seen enough.
pub(super) async fn run(mut client: Client, plan: ReaderPlan, book: Book) {
    if let Err(error) = read(&mut client, &plan, &book).await {
        book.failed(format!("a reader of stream '{}' failed: {error}", plan.stream));
    }
    book.reader_ended();
}

async fn read(client: &mut Client, plan: &ReaderPlan, book: &Book) -> Result<()> {
    let mut store = Store::new(1 << 20);
    let (arena, _) = store.create_arena()?;
    let (home, id, next) = attach(client, plan, Start::Next, None).await?;
    let (servers, scratch) = (BTreeMap::new(), store.mapping(arena)?);
    let mut reader = Reader { client, plan, book, home, id, next, servers, scratch };
    let mut steps = 0;
    while plan.until != Some(steps) {
        let told = match timeout(PATIENCE * 2, reader.home.next_message()).await {
            Ok(told) => told,
            // It was cut off until all was over, and waits for another run.
            Err(_) if reader.next.is_none() && book.all_ended().0 == plan.ranks as usize => return Ok(()),
            Err(_) => return Err(late("a step")),
        };
        match told {
            Ok(Event::Step { attachment, report }) if attachment == reader.id => {
                reader.step(*report).await?;
                steps += 1;
            }
            Ok(Event::Ended { attachment, end }) if attachment == reader.id => {
                let error = end.error(&plan.stream);
                return match (error.kind, end.missed) {
                    (ErrorKind::Ended, 0) => Ok(()),
                    // It was cut off until all was over.
                    (ErrorKind::NotFound, 0) if reader.next.is_none() => Ok(()),
                    // All ranks close their stream, but for those that cannot.
                    _ => Err(error),
                };
            }
            Ok(Event::Detached { attachment, error }) if attachment == reader.id => return Err(error),
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Unreachable => reader.come_back().await?,
            Err(error) => return Err(error),
        }
    }
    let detach = Request::Detach { attachment: reader.id, held: Vec::new() };
    match reader.home.call(&detach).await {
        Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
        _ => Ok(()),
    }
}

/// Attaches at the server that coordinates the stream.
async fn attach(
    client: &mut Client,
    plan: &ReaderPlan,
    start: Start,
    back: Option<AttachmentId>,
) -> Result<(Caller, AttachmentId, Option<(RunNumber, StepNumber)>)> {
    let attach = Attach {
        stream: plan.stream.clone(),
        needs: Needs::all(plan.every).into(),
        window: plan.window,
        start,
        follow: false,
        take: Take::All,
        reader: Identity::default(),
        held: Vec::new(),
        back,
        patience_ms: 20_000,
        cohort: None,
    };
    let began = Instant::now();
    let mut server = client.any().await;
    loop {
        let asked = async {
            let mut caller = client.greet(server, Role::Consumer).await?;
            let answer = timeout(SHORT * 2, caller.call(&Request::Attach(Box::new(attach.clone())))).await;
            Ok((caller, answer.unwrap_or_else(|_| Err(late("an attachment")))?))
        };
        match asked.await {
            Ok((_, Reply::Redirect(other))) => {
                tracing::info!("a reader is sent from {server} to {other}");
                server = other;
            }
            Ok((caller, Reply::Attached { attachment, from, hosts: _ })) => {
                return Ok((caller, attachment, from));
            }
            Ok((_, other)) => return Err(unexpected(&other)),
            Err(error) if began.elapsed() > PATIENCE || !may_pass(&error) => {
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
        let (home, id, from) = attach(self.client, self.plan, start, Some(self.id)).await?;
        tracing::info!("a reader goes on at {} from {:?} on", home.server, self.next);
        (self.home, self.id) = (home, id);
        self.next = self.next.or(from);
        Ok(())
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
        let every = u64::from(self.plan.every);
        let expected = self.next.map(|(_, next)| next.next_multiple_of(every));
        if expected.is_some_and(|expected| expected != step) {
            return wrong(format!("told instead of {expected:?}"));
        }
        self.next = Some((run, step + 1));
        let field = report.fields.iter().find(|field| field.field.name == FIELD);
        let blocks = field.map_or(&[][..], |field| &field.blocks[..]);
        let found: BTreeSet<(u32, u64)> = blocks.iter().map(|b| (b.key.rank, b.key.number)).collect();
        let all: BTreeSet<(u32, u64)> =
            (0..self.plan.ranks).flat_map(|rank| (0..self.plan.blocks).map(move |n| (rank, n))).collect();
        if found != all || blocks.len() != all.len() {
            let missing: Vec<_> = all.difference(&found).collect();
            return wrong(format!("{} blocks were told, {missing:?} are missing", blocks.len()));
        }
        tracing::info!("a reader is told of step {step}");
        self.client.pause(self.plan.looks).await;
        for block in blocks {
            let bytes = self.fetch(block).await.map_err(|error| error.during(format!("{}", report.id)))?;
            if bytes != content(run, step, block.key.rank, block.key.number) {
                return wrong(format!("{} holds other bytes than were put", block.key));
            }
        }
        if self.plan.until.is_none() && self.plan.every == 1 {
            self.book.is_read(run, step, blocks.len() as u64);
        }
        // Where its server is gone, the next one is told with what it comes back.
        let _ = self.home.tell(&Request::Release { attachment: self.id, run, step, pinned: false });
        Ok(())
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

/// Whether it may be otherwise in a moment.
fn may_pass(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout)
}
