//! A simulated subscriber: makes a subscription, is told of events, and compares each with what plain code says of what ranks put.

use super::book::{Book, content};
use super::caller::{Caller, Client, PATIENCE, SHORT, late, may_pass, unexpected};
use super::rank::{APART, FIELD};
use forebay_core::identity::Identity;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::AttachmentId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::subscription::{Definition, Event as Fired, On};
use forebay_query::value::{Number, Scalar};
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::subscription::{Change, From, Listen};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// So many elements every block has.
const LOOKED_AT: u64 = 64;
/// About what the sum of so many bytes is.
const MEAN: u64 = LOOKED_AT * 255 / 2;

/// What a subscriber does.
#[derive(Debug, Clone)]
pub(super) struct SubscriberPlan {
    pub(super) stream: String,
    pub(super) name: String,
    /// How many ranks there are, how many blocks each puts in a step, and how many steps it has.
    pub(super) ranks: u32,
    pub(super) blocks: u64,
    pub(super) steps: StepNumber,
    /// The longest that it looks at an event.
    pub(super) looks: Duration,
}

/// What is watched.
#[derive(Debug, Clone, Copy)]
enum Watched {
    /// Much is there, at each step.
    Much,
    /// The same at two steps in a row, from the first on.
    MuchTwice,
    /// More than at the step before.
    More,
}

struct Subscriber<'a> {
    client: &'a mut Client,
    plan: &'a SubscriberPlan,
    watched: Watched,
    /// The block of which some elements are watched.
    block: (u32, u64),
    definition: Definition,
    /// The number of the last event.
    last: u64,
}

/// Runs one until it has had all its events.
pub(super) async fn run(mut client: Client, plan: SubscriberPlan, book: Book) {
    if let Err(error) = watch(&mut client, &plan, &book).await {
        book.failed(format!("subscriber '{}' failed: {error}", plan.name));
    }
    book.reader_ended();
}

