//! Which servers may take a rank whose home is gone, and which of them is asked next.

use forebay_core::ids::ServerId;

/// The servers that are not asked, or not yet.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    dead: Vec<ServerId>,
    /// They leave the group, and may stay after all: one that is the last of it does.
    leaving: Vec<ServerId>,
    /// They stand still, and may go on.
    silent: Vec<ServerId>,
}

impl Candidates {
    pub(super) fn is_dead(&mut self, server: ServerId) {
        self.dead.push(server);
    }

    pub(super) fn leaves(&mut self, server: ServerId) {
        self.leaving.push(server);
    }

    pub(super) fn is_silent(&mut self, server: ServerId) {
        self.silent.push(server);
    }

    /// The next one to ask: one of which nothing is known, else one that stands still, else one that leaves. `home_of_but`
    /// says which of the members is a rank's home if these are left out.
    pub(super) fn next<E>(
        &mut self,
        home_of_but: impl Fn(&[ServerId]) -> Result<ServerId, E>,
    ) -> Result<ServerId, E> {
        home_of_but(&[&self.dead[..], &self.leaving, &self.silent].concat())
            .or_else(|_| {
                self.silent.clear();
                home_of_but(&[&self.dead[..], &self.leaving].concat())
            })
            .or_else(|_| {
                self.leaving.clear();
                home_of_but(&self.dead)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_never_asked_and_who_leaves_is_asked_last() {
        let members = [0, 1, 2, 3].map(ServerId);
        let first = |but: &[ServerId]| members.into_iter().find(|id| !but.contains(id)).ok_or(());
        let mut candidates = Candidates::default();
        candidates.is_dead(ServerId(0));
        assert_eq!(candidates.next(first), Ok(ServerId(1)));
        candidates.leaves(ServerId(1));
        assert_eq!(candidates.next(first), Ok(ServerId(2)));
        candidates.is_silent(ServerId(2));
        assert_eq!(candidates.next(first), Ok(ServerId(3)));
        candidates.is_dead(ServerId(3));
        assert_eq!(candidates.next(first), Ok(ServerId(2)), "it may have woken");
        candidates.is_dead(ServerId(2));
        assert_eq!(candidates.next(first), Ok(ServerId(1)), "it may stay after all");
        candidates.is_dead(ServerId(1));
        assert_eq!(candidates.next(first), Err(()));
    }
}
