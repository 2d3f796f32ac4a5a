//! Consumers: readers of a stream, which attach and detach at any moment.

use crate::connection::coordinator::AtCoordinator;
use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::{Group, pause_before_retry};
use crate::connection::group_options::GroupOptions;
use crate::connection::probe::{Liveness, RetryWindow};
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::held_steps::{HeldAs, HeldSteps, StepSource};
use crate::reading::pins::PIN_BYTES;
use crate::reading::server_pool::ServerPool;
use crate::reading::step::Step;
use crate::seconds::deadline_after;
use forebay_core::attr::Attrs;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, Start};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::connection::Role;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most steps that a consumer may hold at once; servers let it hold no more either.
const WINDOW_MAX: u32 = 1024;

/// How long no server may be found to attach at when the one that coordinated the stream is gone: until the group has
/// given that up.
const ATTACH_AGAIN: Duration = Duration::from_secs(5);

/// How to open a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The stream's name; it need not exist yet.
    pub stream: String,
    /// What is needed.
    pub needs: Needs,
    /// How many steps may be held at once, 1 to 1024; more wait in the stream, under its policy.
    pub window: u32,
    /// With which step to begin.
    pub start: Start,
    /// Whether to go on with the next run when one ends.
    pub follow: bool,
    /// How many bytes of earlier steps arrays may keep in the servers' memory; beyond that, blocks of further
    /// steps are copied. `None`: 1 GiB. One step may be kept whatever its size.
    pub pin_bytes: Option<u64>,
}

impl ConsumerOptions {
    /// All fields of a stream, with all defaults.
    pub fn new(stream: &str) -> ConsumerOptions {
        ConsumerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            needs: Needs::All { every: 1 },
            window: 4,
            start: Start::Next,
            follow: false,
            pin_bytes: None,
        }
    }
}

/// A reader of a stream.
#[derive(Debug)]
pub struct Consumer {
    group: Group,
    attach: Attach,
    stream: String,
    held: Arc<HeldSteps>,
    /// Of the threads that are to attach again one does.
    attaching: DeadlineMutex,
    state: Mutex<State>,
    /// The attributes that were told last: a step tells them only when they are others, and they are taken off it
    /// in the order in which steps are told.
    attrs: Mutex<Arc<Attrs>>,
}

#[derive(Debug, Default)]
struct State {
    /// Why there will be no more steps.
    over: Option<Error>,
    closed: bool,
    /// The last step that came.
    latest: Option<StepNumber>,
    /// The run and the step from which on it is to be told of steps, if it must attach again.
    next: Option<(RunNumber, StepNumber)>,
}

impl Consumer {
    /// Attaches to a stream, which may not exist yet. Waits until the servers have agreed from which step on it takes
    /// part: a step that begins after this has returned is told to it.
    pub fn open(options: &ConsumerOptions) -> Result<Consumer> {
        options.needs.check()?;
        if !(1..=WINDOW_MAX).contains(&options.window) {
            let text = format!("window is {}: use 1 to {WINDOW_MAX} steps", options.window);
            return Err(Error::invalid(text));
        }
        let group = Group::find(&options.group)?;
        let attach = Attach {
            stream: options.stream.clone(),
            needs: options.needs.clone(),
            window: options.window,
            start: options.start,
            follow: options.follow,
            held: Vec::new(),
            back: None,
        };
        let pool = Arc::new(ServerPool::with_pins(
            group.clone(),
            Role::Consumer,
            options.pin_bytes.unwrap_or(PIN_BYTES),
        ));
        let (source, from) = attach_to(&group, &attach, &pool, Instant::now() + group.limit())?;
        let next = next_if_none_came(options.start, from);
        Ok(Consumer {
            group,
            attach,
            stream: options.stream.clone(),
            held: Arc::new(HeldSteps::new(pool, source)),
            attaching: DeadlineMutex::default(),
            state: Mutex::new(State { next, ..State::default() }),
            attrs: Mutex::default(),
        })
    }