async fn watch(client: &mut Client, plan: &SubscriberPlan, book: &Book) -> Result<()> {
    let watched = [Watched::Much, Watched::MuchTwice, Watched::More][client.chance(3) as usize];
    let block = (client.chance(u64::from(plan.ranks)) as u32, client.chance(plan.blocks));
    let first = (u64::from(block.0) * plan.blocks + block.1) * APART;
    let sum = format!("m = sum({FIELD}[{first}:{}]);", first + LOOKED_AT);
    let (text, on) = match watched {
        Watched::Much => (format!("{sum} m > {MEAN}"), On::Each),
        Watched::MuchTwice => (format!("{sum} m > {MEAN} for 2 steps"), On::Rise),
        Watched::More => (format!("{sum} delta(m) > 0"), On::Each),
    };
    let own = Some(plan.stream.clone());
    let definition = Definition { own, on, ..Definition::new(&plan.name, &text) };
    let mut subscriber = Subscriber { client, plan, watched, block, definition, last: 0 };
    // Its connection keeps it until it is listened to.
    let (made, from) = subscriber.subscribe().await?;
    book.subscribed(&plan.name);
    let (mut home, mut id) = subscriber.listen().await?;
    drop(made);
    let expected = subscriber.expected(from);
    tracing::info!("subscriber '{}' watches from {from:?} on: {text}, and expects {expected:?}", plan.name);
    for (number, (run, step)) in (1..).zip(expected) {
        let event = loop {
            match timeout(PATIENCE * 2, home.next_message()).await {
                Ok(Ok(Event::Fired { attachment, event, .. })) if attachment == id => break event,
                Ok(Ok(Event::Detached { attachment, error })) if attachment == id => return Err(error),
                Ok(Ok(_)) => {}
                Ok(Err(error)) if error.kind == ErrorKind::Unreachable => {
                    (home, id) = subscriber.listen().await?;
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(late(&format!("the event of step {step}"))),
            }
        };
        subscriber.check(&event, number, (run, step))?;
        subscriber.last = number;
        subscriber.client.pause(plan.looks).await;
        let (run, step) = (event.run, event.step);
        let _ = home.tell(&Request::Release { attachment: id, run, step, pinned: false, gives_back: false });
    }
    book.unsubscribed(&plan.name);
    subscriber.remove().await
}

impl Subscriber<'_> {
    /// Makes the subscription, and waits until it watches: from which step on. Where it was lost before, it is made again.
    async fn subscribe(&mut self) -> Result<(Caller, Option<(RunNumber, StepNumber)>)> {
        loop {
            let (stream, definition) = (self.plan.stream.clone(), Box::new(self.definition.clone()));
            let (made, _) = self.ask(&Request::Subscribe { stream, definition }).await?;
            let (stream, name) = (self.plan.stream.clone(), self.plan.name.clone());
            match self.ask(&Request::AwaitSubscription { stream, name }).await {
                Ok((_, Reply::Needed { from })) => return Ok((made, from)),
                Ok((_, other)) => return Err(unexpected(&other)),
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error.during("waiting for a subscription")),
            }
        }
    }

    /// Listens from the last event on, at the server that coordinates the stream.
    async fn listen(&mut self) -> Result<(Caller, AttachmentId)> {
        let (name, from) = (self.plan.name.clone(), From::After(self.last));
        let listen = Listen { name, from, creation: None, definition: None };
        let (stream, reader) = (&self.plan.stream, Identity::default());
        let attach = Attach::to_listen(stream, 4, reader, Vec::new(), listen);
        match self.ask(&Request::Attach(Box::new(attach))).await? {
            (home, Reply::Listening { attachment, last, .. }) if last == self.last => Ok((home, attachment)),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// It is needed no more.
    async fn remove(&mut self) -> Result<()> {
        let (stream, name) = (self.plan.stream.clone(), self.plan.name.clone());
        match self.ask(&Request::ChangeSubscription { stream, name, change: Change::Remove }).await {
            // It was removed, and the answer did not come.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Asks the server that coordinates the stream, whichever that is by then.
    async fn ask(&mut self, request: &Request) -> Result<(Caller, Reply)> {
        let began = Instant::now();
        let mut server = self.client.any().await;
        loop {
            let asked = async {
                let mut caller = self.client.greet(server, Role::Consumer).await?;
                let answer = timeout(SHORT * 2, caller.call(request)).await;
                Ok((caller, answer.unwrap_or_else(|_| Err(late("an answer about a subscription")))?))
            };
            match asked.await {
                Ok((_, Reply::Redirect(other))) => server = other,
                Ok(answered) => return Ok(answered),
                Err(error) if began.elapsed() < PATIENCE * 2 && may_pass(&error) => {
                    server = self.client.any().await;
                }
                Err(error) => return Err(error),
            }
            self.client.pause(Duration::from_millis(20)).await;
        }
    }

    /// What is watched of a step.
    fn sum(&self, run: RunNumber, step: StepNumber) -> u64 {
        let bytes = content(run, step, self.block.0, self.block.1);
        bytes.iter().take(LOOKED_AT as usize).map(|byte| u64::from(*byte)).sum()
    }

    /// The steps of all events, as plain code finds them.
    fn expected(&self, from: Option<(RunNumber, StepNumber)>) -> Vec<(RunNumber, StepNumber)> {
        // Without a run it watches from the first step of the next one on.
        let (run, first) = from.unwrap_or((1, 0));
        let (mut expected, mut before, mut in_a_row) = (Vec::new(), None, 0);
        for step in first..self.plan.steps {
            let sum = self.sum(run, step);
            in_a_row = if sum > MEAN { in_a_row + 1 } else { 0 };
            let fires = match self.watched {
                Watched::Much => sum > MEAN,
                Watched::MuchTwice => in_a_row == 2,
                Watched::More => before.is_some_and(|before| sum > before),
            };
            before = Some(sum);
            expected.extend(fires.then_some((run, step)));
        }
        expected
    }

    /// An event is the next one, and tells what ranks have put.
    fn check(&self, event: &Fired, number: u64, (run, step): (RunNumber, StepNumber)) -> Result<()> {
        let told = (event.number, event.run, event.step);
        let sum = event.values.first().map(|value| value.value.clone());
        let expected = Scalar::Number(Number::Integer(self.sum(run, step).into()));
        if told == (number, run, step) && sum.as_ref() == Some(&expected) {
            return Ok(());
        }
        Err(Error::internal(format!(
            "event {told:?} with {sum:?} instead of event {number} at step {step} of run {run} with {expected:?}"
        )))
    }
}
