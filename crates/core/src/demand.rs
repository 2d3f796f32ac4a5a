//! Demand: the union of the contracts of all that is attached to a stream.

use crate::block::Extent;
use crate::contract::{FIELDS_MAX, Field, Need, Needs, Period, Statistics, Terms};
use crate::ids::StepNumber;
use crate::parts::{Wanted, parts_of};
use crate::stats::StatsOfBlock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many different contracts a demand has. Of more than that each field is wanted whole.
const CONTRACTS_MAX: usize = 256;

/// What is wanted of a stream. A producer asks it once for each block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Grows with each change, so that a producer is sent only what it does not know yet.
    pub version: u64,
    /// The attached contracts, each different one once.
    needs: Vec<Needs>,
}

/// What is wanted of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDemand {
    /// Of its elements.
    pub data: Wanted,
    /// The statistics that what is staged of it is to carry.
    pub stats: StatsOfBlock,
    /// Whether the statistics of the whole field are wanted, to which this block belongs.
    pub stats_of_field: bool,
}

impl BlockDemand {
    /// What nobody wants.
    pub const NOTHING: BlockDemand =
        BlockDemand { data: Wanted::Nothing, stats: StatsOfBlock::Nothing, stats_of_field: false };
}

impl Demand {
    /// The union of these contracts.
    pub fn union<'a>(version: u64, contracts: impl Iterator<Item = &'a Needs> + Clone) -> Demand {
        let mut needs: Vec<Needs> = Vec::new();
        for contract in contracts.clone() {
            if !needs.contains(contract) {
                needs.push(contract.clone());
            }
            if needs.len() > CONTRACTS_MAX {
                return Demand { version, needs: vec![merged(contracts)] };
            }
        }
        Demand { version, needs }
    }

    /// The contracts, each different one once; if there are very many, one that wants all that they want.
    pub fn contracts(&self) -> &[Needs] {
        &self.needs
    }

    /// Whether nothing at all is wanted.
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether something of this field is wanted at this step.
    pub fn wants(&self, field: &Field, step: StepNumber) -> bool {
        self.needs.iter().any(|needs| needs.wants(field, step))
    }

    /// Whether something of this field is wanted at any step.
    pub fn ever_wants(&self, field: &str) -> bool {
        self.needs.iter().any(|needs| needs.of(field).is_some())
    }

    /// What is wanted of a block of this field at this step. This alone decides what leaves a producer: its rank asks it as it
    /// puts, its home as it grants memory.
    pub fn of_block(&self, field: &Field, step: StepNumber, level: u32, extent: &Extent) -> BlockDemand {
        let (mut stats, mut stats_of_field) = (StatsOfBlock::Nothing, false);
        if field.is_static {
            // Readers that come later need it, too.
            let is_ordered = field.dtype.is_ordered();
            let stats = if is_ordered { StatsOfBlock::All } else { StatsOfBlock::Nothing };
            return BlockDemand { data: Wanted::Whole, stats, stats_of_field: is_ordered && level == 0 };
        }
        let terms = self.needs.iter().filter_map(|needs| needs.of(&field.name));
        let terms: Vec<&Terms> = terms.filter(|terms| terms.period.includes(field, step)).collect();
        for terms in terms.iter().filter(|_| field.dtype.is_ordered()) {
            stats = stats.max(terms.statistics.of_block());
            // Levels above 0 hold again what lies below them.
            stats_of_field |= terms.statistics.is_of_field() && terms.part.is_none() && level == 0;
        }
        let data = terms.into_iter().filter(|terms| terms.statistics != Statistics::Alone);
        BlockDemand { data: data_of_block(data, field, level, extent), stats, stats_of_field }
    }

    /// Whether all that this contract wants is part of the union.
    pub fn includes(&self, contract: &Needs) -> bool {
        self.needs.contains(contract) || self.needs.iter().any(|known| covers(known, contract))
    }
}

