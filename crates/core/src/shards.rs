//! Shards: the shares of the directory, and which member owns each.
//!
//! There are as many as there were servers when the group was first complete. Where a block is registered follows from shards,
//! so that a change of the members moves only what was registered with those that have gone: their shards are reassigned to others.

use crate::ids::ServerId;
use crate::view::mix;
use serde::{Deserialize, Serialize};

/// The member that holds each shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shards(Vec<ServerId>);

impl Shards {
    /// One for each of these members.
    pub fn of(members: impl IntoIterator<Item = ServerId>) -> Shards {
        Shards(members.into_iter().collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none, since the group is not complete yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who holds them. A member may hold several.
    pub fn owners(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.0.iter().copied()
    }

    /// Who answers for something with this hash: rendezvous hashing over the shards (Thaler and Ravishankar, 1998).
    pub fn owner_of(&self, hash: u64) -> Option<ServerId> {
        let best = (0..self.0.len()).max_by_key(|shard| weight(hash, *shard))?;
        self.0.get(best).copied()
    }

    /// The owners of all shards in the order of their shards' weights for something with this hash.
    pub fn preference_of(&self, hash: u64) -> Vec<ServerId> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_cached_key(|shard| std::cmp::Reverse(weight(hash, *shard)));
        order.into_iter().map(|shard| self.0[shard]).collect()
    }

    /// The members are others: shards of those that have gone pass on to those who own the fewest, the oldest of them first.
    pub fn reassign(&mut self, members: &[ServerId]) {
        for shard in 0..self.0.len() {
            if members.contains(&self.0[shard]) {
                continue;
            }
            let held = |member: &ServerId| self.0.iter().filter(|holder| *holder == member).count();
            if let Some(heir) = members.iter().copied().min_by_key(|member| (held(member), *member)) {
                self.0[shard] = heir;
            }
        }
    }
}

/// How much a shard weighs for something with this hash. Numbers settle ties.
fn weight(hash: u64, shard: usize) -> (u64, usize) {
    (mix(hash ^ mix(shard as u64 + 1)), shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::hash_name;

    fn ids(numbers: &[u32]) -> Vec<ServerId> {
        numbers.iter().copied().map(ServerId).collect()
    }

    #[test]
    fn shards_of_the_gone_pass_on_and_others_stay() {
        let before = Shards::of(ids(&[0, 1, 2, 5]));
        let mut after = before.clone();
        after.reassign(&ids(&[0, 2, 5, 6, 7]));
        assert_eq!(after, Shards::of(ids(&[0, 6, 2, 5])), "the oldest of those that hold none");
        let mut counts = [0; 8];
        for i in 0..4000 {
            let hash = hash_name(&format!("field{i}"));
            let (was, is) = (before.owner_of(hash).unwrap(), after.owner_of(hash).unwrap());
            assert!(was == is || (was, is) == (ServerId(1), ServerId(6)));
            assert_eq!((before.preference_of(hash)[0], after.preference_of(hash)[0]), (was, is));
            counts[is.0 as usize] += 1;
        }
        assert!([0, 2, 5, 6].iter().all(|id| (850..1150).contains(&counts[*id])), "{counts:?}");
        after.reassign(&ids(&[7]));
        assert_eq!(after, Shards::of(ids(&[7, 7, 7, 7])));
        after.reassign(&ids(&[8, 9]));
        assert_eq!(after, Shards::of(ids(&[8, 9, 8, 9])));
        after.reassign(&[]);
        assert_eq!(after.len(), 4, "nobody is left to hold them");
    }
}
