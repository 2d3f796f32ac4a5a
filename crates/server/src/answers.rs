//! Who answers for the arenas of servers that are dead.

use crate::node::Node;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use tokio::time::Instant;

/// An arena: its server, and its number there.
pub(crate) type ArenaKey = (ServerId, u32);

/// Who answers for which arenas of dead servers, and under which number.
#[derive(Debug, Default)]
pub(crate) struct Answers(HashMap<ArenaKey, BTreeMap<ServerId, u32>>);

impl Answers {
    /// A server answers for an arena.
    pub(crate) fn add(&mut self, key: ArenaKey, server: ServerId, arena: u32) {
        self.0.entry(key).or_default().insert(server, arena);
    }

    /// The arenas for which a server answers with this one of its own.
    pub(crate) fn of(&self, server: ServerId, arena: u32) -> Vec<ArenaKey> {
        let theirs = self.0.iter().filter(|(_, by)| by.get(&server) == Some(&arena));
        theirs.map(|(key, _)| *key).collect()
    }

    /// These servers answer for nothing any more.
    pub(crate) fn forget(&mut self, left: &[ServerId]) {
        self.0.retain(|_, by| {
            by.retain(|server, _| !left.contains(server));
            !by.is_empty()
        });
    }

    /// For what a server answers, if its own arenas are there.
    pub(crate) fn by(&self, server: ServerId, is_there: impl Fn(u32) -> bool) -> Vec<(ServerId, u32, u32)> {
        let mine = |((dead, theirs), by): (&ArenaKey, &BTreeMap<ServerId, u32>)| {
            by.get(&server).filter(|arena| is_there(**arena)).map(|arena| (*dead, *theirs, *arena))
        };
        self.0.iter().filter_map(mine).collect()
    }

    /// Who answers for an arena, and under which numbers: each of them for the blocks that it had copies of.
    pub(crate) fn get(&self, key: ArenaKey) -> Vec<ArenaKey> {
        self.0.get(&key).into_iter().flatten().map(|(server, arena)| (*server, *arena)).collect()
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
                if member && !state.gone.contains(&server) {
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
