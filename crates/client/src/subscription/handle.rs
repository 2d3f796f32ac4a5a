//! The handle of a subscription: its events, one after the other.

use crate::connection::group::{Group, pause_before_retry};
use crate::connection::rpc::lock;
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::held_steps::{HeldSteps, StepSource};
use crate::reading::server_pool::ServerPool;
use crate::reading::statics::LatestStatics;
use crate::reading::step::Step;
use crate::seconds::deadline_after;
use crate::subscription::listening::{Listening, listen};
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::SPACE;
use forebay_query::subscription::{Definition, Event};
use forebay_query::value::{Unknown, UnknownKind};
use forebay_transport::blocking;
use forebay_transport::fork::ForkGuard;
use forebay_wire::client::consumer::{self, Request};
use forebay_wire::connection::Role;
use forebay_wire::subscription::From;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The least time for which a subscriber that has less tries to find the server that takes the place of one that has died.
const AT_LEAST: Duration = Duration::from_millis(500);
/// How long to wait until a server knows that a subscriber has left.
const CLOSING: Duration = Duration::from_secs(1);
/// How many bytes of arrays of steps that were released may live before further ones are copies.
const PIN_BYTES: u64 = 1 << 30;

/// An event, with its step if that is held.
#[derive(Debug)]
pub struct SubscriptionEvent {
    /// The event.
    pub event: Event,
    /// How many events before it were forgotten before this subscriber could be told of them.
    pub missed: u64,
    /// The step; `None` if it is held no longer.
    pub step: Option<Step>,
}

/// What a subscriber is told.
#[derive(Debug)]
pub enum Notice {
    /// An event.
    Event(Box<SubscriptionEvent>),
    /// Whether what is watched holds is not known at a step. Told once for each sort of reason.
    Unknown {
        /// The run.
        run: RunNumber,
        /// The step.
        step: StepNumber,
        /// Why.
        why: Unknown,
    },
}

/// A subscription that this process listens to, from its first call of [`Subscription::next`] on.
#[derive(Debug)]
pub struct Subscription {
    guard: ForkGuard,
    group: Group,
    stream: String,
    definition: Definition,
    window: u32,
    state: Mutex<State>,
    /// Held by the thread that listens anew, so that one does.
    listening: Mutex<()>,
    statics: LatestStatics,
}

#[derive(Debug)]
struct State {
    /// With which event it goes on.
    from: From,
    /// Which subscription of its name that is, whose events are counted.
    creation: u64,
    held: Option<Arc<HeldSteps>>,
    /// Why there will be no more events.
    over: Option<Error>,
    /// Events without steps that it was told of by this server, and with which it has not finished.
    without_step: Vec<(AttachmentId, RunNumber, StepNumber)>,
    /// The sorts of reasons that it was told of why something is not known.
    reasons: BTreeSet<UnknownKind>,
}

