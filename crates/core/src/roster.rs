//! A view with where its members are reached: what a group agrees on when servers join, leave or die.

use crate::error::{Error, Result};
use crate::home_assignment::HomeAssignment;
use crate::ids::{Epoch, Lineage, ServerId};
use crate::seeded::{Bug, seeded};
use crate::shards::Shards;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What tells two processes apart that never were members at the same time: made at random when a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A server that is no member yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which process it is.
    pub incarnation: Incarnation,
    /// Its process, on its host.
    pub pid: u32,
    /// Where it can be reached, best first.
    pub addresses: Vec<String>,
    /// Which member it was before the group gave it up.
    pub formerly: Option<ServerId>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id, which no other process of the lineage ever has.
    pub id: ServerId,
    /// Who it is and where.
    pub server: Candidate,
}

/// One change of the members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A server wants to be a member.
    Join(Candidate),
    /// A member wants to be none after this epoch: all that it had its other members hold. Should they change before it has
    /// left, it looks again whether that is so.
    Leave(ServerId, Epoch),
    /// A member seems to be gone.
    Evict(ServerId),
}

/// A member that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its id.
    pub id: ServerId,
    /// Its process.
    pub pid: u32,
    /// The first epoch without it.
    pub epoch: Epoch,
    /// As which member it has come back.
    pub back_as: Option<ServerId>,
}

/// What all servers of a group do alike: the one that founds it decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a server may be silent before the others give it up, in milliseconds.
    pub silence_ms: u64,
    /// Whether bulk data is encrypted between hosts, too.
    pub seal_payload: bool,
}

/// How many lost members are remembered.
const LOST_MAX: usize = 32;

/// Where a group was healed, its epochs are counted on from the next multiple of this: whoever missed that knows at once
/// that it did, whatever it agreed on meanwhile.
const HEALED: Epoch = 1_000_000;

/// The members at one epoch of a lineage, and the next id to be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// The line of history it belongs to.
    pub lineage: Lineage,
    /// Its number in that line.
    pub epoch: Epoch,
    /// The members, in the order of their ids.
    pub members: Vec<Member>,
    /// The id of the next server that joins.
    pub next_id: ServerId,
    /// Who the members were one epoch before.
    pub former: Vec<ServerId>,
    /// How many servers the group waits for before it is used; 0 once they have come.
    pub awaited: u32,
    /// Who owns which share of the directory: one for each member when all had come that were waited for.
    pub shards: Shards,
    /// In which order the members are homes of ranks.
    pub homes: HomeAssignment,
    /// The members that were given up last.
    pub lost: Vec<Lost>,
    /// What they all do alike.
    pub settings: Settings,
}

impl Roster {
    /// The first of a lineage: one server founds a group that is to be used once it has so many servers.
    pub fn founded(lineage: Lineage, founder: Candidate, servers: u32, settings: Settings) -> Roster {
        let members = vec![Member { id: ServerId(0), server: founder }];
        let (next_id, former, lost) = (ServerId(1), Vec::new(), Vec::new());
        let (awaited, shards, homes) = (servers, Shards::default(), HomeAssignment::of([ServerId(0)]));
        let mut roster =
            Roster { lineage, epoch: 1, members, next_id, former, awaited, shards, homes, lost, settings };
        roster.complete();
        roster
    }

    /// Whether all servers have come that were waited for.
    pub fn is_complete(&self) -> bool {
        self.awaited == 0
    }

    fn complete(&mut self) {
        if self.awaited > 0 && self.members.len() >= self.awaited as usize {
            self.awaited = 0;
            self.shards = Shards::of(self.ids());
        }
    }

