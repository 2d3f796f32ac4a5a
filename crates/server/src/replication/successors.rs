//! Which servers answer for the arenas of servers that are dead.

use forebay_cluster::environment::HashMap;
use forebay_core::ids::ServerId;
use std::collections::BTreeSet;

/// An arena: its server, and its number there.
pub(crate) type ArenaKey = (ServerId, u32);

/// Which arenas of living servers stand for which of dead ones. Several may, also of one server: a server that had copies of an
/// arena's blocks itself, and of what another server that has died since held of them.
#[derive(Debug, Default)]
pub(crate) struct Successors(HashMap<ArenaKey, BTreeSet<ArenaKey>>);

impl Successors {
    /// A server answers for an arena, with one of its own.
    pub(crate) fn add(&mut self, key: ArenaKey, server: ServerId, arena: u32) {
        self.0.entry(key).or_default().insert((server, arena));
    }

    /// The arenas for which a server answers with this one of its own.
    pub(crate) fn replaced_by(&self, server: ServerId, arena: u32) -> Vec<ArenaKey> {
        let theirs = self.0.iter().filter(|(_, by)| by.contains(&(server, arena)));
        theirs.map(|(key, _)| *key).collect()
    }

    /// These servers answer for nothing any more.
    pub(crate) fn on_servers_left(&mut self, left: &[ServerId]) {
        self.0.retain(|_, by| {
            by.retain(|(server, _)| !left.contains(server));
            !by.is_empty()
        });
    }

    /// For which arenas a server answers, if its own are there: the dead server, the arena's number there, and the one of
    /// the server's own.
    pub(crate) fn of_server(
        &self,
        server: ServerId,
        is_there: impl Fn(u32) -> bool,
    ) -> Vec<(ServerId, u32, u32)> {
        let answers = self.0.iter().flat_map(|(key, by)| by.iter().map(move |mine| (key, mine)));
        let mine = answers.filter(|(_, (by, arena))| *by == server && is_there(*arena));
        mine.map(|((dead, theirs), (_, arena))| (*dead, *theirs, *arena)).collect()
    }

    /// Who answers for an arena, and under which numbers: each of them for the blocks that it had copies of.
    pub(crate) fn of_arena(&self, key: ArenaKey) -> Vec<ArenaKey> {
        self.0.get(&key).into_iter().flatten().copied().collect()
    }

    /// Whether no server answers for a dead one.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        match self.0.iter().find(|(_, by)| by.is_empty()) {
            Some(((server, arena), _)) => Err(format!("nobody answers for arena {arena} of {server}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_may_answer_with_several_arenas() {
        let [dead, second, last] = [1, 2, 3].map(ServerId);
        let mut successors = Successors::default();
        // Both had copies of blocks of the same arena; then one of them died, of which the other had copies.
        successors.add((dead, 7), second, 20);
        successors.add((dead, 7), last, 30);
        assert_eq!(successors.replaced_by(second, 20), [(dead, 7)]);
        for key in successors.replaced_by(second, 20) {
            successors.add(key, last, 31);
        }
        successors.on_servers_left(&[second]);
        successors.sanity_check().unwrap();
        assert_eq!(successors.of_arena((dead, 7)), [(last, 30), (last, 31)]);
        assert_eq!(successors.of_server(last, |_| true), [(dead, 7, 30), (dead, 7, 31)]);
        assert_eq!(successors.of_server(last, |arena| arena != 30), [(dead, 7, 31)]);
        successors.on_servers_left(&[last]);
        assert!(successors.is_empty());
    }
}