impl Subscription {
    pub(super) fn new(
        group: Group,
        stream: String,
        definition: Definition,
        (from, creation): (From, u64),
        window: u32,
    ) -> Subscription {
        let (without_step, reasons) = (Vec::new(), BTreeSet::new());
        let state = Mutex::new(State { from, creation, held: None, over: None, without_step, reasons });
        let (guard, listening, statics) = (ForkGuard::new(), Mutex::default(), LatestStatics::default());
        Subscription { guard, group, stream, definition, window, state, listening, statics }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The stream that it watches; `None` if that is the space.
    pub fn stream(&self) -> Option<&str> {
        (self.stream != SPACE).then_some(&self.stream)
    }

    /// What it was made with.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What its server coordinates.
    pub(super) fn watched(&self) -> &str {
        &self.stream
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// The number of the last event that came: with it another subscriber goes on after that.
    pub fn cursor(&self) -> Option<u64> {
        match lock(&self.state).from {
            From::After(number) => Some(number),
            _ => None,
        }
    }

    /// The next event, or that something is not known. Waits as long as it takes without a `timeout`, else no longer than that:
    /// `ErrorKind::Timeout`. `ErrorKind::Ended` when the subscription has ended, and all its events were told. When the server dies that
    /// coordinates the stream, it goes on at the one that takes its place.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Notice> {
        self.guard.check("subscription")?;
        let until = timeout.map(deadline_after);
        loop {
            if let Some(over) = lock(&self.state).over.clone() {
                return Err(over);
            }
            let deadline = until.unwrap_or_else(|| deadline_after(self.group.options().patience()));
            let (held, source) = self.source(deadline)?;
            self.finish_without_step(&source);
            let what = format!("an event of subscription '{}'", self.name());
            let is_over = || lock(&self.state).over.clone().map(Err);
            match source
                .rpc
                .next_event_unless(deadline, &what, is_over, |event| Ok(self.take(&held, &source, event)))
            {
                Ok(Ok(Some(notice))) => return Ok(notice),
                Ok(Ok(None)) => {}
                Ok(Err(over)) => return Err(over),
                Err(error) if error.kind == ErrorKind::Timeout && until.is_none() => {}
                Err(error) if error.kind == ErrorKind::Timeout => {
                    let text = format!("no event of subscription '{}' has come in time", self.name());
                    return Err(Error::timeout(text));
                }
                Err(error) if error.kind == ErrorKind::Unreachable => self.go_on(&held, &source, deadline)?,
                Err(error) => return Err(self.note_over(error)),
            }
        }
    }

    /// Whoever asks for the next event has finished with those before that hold nothing: the server may tell so many others.
    fn finish_without_step(&self, source: &StepSource) {
        let finished = std::mem::take(&mut lock(&self.state).without_step);
        for (attachment, run, step) in finished.into_iter().filter(|told| Some(told.0) == source.attachment())
        {
            // After an error of the connection another server is told what was finished.
            let _ = source.rpc.tell(&Request::Release {
                attachment,
                run,
                step,
                pinned: false,
                gives_back: false,
            });
        }
    }

    /// The server that tells it of events: it listens there from the first call on.
    fn source(&self, deadline: Instant) -> Result<(Arc<HeldSteps>, StepSource)> {
        let _one = lock(&self.listening);
        if let Some(held) = lock(&self.state).held.clone() {
            let source = held.source();
            return Ok((held, source));
        }
        let pool = Arc::new(ServerPool::with_pins(self.group.clone(), Role::Consumer, PIN_BYTES));
        let source = self.listen(&pool, Vec::new(), deadline)?;
        let held = Arc::new(HeldSteps::new(pool, source.clone()));
        lock(&self.state).held = Some(held.clone());
        Ok((held, source))
    }

    fn listen(
        &self,
        pool: &ServerPool,
        held: Vec<forebay_core::steps::HeldStep>,
        deadline: Instant,
    ) -> Result<StepSource> {
        let state = lock(&self.state);
        let from = (state.from, Some(state.creation));
        drop(state);
        let listening = Listening {
            group: &self.group,
            stream: &self.stream,
            definition: &self.definition,
            from,
            window: self.window,
            held,
        };
        let heard = listen(listening, pool, deadline.max(Instant::now() + AT_LEAST))?;
        let mut state = lock(&self.state);
        (state.from, state.creation) = (From::After(heard.last), heard.creation);
        Ok(heard.source)
    }

    /// The server is gone that coordinated the stream: listens at the one that takes its place.
    fn go_on(&self, held: &Arc<HeldSteps>, before: &StepSource, deadline: Instant) -> Result<()> {
        let _one = lock(&self.listening);
        if !Arc::ptr_eq(&held.source().rpc, &before.rpc) {
            // Another thread has done so.
            return Ok(());
        }
        held.note_lost(before);
        let deadline = deadline.max(Instant::now() + AT_LEAST);
        loop {
            let told = held.held_steps();
            match self.listen(&held.pool, told.clone(), deadline) {
                Ok(source) => {
                    held.switch_to(source, &told);
                    return Ok(());
                }
                Err(error) if error.is_retryable() && Instant::now() < deadline => pause_before_retry(),
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => return Err(self.note_over(error)),
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("another server to tell events"));
            }
        }
    }

    /// Takes what is told.
    fn take(&self, held: &Arc<HeldSteps>, source: &StepSource, event: consumer::Event) -> Option<Notice> {
        let is_mine = |attachment| Some(attachment) == source.attachment();
        match event {
            consumer::Event::Fired { attachment, event, missed, report } if is_mine(attachment) => {
                lock(&self.state).from = From::After(event.number);
                let step = report.and_then(|report| self.step(held, source, *report));
                if step.is_none() {
                    lock(&self.state).without_step.push((attachment, event.run, event.step));
                }
                Some(Notice::Event(Box::new(SubscriptionEvent { event: *event, missed, step })))
            }
            consumer::Event::Unknown { attachment, run, step, why } if is_mine(attachment) => {
                // Another server tells it again.
                let is_new = lock(&self.state).reasons.insert(why.kind);
                is_new.then(|| Notice::Unknown { run, step, why: *why })
            }
            consumer::Event::Detached { attachment, error } if is_mine(attachment) => {
                self.note_over(error);
                None
            }
            _ => None,
        }
    }

    fn step(&self, held: &Arc<HeldSteps>, source: &StepSource, mut report: StepReport) -> Option<Step> {
        let hold = held.take_told(source, &report)?;
        let attrs = report.attrs.take().map(Arc::from).unwrap_or_default();
        let (statics, outdated) = self.statics.on_step(held, &mut report);
        drop(outdated);
        held.pool.forget_unused_arenas(ARENAS_KEPT, report.term);
        Some(Step::new(hold, report, attrs, statics))
    }

    fn note_over(&self, error: Error) -> Error {
        lock(&self.state).over.get_or_insert(error).clone()
    }

    /// Listens no more. The subscription goes on if it is to be kept, or others listen to it; events, and arrays of their steps, stay
    /// valid until they are dropped. Waits until the server knows with which events this subscriber has finished, since whoever
    /// listens next goes on behind them; no longer than a second for a server that does not answer.
    pub fn close(&self) {
        if self.guard.is_child() {
            return;
        }
        let closed = Error::new(ErrorKind::Closed, format!("subscription '{}' was closed", self.name()));
        let mut state = lock(&self.state);
        state.over.get_or_insert(closed);
        let held = state.held.take();
        drop(state);
        drop(self.statics.take());
        let Some(held) = held else { return };
        let source = held.source();
        if let Some(detach) = held.detach(&source, false) {
            let is_idle = matches!(&detach, Request::Detach { held, .. } if held.is_empty());
            // A server that is gone, or does not answer, notices by itself that this subscriber has left.
            let patience = self.group.options().patience().min(CLOSING);
            let _ = source.rpc.call_within(&detach, None, patience, "to listen no more");
            if is_idle {
                source.rpc.hang_up();
                held.pool.hang_up();
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}
