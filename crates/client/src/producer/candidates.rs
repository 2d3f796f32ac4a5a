//! Which servers may take a rank whose home is gone, and which of them is asked next.

use forebay_core::ids::ServerId;

/// The servers that are not asked, or not yet.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    dead: Vec<ServerId>,
    /// They stand still, and may go on; or they leave the group, and may stay after all: one that is the last of it does.
    later: Vec<ServerId>,
}

impl Candidates {
    pub(super) fn is_dead(&mut self, server: ServerId) {
        self.dead.push(server);
    }

    /// It stands still, or leaves.
    pub(super) fn later(&mut self, server: ServerId) {
        self.later.push(server);
    }

    /// The next one to ask: one of which nothing is known, else again those that stand still or leave, each once.
    /// `home_of_but` says which of the members is a rank's home if these are left out.
    pub(super) fn next<E>(
        &mut self,
        home_of_but: impl Fn(&[ServerId]) -> Result<ServerId, E>,
    ) -> Result<ServerId, E> {
        home_of_but(&[&self.dead[..], &self.later].concat()).or_else(|_| {
            self.later.clear();
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
        candidates.is_dead(ServerId(0));
        for _ in 0..3 {
            for next in [1, 2, 3].map(ServerId) {
                assert_eq!(candidates.next(first), Ok(next), "it may have woken, or stay after all");
                candidates.later(next);
            }
        }
        for next in [1, 2, 3].map(ServerId) {
            assert_eq!(candidates.next(first), Ok(next));
            candidates.is_dead(next);
        }
        assert_eq!(candidates.next(first), Err(()));
    }
}
