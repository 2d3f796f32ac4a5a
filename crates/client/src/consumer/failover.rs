//! What a reader does when the server dies that coordinates its stream.

use crate::connection::group::pause_before_retry;
use crate::connection::probe::{Liveness, RetryWindow};
use crate::connection::rpc::lock;
use crate::consumer::attach::{Attached, attach_to, next_if_none_came};
use crate::consumer::handle::Consumer;
use crate::reading::held_steps::StepSource;
use forebay_core::steps::{AttachmentId, CohortRank, HeldStep, Sharer, Start, ToldStep};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::consumer::Attach;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a reader that has less time tries all the same, since one that looks for steps again and again with a `timeout` of 0
/// would never come to it.
const AT_LEAST: Duration = Duration::from_millis(500);
/// How long this reader looks for a server to attach at when the one that coordinated the stream is gone: until the group has
/// given that up.
const ATTACH_AGAIN: Duration = Duration::from_secs(5);

impl Consumer {
    /// The server that coordinated the stream is gone: attaches at the server that takes its place, and goes on with the step after
    /// the last one that came.
    pub(super) fn on_coordinator_lost(
        &self,
        deadline: Instant,
        before: &StepSource,
        gone: Error,
    ) -> Result<StepSource> {
        let deadline = deadline.max(Instant::now() + AT_LEAST);
        let _attaching = self.attaching.lock_until(deadline, "another thread to attach again")?;
        let source = self.held.source();
        if !Arc::ptr_eq(&source.rpc, &before.rpc) {
            // Another thread has attached again.
            return Ok(source);
        }
        self.held.note_lost(before);
        // A server that lives and is a member has given up this reader for something that the reader did.
        let _ = self.group.refresh();
        let is_member = self.group.known().view.members.contains(&before.server);
        if is_member && self.group.probe(before.server) == Liveness::Alive {
            return Err(self.note_over(gone));
        }
        let mut window = RetryWindow::lasting(ATTACH_AGAIN, deadline);
        let mut why = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Whoever asks for the next step once more tries again.
                let text = format!("the deadline passed after {}{why}", gone.text);
                return Err(Error::timeout(text).about_that_of(&gone));
            }
            if !self.group.is_any_there() {
                return Err(self.note_over(gone));
            }
            let held = self.held.held_steps();
            let attach = self.attach_again(held.clone(), before.attachment());
            let until = Instant::now() + left.min(ATTACH_AGAIN);
            match attach_to(&self.group, &attach, &self.held.pool, until) {
                Ok(attached) => return Ok(self.go_on_at(attached, &held)),
                // The group gives up a member that stands still, and has more time for that.
                Err(error) if error.kind == ErrorKind::Timeout => {
                    // The first attempt has waited longest: what it has heard.
                    if why.is_empty() {
                        why = format!("; {}", error.text);
                    }
                    window = RetryWindow::lasting(ATTACH_AGAIN, deadline);
                    pause_before_retry();
                }
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    if !window.may_retry(&self.group) && Instant::now() < deadline {
                        return Err(self.note_over(gone));
                    }
                    pause_before_retry();
                }
                Err(error) => return Err(self.note_over(error)),
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("another server to take this reader"));
            }
        }
    }

    /// It has attached at another server, which was told that it holds these steps.
    fn go_on_at(&self, attached: Attached, held: &[HeldStep]) -> StepSource {
        let Attached { source, from, number, .. } = attached;
        let mut state = lock(&self.state);
        state.number = number;
        state.asks.forget();
        if state.latest.is_none() {
            state.next = next_if_none_came(self.attach.start, from).or(state.next);
        }
        drop(state);
        // The next coordinator tells them anew.
        *lock(&self.attrs) = Arc::default();
        self.held.switch_to(source.clone(), held);
        source
    }

    /// What this reader attaches with to go on after the last step that came.
    fn attach_again(&self, still_held: Vec<HeldStep>, id: Option<AttachmentId>) -> Attach {
        let state = lock(&self.state);
        let start = state.next.map_or(self.attach.start, |(run, step)| match self.attach.start {
            Start::Held(..) => Start::Held(run, step),
            _ => Start::Rejoin(run, step),
        });
        let told = || state.told.all();
        let cohort = self.attach.cohort.clone().map(|rank| CohortRank { told: told(), ..rank });
        let is_kept = |told: &ToldStep| !self.held.is_given_back((told.run, told.step));
        let with_number = |sharer| {
            let told = told().into_iter().filter(is_kept).collect();
            Sharer { number: state.number, told, ..sharer }
        };
        let sharer = self.attach.sharer.clone().map(with_number);
        Attach {
            start,
            needs: state.needs.clone(),
            held: still_held,
            given_back: self.held.first_given_back().filter(|_| self.attach.sharer.is_none()),
            back: id,
            cohort,
            sharer,
            ..self.attach.clone()
        }
    }
}
