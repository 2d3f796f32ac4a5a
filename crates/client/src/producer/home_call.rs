//! What needs the home server, whichever that is: it is done again at the next home where one is gone.

use crate::connection::rpc::{Rpc, lock};
use crate::producer::failover::DEATHS_MAX;
use crate::producer::rank::{Producer, RankLock};
use crate::put_target::PutTarget;
use forebay_core::{Error, Result};
use std::sync::Arc;

impl Producer {
    /// Does something through the home server within a step; through the next home where that dies.
    pub(super) fn through_home<T>(&self, act: impl Fn(&Arc<PutTarget>) -> Result<T>) -> Result<T> {
        loop {
            let home = self.home();
            match act(&home) {
                Err(error) => self.on_home_lost_in_step(&home, error)?,
                done => return done,
            }
        }
    }

    /// Asks the home server something, within a step or between two. It is replaced if it is gone; `None` if staging is given
    /// up. The caller holds the lock of the whole rank.
    pub(crate) fn ask_home<T>(
        &self,
        _rank: &RankLock<'_>,
        ask: impl Fn(&Arc<Rpc>) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.open_step()? {
            None => self.ask_home_between_steps(ask),
            Some(_) => self.ask_home_within_step(ask),
        }
    }

    fn ask_home_within_step<T>(&self, ask: impl Fn(&Arc<Rpc>) -> Result<T>) -> Result<Option<T>> {
        loop {
            let home = self.home();
            if !lock(&self.state).staging.is_active() {
                return Ok(None);
            }
            let asked = match home.rpc.is_broken() {
                true => Err(Error::unreachable(format!("{} is gone", home.server)).about(home.server)),
                false => ask(&home.rpc),
            };
            match asked {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => {
                    if let Err(error) = self.on_home_lost_in_step(&home, error) {
                        return self.on_staging_lost(&mut lock(&self.state), error).map(|()| None);
                    }
                }
            }
        }
    }

    /// Asks the home server something between two steps. It is replaced if it is gone, or has let this rank go; `None` if
    /// staging is given up.
    pub(super) fn ask_home_between_steps<T>(
        &self,
        ask: impl Fn(&Arc<Rpc>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut deaths = 0;
        loop {
            if !lock(&self.state).staging.is_active() {
                return Ok(None);
            }
            let home = self.home();
            match ask(&home.rpc) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if deaths < DEATHS_MAX && home.rpc.ended_with(&error) => {
                    deaths += 1;
                    let mut state = lock(&self.state);
                    match home.rpc.was_let_go() {
                        true => self.on_let_go(&mut state),
                        false => self.on_home_lost(&mut state, error)?,
                    }
                    drop(self.resume_or_fail(state)?);
                }
                Err(error) => {
                    self.on_staging_lost(&mut lock(&self.state), error)?;
                    return Ok(None);
                }
            }
        }
    }
}