    /// Whether it can be one at all: what another server tells is looked at before it is believed.
    pub fn check(&self) -> Result<()> {
        let ordered = self.members.windows(2).all(|pair| pair[0].id < pair[1].id);
        let below_next = self.members.last().is_some_and(|last| last.id < self.next_id);
        let founded = self.awaited > 0 || !self.shards.is_empty();
        let owned = self.shards.owners().all(|holder| self.contains(holder));
        let mut homes: Vec<ServerId> = self.homes.members().collect();
        homes.sort_unstable();
        let housed = self.ids().eq(homes);
        if ordered
            && below_next
            && founded
            && owned
            && housed
            && self.epoch > 0
            && self.lost.len() <= LOST_MAX
        {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "what was told as the roster of epoch {} contradicts itself",
            self.epoch
        )))
    }

    /// The view.
    pub fn view(&self) -> View {
        View { lineage: self.lineage, epoch: self.epoch, members: self.ids().collect() }
    }

    /// The members' ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.members.iter().map(|member| member.id)
    }

    /// Whether it is a member.
    pub fn contains(&self, id: ServerId) -> bool {
        self.members.binary_search_by_key(&id, |member| member.id).is_ok()
    }

    /// Whether it was a member and is none any more. Ids are given once, in order.
    pub fn has_left(&self, id: ServerId) -> bool {
        id < self.next_id && !self.contains(id)
    }

    /// The member that this process is, if it is one.
    pub fn find(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members.iter().find(|member| member.server.incarnation == incarnation)
    }

    /// Whether this change would change anything.
    pub fn lacks(&self, change: &Change) -> bool {
        match change {
            Change::Join(candidate) => self.find(candidate.incarnation).is_none(),
            Change::Leave(id, epoch) => self.contains(*id) && *epoch == self.epoch,
            Change::Evict(id) => self.contains(*id),
        }
    }

    /// The next one, with these changes. `None` where nothing would change, or nobody be left.
    pub fn next<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Option<Roster> {
        let mut next = self.clone();
        next.epoch += 1;
        next.former = self.ids().collect();
        if seeded(Bug::GivesIdsAgain) {
            next.next_id = ServerId(next.ids().map(|id| id.0 + 1).max().unwrap_or(0));
        }
        for change in changes {
            match change {
                Change::Join(candidate) if next.lacks(change) => {
                    let id = next.next_id;
                    next.members.push(Member { id, server: candidate.clone() });
                    let formerly = next.lost.iter_mut().find(|lost| Some(lost.id) == candidate.formerly);
                    formerly.into_iter().for_each(|lost| lost.back_as = Some(id));
                    next.next_id.0 += 1;
                }
                Change::Join(_) => {}
                Change::Leave(id, _) | Change::Evict(id) => {
                    let gone = next.members.iter().find(|member| member.id == *id);
                    if let (Some(gone), Change::Evict(_)) = (gone, change) {
                        let (pid, epoch) = (gone.server.pid, next.epoch);
                        next.lost.push(Lost { id: *id, pid, epoch, back_as: None });
                    }
                    next.members.retain(|member| member.id != *id);
                }
            }
        }
        next.complete();
        let members: Vec<ServerId> = next.ids().collect();
        next.shards.reassign(&members);
        next.homes.reassign(&members);
        next.lost.drain(..next.lost.len().saturating_sub(LOST_MAX));
        (!next.members.is_empty() && next.members != self.members).then_some(next)
    }

    /// The first roster of a new line of history, with only those members that are kept: nobody agreed on it, the operator
    /// vouches for it. `None` where none is kept, or all are.
    pub fn healed(&self, kept: &BTreeSet<ServerId>) -> Option<Roster> {
        let given_up: Vec<Change> = self.ids().filter(|id| !kept.contains(id)).map(Change::Evict).collect();
        let mut healed = self.next(&given_up)?;
        healed.epoch = (self.epoch / HEALED + 1) * HEALED;
        healed
            .lost
            .iter_mut()
            .filter(|lost| lost.epoch > self.epoch)
            .for_each(|lost| lost.epoch = healed.epoch);
        Some(healed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u64) -> Candidate {
        let addresses = vec![format!("tcp:{number}")];
        Candidate { incarnation: Incarnation(number), pid: 7, addresses, formerly: None }
    }

    #[test]
    fn ids_are_never_given_again() {
        let first = Roster::founded(Lineage([1; 16]), candidate(10), 3, Settings::default());
        assert!(!first.is_complete());
        let join = |number| Change::Join(candidate(number));
        let second = first.next(&[join(11), join(12), join(11)]).unwrap();
        assert_eq!((second.epoch, second.ids().collect::<Vec<_>>()), (2, [0, 1, 2].map(ServerId).to_vec()));
        assert!(second.is_complete());
        let third =
            second.next(&[Change::Evict(ServerId(2)), Change::Leave(ServerId(0), 2), join(13)]).unwrap();
        assert_eq!(third.ids().collect::<Vec<_>>(), [1, 3].map(ServerId));
        assert_eq!(third.find(Incarnation(13)).unwrap().id, ServerId(3));
        assert!(!third.contains(ServerId(2)));
        let mut lost = Lost { id: ServerId(2), pid: 7, epoch: 3, back_as: None };
        assert_eq!(third.lost, [lost.clone()], "who leaves is not lost");
        let back =
            third.next(&[Change::Join(Candidate { formerly: Some(lost.id), ..candidate(20) })]).unwrap();
        lost.back_as = Some(ServerId(4));
        assert_eq!(back.lost, [lost]);
        assert_eq!(third.shards, Shards::of([3, 1, 1].map(ServerId)));
        assert_eq!(third.homes.members().collect::<Vec<_>>(), [3, 1].map(ServerId));
        let mut disordered = second.clone();
        disordered.members.swap(0, 1);
        let unknown_next = Roster { next_id: ServerId(1), ..second.clone() };
        let homeless = Roster { homes: HomeAssignment::of([0, 1].map(ServerId)), ..second.clone() };
        let nobody = Roster { members: Vec::new(), ..second.clone() };
        let unfounded = Roster { shards: Shards::default(), ..second.clone() };
        assert!([first, second, third.clone()].iter().all(|roster| roster.check().is_ok()));
        assert!(
            [disordered, unknown_next, nobody, unfounded, homeless]
                .iter()
                .all(|roster| roster.check().is_err())
        );
        assert_eq!(third.next(&[Change::Evict(ServerId(2)), join(13)]), None);
        assert_eq!(third.next(&[Change::Leave(ServerId(1), 3), Change::Leave(ServerId(3), 3)]), None);
        let leaves = |epoch| third.lacks(&Change::Leave(ServerId(1), epoch));
        assert_eq!([2, 3, 4].map(leaves), [false, true, false], "it holds for one epoch");
        let healed = third.healed(&[ServerId(3)].into()).unwrap();
        assert_eq!((healed.epoch, healed.ids().collect::<Vec<_>>()), (HEALED, vec![ServerId(3)]));
        assert_eq!(healed.lost.last(), Some(&Lost { id: ServerId(1), pid: 7, epoch: HEALED, back_as: None }));
        assert_eq!((healed.check(), healed.former.len()), (Ok(()), 2));
        assert_eq!(
            healed.next(&[join(14)]).unwrap().healed(&[ServerId(4)].into()).unwrap().epoch,
            2 * HEALED
        );
        assert_eq!(
            (third.healed(&BTreeSet::new()), third.healed(&[1, 3].map(ServerId).into())),
            (None, None)
        );
    }
}