/// What data is wanted of a block under these terms.
fn data_of_block<'a>(
    terms: impl Iterator<Item = &'a Terms>,
    field: &Field,
    level: u32,
    extent: &Extent,
) -> Wanted {
    let mut wanted = Vec::new();
    for terms in terms {
        // A block without a place, or of a level with an index space of its own, is wanted whole or not at all.
        let (Some(part), Some(shape), 0) = (&terms.part, &field.shape, level) else {
            return Wanted::Whole;
        };
        wanted.extend(part.of(shape));
    }
    if wanted.is_empty() {
        return Wanted::Nothing;
    }
    parts_of(&extent.interior(), wanted.into_iter())
}

/// A contract that wants all that these want: each field whole, at the steps at which all want it, or at each.
fn merged<'a>(contracts: impl Iterator<Item = &'a Needs>) -> Needs {
    let mut fields: BTreeMap<&str, Terms> = BTreeMap::new();
    let mut of_all: Option<Terms> = None;
    let both = |a: Terms, b: Terms| Terms {
        period: if a.period == b.period { a.period } else { Period::ALL },
        part: None,
        statistics: a.statistics.and(b.statistics),
    };
    let whole = |terms: &Terms| Terms { part: None, ..terms.clone() };
    for contract in contracts {
        match contract {
            Needs::All(terms) => {
                of_all = Some(of_all.map_or(whole(terms), |known| both(known, whole(terms))))
            }
            Needs::Fields(needs) => {
                for need in needs {
                    let known = fields.remove(&need.field[..]);
                    let terms = known.map_or(whole(&need.terms), |known| both(known, whole(&need.terms)));
                    fields.insert(&need.field, terms);
                }
            }
        }
    }
    if let Some(all) = of_all {
        return Needs::All(fields.into_values().fold(all, both));
    }
    if fields.len() > FIELDS_MAX {
        let all = fields.into_values().reduce(both);
        return Needs::All(all.unwrap_or(Terms::ALL));
    }
    let need = |(field, terms)| Need { terms, ..Need::new(field) };
    Needs::Fields(fields.into_iter().map(need).collect())
}

