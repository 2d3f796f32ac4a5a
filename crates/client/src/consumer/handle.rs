//! The handle of a reader: opened, and closed.

use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::Group;
use crate::connection::rpc::lock;
use crate::consumer::attach::{Attached, attach_to, next_if_none_came};
use crate::consumer::rank::{ToldSteps, rank_of};
use crate::consumer::sharer::{Asks, sharer_of};
use crate::declared::ConsumerOptions;
use crate::reading::held_steps::{HeldSteps, StepSource};
use crate::reading::seat::Seat;
use crate::reading::server_pool::ServerPool;
use crate::reading::statics::LatestStatics;
use forebay_core::attr::Attrs;
use forebay_core::contract::NeedsByStep;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::consumer::{Attach, Request};
use forebay_wire::connection::Role;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most steps that a consumer may hold at once; servers let it hold no more either.
const WINDOW_MAX: u32 = 1024;
/// How long a reader that closes looks for another server, where the one is gone that coordinated its stream.
const DETACH_ELSEWHERE: Duration = Duration::from_secs(5);

/// A reader of a stream.
#[derive(Debug)]
pub struct Consumer {
    pub(super) group: Group,
    pub(super) attach: Attach,
    pub(super) stream: String,
    pub(super) held: Arc<HeldSteps>,
    /// Held by the thread that attaches again, so that one does.
    pub(super) attaching: DeadlineMutex,
    pub(super) state: Mutex<ConsumerState>,
    /// Which rank it is, if it is one of a parallel reader.
    pub(super) seat: Option<Arc<Seat>>,
    /// The attributes that the coordinator told last: it tells them with a step only when they are others, and they are taken off
    /// the steps in the order in which it told these.
    pub(super) attrs: Mutex<Arc<Attrs>>,
    /// The same of static fields.
    pub(super) statics: LatestStatics,
}

#[derive(Debug)]
pub(super) struct ConsumerState {
    /// Why there will be no more steps.
    pub(super) over: Option<Error>,
    closed: bool,
    /// What is needed from which step on.
    pub(super) needs: NeedsByStep,
    /// The last step that came.
    pub(super) latest: Option<StepNumber>,
    /// The latest steps that it was told of: those that another rank may not have heard of, if it is one of several.
    pub(super) told: ToldSteps,
    /// Its number among those with whom it shares steps, if it does.
    pub(super) number: Option<u32>,
    /// What it has asked for of these.
    pub(super) asks: Asks,
    /// The run and the step from which on this reader is to be told of steps, if it must attach again.
    pub(super) next: Option<(RunNumber, StepNumber)>,
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
            needs: options.needs.clone().into(),
            window: options.window,
            start: options.start,
            follow: options.follow,
            take: options.take,
            reader: group.identity(),
            held: Vec::new(),
            given_back: None,
            back: None,
            patience_ms: 0,
            cohort: rank_of(options, &group)?,
            sharer: sharer_of(options)?,
            is_followed: false,
            listen: None,
        };
        let pool = Arc::new(ServerPool::with_pins(group.clone(), Role::Consumer, options.pin_bytes));
        let attached = attach_to(&group, &attach, &pool, Instant::now() + group.limit())?;
        let Attached { source, from, hosts, number } = attached;
        let next = next_if_none_came(options.start, from);
        let shares = attach.sharer.is_some();
        let (rank, assign) = (options.rank, options.assign);
        let seat = (options.size > 1).then(|| Arc::new(Seat { rank, assign, hosts, group: group.clone() }));
        Ok(Consumer {
            group,
            attach,
            stream: options.stream.clone(),
            held: Arc::new(HeldSteps::new(pool, source)),
            attaching: DeadlineMutex::default(),
            state: Mutex::new(ConsumerState {
                over: None,
                closed: false,
                needs: options.needs.clone().into(),
                latest: None,
                told: ToldSteps::new(options.window, shares),
                number,
                asks: Asks::default(),
                next,
            }),
            seat,
            attrs: Mutex::default(),
            statics: LatestStatics::default(),
        })
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

    /// There will be no more steps, for this reason; the first one stays.
    pub(super) fn note_over(&self, error: Error) -> Error {
        lock(&self.state).over.get_or_insert(error).clone()
    }

    /// Detaches: no more steps come. Steps and arrays that are still held stay valid until they are dropped. Waits for the server's
    /// answer; of a reader with a name whose server is gone no longer than five seconds for the one that takes its place, which
    /// keeps where this one has stopped.
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
            drop(self.statics.take());
            // What arrays do not show any more needs not stay mapped until this handle is dropped.
            held_steps.pool.forget_unused_arenas(0, 0);
            let Some(detach) = held_steps.detach(&source, false) else { return Ok(()) };
            let nothing_held = matches!(&detach, Request::Detach { held, .. } if held.is_empty());
            let detached = match source.rpc.call(&detach, "to detach") {
                Err(gone) if gone.kind == ErrorKind::Unreachable && self.attach.reader.name.is_some() => {
                    self.detach_from_next(&source, gone);
                    Ok(())
                }
                detached => detached.map(drop),
            };
            if nothing_held {
                // Nobody has anything to say any more: servers need not keep connections until this is dropped.
                held_steps.source().rpc.hang_up();
                held_steps.pool.hang_up();
            }
            return match detached {
                // A server that is gone, or does not answer, notices by itself that this reader has left.
                Err(error) if !error.is_retryable() => Err(error),
                _ => Ok(()),
            };
        }
        Ok(())
    }

    /// The server is gone that coordinated the stream: another one is told that this reader has stopped, and where, if there is one.
    fn detach_from_next(&self, source: &StepSource, gone: Error) {
        let patience = self.group.options().patience().min(DETACH_ELSEWHERE);
        let next = self.on_coordinator_lost(Instant::now() + patience, source, gone);
        let detach = next.ok().and_then(|next| Some((self.held.detach(&next, false)?, next)));
        if let Some((detach, next)) = detach {
            let _ = next.rpc.call_within(&detach, None, patience, "to detach");
        }
    }

    /// Detaches one that has failed, as if its process had ended: the other ranks of a parallel reader are told `Lost`, and the steps
    /// that it has not released others are given that share them. Steps and arrays that are still held stay valid. Does not wait.
    pub fn abandon(&self) {
        if self.held.guard.is_child() || std::mem::replace(&mut lock(&self.state).closed, true) {
            return;
        }
        let text = format!("the consumer of stream '{}' was given up", self.stream);
        lock(&self.state).over = Some(Error::new(ErrorKind::Closed, text));
        self.tell_detached(true);
    }

    /// Tells the server, which is not to answer.
    fn tell_detached(&self, failed: bool) {
        drop(self.statics.take());
        let source = self.held.source();
        if let Some(detach) = self.held.detach(&source, failed) {
            let _ = source.rpc.tell(&detach);
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.held.guard.is_child() && !lock(&self.state).closed {
            self.tell_detached(std::thread::panicking());
        }
    }
}
