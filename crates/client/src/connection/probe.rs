//! Whether servers live, and for how long this process tries again while a group gives up those that do not.

use crate::connection::group::{Group, pause_before_retry};
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::connection::Role;
use std::time::{Duration, Instant};

/// How long a server may take to show that it lives.
pub(crate) const PROBE: Duration = Duration::from_secs(1);
/// Within this, a group gives up a member whose death can be proven or whose connections broke.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// How long a server that is silent is taken to be so before it is probed again.
const SILENT: Duration = Duration::from_secs(2);

/// For how long something is tried again that failed since servers have gone: from its first failure on, however long that one
/// took. While a member is silent, which others may need to give a dead one up, it is tried again until a deadline.
#[derive(Debug)]
pub(crate) struct RetryWindow {
    lasting: Duration,
    deadline: Instant,
    failed_first: Option<Instant>,
    /// When a member was found silent.
    silent_at: Option<Instant>,
}

impl RetryWindow {
    /// For so long.
    pub(crate) fn lasting(lasting: Duration, deadline: Instant) -> RetryWindow {
        RetryWindow { lasting, deadline, failed_first: None, silent_at: None }
    }

    /// For as long as a group takes to give up a member.
    pub(crate) fn until(deadline: Instant) -> RetryWindow {
        RetryWindow::lasting(GIVEN_UP, deadline)
    }

    /// Whether what has failed just now is to be tried again. May wait for a second to see who answers.
    pub(crate) fn may_retry(&mut self, group: &Group) -> bool {
        let now = Instant::now();
        if now - *self.failed_first.get_or_insert(now) < self.lasting {
            return true;
        }
        if now >= self.deadline {
            return false;
        }
        if self.silent_at.is_none_or(|at| now - at > SILENT) {
            self.silent_at = group.is_any_silent().then_some(now);
        }
        self.silent_at.is_some()
    }
}

/// What a probe tells of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Gone,
    /// This process can connect to the server, which does not answer: it stands still, or is slow.
    Silent,
    Alive,
}

impl Group {
    /// Whether any server is there, of those that the connection file tells now. Waits a second at most for each that does not
    /// answer.
    pub(crate) fn is_any_there(&self) -> bool {
        let _ = self.refresh();
        self.known().view.members.iter().any(|server| self.probe(*server) != Liveness::Gone)
    }

    /// Whether any server is silent, of those that the connection file tells now. Waits a second at most for each that cannot
    /// be connected to.
    pub(crate) fn is_any_silent(&self) -> bool {
        let _ = self.refresh();
        self.known().view.members.iter().any(|server| self.probe(*server) == Liveness::Silent)
    }

    /// Whether a server lives. Waits a second at most.
    pub(crate) fn probe(&self, server: ServerId) -> Liveness {
        match self.within(self.limit().min(PROBE)).connect(server, Role::Admin) {
            Ok(_) => Liveness::Alive,
            Err(error) if error.kind == ErrorKind::Timeout => Liveness::Silent,
            Err(_) => Liveness::Gone,
        }
    }

    /// Does something that servers are needed for. One of them may have died just now, so that the group is about to give that
    /// one up and to do without it: then this tries again, for some seconds, or until a deadline where another server is silent.
    pub(crate) fn retry_while_failing_over<T>(
        &self,
        deadline: Instant,
        mut act: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut window = RetryWindow::until(deadline);
        loop {
            let began = Instant::now();
            let acted = act();
            if began.elapsed() > PROBE {
                // All was well for a while: what fails now is another server's doing.
                window = RetryWindow::until(deadline);
            }
            match acted {
                Err(error)
                    if error.kind == ErrorKind::Unreachable
                        && Instant::now() < deadline
                        && window.may_retry(self)
                        && !blocking::interrupted() =>
                {
                    if !self.is_any_there() {
                        let advice =
                            "No server of the group answers: if it is gone, start it again with `forebay up`";
                        let text = format!("{}. {advice}", error.text);
                        return Err(Error::unreachable(text).about_that_of(&error));
                    }
                    pause_before_retry();
                }
                result => return result,
            }
        }
    }
}
