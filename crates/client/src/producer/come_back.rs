//! What a producer does when its home server has died, or lets it go since it leaves the group or another one has joined:
//! it goes on with another one.
//!
//! Here between steps; within one, what was put in it is put again: see [`super::put_again`].

use super::candidates::Candidates;
use super::joiners::Members;
use super::{OnLoss, Producer, State};
use crate::connection::group::Group;
use crate::connection::probe::Liveness;
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::put_target::PutTarget;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::steps::BackTo;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::connection::Role;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long the first attempt may take, where a rank goes on without staging: by then the group has given up a server whose
/// death can be proven, or whose connection broke.
const FIRST: Duration = Duration::from_secs(2);
/// How long each later one may take.
const LATER: Duration = Duration::from_millis(200);
/// How long to wait between two.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long to wait before the servers are asked again in one attempt: an eighth of what was waited before, within these.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// A server that takes this rank.
pub(super) struct Found {
    pub(super) home: Arc<PutTarget>,
    /// The stream's coordinator knows that the rank has ended all steps below this one.
    pub(super) below: StepNumber,
}

/// How many servers may die one right after the other, each as it is the home of one call.
pub(super) const DEATHS_MAX: u32 = 4;

impl Producer {
    /// How long to look for another home: not long where a rank goes on without staging meanwhile; as long as any wait where
    /// it ends otherwise.
    pub(super) fn patience_to_go_on(&self) -> Duration {
        match self.on_loss {
            OnLoss::Skip => FIRST,
            OnLoss::Fail => self.group.limit().max(FIRST),
        }
    }

