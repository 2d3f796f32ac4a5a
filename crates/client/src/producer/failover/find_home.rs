//! Finding a server that takes a rank whose home server is gone, and joining the run again there.

use crate::connection::group::Group;
use crate::connection::probe::Liveness;
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::on_loss::OnLoss;
use crate::producer::failover::candidates::Candidates;
use crate::producer::home_choice::HomeState;
use crate::producer::rank::Producer;
use crate::put_target::PutTarget;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::steps::Rejoin;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::connection::Role;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the first attempt may take, where a rank goes on without staging: by then the group has given up a server whose
/// death can be proven, or whose connection broke.
const FIRST: Duration = Duration::from_secs(2);
/// How long each later attempt may take.
pub(super) const LATER: Duration = Duration::from_millis(200);
/// How long to wait before the servers are asked again in one attempt: an eighth of what was waited before, within these.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How many servers may die one right after the other, each as it is the home server of one call.
pub(in crate::producer) const DEATHS_MAX: u32 = 4;

/// A server that takes this rank.
pub(super) struct NewHome {
    pub(super) target: Arc<PutTarget>,
    /// The stream's coordinator knows that the rank has ended all steps below this one.
    pub(super) below: StepNumber,
}

impl Producer {
    /// How long to look for another home server: not long where a rank goes on without staging meanwhile; as long as any wait
    /// where it ends otherwise.
    pub(super) fn patience_to_find_home(&self) -> Duration {
        match self.on_loss {
            OnLoss::Skip => FIRST,
            OnLoss::Fail => self.group.limit().max(FIRST),
        }
    }

    /// A server that takes this rank as its home, which the caller tells if the rank stays; `first` has greeted already.
    pub(super) fn find_home(
        &self,
        deadline: Instant,
        mut first: Option<(ServerId, Arc<Rpc>)>,
    ) -> Result<NewHome> {
        let mut candidates = self.candidates();
        let began = Instant::now();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // A server that stands still leaves some time for the others.
            let group = self.group.within((left / 2).clamp(LATER, FIRST / 2));
            let (server, rpc) = match first.take() {
                Some((server, rpc)) => (server, Ok(rpc)),
                None => {
                    // For a moment, the connection file may name servers that are gone.
                    let _ = group.refresh();
                    let server = candidates.next(|but| group.home_of_but(self.rank(), but))?;
                    (server, group.connect(server, Role::Producer).map(Arc::new))
                }
            };
            let error = match rpc.and_then(|rpc| self.rejoin(&group, server, rpc)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {
                    candidates.defer(server);
                    Error::unreachable(format!("{server} leaves the group")).about(server)
                }
                Err(error) if error.kind == ErrorKind::NotFound => return Err(error),
                Err(error) => {
                    match liveness_after(&error, &group, server) {
                        Liveness::Gone => candidates.exclude(server),
                        Liveness::Silent => candidates.defer(server),
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

    /// All servers but the home, unless that is known to live.
    fn candidates(&self) -> Candidates {
        let mut candidates = Candidates::default();
        let state = lock(&self.state);
        let home = self.home().server;
        match state.home_choice.home() {
            HomeState::LetGo => candidates.defer(home),
            HomeState::Gone => candidates.exclude(home),
            HomeState::Lives => {}
        }
        candidates
    }

    /// Joins the run again, through this server, and tells it what this rank offers, and what the home before may not have
    /// told; `None` if the server leaves the group.
    fn rejoin(&self, group: &Group, server: ServerId, rpc: Arc<Rpc>) -> Result<Option<NewHome>> {
        let back_to = {
            let mut state = lock(&self.state);
            state.attempts += 1;
            Rejoin { run: self.run, demand: state.demand.clone(), attempt: state.attempts }
        };
        let join = Request::Join {
            stream: self.stream.clone(),
            joining: Box::new(self.joining.clone()),
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
        let target = Arc::new(PutTarget::new(server, rpc, arena, &answer.descriptors)?);
        let (fields, attrs) = {
            let state = lock(&self.state);
            (state.fields.values().cloned().collect::<Vec<_>>(), state.attrs.clone())
        };
        for field in fields {
            let define = Request::Define((*field).clone());
            target.rpc.call_within(&define, None, group.limit(), "to take a field")?;
        }
        for ((field, key), attr) in attrs {
            let set = Request::SetAttr { field, key, attr };
            target.rpc.call_within(&set, None, group.limit(), "to take an attribute")?;
        }
        self.replay_ended_steps(&target, below)?;
        Ok(Some(NewHome { target, below }))
    }
}

/// What is known of a server that did not take a rank.
fn liveness_after(error: &Error, group: &Group, server: ServerId) -> Liveness {
    match error.kind {
        // The server may live, and need to learn of another one's death.
        ErrorKind::Unreachable => group.probe(server),
        ErrorKind::Timeout => Liveness::Silent,
        _ => Liveness::Alive,
    }
}
