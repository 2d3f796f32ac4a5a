//! Waiting for the next step of a stream.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::consumer::lateness::{listed, numbers};
use crate::consumer::told::{Told, ToldStep};
use crate::reading::step::Step;
use crate::seconds::deadline_after;
use forebay_core::steps::{Sharing, Take};
use forebay_core::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// After how long a wait in vain the coordinator is asked what this reader waits for, though the caller gave it a time of its own.
const ASKED_AFTER: Duration = Duration::from_millis(500);
/// How long its answer may take then.
const ANSWER: Duration = Duration::from_millis(500);

impl Consumer {
    /// The next step that is wanted. With a `timeout` it waits no longer than that. Without one it waits for as long as ranks
    /// of the run live; for a run to begin, for a step of its own to be released if it holds as many as it may, and for a
    /// server's answer no longer than the deadline that the reader was opened with. `ErrorKind::Ended` when the simulation
    /// has ended, where readers share steps once the others have finished with all, `ErrorKind::Crashed` when its ranks have
    /// gone without closing the stream, `ErrorKind::NotFound` if it had ended before this reader came, and nothing was left
    /// for it.
    pub fn next_step(&self, timeout: Option<Duration>) -> Result<Step> {
        self.held.guard.check("consumer")?;
        loop {
            if let Some(over) = lock(&self.state).over.clone() {
                return Err(over);
            }
            let patience = timeout.unwrap_or(self.group.options().patience());
            if let Some(told) = self.wait_unless_alone(deadline_after(patience))? {
                return Ok(self.step(told));
            }
            self.check_window()?;
            let situation = match timeout {
                // Whoever looks again and again for a moment is not to wait for an answer.
                Some(timeout) if timeout < ASKED_AFTER => None,
                Some(_) => self.situation_within(ANSWER),
                None => match self.situation() {
                    Ok(situation) if situation.may_go_on() => continue,
                    // Others that wait may wait for what this one holds.
                    Ok(situation) if situation.may_be_given_more() && self.held.unreleased().is_empty() => {
                        continue;
                    }
                    Ok(situation) => Some(situation),
                    // The server that takes its place tells.
                    Err(error) if error.kind == ErrorKind::Unreachable => continue,
                    Err(error) => return Err(error),
                },
            };
            return Err(self.too_late(patience, situation.as_ref()));
        }
    }

    /// The next step if it is there; `None` if it is not. Does not wait, but for the server's answer where the newest step alone
    /// is taken, or steps are shared. Errors as [`Consumer::next_step`], also where this reader holds as many steps as it may.
    pub fn poll(&self) -> Result<Option<Step>> {
        self.held.guard.check("consumer")?;
        if let Some(over) = lock(&self.state).over.clone() {
            return Err(over);
        }
        match self.wait_unless_alone(Instant::now())? {
            Some(told) => Ok(Some(self.step(told))),
            None => self.check_window().map(|()| None),
        }
    }

    fn step(&self, ToldStep { report, hold, attrs, statics }: ToldStep) -> Step {
        Step::new(hold, *report, attrs, statics).with_seat(self.seat.clone())
    }

    /// Waits for the next step; of readers that share steps, one that holds the last ones itself is told the end.
    fn wait_unless_alone(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        if self.attach.sharer.is_none() {
            return self.wait_until(deadline);
        }
        loop {
            let unreleased = self.held.unreleased();
            let may_be_alone = !unreleased.is_empty();
            let until = if may_be_alone { deadline.min(Instant::now() + ASKED_AFTER) } else { deadline };
            match self.wait_until(until) {
                Ok(None) => {}
                // Another server is to be attached at, which has more time.
                Err(error) if error.kind == ErrorKind::Timeout && until < deadline => continue,
                told => return told,
            }
            let situation = may_be_alone.then(|| self.situation_within(ANSWER)).flatten();
            if let Some(end) = situation.and_then(|situation| situation.end) {
                let mut error = end.error(&self.stream);
                error.text += &format!(
                    "; this reader itself has not finished with {}: one that it gives back it is given once more",
                    listed(&unreleased)
                );
                return Err(error);
            }
            if until == deadline {
                return Ok(None);
            }
        }
    }

    fn wait_until(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        if self.attach.take == Take::Latest {
            return self.newest_until(deadline);
        }
        if self.attach.sharer.as_ref().is_some_and(|sharer| sharer.sharing == Sharing::OnDemand) {
            return self.asked_until(deadline);
        }
        let mut source = self.held.source();
        loop {
            match self.listen(&source, deadline, deadline)? {
                Told::Step(step) => return Ok(Some(step)),
                Told::Nothing => return Ok(None),
                Told::Moved(other) => source = other,
            }
        }
    }

    /// An error if this reader holds as many steps as it may: then it waits for itself.
    fn check_window(&self) -> Result<()> {
        let held = self.held.unreleased();
        let window = self.attach.window;
        if held.len() < window as usize {
            return Ok(());
        }
        Err(Error::timeout(format!(
            "this reader of stream '{}' holds {} of {window} steps: {}. Release one before you ask for the next (what a \
             variable or a notebook's output still names is held), or open the reader with a larger window",
            self.stream,
            held.len(),
            numbers(&held)
        )))
    }
}
