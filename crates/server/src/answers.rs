//! Who answers for the arenas of servers that are dead.

use crate::node::Node;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// An arena: its server, and its number there.
pub(crate) type ArenaKey = (ServerId, u32);

/// Which arenas of living servers stand for which of dead ones. Several may, also of one server: one that had copies of an
/// arena's blocks itself, and of what another server that has died since held of them.
#[derive(Debug, Default)]
pub(crate) struct Answers(HashMap<ArenaKey, BTreeSet<ArenaKey>>);

impl Answers {
    /// A server answers for an arena.
    pub(crate) fn add(&mut self, key: ArenaKey, server: ServerId, arena: u32) {
        self.0.entry(key).or_default().insert((server, arena));
    }

    /// The arenas for which a server answers with this one of its own.
    pub(crate) fn of(&self, server: ServerId, arena: u32) -> Vec<ArenaKey> {
        let theirs = self.0.iter().filter(|(_, by)| by.contains(&(server, arena)));
        theirs.map(|(key, _)| *key).collect()
    }

    /// These servers answer for nothing any more.
    pub(crate) fn forget(&mut self, left: &[ServerId]) {
        self.0.retain(|_, by| {
            by.retain(|(server, _)| !left.contains(server));
            !by.is_empty()
        });
    }

    /// For what a server answers, if its own arenas are there.
    pub(crate) fn by(&self, server: ServerId, is_there: impl Fn(u32) -> bool) -> Vec<(ServerId, u32, u32)> {
        let answers = self.0.iter().flat_map(|(key, by)| by.iter().map(move |mine| (key, mine)));
        let mine = answers.filter(|(_, (by, arena))| *by == server && is_there(*arena));
        mine.map(|((dead, theirs), (_, arena))| (*dead, *theirs, *arena)).collect()
    }

    /// Who answers for an arena, and under which numbers: each of them for the blocks that it had copies of.
    pub(crate) fn get(&self, key: ArenaKey) -> Vec<ArenaKey> {
        self.0.get(&key).into_iter().flatten().copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Node {
    /// Who answers for an arena of a server that is dead: maybe several, each for some of its blocks. Waits until the group
    /// knows them all.
    pub(crate) async fn who_answers(
        &self,
        server: ServerId,
        arena: u32,
        deadline: Instant,
    ) -> Result<Vec<ArenaKey>> {
        loop {
            let known = self.places_known.notified();
            tokio::pin!(known);
            known.as_mut().enable();
            {
                let state = self.state.lock();
                let found = state.answers.get((server, arena));
                if !found.is_empty() && (self.all_told(&state) || Instant::now() >= deadline) {
                    return Ok(found);
                }
                let member = self.standing().view.members.contains(&server);
                if member && !state.common.members.is_gone(server) {
                    return Err(Error::unreachable(format!("{server} is a member of the group still")));
                }
                if !member && self.all_told(&state) {
                    let text = format!("{server} is gone, and no other server holds what it held");
                    return Err(Error::new(ErrorKind::Lost, text));
                }
            }
            if tokio::time::timeout_at(deadline, known).await.is_err() {
                let found = self.state.lock().answers.get((server, arena));
                if !found.is_empty() {
                    return Ok(found);
                }
                return Err(Error::timeout(format!("it is not known in time who answers for {server}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_may_answer_with_several_arenas() {
        let [dead, second, last] = [1, 2, 3].map(ServerId);
        let mut answers = Answers::default();
        // Both had copies of blocks of the same arena; then one of them died, of which the other had copies.
        answers.add((dead, 7), second, 20);
        answers.add((dead, 7), last, 30);
        assert_eq!(answers.of(second, 20), [(dead, 7)]);
        for key in answers.of(second, 20) {
            answers.add(key, last, 31);
        }
        answers.forget(&[second]);
        assert_eq!(answers.get((dead, 7)), [(last, 30), (last, 31)]);
        assert_eq!(answers.by(last, |_| true), [(dead, 7, 30), (dead, 7, 31)]);
        assert_eq!(answers.by(last, |arena| arena != 30), [(dead, 7, 31)]);
        answers.forget(&[last]);
        assert!(answers.is_empty());
    }
}