    /// Goes on with another server, if staging was given up and one takes this rank; else it stays given up. Waits for
    /// seconds at most.
    pub(super) fn come_back<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.come_back_to(state, None)
    }

    /// As [`Producer::come_back`], with the server that is tried first, if it has greeted already.
    pub(super) fn come_back_to<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        first: Option<(ServerId, Arc<Rpc>)>,
    ) -> MutexGuard<'a, State> {
        let now = Instant::now();
        if state.lost.is_none() || state.open.is_some() || state.come_back_at.is_some_and(|at| now < at) {
            return state;
        }
        let patience = if state.come_back_at.is_none() { self.patience_to_go_on() } else { LATER };
        drop(state);
        let found = self.find_home(now + patience, first);
        let result = found.and_then(|Found { home, .. }| home.rpc.tell(&Request::Settle).map(|()| home));
        let mut state = lock(&self.state);
        match result {
            Ok(home) => {
                tracing::info!("stream '{}': staging goes on at {}", self.stream, home.server);
                lock(&self.others).clear();
                *lock(&self.home) = home;
                state.members = Members::new(&self.group.known());
                state.lost = None;
                state.come_back_at = None;
                state.answered = false;
                state.small = None;
            }
            Err(error) => {
                tracing::debug!("stream '{}' stays given up: {error}", self.stream);
                if let Some(lost) = state.lost.as_mut().filter(|_| self.on_loss == OnLoss::Fail) {
                    *lost = Error::unreachable(format!(
                        "{}; no other server takes this rank: {}",
                        lost.text, error.text
                    ));
                }
                state.come_back_at = Some(Instant::now() + BETWEEN);
            }
        }
        state
    }

    /// The home is gone: another one is to take this rank.
    pub(super) fn give_up(&self, state: &mut State, error: Error) -> Result<()> {
        if error.kind != ErrorKind::Unreachable {
            return Err(error);
        }
        tracing::info!("stream '{}': {error}", self.stream);
        state.lost.get_or_insert(error);
        Ok(())
    }

    /// The home has let this rank go: it may go on at another one.
    pub(super) fn let_go(&self, state: &mut State) {
        let error = || Error::unreachable(format!("{} has left the group", self.home().server));
        state.lost.get_or_insert_with(error);
        state.members.note_let_go();
    }

    /// Goes on at another server, for which [`Producer::let_go`] has been called; an error if there is none and that is not
    /// to be survived.
    pub(super) fn go_on<'a>(&'a self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        let mut state = self.come_back(state);
        match state.lost.take_if(|_| self.on_loss == OnLoss::Fail) {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    /// As [`Producer::ask_home`], also within a step, which goes on elsewhere if the home is gone. It is this call's turn.
    pub(crate) fn ask_any_home<T>(
        &self,
        _turn: &MutexGuard<'_, ()>,
        ask: impl Fn(&Arc<Rpc>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.open_step()?.is_none() {
            return self.ask_home(ask);
        }
        loop {
            let home = self.home();
            if lock(&self.state).lost.is_some() {
                return Ok(None);
            }
            let asked = match home.rpc.is_broken() {
                true => Err(Error::unreachable(format!("{} is gone", home.server))),
                false => ask(&home.rpc),
            };
            match asked {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => {
                    if let Err(error) = self.go_on_elsewhere(&home, error) {
                        return self.survive(&mut lock(&self.state), error).map(|()| None);
                    }
                }
            }
        }
    }

    /// Asks the home something between two steps. One that is gone, or has let this rank go, is replaced; `None` if staging is given up.
    pub(crate) fn ask_home<T>(&self, ask: impl Fn(&Arc<Rpc>) -> Result<T>) -> Result<Option<T>> {
        let mut deaths = 0;
        loop {
            if lock(&self.state).lost.is_some() {
                return Ok(None);
            }
            let home = self.home();
            match ask(&home.rpc) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error)
                    if error.kind == ErrorKind::Unreachable
                        && deaths < DEATHS_MAX
                        && home.rpc.is_broken() =>
                {
                    deaths += 1;
                    let mut state = lock(&self.state);
                    match home.rpc.was_let_go() {
                        true => self.let_go(&mut state),
                        false => self.give_up(&mut state, error)?,
                    }
                    drop(self.go_on(state)?);
                }
                Err(error) => {
                    self.survive(&mut lock(&self.state), error)?;
                    return Ok(None);
                }
            }
        }
    }

    /// A server that takes this rank as its home, which is to be told if the rank stays; `first` has greeted already.
    pub(super) fn find_home(
        &self,
        deadline: Instant,
        mut first: Option<(ServerId, Arc<Rpc>)>,
    ) -> Result<Found> {
        let mut candidates = Candidates::default();
        {
            let state = lock(&self.state);
            let home = self.home().server;
            if state.members.was_let_go() {
                candidates.later(home);
            } else if !state.members.home_lives() {
                candidates.is_dead(home);
            }
        }
        let began = Instant::now();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // One that stands still leaves some time for the others.
            let group = self.group.within((left / 2).clamp(LATER, FIRST / 2));
            let (server, rpc) = match first.take() {
                Some((server, rpc)) => (server, Ok(rpc)),
                None => {
                    // It may name servers that are gone, for a moment.
                    let _ = group.refresh();
                    let server = candidates.next(|but| group.home_of_but(self.rank, but))?;
                    (server, group.connect(server, Role::Producer).map(Arc::new))
                }
            };
            let error = match rpc.and_then(|rpc| self.move_to(&group, server, rpc)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {
                    candidates.later(server);
                    Error::unreachable(format!("{server} leaves the group"))
                }
                Err(error) if error.kind == ErrorKind::NotFound => return Err(error),
                Err(error) => {
                    let presence = match error.kind {
                        // It may be there, and need to learn of another one's death.
                        ErrorKind::Unreachable => group.probe(server),
                        ErrorKind::Timeout => Liveness::Silent,
                        _ => Liveness::Alive,
                    };
                    match presence {
                        Liveness::Gone => candidates.is_dead(server),
                        Liveness::Silent => candidates.later(server),
                        Liveness::Alive => {}
                    }
                    error
                }
            };
            if left.is_zero() {
                return Err(error);
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("another server to take this rank"));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "waits until the group has given up the dead server"
            )]
            std::thread::sleep((began.elapsed() / 8).clamp(ASK_AGAIN.0, ASK_AGAIN.1).min(left));
        }
    }

    /// Joins the run again, through this server, and tells it what this rank offers, and what the home before may not have
    /// told; `None` if the server leaves the group.
    fn move_to(&self, group: &Group, server: ServerId, rpc: Arc<Rpc>) -> Result<Option<Found>> {
        let back_to = {
            let mut state = lock(&self.state);
            state.attempts += 1;
            BackTo { run: self.run, demand: state.demand.clone(), attempt: state.attempts }
        };
        let join = Request::Join {
            stream: self.stream.clone(),
            rank: self.rank,
            options: self.options.clone(),
            back_to: Some(back_to),
        };
        let answer = rpc.call_within(&join, None, group.limit(), "to go on with the stream")?;
        let (run, below, arena) = match answer.message {
            Reply::Joined { run, below, arena } => (run, below, arena),
            Reply::LetGo => return Ok(None),
            other => return Err(unexpected(&other)),
        };
        if run != self.run {
            return Err(Error::protocol(format!("run {run} was joined instead of {}", self.run)));
        }
        let home = Arc::new(PutTarget::new(server, rpc, arena, &answer.descriptors)?);
        let (fields, attrs) = {
            let state = lock(&self.state);
            (state.fields.values().cloned().collect::<Vec<_>>(), state.attrs.clone())
        };
        for field in fields {
            let define = Request::Define((*field).clone());
            home.rpc.call_within(&define, None, group.limit(), "to take a field")?;
        }
        for ((field, key), attr) in attrs {
            let set = Request::SetAttr { field, key, attr };
            home.rpc.call_within(&set, None, group.limit(), "to take an attribute")?;
        }
        self.put_ended_again(&home, below)?;
        Ok(Some(Found { home, below }))
    }
}
