//! Consumers: readers of a stream, which attach and detach at any moment.

use crate::declared::ConsumerOptions;
use crate::fork::ForkGuard;
use crate::group::{Group, look_again};
use crate::holder::{ARENAS_KEPT, Holders};
use crate::presence::{Presence, Tries};
use crate::rpc::{Rpc, lock, unexpected};
use crate::seconds::deadline_after;
use crate::step::Step;
use crate::turn::Turn;
use forebay_core::attr::Attrs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, Start};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::message::{ToClient, ToServer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most steps that a consumer may hold at once; servers let it hold no more either.
const WINDOW_MAX: u32 = 1024;

/// How long no server may be found to attach at when the one that coordinated the stream is gone: until the group has
/// given that up.
const ATTACH_AGAIN: Duration = Duration::from_secs(5);

/// A reader of a stream.
#[derive(Debug)]
pub struct Consumer {
    group: Group,
    attach: ToServer,
    stream: String,
    shared: Arc<Shared>,
    /// Of the threads that are to attach again one does.
    attaching: Turn,
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

/// What a consumer shares with its steps and arrays, which may outlive it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) guard: ForkGuard,
    pub(crate) holders: Arc<Holders>,
    /// Who is told what is done with; another one after the server that coordinated the stream has died.
    link: Mutex<Link>,
    /// The steps of which a handle or an array lives; whether only arrays do.
    pub(crate) held: Mutex<BTreeMap<(RunNumber, StepNumber), bool>>,
}

/// The server that is told what is done with.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) server: ServerId,
    pub(crate) held_as: HeldAs,
}

