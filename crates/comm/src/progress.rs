//! Who waits looks for what comes through shared memory: for a few microseconds without a pause, then it lets others run, then it
//! sleeps until it is woken.
//!
//! One thread of a process looks; others that wait are told by it, and one of them takes its place when it goes.

use crate::channel::{Channel, Read, Reading};
use crate::hub::{Hub, HubState, Ongoing};
use crate::peers::Peers;
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
const YIELD: Duration = Duration::from_micros(500);

impl HubState {
    /// Takes what has come through shared memory and is due. Whether that was anything.
    pub(crate) fn poll(&mut self) -> bool {
        let awaits_any = self.awaited_any > 0;
        self.poll_those(|channel, peers| awaits_any || channel.is_due(peers))
    }

    /// The same of all that has come.
    pub(crate) fn poll_all(&mut self) -> bool {
        self.poll_those(|_, _| true)
    }

    fn poll_those(&mut self, is_due: impl Fn(&Channel, &mut Peers) -> bool) -> bool {
        let HubState { channels, mail, peers, .. } = self;
        let (mut any, mut broken) = (false, Vec::new());
        for (link, channel) in channels.iter_mut().filter(|(_, channel)| is_due(channel, peers)) {
            match channel.poll(mail) {
                Ok(some) => any |= some,
                Err(_) => broken.push(*link),
            }
        }
        any |= !broken.is_empty();
        broken.into_iter().for_each(|link| self.break_off(link));
        any | self.read_loans()
    }

    /// The same of one connection, before an end.
    pub(crate) fn poll_until(&mut self, end: u64, link: u64) -> bool {
        let HubState { channels, mail, .. } = self;
        let any = match channels.get_mut(&link).map(|channel| channel.poll_until(end, mail)) {
            None => false,
            Some(Ok(any)) => any,
            Some(Err(_)) => {
                self.break_off(link);
                true
            }
        };
        any | self.read_loans()
    }

    /// What comes over a connection makes no sense: it is as good as gone, which the reader of its socket tells.
    fn break_off(&mut self, link: u64) {
        if let Some(channel) = self.channels.get(&link) {
            channel.link.close();
        }
        self.end_channel(link);
    }

    /// A connection has ended.
    pub(crate) fn end_channel(&mut self, link: u64) {
        if let Some(channel) = self.channels.remove(&link) {
            self.end(channel);
        }
    }

    /// Whoever waits is to look again, which the callers see to.
    fn end(&mut self, channel: Channel) {
        let link = channel.link.id;
        channel.end(&mut self.mail);
        let ended: Vec<Reading> = self.readings.extract_if(.., |reading| reading.link() == link).collect();
        ended.into_iter().for_each(|reading| self.mail.fail(reading.stream()));
    }

    /// Reads what is lent here.
    fn read_loans(&mut self) -> bool {
        while let Some((stream, lent)) = self.mail.next_due() {
            self.readings.push(Reading::new(stream, lent));
        }
        for lent in self.mail.take_declined() {
            if let Some(channel) = self.channels.get(&lent.link) {
                channel.decline(lent);
            }
        }
        let any = !self.readings.is_empty();
        let HubState { readings, channels, mail, scratch, .. } = self;
        let mut broken = Vec::new();
        readings.retain_mut(|reading| {
            let Some(channel) = channels.get(&reading.link()) else {
                mail.fail(reading.stream());
                return false;
            };
            match channel.read_on(mail, reading, scratch) {
                Ok(Read::More) => true,
                Ok(Read::Done) => false,
                Err(_) => {
                    mail.fail(reading.stream());
                    broken.push(reading.link());
                    false
                }
            }
        });
        broken.into_iter().for_each(|link| self.break_off(link));
        any
    }

    /// Whether there is anything to take.
    fn has_any(&mut self) -> bool {
        let HubState { channels, mail, .. } = self;
        channels.values_mut().any(|channel| channel.has_any(mail))
    }
}

