//! Views: the members of a group at an epoch of a lineage.

use crate::ids::{Epoch, Lineage, ServerId};
use serde::{Deserialize, Serialize};

/// The servers of a group at one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The line of history it belongs to.
    pub lineage: Lineage,
    /// Its number in that line.
    pub epoch: Epoch,
    /// The members, in the order of their ids.
    pub members: Vec<ServerId>,
}

impl View {
    /// The member that answers for something with this hash: rendezvous hashing, so that a change of the
    /// view moves only what it must (Thaler and Ravishankar, 1998).
    pub fn owner_of(&self, hash: u64) -> Option<ServerId> {
        self.members.iter().copied().max_by_key(|member| weight(hash, *member))
    }

    /// The members in the order of their weights for something with this hash: the first is its owner, and
    /// each next one would be if those before it were not there.
    pub fn order_for(&self, hash: u64) -> Vec<ServerId> {
        let mut order = self.members.clone();
        order.sort_by_cached_key(|member| std::cmp::Reverse(weight(hash, *member)));
        order
    }

    /// The coordinator of a stream.
    pub fn coordinator_of(&self, stream: &str) -> Option<ServerId> {
        self.owner_of(hash_name(stream))
    }
}

/// How much a member weighs for something with this hash. Ids settle ties.
fn weight(hash: u64, member: ServerId) -> (u64, ServerId) {
    (mix(hash ^ mix(u64::from(member.0) + 1)), member)
}

/// A stable hash of a name (FNV-1a, 64 bits), the same on every machine.
pub fn hash_name(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads the bits of a number (the finaliser of SplitMix64).
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_spread_and_move_little() {
        let view =
            |n: u32| View { lineage: Lineage([0; 16]), epoch: 1, members: (0..n).map(ServerId).collect() };
        let (three, four) = (view(3), view(4));
        let mut counts = [0; 3];
        let mut moved = 0;
        for i in 0..3000 {
            let before = three.coordinator_of(&format!("stream{i}")).unwrap();
            let after = four.coordinator_of(&format!("stream{i}")).unwrap();
            counts[before.0 as usize] += 1;
            moved += u32::from(before != after);
            assert!(before == after || after == ServerId(3));
            let order = four.order_for(hash_name(&format!("stream{i}")));
            assert_eq!(order[0], after);
            let others: Vec<_> = order.into_iter().filter(|member| *member != ServerId(3)).collect();
            assert_eq!(others, three.order_for(hash_name(&format!("stream{i}"))));
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert!((600..900).contains(&moved), "{moved}");
    }
}
