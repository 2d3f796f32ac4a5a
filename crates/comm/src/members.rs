//! The ranks of one open comm: who they are, and which of them are gone.

use crate::peers::PeerId;
use crate::task::Task;
use forebay_core::ErrorKind;
use std::collections::BTreeMap;

/// Why nothing more comes from a rank: a clause for people that follows its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
    /// Whether it has closed the comm: it has nothing more to say. Else it has died.
    pub(crate) has_left: bool,
}

impl Gone {
    pub(crate) fn new(why: impl Into<String>) -> Gone {
        Gone { kind: ErrorKind::Unreachable, why: why.into(), has_left: false }
    }

    /// It has closed the comm.
    pub(crate) fn left() -> Gone {
        Gone { has_left: true, ..Gone::new("is gone: it has closed this communicator") }
    }
}

/// One rank, as another sees it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) peer: PeerId,
    /// Where it can be reached.
    pub(crate) addresses: Vec<String>,
    pub(crate) gone: Option<Gone>,
    /// Whether it knows that it is waited for.
    pub(crate) told: bool,
}

/// All ranks.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) rank: u32,
    pub(crate) members: Vec<Member>,
    /// The ranks with which no collective can succeed any more, and why: in a part of the comm, or in any (`None`).
    pub(crate) broken: BTreeMap<(Option<u32>, u32), String>,
    /// The parts of the comm (0: all of it) that ranks have revoked, by part and rank, and why. Parts of one split have one number, and
    /// no rank in common.
    pub(crate) revoked: BTreeMap<(u32, u32), String>,
}

impl Members {
    pub(crate) fn member(&mut self, rank: u32) -> Option<&mut Member> {
        self.members.get_mut(rank as usize)
    }

    /// Why a call cannot succeed, whoever it is about: it is a collective, and a rank cannot take part; or it was revoked.
    pub(crate) fn why_hopeless(&self, task: &Task) -> Option<&String> {
        let part = task.space.part();
        let why = |part| task.ranks.iter().find_map(move |rank| self.broken.get(&(part, *rank)));
        let is_broken = task.is_collective() && !self.broken.is_empty();
        // What a rank revokes it for has failed before that.
        let broken = if is_broken { why(None).or_else(|| why(Some(part))) } else { None };
        if self.revoked.is_empty() {
            return broken;
        }
        broken.or_else(|| task.ranks.iter().find_map(|rank| self.revoked.get(&(part, *rank))))
    }

    /// Whether all of these ranks are there, so that it can only be a failure.
    pub(crate) fn are_there(&self, ranks: &[u32]) -> bool {
        !ranks.iter().any(|rank| self.broken.contains_key(&(None, *rank)))
    }

    /// Everybody else.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.members
            .iter()
            .enumerate()
            .map(|(rank, member)| (rank as u32, member))
            .filter(|(rank, _)| *rank != self.rank)
    }

    /// The rank that this peer is.
    pub(crate) fn rank_of(&self, peer: PeerId) -> Option<u32> {
        self.others().find(|(_, member)| member.peer == peer).map(|(rank, _)| rank)
    }

    /// Notes that this peer is gone, unless that is known; returns its rank.
    pub(crate) fn lose(&mut self, peer: PeerId, gone: &Gone) -> Option<u32> {
        let rank = self.rank_of(peer)?;
        let member = self.member(rank).filter(|member| member.gone.is_none())?;
        member.gone = Some(gone.clone());
        Some(rank)
    }
}
