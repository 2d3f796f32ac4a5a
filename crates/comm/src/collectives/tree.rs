//! A tree over places 0 (its root) to n - 1 in which bytes go down in rounds: in each of them who has them gives them to `radix` - 1
//! others, so that `radix` times as many have them. With 2 it is the binomial tree.

use crate::comm::Comm;

/// How many times as many have the bytes after each round: between hosts, and on one, where messages cost less than rounds.
pub(super) const FAR: u32 = 2;
pub(super) const NEAR: u32 = 16;

impl Comm {
    /// The tree with this root, as this rank sees it.
    pub(super) fn tree(&self, root: u32, radix: u32) -> Tree {
        Tree { place: self.place(root), size: self.size, radix }
    }
}

/// One place in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    pub(super) place: u32,
    pub(super) size: u32,
    pub(super) radix: u32,
}

impl Tree {
    /// The last digit of the place that is not 0, as its weight: places differ from their parent's in it alone.
    fn weight(self) -> Option<u64> {
        let (place, radix) = (u64::from(self.place), u64::from(self.radix));
        let mut weights = std::iter::successors(Some(1), |weight| Some(weight * radix));
        weights.find(|weight| place == 0 || place / weight % radix != 0).filter(|_| place > 0)
    }

    /// Who gives it the bytes; nobody gives them to the root.
    pub(super) fn parent(self) -> Option<u32> {
        let (place, radix) = (u64::from(self.place), u64::from(self.radix));
        self.weight().map(|weight| (place - place / weight % radix * weight) as u32)
    }

    /// To whom it gives them: those first that have the most others below them.
    pub(super) fn children(self) -> impl Iterator<Item = u32> {
        let (place, size, radix) = (u64::from(self.place), u64::from(self.size), u64::from(self.radix));
        let below = self.weight().unwrap_or(u64::MAX).min(size);
        let is_weight = move |weight: &u64| *weight < below;
        let highest =
            std::iter::successors(Some(1), |weight| Some(weight * radix)).take_while(is_weight).last();
        let weights = std::iter::successors(highest, move |weight| (*weight > 1).then(|| weight / radix));
        weights
            .flat_map(move |weight| (1..radix).map(move |digit| place + digit * weight))
            .filter(move |child| *child < size)
            .map(|child| child as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_but_the_root_is_the_child_of_its_parent_alone() {
        for (size, radix) in (1..70).flat_map(|size| [2, 3, 8, 16].map(|radix| (size, radix))) {
            let tree = |place| Tree { place, size, radix };
            let mut found: Vec<u32> = vec![0];
            for place in 0..size {
                for child in tree(place).children() {
                    assert_eq!(tree(child).parent(), Some(place));
                    found.push(child);
                }
            }
            assert_eq!(tree(0).parent(), None);
            found.sort_unstable();
            assert_eq!(found, (0..size).collect::<Vec<_>>());
        }
    }
}
