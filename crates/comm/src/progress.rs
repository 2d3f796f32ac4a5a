//! Who waits looks for what comes through shared memory: for a few microseconds without a pause, then it lets others run, then it
//! sleeps until it is woken.
//!
//! One thread of a process looks; others that wait are told by it, and one of them takes its place when it goes.

use crate::channel::{Channel, Read, Reading};
use crate::hub::{Hub, HubState, Ongoing};
use crate::shared::NAP;
use crate::task::Task;
use forebay_core::{Error, Result};
use forebay_transport::blocking;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long it looks without a pause, where each process may have a core of its own.
const SPIN: Duration = Duration::from_micros(5);
/// How long it lets others run, and looks in between.
const YIELD: Duration = Duration::from_micros(50);

impl HubState {
    /// Takes what has come through shared memory. Whether that was anything.
    pub(crate) fn poll(&mut self) -> bool {
        let mut any = false;
        for place in (0..self.channels.len()).rev() {
            any |= self.poll_at(place);
        }
        any | self.read_loans()
    }

    /// The same of one connection.
    pub(crate) fn poll_one(&mut self, link: u64) -> bool {
        let place = self.channels.iter().position(|channel| channel.link.id == link);
        place.is_some_and(|place| self.poll_at(place)) | self.read_loans()
    }

    fn poll_at(&mut self, place: usize) -> bool {
        match self.channels[place].poll(&mut self.mail) {
            Ok(any) => any,
            Err(_) => {
                // What it writes makes no sense: it is as good as gone, which the reader of its socket tells.
                let channel = self.channels.swap_remove(place);
                channel.link.close();
                self.end(channel);
                true
            }
        }
    }

    /// A connection has ended.
    pub(crate) fn end_channel(&mut self, link: u64) {
        if let Some(place) = self.channels.iter().position(|channel| channel.link.id == link) {
            let channel = self.channels.swap_remove(place);
            self.end(channel);
        }
    }

    fn end(&mut self, channel: Channel) {
        let link = channel.link.id;
        channel.end(&mut self.mail);
        let ended: Vec<Reading> = self.readings.extract_if(.., |reading| reading.link() == link).collect();
        ended.into_iter().for_each(|reading| self.mail.fail(reading.stream()));
        self.version += 1;
    }

    /// Reads what is lent here.
    fn read_loans(&mut self) -> bool {
        while let Some((stream, lent)) = self.mail.next_due() {
            self.readings.push(Reading::new(stream, lent));
        }
        for lent in self.mail.take_declined() {
            if let Some(channel) = self.channels.iter().find(|channel| channel.link.id == lent.link) {
                channel.decline(lent);
            }
        }
        let any = !self.readings.is_empty();
        let HubState { readings, channels, mail, scratch, .. } = self;
        let mut broken = Vec::new();
        readings.retain_mut(|reading| {
            let Some(channel) = channels.iter().find(|channel| channel.link.id == reading.link()) else {
                mail.fail(reading.stream());
                return false;
            };
            match channel.read_on(mail, reading, scratch) {
                Ok(Read::More) => true,
                Ok(Read::Done) => false,
                Err(_) => {
                    mail.fail(reading.stream());
                    broken.push(channel.link.clone());
                    false
                }
            }
        });
        for link in broken {
            link.close();
            self.end_channel(link.id);
        }
        any
    }

    /// Whether there is anything to take.
    fn has_any(&mut self) -> bool {
        let HubState { channels, mail, .. } = self;
        channels.iter_mut().any(|channel| channel.has_any(mail))
    }
}

/// How long somebody has waited for nothing.
#[derive(Debug)]
struct Patience {
    /// What had happened here, and what others had told, when it was looked for what is awaited.
    seen: u64,
    told: u64,
    since: Option<Instant>,
    /// How often something has happened.
    turns: u32,
}

impl Hub {
    /// Waits for a future, and looks meanwhile for what it waits for.
    pub(crate) fn run<T>(&self, task: &Task, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.check_process()?;
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        let seen = self.state.lock().version;
        let mut patience = Patience { seen, told: 0, since: None, turns: 0 };
        loop {
            patience.told = self.bell.told();
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                if task.is_collective() && result.is_ok() {
                    self.state.lock().end_collective(task);
                }
                return result;
            }
            self.advance(task, &mut patience)?;
            self.advance_requests();
        }
    }

    /// Operations that were put aside get on.
    fn advance_requests(&self) {
        let mut ongoing = self.requests.lock().clone();
        if ongoing.is_empty() {
            return;
        }
        ongoing.retain(|request| request.advance());
        if !ongoing.is_empty() {
            let is_over = |request: &Arc<dyn Ongoing>| ongoing.iter().any(|over| Arc::ptr_eq(over, request));
            self.requests.lock().retain(|request| !is_over(request));
        }
    }

    /// Takes what has come, without waiting for anything.
    pub(crate) fn look_once(&self) {
        let mut state = self.state.lock();
        if state.poll() {
            self.tell(&mut state);
        }
        drop(state);
        self.advance_requests();
    }

    /// Returns when something has happened, or the deadline is over.
    fn advance(&self, task: &Task, patience: &mut Patience) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_watched {
            let until = task.deadline.min(Instant::now() + NAP);
            if state.version == patience.seen {
                state.followers += 1;
                self.changed.wait_until(&mut state, until);
                state.followers -= 1;
            }
            patience.seen = state.version;
            drop(state);
            return self.look_at_clock(task, Instant::now());
        }
        state.is_watched = true;
        let result = loop {
            if state.poll() || state.version != patience.seen || self.bell.told() != patience.told {
                patience.since = None;
                break Ok(());
            }
            let now = Instant::now();
            let waited = now - *patience.since.get_or_insert(now);
            drop(state);
            if waited < SPIN {
                (0..16).for_each(|_| std::hint::spin_loop());
            } else if waited < YIELD {
                std::thread::yield_now();
            } else {
                let slept = self.sleep(task, now, patience);
                state = self.state.lock();
                break slept;
            }
            state = self.state.lock();
        };
        state.is_watched = false;
        patience.seen = state.version;
        if state.followers > 0 {
            state.version += 1;
            patience.seen += 1;
            self.changed.notify_all();
        }
        drop(state);
        patience.turns += 1;
        if patience.turns.is_multiple_of(64) {
            self.look_at_clock(task, Instant::now())?;
        }
        result
    }

    fn sleep(&self, task: &Task, now: Instant, patience: &Patience) -> Result<()> {
        let longest = task.deadline.saturating_duration_since(now);
        self.bell.sleep(longest, || {
            let mut state = self.state.lock();
            let is_told = self.bell.told() != patience.told;
            is_told || state.has_any() || state.version != patience.seen || state.mail.pull()
        })?;
        self.look_at_clock(task, Instant::now())
    }

    fn look_at_clock(&self, task: &Task, now: Instant) -> Result<()> {
        if now >= task.deadline {
            task.expired.store(true, Ordering::Relaxed);
        }
        if blocking::interrupted() {
            return Err(interrupted(task));
        }
        Ok(())
    }
}

fn interrupted(task: &Task) -> Error {
    blocking::interrupted_while(task.name(None))
}
