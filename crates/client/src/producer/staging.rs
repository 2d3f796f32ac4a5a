//! Whether a rank's steps are staged, and how far its open step is.

use forebay_core::Error;

/// Whether the steps of a rank are staged. A rank that is closed still tells why they were not.
#[derive(Debug, Default)]
pub(super) enum Staging {
    /// The home server takes them.
    #[default]
    Active,
    /// No server takes them, for this reason.
    GivenUp(Error),
}

impl Staging {
    pub(super) fn is_active(&self) -> bool {
        matches!(self, Staging::Active)
    }

    /// Why staging is given up, if it is.
    pub(super) fn why(&self) -> Option<&Error> {
        match self {
            Staging::Active => None,
            Staging::GivenUp(why) => Some(why),
        }
    }

    /// Gives staging up; the first reason stays.
    pub(super) fn give_up(&mut self, why: Error) {
        if self.is_active() {
            *self = Staging::GivenUp(why);
        }
    }

    /// Goes on; why staging was given up, if it was.
    pub(super) fn resume(&mut self) -> Option<Error> {
        match std::mem::take(self) {
            Staging::Active => None,
            Staging::GivenUp(why) => Some(why),
        }
    }
}

/// How far an open step is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OpenPhase {
    /// Begun without a question, since nothing of this rank is wanted: the home server does not know of it.
    Passing,
    /// The rank puts blocks.
    #[default]
    Staging,
    /// The rank tells its home server of the step's end.
    Ending,
    /// A new home server has said that the one before told others of the step's end.
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_until_staging_goes_on() {
        let mut staging = Staging::default();
        assert!(staging.is_active() && staging.resume().is_none());
        staging.give_up(Error::unreachable("server0 died"));
        staging.give_up(Error::unreachable("server1 died"));
        assert_eq!(staging.why().map(|why| &*why.text), Some("server0 died"));
        assert!(staging.resume().is_some() && staging.is_active());
    }
}