/// After so many calls it is looked at what others have sent.
const CALLS: u64 = 64;

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
        if let Err(error) = self.check_begin(task) {
            return self.ended(task, Err(error));
        }
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        let mut patience = Patience { seen: 0, told: 0, since: None, turns: 0 };
        loop {
            patience.seen = self.version.load(Ordering::Acquire);
            patience.told = self.bell.told();
            self.advance_requests();
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                self.let_others_on();
                return self.ended(task, result);
            }
            if let Err(error) = self.advance(task, &mut patience) {
                return self.ended(task, Err(error));
            }
        }
    }

    /// A call has ended. If it is a collective nothing of it is awaited any more, and if that has failed the others are told: they would
    /// take what this rank does next for a part of it.
    pub(crate) fn ended<T>(&self, task: &Task, result: Result<T>) -> Result<T> {
        if task.is_collective() {
            let mut state = self.state.lock();
            state.end_collective(task, result.as_ref().err());
            if result.is_err() {
                self.tell(&mut state);
            }
        }
        result
    }

    /// A caller whose messages are always there looks at no other rank's: those that wait for room get some now and then.
    fn let_others_on(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(CALLS) {
            let mut state = self.state.lock();
            if state.poll() {
                self.tell(&mut state);
            }
        }
    }

    /// Operations that were put aside get on.
    pub(crate) fn advance_requests(&self) {
        let ongoing = self.requests.lock().clone();
        self.advance_those(ongoing);
    }

    /// Those of them that only send get on, whichever thread this is.
    pub(crate) fn advance_sends(&self) {
        let mut ongoing = self.requests.lock().clone();
        ongoing.retain(|request| request.only_sends());
        self.advance_those(ongoing);
    }

    fn advance_those(&self, mut ongoing: Vec<Arc<dyn Ongoing>>) {
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
        if state.poll_all() {
            self.tell(&mut state);
        }
        drop(state);
        self.advance_requests();
    }

    /// Returns when something has happened, or the deadline is over.
    fn advance(&self, task: &Task, patience: &mut Patience) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_watched {
            let now = Instant::now();
            if self.version.load(Ordering::Acquire) == patience.seen {
                state.followers += 1;
                self.changed.wait_until(&mut state, task.deadline(now).min(now + NAP));
                state.followers -= 1;
            }
            drop(state);
            return self.look_at_clock(task, Instant::now());
        }
        state.is_watched = true;
        // Where there are more processes than cores, one that has to wait lets others run at once.
        let spin = if state.neighbours < self.cores { SPIN } else { Duration::ZERO };
        let mut takes_all = false;
        let result = loop {
            let any = if takes_all { state.poll_all() } else { state.poll() };
            if any || self.has_changed(patience) {
                patience.since = None;
                break Ok(());
            }
            let now = Instant::now();
            let waited = now - *patience.since.get_or_insert(now);
            drop(state);
            if waited < spin {
                std::hint::spin_loop();
            } else if waited < YIELD {
                std::thread::yield_now();
            } else if !takes_all {
                // Others are not kept waiting while this one sleeps.
                takes_all = true;
            } else {
                let slept = self.sleep(task, now, patience);
                state = self.state.lock();
                break slept;
            }
            state = self.state.lock();
        };
        state.is_watched = false;
        // Others may have looked for what they await just before it was taken here, and wait next.
        self.count_change();
        if state.followers > 0 {
            self.changed.notify_all();
        }
        drop(state);
        patience.turns += 1;
        if patience.turns.is_multiple_of(64) {
            self.look_at_clock(task, Instant::now())?;
        }
        result
    }

    /// Whether something has happened since it was looked for what is awaited.
    fn has_changed(&self, patience: &Patience) -> bool {
        self.version.load(Ordering::Acquire) != patience.seen || self.bell.told() != patience.told
    }

    fn sleep(&self, task: &Task, now: Instant, patience: &Patience) -> Result<()> {
        let longest = task.deadline(now).saturating_duration_since(now);
        self.bell.sleep(longest, || {
            let mut state = self.state.lock();
            self.has_changed(patience) || state.has_any() || state.mail.pull()
        })?;
        self.look_at_clock(task, Instant::now())
    }

    fn look_at_clock(&self, task: &Task, now: Instant) -> Result<()> {
        if now >= task.deadline(now) {
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
