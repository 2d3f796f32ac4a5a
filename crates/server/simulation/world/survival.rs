//! What a group must survive: what it has acknowledged is held by those on whom one can count.

use super::processes::Server;
use super::{STREAM, World};
use crate::node::Node;
use crate::simulation::server::{has, holds_open, told_by};
use forebay_core::ids::{ServerId, StepId};
use std::sync::Arc;

impl World {
    /// Whether the group is to survive it if these servers die now, stand still, or cannot be reached: the others can decide,
    /// and hold all that was acknowledged, and what is just being.
    pub(super) fn may_go(&self, goes: &[usize]) -> bool {
        let Some(others) = self.survivors(goes).filter(|others| self.lacking(others).is_none()) else {
            return false;
        };
        let told =
            goes.iter().filter_map(|index| self.servers[*index].member()).flat_map(|node| told_by(&node));
        told.into_iter().all(|(id, rank, blocks)| has(&others, &id, rank, &blocks).is_ok())
    }

    /// The others on which one can count, if they can decide without these.
    pub(super) fn survivors(&self, goes: &[usize]) -> Option<Vec<Arc<Node>>> {
        let others = self.servers.iter().enumerate();
        let others: Vec<Arc<Node>> = others
            .filter(|(other, server)| !goes.contains(other) && server.is_reliable(self.now, &self.cut))
            .filter_map(|(_, server)| server.member())
            .collect();
        let latest = others.iter().max_by_key(|node| node.epoch()).map(|node| node.standing())?;
        let living = latest.roster.ids().filter(|id| others.iter().any(|node| node.id == *id)).count();
        let stay = others.into_iter().filter(|node| !self.is_being_given_up(node.id)).collect();
        (2 * living > latest.roster.members.len()).then_some(stay)
    }

    /// Whether some have agreed, or may have, to go on without a server, whether or not others can know that by now.
    fn is_being_given_up(&self, id: ServerId) -> bool {
        self.servers.iter().filter_map(Server::member).any(|node| {
            let membership = node.driver.membership.lock();
            let rosters = [Some(membership.roster()), membership.accepted()];
            rosters.into_iter().flatten().any(|roster| roster.has_left(id))
        })
    }

    /// Something acknowledged that none of these servers has.
    pub(super) fn lacking(&self, servers: &[Arc<Node>]) -> Option<String> {
        for ((run, step, rank), blocks) in self.book.to_be_kept() {
            let id = StepId { stream: STREAM.into(), run, step };
            if let Err(what) = has(servers, &id, rank, &blocks) {
                return Some(what);
            }
        }
        for name in self.book.subscriptions() {
            if !servers.iter().any(|node| node.state.lock().subscriptions.knows(STREAM, &name)) {
                return Some(format!("subscription '{name}'"));
            }
        }
        for (run, step, blocks) in self.book.open() {
            let id = StepId { stream: STREAM.into(), run, step };
            let lost = blocks.iter().find(|block| !servers.iter().any(|node| holds_open(node, &id, block)));
            if let Some(block) = lost {
                return Some(format!("a block of {id}, which is not ended yet, put at {block:?}"));
            }
        }
        None
    }
}