/// In whose name a step is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldAs {
    /// Of a consumer.
    Attachment(AttachmentId),
    /// Of a worker's execution.
    Execution(u64),
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
        let attach = ToServer::Attach {
            stream: options.stream.clone(),
            needs: options.needs.clone(),
            window: options.window,
            start: options.start,
            follow: options.follow,
            held: Vec::new(),
            back: None,
        };
        let holders = Arc::new(Holders::with_pins(group.clone(), options.pin_bytes));
        let (link, from) = attach_to(&group, &attach, &holders, Instant::now() + group.limit())?;
        let next = next_if_none_came(options.start, from);
        Ok(Consumer {
            group,
            attach,
            stream: options.stream.clone(),
            shared: Arc::new(Shared::new(holders, link)),
            attaching: Turn::default(),
            state: Mutex::new(State { next, ..State::default() }),
            attrs: Mutex::default(),
        })
    }

    /// The server that coordinated the stream is gone: attaches at the one that takes its place, and goes on with the step
    /// after the last one that came.
    fn attach_again(&self, deadline: Instant, before: &Link, gone: Error) -> Result<Link> {
        let _attaching = self.attaching.take(deadline, "another thread to attach again")?;
        let link = self.shared.link();
        if !Arc::ptr_eq(&link.rpc, &before.rpc) {
            // Another thread has done it.
            return Ok(link);
        }
        // It lives, is a member, and has given up this reader for something that it did.
        let _ = self.group.refresh();
        let is_member = self.group.known().view.members.contains(&before.server);
        if is_member && self.group.presence(before.server) == Presence::Answers {
            return Err(self.over(gone));
        }
        let mut tries = Tries::lasting(ATTACH_AGAIN, deadline);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Whoever asks for the next step once more tries again.
                return Err(Error::timeout(format!("the deadline passed after {}", gone.text)));
            }
            if !self.group.one_is_there() {
                return Err(self.over(gone));
            }
            let held = self.shared.held_steps();
            let attach = self.attach_from(lock(&self.state).next, held.clone(), before.attachment());
            let until = Instant::now() + left.min(ATTACH_AGAIN);
            match attach_to(&self.group, &attach, &self.shared.holders, until) {
                Ok((link, from)) => {
                    let mut state = lock(&self.state);
                    if state.latest.is_none() {
                        state.next = next_if_none_came(self.start(), from).or(state.next);
                    }
                    drop(state);
                    // They are told anew.
                    *lock(&self.attrs) = Arc::default();
                    self.shared.go_on_at(link.clone(), &held);
                    return Ok(link);
                }
                // One was found that stands still, and is given up then.
                Err(error) if error.kind == ErrorKind::Timeout => {
                    tries = Tries::lasting(ATTACH_AGAIN, deadline);
                    look_again();
                }
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    if !tries.go_on(&self.group) && Instant::now() < deadline {
                        return Err(self.over(gone));
                    }
                    look_again();
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
    ) -> ToServer {
        let mut attach = self.attach.clone();
        if let ToServer::Attach { start, held, back, .. } = &mut attach {
            (*held, *back) = (still_held, id);
            *start = next.map_or(*start, |(run, step)| Start::From(run, step));
        }
        attach
    }

    fn start(&self) -> Start {
        match self.attach {
            ToServer::Attach { start, .. } => start,
            _ => Start::Next,
        }
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The run, and the step after the last one that came: with [`Start::Cursor`] another reader goes on there, as far as
    /// steps are still held. Before the first one came it is the step from which on this reader takes part, if that
    /// is known. Does not wait.
    pub fn cursor(&self) -> Result<Option<(RunNumber, StepNumber)>> {
        self.shared.guard.check("consumer")?;
        Ok(lock(&self.state).next)
    }

    /// The next step that is wanted, waiting no longer than `timeout` (default: the deadline it was opened
    /// with). `ErrorKind::Ended` when the simulation has ended.
    pub fn next_step(&self, timeout: Option<Duration>) -> Result<Step> {
        self.shared.guard.check("consumer")?;
        if let Some(over) = lock(&self.state).over.clone() {
            return Err(over);
        }
        let deadline = deadline_after(timeout.unwrap_or(self.group.options().patience()));
        let what = format!("to tell the next step of stream '{}'", self.stream);
        let mut link = self.shared.link();
        loop {
            let id = link.attachment();
            let with_attrs = |mut message| {
                let mut attrs = lock(&self.attrs);
                if let ToClient::Step { attachment, report } = &mut message
                    && Some(*attachment) == id
                    && let Some(told) = report.attrs.take()
                {
                    *attrs = Arc::from(told);
                }
                (message, attrs.clone())
            };
            match link.rpc.told(deadline, &what, with_attrs) {
                Ok((ToClient::Step { attachment, report }, attrs)) if Some(attachment) == id => {
                    self.shared.holders.forget_unused_arenas(ARENAS_KEPT, report.term);
                    let mut state = lock(&self.state);
                    state.latest = Some(report.id.step);
                    state.next = Some((report.id.run, report.id.step.saturating_add(1)));
                    drop(state);
                    return Ok(Step::new(self.shared.clone(), *report, attrs));
                }
                Ok((ToClient::Ended { attachment, missed }, _)) if Some(attachment) == id => {
                    let mut text = format!("stream '{}' has ended", self.stream);
                    if missed > 0 {
                        text += &format!("; steps dropped after the last one that was told: {missed}");
                    }
                    return Err(self.over(Error::new(ErrorKind::Ended, text)));
                }
                Ok((ToClient::Detached { attachment, error }, _)) if Some(attachment) == id => {
                    return Err(self.over(error));
                }
                // Of no concern to this attachment.
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Timeout => return Err(self.too_late(&error)),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    link = self.attach_again(deadline, &link, error)?;
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
        let shared = &self.shared;
        if shared.guard.is_child() {
            return Ok(());
        }
        let link = shared.link();
        let closed =
            Error::new(ErrorKind::Closed, format!("the consumer of stream '{}' was closed", self.stream));
        if !std::mem::replace(&mut lock(&self.state).closed, true) {
            lock(&self.state).over = Some(closed);
            // What arrays do not show any more needs not stay mapped until this handle is dropped.
            shared.holders.forget_unused_arenas(0, 0);
            let Some(detach) = shared.detach(&link) else { return Ok(()) };
            let nothing_held = matches!(&detach, ToServer::Detach { held, .. } if held.is_empty());
            let detached = link.rpc.call(&detach, "to detach").map(drop);
            if nothing_held {
                // Nobody has anything to say any more: servers need not keep connections until this is dropped.
                link.rpc.hang_up();
                shared.holders.hang_up();
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
        if !self.shared.guard.is_child() && !lock(&self.state).closed {
            let link = self.shared.link();
            if let Some(detach) = self.shared.detach(&link) {
                let _ = link.rpc.tell(&detach);
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
    attach: &ToServer,
    holders: &Holders,
    deadline: Instant,
) -> Result<(Link, Option<(RunNumber, StepNumber)>)> {
    let ToServer::Attach { stream, .. } = attach else {
        return Err(Error::internal("not an attachment"));
    };
    let ask = |rpc: &Rpc, left| Ok(rpc.call_within(attach, None, left, "to attach")?.message);
    let (server, rpc, answer) = group.at_coordinator(stream, deadline, ask)?;
    let (rpc, ToClient::Attached { attachment, from }) = (Arc::new(rpc), &answer) else {
        return Err(unexpected(&answer));
    };
    holders.adopt(server, rpc.clone());
    Ok((Link { rpc, server, held_as: HeldAs::Attachment(*attachment) }, *from))
}

impl Link {
    fn attachment(&self) -> Option<AttachmentId> {
        match self.held_as {
            HeldAs::Attachment(id) => Some(id),
            HeldAs::Execution(_) => None,
        }
    }

    /// Tells the server that a step is done with, or that only arrays of it are left (`pinned`). One that is gone needs
    /// not be told.
    fn release(&self, run: RunNumber, step: StepNumber, pinned: bool) {
        let message = match self.held_as {
            HeldAs::Attachment(attachment) => ToServer::Release { attachment, run, step, pinned },
            // A worker says by itself that it is done; its views may outlive that.
            HeldAs::Execution(_) if pinned => return,
            HeldAs::Execution(execution) => ToServer::WorkerReleased { execution },
        };
        let _ = self.rpc.tell(&message);
    }
}

impl Shared {
    pub(crate) fn new(holders: Arc<Holders>, link: Link) -> Shared {
        Shared { guard: ForkGuard::new(), holders, link: Mutex::new(link), held: Mutex::default() }
    }

    fn link(&self) -> Link {
        lock(&self.link).clone()
    }

    /// The message with which it detaches.
    fn detach(&self, link: &Link) -> Option<ToServer> {
        let held = lock(&self.held).keys().copied().collect();
        Some(ToServer::Detach { attachment: link.attachment()?, held })
    }

    fn held_steps(&self) -> Vec<HeldStep> {
        let held = lock(&self.held);
        held.iter().map(|(&(run, step), &pinned)| HeldStep { run, step, pinned }).collect()
    }

    /// Of a step only arrays live on.
    pub(crate) fn pin(&self, run: RunNumber, step: StepNumber) {
        if let Some(pinned) = lock(&self.held).get_mut(&(run, step)) {
            *pinned = true;
        }
        self.link().release(run, step, true);
    }

    /// A step is done with.
    pub(crate) fn release(&self, run: RunNumber, step: StepNumber) {
        lock(&self.held).remove(&(run, step));
        self.link().release(run, step, false);
    }

    /// Another server is told from now on what is done with. What was released since it was told that `told` are held
    /// went to the one before.
    fn go_on_at(&self, link: Link, told: &[HeldStep]) {
        *lock(&self.link) = link.clone();
        for HeldStep { run, step, pinned } in told {
            let now = lock(&self.held).get(&(*run, *step)).copied();
            if now != Some(*pinned) {
                link.release(*run, *step, now.is_some());
            }
        }
    }
}
