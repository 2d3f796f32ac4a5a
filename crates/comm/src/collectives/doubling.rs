//! The pairs in which 2, 4, 8 ... ranks meet, of a number of ranks that is no power of two as well: then some of the first ranks give
//! what they have to the next one, and take no further part. So it is in Thakur, Rabenseifner and Gropp (2005).

use super::SHORT;

/// So many bytes are worth a message of their own.
const WORTH: usize = 1 << 10;

/// How a rank takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It gives to this rank, and gets the result from there.
    Gives(u32),
    /// It has this place among those that meet, and takes from that rank before, if any.
    Meets { place: u32, takes_from: Option<u32> },
}

/// Who meets whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubling {
    /// How many meet: a power of two.
    pub(super) places: u32,
    /// How many give.
    rest: u32,
}

impl Doubling {
    pub(super) fn of(size: u32) -> Doubling {
        let places = 1 << size.ilog2();
        Doubling { places, rest: size - places }
    }

    pub(super) fn part(self, rank: u32) -> Part {
        if rank >= 2 * self.rest {
            Part::Meets { place: rank - self.rest, takes_from: None }
        } else if rank.is_multiple_of(2) {
            Part::Gives(rank + 1)
        } else {
            Part::Meets { place: rank / 2, takes_from: Some(rank - 1) }
        }
    }

    /// Whether so many bytes are combined as a whole: else each place has its part of them, which is to be worth a message.
    pub(super) fn is_short(self, bytes: usize, element: usize) -> bool {
        let places = self.places as usize;
        bytes <= SHORT || bytes / places < WORTH.max(element)
    }

    /// The rank that has a place. Places are in the order of ranks.
    pub(super) fn rank_at(self, place: u32) -> u32 {
        if place < self.rest { 2 * place + 1 } else { place + self.rest }
    }

    /// All ranks in their order, and how many runs of ranks end with each: so often the run that is combined last is combined with the one
    /// before it. Who combines what all give does it in the order of those that meet by that.
    pub(super) fn merges(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.places + self.rest).map(move |rank| match self.part(rank) {
            Part::Gives(_) => (rank, 0),
            Part::Meets { place, takes_from } => {
                (rank, place.trailing_ones() + u32::from(takes_from.is_some()))
            }
        })
    }

    /// How far away those are that meet, round by round.
    pub(super) fn distances(self) -> impl Iterator<Item = u32> {
        (0..self.places.ilog2()).map(|round| 1 << round)
    }
}

/// The elements that a place has when all have been halved as often as there are rounds: `halved` of them.
pub(super) fn range_of(place: u32, halved: u32, elements: usize) -> std::ops::Range<usize> {
    let mut range = 0..elements;
    for round in 0..halved {
        let middle = range.start + range.len() / 2;
        range = if place & (1 << round) == 0 { range.start..middle } else { middle..range.end };
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_gives_or_meets_and_every_element_has_one_place() {
        for size in 1..40 {
            let doubling = Doubling::of(size);
            let mut places = Vec::new();
            for rank in 0..size {
                match doubling.part(rank) {
                    Part::Gives(other) => {
                        let taker = doubling.part(other);
                        assert!(matches!(taker, Part::Meets { takes_from: Some(from), .. } if from == rank));
                    }
                    Part::Meets { place, .. } => {
                        assert_eq!(doubling.rank_at(place), rank);
                        places.push(place);
                    }
                }
            }
            assert_eq!(places, (0..doubling.places).collect::<Vec<_>>());
            let mut runs: Vec<u32> = Vec::new();
            for (_, merges) in doubling.merges() {
                runs.push(1);
                for _ in 0..merges {
                    let last = runs.pop().unwrap();
                    *runs.last_mut().unwrap() += last;
                }
            }
            assert_eq!(runs, [size]);
            let mut owned = [0; 101];
            for place in 0..doubling.places {
                range_of(place, doubling.places.ilog2(), 101).for_each(|element| owned[element] += 1);
            }
            assert!(owned.iter().all(|owners| *owners == 1));
        }
    }
}