/// Whether all that a contract wants is wanted by a known one.
fn covers(known: &Needs, contract: &Needs) -> bool {
    match (known, contract) {
        (Needs::All(known), Needs::All(terms)) => known.cover(terms),
        (Needs::Fields(_), Needs::All(_)) => false,
        (_, Needs::Fields(needs)) => {
            let is_covered =
                |need: &Need| known.of(&need.field).is_some_and(|known| known.cover(&need.terms));
            needs.iter().all(is_covered)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Index, Slice, Slices};
    use crate::dtype::Dtype;

    fn plane(index: u64) -> Terms {
        let (start, stop) = (Some(Index::FromStart(index)), Some(Index::FromStart(index + 1)));
        Terms { part: Some(Slices::new(vec![Slice { start, stop, step: 1 }], vec![]).unwrap()), ..Terms::ALL }
    }

    fn needs(field: &str, terms: Terms) -> Needs {
        Needs::Fields(vec![Need { terms, ..Need::new(field) }])
    }

    fn of_block(demand: &Demand, step: StepNumber) -> Wanted {
        demand_of_block(demand, step).data
    }

    fn demand_of_block(demand: &Demand, step: StepNumber) -> BlockDemand {
        let field = Field::new("U", Dtype::F64, Some(&[200, 4]), 2);
        demand.of_block(&field, step, 0, &Extent::new(Some(&[0, 0]), &[50, 4], &[], &[]).unwrap())
    }

    #[test]
    fn only_what_somebody_needs_is_wanted() {
        let union = |contracts: &[Needs]| Demand::union(1, contracts.iter());
        let one = union(&[needs("U", plane(3))]);
        assert!(
            matches!(of_block(&one, 0), Wanted::Parts(parts) if parts.len() == 1 && parts[0].volume() == 4)
        );
        assert_eq!(of_block(&union(&[needs("U", plane(60))]), 0), Wanted::Nothing);
        assert_eq!(of_block(&union(&[needs("V", Terms::ALL)]), 0), Wanted::Nothing);
        let both = union(&[needs("U", plane(3)), needs("U", Terms::every(2))]);
        assert_eq!(of_block(&both, 2), Wanted::Whole);
        assert!(matches!(of_block(&both, 3), Wanted::Parts(_)));
        assert!(both.includes(&needs("U", plane(3))) && !both.includes(&needs("U", plane(4))));
        let all = union(&[Needs::all(1)]);
        assert!(all.includes(&needs("U", plane(3))) && !both.includes(&Needs::all(1)));
    }

    #[test]
    fn ten_thousand_parts_are_the_whole_field() {
        let contracts: Vec<Needs> = (0..10_000).map(|index| needs("U", plane(index))).collect();
        let demand = Demand::union(1, contracts.iter());
        assert_eq!(demand.contracts().len(), 1);
        assert_eq!(of_block(&demand, 0), Wanted::Whole);
        assert!(contracts.iter().all(|contract| demand.includes(contract)));
        let contracts: Vec<Needs> = (1..10_000).map(|every| needs("U", Terms::every(every))).collect();
        let demand = Demand::union(1, contracts.iter());
        assert_eq!(demand.contracts(), [needs("U", Terms::ALL)]);
        assert!(contracts.iter().all(|contract| demand.includes(contract)));
    }

    #[test]
    fn blocks_without_a_place_are_wanted_whole() {
        let field = Field::new("x", Dtype::F64, None, 1);
        let demand = Demand::union(1, [Needs::All(plane(3))].iter());
        let extent = Extent::new(None, &[50], &[], &[]).unwrap();
        assert_eq!(demand.of_block(&field, 0, 0, &extent).data, Wanted::Whole);
    }

    #[test]
    fn statistics_are_computed_where_somebody_wants_them() {
        let with = |statistics, terms| needs("U", Terms { statistics, ..terms });
        let union = |contracts: &[Needs]| demand_of_block(&Demand::union(1, contracts.iter()), 0);
        let alone = with(Statistics::Alone, Terms::ALL);
        let nothing_staged = BlockDemand { stats_of_field: true, ..BlockDemand::NOTHING };
        assert_eq!(union(std::slice::from_ref(&alone)), nothing_staged);
        let both = union(&[alone.clone(), needs("U", plane(3))]);
        assert!(
            matches!(both.data, Wanted::Parts(_))
                && both.stats_of_field
                && both.stats == StatsOfBlock::Nothing
        );
        let along = union(&[with(Statistics::Along, plane(3))]);
        assert!(
            matches!(along.data, Wanted::Parts(_))
                && !along.stats_of_field
                && along.stats == StatsOfBlock::All
        );
        let extremes = with(Statistics::Extremes, Terms::ALL);
        let of_extremes =
            BlockDemand { data: Wanted::Whole, stats: StatsOfBlock::Extremes, stats_of_field: false };
        assert_eq!(union(&[extremes.clone(), needs("U", plane(3))]), of_extremes);
        let whole = with(Statistics::Along, Terms::ALL);
        assert_eq!(
            union(std::slice::from_ref(&whole)),
            BlockDemand { data: Wanted::Whole, stats: StatsOfBlock::All, stats_of_field: true }
        );
        let demand = Demand::union(1, [whole].iter());
        assert!(
            demand.includes(&needs("U", plane(3))) && demand.includes(&alone) && demand.includes(&extremes)
        );
        assert!(!demand.includes(&with(Statistics::Along, plane(3))), "a part has statistics of its own");
        assert!(!Demand::union(1, [needs("U", Terms::ALL)].iter()).includes(&alone));
        assert!(Terms { statistics: Statistics::Alone, ..plane(3) }.check().is_err());
        let complex = Field::new("U", Dtype::C64, None, 1);
        let extent = Extent::new(None, &[50], &[], &[]).unwrap();
        assert_eq!(Demand::union(1, [alone].iter()).of_block(&complex, 0, 0, &extent), BlockDemand::NOTHING);
    }
}
