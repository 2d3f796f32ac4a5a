//! Finding the server that coordinates a stream.

use crate::connection::group::{Group, pause_before_retry};
use crate::connection::rpc::Rpc;
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_wire::connection::Role;
use std::time::{Duration, Instant};

/// What a server says that was asked as the coordinator of a stream.
#[derive(Debug)]
pub(crate) enum CoordinatorAnswer<T> {
    /// The server is the coordinator, and this is its answer.
    Answer(T),
    /// Another server is.
    Redirect(ServerId),
}

impl Group {
    /// The server that coordinates a stream, if it was not used before the view became this one.
    fn coordinator_of(&self, stream: &str) -> Result<ServerId> {
        let coordinator = self.known().view.coordinator_of(stream);
        coordinator.ok_or_else(|| Error::not_found("the group has no server"))
    }

    /// Connects in a role to the server that coordinates a stream and asks it something. Another server than the view names may
    /// do: the one that is asked knows. `call` asks over a connection, and is told how long that may take.
    pub(crate) fn at_coordinator<T>(
        &self,
        stream: &str,
        role: &Role,
        deadline: Instant,
        call: impl Fn(&Rpc, Duration) -> Result<CoordinatorAnswer<T>>,
    ) -> Result<(ServerId, Rpc, T)> {
        self.retry_while_failing_over(deadline, || self.at_coordinator_now(stream, role, deadline, &call))
    }

    fn at_coordinator_now<T>(
        &self,
        stream: &str,
        role: &Role,
        deadline: Instant,
        call: impl Fn(&Rpc, Duration) -> Result<CoordinatorAnswer<T>>,
    ) -> Result<(ServerId, Rpc, T)> {
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut server = self.coordinator_of(stream)?;
        loop {
            let rpc = self.within(left()).connect(server, role.clone())?;
            match call(&rpc, left())? {
                // Two that name each other do not know the same view yet.
                CoordinatorAnswer::Redirect(other) => {
                    pause_before_retry();
                    if left().is_zero() {
                        return Err(Error::timeout(format!("no server coordinates stream '{stream}'")));
                    }
                    server = other;
                }
                CoordinatorAnswer::Answer(answer) => return Ok((server, rpc, answer)),
            }
        }
    }
}