    /// The server that coordinated the stream is gone: attaches at the one that takes its place, and goes on with the step
    /// after the last one that came.
    fn attach_again(&self, deadline: Instant, before: &StepSource, gone: Error) -> Result<StepSource> {
        let _attaching = self.attaching.lock_until(deadline, "another thread to attach again")?;
        let source = self.held.source();
        if !Arc::ptr_eq(&source.rpc, &before.rpc) {
            // Another thread has done it.
            return Ok(source);
        }
        // It lives, is a member, and has given up this reader for something that it did.
        let _ = self.group.refresh();
        let is_member = self.group.known().view.members.contains(&before.server);
        if is_member && self.group.probe(before.server) == Liveness::Alive {
            return Err(self.over(gone));
        }
        let mut window = RetryWindow::lasting(ATTACH_AGAIN, deadline);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Whoever asks for the next step once more tries again.
                return Err(Error::timeout(format!("the deadline passed after {}", gone.text)));
            }
            if !self.group.is_any_there() {
                return Err(self.over(gone));
            }
            let held = self.held.held_steps();
            let attach = self.attach_from(lock(&self.state).next, held.clone(), before.attachment());
            let until = Instant::now() + left.min(ATTACH_AGAIN);
            match attach_to(&self.group, &attach, &self.held.pool, until) {
                Ok((source, from)) => {
                    let mut state = lock(&self.state);
                    if state.latest.is_none() {
                        state.next = next_if_none_came(self.attach.start, from).or(state.next);
                    }
                    drop(state);
                    // They are told anew.
                    *lock(&self.attrs) = Arc::default();
                    self.held.switch_to(source.clone(), &held);
                    return Ok(source);
                }
                // One was found that stands still, and is given up then.
                Err(error) if error.kind == ErrorKind::Timeout => {
                    window = RetryWindow::lasting(ATTACH_AGAIN, deadline);
                    pause_before_retry();
                }
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    if !window.may_retry(&self.group) && Instant::now() < deadline {
                        return Err(self.over(gone));
                    }
                    pause_before_retry();
                }
                Err(error) => return Err(self.over(error)),
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("another server to take this reader"));
            }
        }
    }

    /// What it attaches with to go on from a step.
    fn attach_from(
        &self,
        next: Option<(RunNumber, StepNumber)>,
        still_held: Vec<HeldStep>,
        id: Option<AttachmentId>,
    ) -> Attach {
        let start = next.map_or(self.attach.start, |(run, step)| Start::From(run, step));
        Attach { start, held: still_held, back: id, ..self.attach.clone() }
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The run, and the step after the last one that came: with [`Start::Cursor`] another reader goes on there, as far as
    /// steps are still held. Before the first one came it is the step from which on this reader takes part, if that
    /// is known. Does not wait.
    pub fn cursor(&self) -> Result<Option<(RunNumber, StepNumber)>> {
        self.held.guard.check("consumer")?;
        Ok(lock(&self.state).next)
    }

    /// The next step that is wanted, waiting no longer than `timeout` (default: the deadline it was opened
    /// with). `ErrorKind::Ended` when the simulation has ended.
    pub fn next_step(&self, timeout: Option<Duration>) -> Result<Step> {
        self.held.guard.check("consumer")?;
        if let Some(over) = lock(&self.state).over.clone() {
            return Err(over);
        }
        let deadline = deadline_after(timeout.unwrap_or(self.group.options().patience()));
        let what = format!("to tell the next step of stream '{}'", self.stream);
        let mut source = self.held.source();
        loop {
            let id = source.attachment();
            let with_attrs = |mut message| {
                let mut attrs = lock(&self.attrs);
                if let Event::Step { attachment, report } = &mut message
                    && Some(*attachment) == id
                    && let Some(told) = report.attrs.take()
                {
                    *attrs = Arc::from(told);
                }
                (message, attrs.clone())
            };
            match source.rpc.next_event(deadline, &what, with_attrs) {
                Ok((Event::Step { attachment, report }, attrs)) if Some(attachment) == id => {
                    self.held.pool.forget_unused_arenas(ARENAS_KEPT, report.term);
                    let mut state = lock(&self.state);
                    state.latest = Some(report.id.step);
                    state.next = Some((report.id.run, report.id.step.saturating_add(1)));
                    drop(state);
                    return Ok(Step::new(self.held.clone(), *report, attrs));
                }
                Ok((Event::Ended { attachment, missed }, _)) if Some(attachment) == id => {
                    let mut text = format!("stream '{}' has ended", self.stream);
                    if missed > 0 {
                        text += &format!("; steps dropped after the last one that was told: {missed}");
                    }
                    return Err(self.over(Error::new(ErrorKind::Ended, text)));
                }
                Ok((Event::Detached { attachment, error }, _)) if Some(attachment) == id => {
                    return Err(self.over(error));
                }
                // Of no concern to this attachment.
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Timeout => return Err(self.too_late(&error)),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    source = self.attach_again(deadline, &source, error)?;
                }
                Err(error) => return Err(self.over(error)),
            }
        }
    }

    /// The error where no step has come in time, with what can be done.
    fn too_late(&self, error: &Error) -> Error {
        let stream = &self.stream;
        let seen = lock(&self.state).latest;
        let hint = match seen {
            None => format!(
                "no step that it wants has come since it attached: see `forebay ls` for whether stream '{stream}' is \
                 there, with the fields it needs"
            ),
            Some(step) => format!("the last one that came was step {step}"),
        };
        Error::timeout(format!("{}; {hint}; a longer timeout waits for slower simulations", error.text))
    }

    fn over(&self, error: Error) -> Error {
        lock(&self.state).over.get_or_insert(error).clone()
    }

    /// Detaches: no more steps come. Steps and arrays that are still held stay valid until they are dropped.
    pub fn close(&self) -> Result<()> {
        let held_steps = &self.held;
        if held_steps.guard.is_child() {
            return Ok(());
        }
        let source = held_steps.source();
        let closed =
            Error::new(ErrorKind::Closed, format!("the consumer of stream '{}' was closed", self.stream));
        if !std::mem::replace(&mut lock(&self.state).closed, true) {
            lock(&self.state).over = Some(closed);
            // What arrays do not show any more needs not stay mapped until this handle is dropped.
            held_steps.pool.forget_unused_arenas(0, 0);
            let Some(detach) = held_steps.detach(&source) else { return Ok(()) };
            let nothing_held = matches!(&detach, Request::Detach { held, .. } if held.is_empty());
            let detached = source.rpc.call(&detach, "to detach").map(drop);
            if nothing_held {
                // Nobody has anything to say any more: servers need not keep connections until this is dropped.
                source.rpc.hang_up();
                held_steps.pool.hang_up();
            }
            return match detached {
                // A server that is gone, or does not answer, notices by itself that this reader has left.
                Err(error) if !matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    Err(error)
                }
                _ => Ok(()),
            };
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.held.guard.is_child() && !lock(&self.state).closed {
            let source = self.held.source();
            if let Some(detach) = self.held.detach(&source) {
                let _ = source.rpc.tell(&detach);
            }
        }
    }
}

