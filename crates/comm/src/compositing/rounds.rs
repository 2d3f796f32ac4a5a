//! Who exchanges pictures with whom, round by round.
//!
//! Radix-k (Peterka, Goodell, Ross, Shen and Thakur, "A configurable algorithm for parallel image-compositing applications", 2009): in
//! each round groups of k ranks divide what they have among themselves, so that each has a k-th of it, put together from all. With k = 2
//! this is binary swap. Any number of ranks: as many as the largest product of small numbers take part, each of those beyond gives all
//! that it has to its neighbour before.

use std::ops::Range;

/// The largest group. Up to this size all ranks are one.
const GROUP_MAX: u32 = 8;

/// Who takes part in which rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rounds {
    /// How many places there are, one for each rank.
    places: u32,
    /// How many of them are left once those beyond have given away what they have.
    left: u32,
    /// The sizes of the groups, by round.
    radices: Vec<u32>,
}

/// What one does in the rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// It gives all to this place.
    Gives(u32),
    /// It takes part, and takes all of this place before.
    Takes(Seat, Option<u32>),
}

/// One that takes part in the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat(u32);

/// One round of a seat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The places of the group, in their order.
    pub(super) group: Vec<u32>,
    /// Which of them this one is.
    pub(super) mine: usize,
}

impl Rounds {
    /// For so many ranks.
    pub(super) fn of(places: u32) -> Rounds {
        let found = (1..=places).rev().find_map(|left| Some((left, radices_of(left)?)));
        let (left, radices) = found.unwrap_or((1, Vec::new()));
        Rounds { places, left, radices }
    }

    /// For so many ranks, all in one group.
    pub(super) fn direct(places: u32) -> Rounds {
        Rounds { places, left: places, radices: if places > 1 { vec![places] } else { Vec::new() } }
    }

    /// How many give away all that they have.
    fn pairs(&self) -> u32 {
        self.places - self.left
    }

    pub(super) fn part_of(&self, place: u32) -> Part {
        let pairs = self.pairs();
        match place {
            place if place >= 2 * pairs => Part::Takes(Seat(place - pairs), None),
            place if place % 2 == 1 => Part::Gives(place - 1),
            place => Part::Takes(Seat(place / 2), Some(place + 1)),
        }
    }

    /// The place of a seat.
    fn place_of(&self, seat: u32) -> u32 {
        if seat < self.pairs() { 2 * seat } else { seat + self.pairs() }
    }

    pub(super) fn rounds_of(&self, Seat(seat): Seat) -> Vec<Round> {
        let mut stride = 1;
        let mut rounds = Vec::with_capacity(self.radices.len());
        for radix in &self.radices {
            let mine = seat / stride % radix;
            let first = seat - mine * stride;
            let group = (0..*radix).map(|member| self.place_of(first + member * stride)).collect();
            rounds.push(Round { group, mine: mine as usize });
            stride *= radix;
        }
        rounds
    }

    /// What each place has of this at the end; `None` has given it away.
    pub(super) fn shares(&self, whole: &Range<u32>) -> Vec<Option<Range<u32>>> {
        (0..self.places)
            .map(|place| match self.part_of(place) {
                Part::Gives(_) => None,
                Part::Takes(seat, _) => Some(
                    self.rounds_of(seat)
                        .iter()
                        .fold(whole.clone(), |range, round| part(&range, round.mine, round.group.len())),
                ),
            })
            .collect()
    }
}

/// One of so many parts of a range, which are as equal as can be.
pub(super) fn part(range: &Range<u32>, index: usize, count: usize) -> Range<u32> {
    let length = u64::from(range.end - range.start);
    let at = |index: usize| range.start + (length * index as u64 / count as u64) as u32;
    at(index)..at(index + 1)
}

/// The sizes of groups whose product is this number, as large as may be and as equal as can be; `None`: there are none.
fn radices_of(number: u32) -> Option<Vec<u32>> {
    let mut rest = number;
    let mut radices = Vec::new();
    while rest > 1 {
        let radix = (2..=GROUP_MAX).rev().find(|radix| rest.is_multiple_of(*radix))?;
        radices.push(radix);
        rest /= radix;
    }
    Some(radices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_at_most_eight() {
        assert_eq!(Rounds::of(7).radices, [7]);
        assert_eq!(Rounds::of(512).radices, [8, 8, 8]);
        assert_eq!((Rounds::of(11).left, Rounds::of(11).radices), (10, vec![5, 2]));
        assert_eq!(Rounds::of(1).radices, [0u32; 0]);
        assert_eq!(Rounds::direct(13).radices, [13]);
    }

    #[test]
    fn ranges_are_whole_and_groups_agree_for_any_number_of_ranks() {
        for places in 1..=130 {
            let rounds = Rounds::of(places);
            assert!(rounds.left * 2 >= places, "{places} ranks: {rounds:?}");
            let mut shares: Vec<Range<u32>> = rounds.shares(&(5..1000)).into_iter().flatten().collect();
            shares.sort_by_key(|share| share.start);
            assert_eq!(shares.len() as u32, rounds.left);
            assert_eq!((shares[0].start, shares[shares.len() - 1].end), (5, 1000));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            for place in 0..places {
                match rounds.part_of(place) {
                    Part::Gives(to) => {
                        assert!(matches!(rounds.part_of(to), Part::Takes(_, Some(from)) if from == place));
                    }
                    Part::Takes(seat, _) => {
                        for (number, round) in rounds.rounds_of(seat).iter().enumerate() {
                            assert_eq!(round.group[round.mine], place);
                            for other in &round.group {
                                let Part::Takes(seat, _) = rounds.part_of(*other) else {
                                    panic!("{other} gave all away")
                                };
                                assert_eq!(rounds.rounds_of(seat)[number].group, round.group);
                            }
                        }
                    }
                }
            }
        }
    }

    /// So what is put together stays a run of places, and order between them is kept.
    #[test]
    fn each_round_puts_runs_of_neighbours_together() {
        for places in 1..=64 {
            let rounds = Rounds::of(places);
            let mut runs: Vec<Range<u32>> = (0..places).map(|place| place..place + 1).collect();
            for place in 0..places {
                if let Part::Takes(_, Some(from)) = rounds.part_of(place) {
                    runs[place as usize] = place..from + 1;
                }
            }
            let seats: Vec<(u32, Seat)> = (0..places)
                .filter_map(|place| match rounds.part_of(place) {
                    Part::Takes(seat, _) => Some((place, seat)),
                    Part::Gives(_) => None,
                })
                .collect();
            for number in 0..rounds.radices.len() {
                let before = runs.clone();
                for (place, seat) in &seats {
                    let group = &rounds.rounds_of(*seat)[number].group;
                    let together = group
                        .windows(2)
                        .all(|pair| before[pair[0] as usize].end == before[pair[1] as usize].start);
                    assert!(together, "{places} ranks, round {number}: {group:?}");
                    runs[*place as usize] =
                        before[group[0] as usize].start..before[group[group.len() - 1] as usize].end;
                }
            }
            assert!(seats.iter().all(|(place, _)| runs[*place as usize] == (0..places)));
        }
    }
}
