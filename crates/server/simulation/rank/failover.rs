//! A simulated rank goes on at another home, where its own dies or lets it go.

use super::{Ended, Home, Rank, Written};
use crate::simulation::caller::{PATIENCE, SHORT, late, unexpected};
use forebay_core::demand::Demand;
use forebay_core::ids::StepNumber;
use forebay_core::steps::Rejoin;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::connection::Role;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What became of an open step whose home has died.
#[derive(PartialEq)]
pub(super) enum Moved {
    /// It is put again at the next one.
    GoesOn,
    /// The one that died had told others of its end.
    HasEnded,
}

impl Rank<'_> {
    /// The open step goes on at another home, where all that was put in it is put again; if it has not ended.
    pub(super) async fn move_step(&mut self, step: StepNumber, written: &mut Vec<Written>) -> Result<Moved> {
        loop {
            let below = self.find_home().await?;
            if step < below {
                let _ = self.home.caller.tell(&Request::Settle);
                return Ok(Moved::HasEnded);
            }
            match self.put_step_again(step, written).await {
                Err(error) if error.kind == ErrorKind::Unreachable => {}
                again => {
                    again?;
                    // If that dies just now, the next question to it finds it.
                    let _ = self.home.caller.tell(&Request::Settle);
                    return Ok(Moved::GoesOn);
                }
            }
        }
    }

    async fn put_step_again(&mut self, step: StepNumber, written: &mut Vec<Written>) -> Result<()> {
        self.demand = Demand::default();
        self.begin(step).await?;
        let mut again = Vec::new();
        for Written { block, location, placed } in written.clone() {
            match location.filter(|_| placed) {
                Some(location) => {
                    self.put_placed(block, location).await?;
                    again.push(Written { block, location: Some(location), placed });
                }
                None => again.push(self.put(step, block).await?),
            }
        }
        *written = again;
        self.note_placed(step, written);
        Ok(())
    }

    /// Between two steps: another server is the home from now on.
    pub(super) async fn come_back(&mut self) -> Result<()> {
        loop {
            self.find_home().await?;
            match self.home.caller.tell(&Request::Settle) {
                Err(error) if error.kind == ErrorKind::Unreachable => {}
                told => return told,
            }
        }
    }

    /// A server that takes this rank, and is told what it offers, and what the home before may not have told. Below which step
    /// all is known that the rank has ended.
    async fn find_home(&mut self) -> Result<StepNumber> {
        let began = Instant::now();
        loop {
            match self.try_home().await {
                Ok(Some(below)) => return Ok(below),
                Err(error) if is_final(&error) => return Err(error.during("coming back")),
                Err(error) if began.elapsed() > PATIENCE => return Err(error.during("coming back")),
                _ => self.client.pause(Duration::from_millis(10)).await,
            }
        }
    }

    /// Tries one; `None` if it leaves.
    async fn try_home(&mut self) -> Result<Option<StepNumber>> {
        let server = self.client.any().await;
        let caller = self.client.greet(server, Role::Producer).await?;
        self.attempts += 1;
        let back_to = Rejoin { run: self.run, demand: self.demand.clone(), attempt: self.attempts };
        let produce = self.plan.produce(Some(back_to));
        let joined = timeout(SHORT, Home::join(caller, &produce)).await;
        let Some((home, run, below)) = joined.unwrap_or_else(|_| Err(late("a home")))? else {
            return Ok(None);
        };
        if run != self.run {
            return Err(Error::protocol(format!("run {run} was joined instead of {}", self.run)));
        }
        self.home = home;
        tracing::info!("rank {} goes on at {server}: all below step {below} is known", self.plan.rank);
        self.home.define(self.plan).await?;
        let ended: Vec<Ended> = self.ended.iter().filter(|ended| ended.step >= below).cloned().collect();
        for Ended { step, mut written } in ended {
            self.put_step_again(step, &mut written).await?;
            self.end(step, &written).await?;
        }
        Ok(Some(below))
    }

    /// Goes on at another server, since it may.
    pub(super) async fn go_elsewhere(&mut self) -> Result<()> {
        match self.home.caller.call(&Request::Move).await {
            Ok(Reply::LetGo) => self.come_back().await,
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.kind == ErrorKind::Unreachable => self.come_back().await,
            // Not all of what it ended is told yet: another time.
            Err(error) if error.kind == ErrorKind::StepOrder => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether no other server would say otherwise, nor this one later.
pub(super) fn is_final(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Protocol | ErrorKind::Invalid)
}
