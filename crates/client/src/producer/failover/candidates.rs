//! Which servers may take a rank whose home server is gone, and which of them the rank asks next.

use forebay_core::ids::ServerId;

/// The servers that the rank does not ask, or not yet.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    dead: Vec<ServerId>,
    /// Servers that stand still, and may go on; or that leave the group, and may stay after all: the last server of a group does.
    deferred: Vec<ServerId>,
}

impl Candidates {
    /// The server is dead: the rank does not ask it any more.
    pub(super) fn exclude(&mut self, server: ServerId) {
        self.dead.push(server);
    }

    /// The server stands still, or leaves: the rank asks the others first.
    pub(super) fn defer(&mut self, server: ServerId) {
        self.deferred.push(server);
    }

    /// The next server to ask: one of which nothing is known, else again those that stand still or leave, each once.
    /// `home_of_but` says which of the members is a rank's home if these are left out.
    pub(super) fn next<E>(
        &mut self,
        home_of_but: impl Fn(&[ServerId]) -> Result<ServerId, E>,
    ) -> Result<ServerId, E> {
        home_of_but(&[&self.dead[..], &self.deferred].concat()).or_else(|_| {
            self.deferred.clear();
            home_of_but(&self.dead)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_never_asked_and_the_others_in_turn() {
        let members = [0, 1, 2, 3].map(ServerId);
        let first = |but: &[ServerId]| members.into_iter().find(|id| !but.contains(id)).ok_or(());
        let mut candidates = Candidates::default();
        candidates.exclude(ServerId(0));
        for _ in 0..3 {
            for next in [1, 2, 3].map(ServerId) {
                assert_eq!(candidates.next(first), Ok(next), "it may have woken, or stay after all");
                candidates.defer(next);
            }
        }
        for next in [1, 2, 3].map(ServerId) {
            assert_eq!(candidates.next(first), Ok(next));
            candidates.exclude(next);
        }
        assert_eq!(candidates.next(first), Err(()));
    }
}