/// With what a reader goes on that was told of no step yet; `None`: as it began.
fn next_if_none_came(start: Start, from: Option<(RunNumber, StepNumber)>) -> Option<(RunNumber, StepNumber)> {
    match start {
        Start::Oldest => None,
        Start::Cursor(run, step) => Some((run, step)),
        Start::Next | Start::From(..) => from,
    }
}

/// Attaches at the server that coordinates the stream. The run and the step from which on it takes part are known
/// unless there has been none.
fn attach_to(
    group: &Group,
    attach: &Attach,
    pool: &ServerPool,
    deadline: Instant,
) -> Result<(StepSource, Option<(RunNumber, StepNumber)>)> {
    let request = Request::Attach(Box::new(attach.clone()));
    let ask = |rpc: &Rpc, left| match rpc.call_within(&request, None, left, "to attach")?.message {
        Reply::Attached { attachment, from } => Ok(AtCoordinator::Answer((attachment, from))),
        Reply::Redirect(server) => Ok(AtCoordinator::Redirect(server)),
        other => Err(unexpected(&other)),
    };
    let asked = group.at_coordinator(&attach.stream, &Role::Consumer, deadline, ask)?;
    let (server, rpc, (attachment, from)) = asked;
    let rpc = Arc::new(rpc);
    pool.adopt(server, rpc.clone());
    Ok((StepSource { rpc, server, held_as: HeldAs::Attachment(attachment) }, from))
}
