//! Homes: which member the ranks of simulations go on at.
//!
//! The members stand in an order, and each rank's home follows from its number and that order. A member that goes leaves its
//! place empty, and the next that joins takes it: so the ranks that had to move when a server died go to the one that came for
//! it, and each has its share again. By the order of ids, in which those that join come last, they would not: one member
//! would keep both its own ranks and those of the dead.

use crate::ids::ServerId;
use serde::{Deserialize, Serialize};

/// The members in the order in which they are homes, with the places that are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HomeAssignment(Vec<Option<ServerId>>);

impl HomeAssignment {
    /// One place for each of these members.
    pub fn of(members: impl IntoIterator<Item = ServerId>) -> HomeAssignment {
        HomeAssignment(members.into_iter().map(Some).collect())
    }

    /// The members that have a place, in order.
    pub fn members(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.0.iter().copied().flatten()
    }

    /// The members are others, in the order of their ids: those that have gone leave their places, those that have come take
    /// the first ones that are empty. There are never more places than there were members at once.
    pub fn reassign(&mut self, members: &[ServerId]) {
        for place in &mut self.0 {
            *place = place.filter(|member| members.contains(member));
        }
        let placed: Vec<ServerId> = self.members().collect();
        for member in members.iter().copied().filter(|member| !placed.contains(member)) {
            match self.0.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some(member),
                None => self.0.push(Some(member)),
            }
        }
    }

    /// The home of a rank: on its own host if one of the members there may be it, else any that may be.
    pub fn home_of(
        &self,
        rank: u32,
        may_be: impl Fn(ServerId) -> bool,
        is_local: impl Fn(ServerId) -> bool,
    ) -> Option<ServerId> {
        let candidates: Vec<ServerId> = self.members().filter(|member| may_be(*member)).collect();
        let local: Vec<ServerId> = candidates.iter().copied().filter(|member| is_local(*member)).collect();
        let candidates = if local.is_empty() { candidates } else { local };
        (!candidates.is_empty()).then(|| candidates[rank as usize % candidates.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u32]) -> Vec<ServerId> {
        numbers.iter().copied().map(ServerId).collect()
    }

    fn homes_of(homes: &HomeAssignment, ranks: u32) -> Vec<u32> {
        (0..ranks).map(|rank| homes.home_of(rank, |_| true, |_| true).unwrap().0).collect()
    }

    #[test]
    fn who_joins_takes_the_place_of_who_has_gone() {
        let mut homes = HomeAssignment::of(ids(&[0, 1, 2]));
        let before = homes_of(&homes, 6);
        assert_eq!(before, [0, 1, 2, 0, 1, 2]);
        for (dead, joins) in [(0, 3), (1, 4), (3, 5)] {
            let mut left: Vec<ServerId> = homes.members().filter(|id| id.0 != dead).collect();
            left.sort_unstable();
            homes.reassign(&left);
            let orphans: Vec<u32> = (0..6).filter(|rank| before[*rank as usize] == dead).collect();
            let taken = orphans.iter().map(|rank| homes_of(&homes, 6)[*rank as usize]);
            assert_eq!(taken.collect::<std::collections::BTreeSet<u32>>().len(), orphans.len());
            left.push(ServerId(joins));
            homes.reassign(&left);
            assert_eq!(homes.members().count(), 3);
        }
        assert_eq!(homes_of(&homes, 6), [5, 4, 2, 5, 4, 2]);
        homes.reassign(&ids(&[5, 2, 6, 7]));
        assert_eq!(homes, HomeAssignment::of(ids(&[5, 6, 2, 7])), "a place more");
        homes.reassign(&ids(&[7]));
        assert_eq!(homes_of(&homes, 3), [7, 7, 7]);
        homes.reassign(&[]);
        assert_eq!(homes.home_of(0, |_| true, |_| true), None);
    }

    #[test]
    fn a_home_is_on_the_rank_s_host_if_one_there_may_be_it() {
        let homes = HomeAssignment::of(ids(&[0, 1, 2, 3]));
        let odd = |id: ServerId| id.0 % 2 == 1;
        assert_eq!(homes.home_of(0, |_| true, odd), Some(ServerId(1)));
        assert_eq!(homes.home_of(1, |_| true, odd), Some(ServerId(3)));
        assert_eq!(homes.home_of(1, |id| id.0 != 3, odd), Some(ServerId(1)));
        assert_eq!(homes.home_of(3, |id| !odd(id), odd), Some(ServerId(2)));
        assert_eq!(homes.home_of(3, |_| false, odd), None);
    }
}
