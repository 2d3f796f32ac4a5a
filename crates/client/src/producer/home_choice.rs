//! Among which members a rank has chosen its home server, and what it knows of that when it chooses again.

use crate::connection::group::KnownGroup;
use forebay_core::ids::{Epoch, ServerId};
use std::time::{Duration, Instant};

/// How long to wait before the connection file is read again that does not tell of the latest view yet.
const READ_AGAIN: Duration = Duration::from_millis(20);

/// The members among which a rank has chosen its home server.
#[derive(Debug, Default)]
pub(super) struct HomeChoice {
    pub(super) epoch: Epoch,
    /// The highest number of a server among them, or before them: a higher one has joined since.
    pub(super) highest: Option<ServerId>,
    read_at: Option<Instant>,
    home: HomeState,
}

/// What a rank that looks for another home server knows of the one that it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum HomeState {
    /// Nothing better than that it does not answer.
    #[default]
    Gone,
    /// The server has let this rank go since it leaves the group; if no other server is left it stays after all.
    LetGo,
    /// The rank leaves the server for another one, and can come back.
    Lives,
}

impl HomeChoice {
    pub(super) fn new(known: &KnownGroup) -> HomeChoice {
        HomeChoice { epoch: known.view.epoch, highest: known.highest(), ..HomeChoice::default() }
    }

    /// What the rank knows of its home when it looks for another one.
    pub(super) fn home(&self) -> HomeState {
        self.home
    }

    /// The rank is about to leave its home.
    pub(super) fn note_home(&mut self, home: HomeState) {
        self.home = home;
    }

    /// Whether the rank is to read the connection file now, since its home server has told of a later epoch. If so, the rank does
    /// not read it again for a moment.
    pub(super) fn begin_refresh(&mut self, heard: Epoch) -> bool {
        let now = Instant::now();
        let due = heard > self.epoch && self.read_at.is_none_or(|at| now >= at + READ_AGAIN);
        if due {
            self.read_at = Some(now);
        }
        due
    }
}
