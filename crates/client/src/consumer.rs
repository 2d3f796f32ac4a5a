//! Consumers: readers of a stream, which attach and detach at any moment.

use crate::fork::ForkGuard;
use crate::group::{AtCoordinator, Group, GroupOptions, look_again};
use crate::holder::{ARENAS_KEPT, Holders};
use crate::pins::PIN_BYTES;
use crate::presence::{Presence, Tries};
use crate::rpc::{Rpc, lock, unexpected};
use crate::seconds::deadline_after;
use crate::step::Step;
use crate::turn::Turn;
use forebay_core::attr::Attrs;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, Start};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::client::worker;
use forebay_wire::connection::Role;
use std::collections::BTreeMap;
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
        let attach = Attach {
            stream: options.stream.clone(),
            needs: options.needs.clone(),
            window: options.window,
            start: options.start,
            follow: options.follow,
            held: Vec::new(),
            back: None,
        };
        let holders = Arc::new(Holders::with_pins(
            group.clone(),
            Role::Consumer,
            options.pin_bytes.unwrap_or(PIN_BYTES),
        ));
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
                        state.next = next_if_none_came(self.attach.start, from).or(state.next);
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
                if let Event::Step { attachment, report } = &mut message
                    && Some(*attachment) == id
                    && let Some(told) = report.attrs.take()
                {
                    *attrs = Arc::from(told);
                }
                (message, attrs.clone())
            };
            match link.rpc.told(deadline, &what, with_attrs) {
                Ok((Event::Step { attachment, report }, attrs)) if Some(attachment) == id => {
                    self.shared.holders.forget_unused_arenas(ARENAS_KEPT, report.term);
                    let mut state = lock(&self.state);
                    state.latest = Some(report.id.step);
                    state.next = Some((report.id.run, report.id.step.saturating_add(1)));
                    drop(state);
                    return Ok(Step::new(self.shared.clone(), *report, attrs));
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
            let nothing_held = matches!(&detach, Request::Detach { held, .. } if held.is_empty());
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
    attach: &Attach,
    holders: &Holders,
    deadline: Instant,
) -> Result<(Link, Option<(RunNumber, StepNumber)>)> {
    let request = Request::Attach(Box::new(attach.clone()));
    let ask = |rpc: &Rpc, left| match rpc.call_within(&request, None, left, "to attach")?.message {
        Reply::Attached { attachment, from } => Ok(AtCoordinator::Answer((attachment, from))),
        Reply::Redirect(server) => Ok(AtCoordinator::Redirect(server)),
        other => Err(unexpected(&other)),
    };
    let asked = group.at_coordinator(&attach.stream, &Role::Consumer, deadline, ask)?;
    let (server, rpc, (attachment, from)) = asked;
    let rpc = Arc::new(rpc);
    holders.adopt(server, rpc.clone());
    Ok((Link { rpc, server, held_as: HeldAs::Attachment(attachment) }, from))
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
        let _ = match self.held_as {
            HeldAs::Attachment(attachment) => {
                self.rpc.tell(&Request::Release { attachment, run, step, pinned })
            }
            // A worker says by itself that it is done; its views may outlive that.
            HeldAs::Execution(_) if pinned => return,
            HeldAs::Execution(execution) => self.rpc.tell(&worker::Request::Released { execution }),
        };
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
    fn detach(&self, link: &Link) -> Option<Request> {
        let held = lock(&self.held).keys().copied().collect();
        Some(Request::Detach { attachment: link.attachment()?, held })
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
