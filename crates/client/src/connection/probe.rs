//! Whether servers are there, and what is tried again while a group gives up those that are not.

use crate::group::{Group, look_again};
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::connection::Role;
use std::time::{Duration, Instant};

/// How long a server may take to show that it is there.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);
/// Within this, a group gives up a member whose death can be proven or whose connections broke.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// How long a server that stands still is taken to do so before it is looked again.
const STILL: Duration = Duration::from_secs(2);

/// Something that failed since servers have gone, and is tried again for so long: from its first failure on, however long
/// that one took. While a member stands still, which others may need to give one up, it is tried again until a deadline.
#[derive(Debug)]
pub(crate) struct Tries {
    lasting: Duration,
    deadline: Instant,
    failed_first: Option<Instant>,
    /// When a member stood still.
    still_at: Option<Instant>,
}

impl Tries {
    /// For so long.
    pub(crate) fn lasting(lasting: Duration, deadline: Instant) -> Tries {
        Tries { lasting, deadline, failed_first: None, still_at: None }
    }

    /// For as long as a group takes to give up a member.
    pub(crate) fn until(deadline: Instant) -> Tries {
        Tries::lasting(GIVEN_UP, deadline)
    }

    /// It has failed: whether it is to be tried again. May wait for a second to see who answers.
    pub(crate) fn go_on(&mut self, group: &Group) -> bool {
        let now = Instant::now();
        if now - *self.failed_first.get_or_insert(now) < self.lasting {
            return true;
        }
        if now >= self.deadline {
            return false;
        }
        if self.still_at.is_none_or(|at| now - at > STILL) {
            self.still_at = group.one_stands_still().then_some(now);
        }
        self.still_at.is_some()
    }
}

/// Whether a server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Gone,
    /// It stands still: it may be connected to, and does not answer.
    Silent,
    Answers,
}

impl Group {
    /// Whether any server is there, of those that the connection file tells now. Waits a second at most for each that does not
    /// answer.
    pub(crate) fn one_is_there(&self) -> bool {
        let _ = self.refresh();
        self.known().view.members.iter().any(|server| self.presence(*server) != Presence::Gone)
    }

    /// Whether a server stands still, of those that the connection file tells now. Waits a second at most for each that cannot
    /// be connected to.
    pub(crate) fn one_stands_still(&self) -> bool {
        let _ = self.refresh();
        self.known().view.members.iter().any(|server| self.presence(*server) == Presence::Silent)
    }

    /// Whether a server is there. Waits a second at most.
    pub(crate) fn presence(&self, server: ServerId) -> Presence {
        match self.within(self.limit().min(ANSWER)).connect(server, Role::Admin) {
            Ok(_) => Presence::Answers,
            Err(error) if error.kind == ErrorKind::Timeout => Presence::Silent,
            Err(_) => Presence::Gone,
        }
    }

    /// Does something that servers are needed for. One of them may have died just now, so that the group is about to give
    /// it up and to do without it: then it is tried again, for some seconds, or until a deadline where another one stands still.
    pub(crate) fn outlive<T>(&self, deadline: Instant, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = Tries::until(deadline);
        loop {
            let began = Instant::now();
            let acted = act();
            if began.elapsed() > ANSWER {
                // All was well for a while: what fails now is another server's doing.
                tries = Tries::until(deadline);
            }
            match acted {
                Err(error)
                    if error.kind == ErrorKind::Unreachable
                        && Instant::now() < deadline
                        && tries.go_on(self)
                        && !blocking::interrupted() =>
                {
                    if !self.one_is_there() {
                        let advice =
                            "No server of the group answers: if it is gone, start it again with `forebay up`";
                        return Err(Error::unreachable(format!("{}. {advice}", error.text)));
                    }
                    look_again();
                }
                result => return result,
            }
        }
    }
}
