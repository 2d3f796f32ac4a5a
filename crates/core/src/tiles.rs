//! Tiles: which server answers for which part of a field.
//!
//! A field with a global shape is cut into tiles on a Hilbert curve; equal ranges of the curve belong to the
//! servers, in an order of their own for each field and step. So neighbours in space mostly have one owner,
//! and the first parts of many fields do not all have the same. A small field is one tile: whoever describes
//! it also knows all its blocks. Servers and clients compute the same map from what they both know.

use crate::hilbert::Tiling;
use crate::ids::{ServerId, StepId, StepNumber};
use crate::region::{Dims, Region};
use crate::shards::Shards;
use crate::view::{hash_name, mix};
use std::collections::HashMap;
use std::sync::Arc;

/// Tiles for each server that are aimed at: enough that ranges of whole tiles are nearly equal.
const TILES_PER_SERVER: usize = 16;
/// The fewest elements that are worth a tile of their own: below, one more question costs more than it spreads.
const TILE_ELEMENTS_MIN: u64 = 32 << 10;
/// How many tilings are remembered. Runs have few shapes.
const TILINGS_MAX: usize = 64;

/// What names a field of the space at a step, for [`TileCache::map`].
pub fn hash_in_space(field: &str, step: StepNumber) -> u64 {
    hash_name(field).wrapping_add(step)
}

/// What names a field of a stream at a step, for [`TileCache::map`].
pub fn hash_in_stream(id: &StepId, field: &str) -> u64 {
    mix(hash_name(&id.stream) ^ mix(id.run)).wrapping_add(hash_name(field)).wrapping_add(id.step)
}

/// Which server answers for which part of one field at one step.
#[derive(Debug, Clone)]
pub struct TileMap {
    /// `None` if it is one tile.
    tiling: Option<Arc<Tiling>>,
    /// Range `i` of the curve belongs to `order[i]`. One, if there is one tile.
    order: Vec<ServerId>,
}

impl TileMap {
    /// The server that describes the field. `None` if there are no shards.
    pub fn descriptor(&self) -> Option<ServerId> {
        self.order.first().copied()
    }

    /// Whether one server answers for all of it.
    pub fn is_single(&self) -> bool {
        self.tiling.is_none()
    }

    /// The servers that answer for some part, each once, the descriptor first.
    pub fn owners(&self) -> Vec<ServerId> {
        let Some(tiling) = &self.tiling else { return self.order.clone() };
        let mut ranges: Vec<usize> =
            (0..tiling.len() as u32).map(|place| tiling.range_of(place, self.order.len())).collect();
        ranges.dedup();
        self.holders_of(ranges)
    }

    /// Who holds these ranges, each once.
    fn holders_of(&self, ranges: Vec<usize>) -> Vec<ServerId> {
        let mut holders = Vec::with_capacity(ranges.len());
        for range in ranges {
            if !holders.contains(&self.order[range]) {
                holders.push(self.order[range]);
            }
        }
        holders
    }

    /// The servers that answer for parts of a region, each once; the descriptor alone for an empty region.
    pub fn owners_of(&self, region: &Region) -> Vec<ServerId> {
        let Some(tiling) = &self.tiling else { return self.order.clone() };
        let places = tiling.places_of(region);
        let mut ranges: Vec<usize> =
            places.into_iter().map(|place| tiling.range_of(place, self.order.len())).collect();
        ranges.sort_unstable();
        ranges.dedup();
        match ranges.is_empty() {
            true => self.descriptor().into_iter().collect(),
            false => self.holders_of(ranges),
        }
    }

    /// The parts of a region for which this server answers: disjoint boxes.
    pub fn parts_of(&self, server: ServerId, region: &Region) -> Vec<Region> {
        let Some(tiling) = &self.tiling else {
            return if self.order.contains(&server) { vec![region.clone()] } else { Vec::new() };
        };
        let parts = tiling.parts_of(region).into_iter();
        parts
            .filter(|(place, _)| self.order[tiling.range_of(*place, self.order.len())] == server)
            .map(|(_, part)| part)
            .collect()
    }
}

/// Makes tile maps, and remembers tilings: computing one must not be on the path of each put.
#[derive(Debug, Default)]
pub struct TileCache {
    tilings: HashMap<(Dims, usize), Arc<Tiling>>,
}

impl TileCache {
    /// The map of a field with this shape, named by a hash; unplaced fields have one tile.
    pub fn map(&mut self, shards: &Shards, hash: u64, shape: Option<&[u64]>) -> TileMap {
        let volume = shape.map_or(0, |shape| shape.iter().fold(1u64, |volume, n| volume.saturating_mul(*n)));
        let servers = shards.len();
        let wanted = (volume / TILE_ELEMENTS_MIN).min((servers * TILES_PER_SERVER) as u64) as usize;
        let Some(shape) = shape.filter(|_| wanted > 1 && servers > 1) else {
            return TileMap { tiling: None, order: shards.owner_of(hash).into_iter().collect() };
        };
        let key = (Dims::from(shape), wanted);
        if self.tilings.len() >= TILINGS_MAX && !self.tilings.contains_key(&key) {
            self.tilings.clear();
        }
        let tiling = self.tilings.entry(key).or_insert_with(|| Arc::new(Tiling::new(shape, wanted)));
        TileMap { tiling: Some(tiling.clone()), order: shards.preference_of(hash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn shards(members: u32) -> Shards {
        Shards::of((0..members).map(ServerId))
    }

    #[test]
    fn small_and_unplaced_fields_have_one_owner() {
        let mut cache = TileCache::default();
        for shape in [None, Some(&[][..]), Some(&[0, 9][..]), Some(&[250, 260][..])] {
            for step in 0..20 {
                let hash = hash_in_space("T", step);
                let map = cache.map(&shards(5), hash, shape);
                assert!(map.is_single());
                assert_eq!(map.owners(), [shards(5).owner_of(hash).unwrap()]);
                assert_eq!(map.descriptor(), shards(5).owner_of(hash));
            }
        }
        assert!(cache.map(&shards(1), 7, Some(&[1000, 1000])).is_single());
        assert_eq!(cache.map(&shards(0), 7, Some(&[1000, 1000])).descriptor(), None);
    }

    #[test]
    fn the_parts_of_the_owners_are_the_region() {
        let mut cache = TileCache::default();
        for (servers, shape, low, extent) in
            [(3, [500, 70, 33], [3, 1, 0], [497, 60, 33]), (7, [90, 801, 40], [80, 0, 3], [1, 801, 2])]
        {
            let hash = hash_in_stream(&StepId { stream: "s".into(), run: 1, step: 8 }, "U");
            let map = cache.map(&shards(servers), hash, Some(&shape));
            assert_eq!(map.descriptor(), shards(servers).owner_of(hash));
            assert_eq!(map.owners(), shards(servers).preference_of(hash), "every server has a range");
            let region = Region::new(&low, &extent).unwrap();
            let owners = map.owners_of(&region);
            let mut volume = 0;
            for owner in &owners {
                for part in map.parts_of(*owner, &region) {
                    assert!(region.contains(&part));
                    assert_eq!(map.owners_of(&part), [*owner]);
                    volume += part.volume();
                }
            }
            assert_eq!(volume, region.volume());
            let nothing = Region::new(&[1, 1, 1], &[4, 0, 4]).unwrap();
            assert_eq!(map.owners_of(&nothing), [map.descriptor().unwrap()]);
        }
    }

    #[test]
    fn ranges_are_nearly_equal_and_a_range_is_near_itself() {
        let map = TileCache::default().map(&shards(8), 42, Some(&[256, 192, 320]));
        let whole = Region::whole(&[256, 192, 320]).unwrap();
        let volumes: BTreeMap<ServerId, u64> = map
            .owners()
            .into_iter()
            .map(|owner| (owner, map.parts_of(owner, &whole).iter().map(Region::volume).sum()))
            .collect();
        let mean = whole.volume() / 8;
        assert!(volumes.values().all(|volume| volume.abs_diff(mean) < mean / 4), "{volumes:?}");
        let corner = Region::whole(&[32, 32, 32]).unwrap();
        assert!(map.owners_of(&corner).len() <= 2);
    }

    /// Of three servers one has gone: its ranges lie between those of the others.
    #[test]
    fn who_holds_several_ranges_is_named_once() {
        let mut shards = shards(3);
        shards.reassign(&[ServerId(1), ServerId(2)]);
        let map = TileCache::default().map(&shards, 42, Some(&[256, 192, 320]));
        let whole = Region::whole(&[256, 192, 320]).unwrap();
        let volume = |owner| map.parts_of(owner, &whole).iter().map(Region::volume).sum::<u64>();
        assert_eq!(volume(ServerId(1)) + volume(ServerId(2)), whole.volume());
        for owners in [map.owners(), map.owners_of(&whole)] {
            assert_eq!(owners.iter().collect::<std::collections::BTreeSet<_>>().len(), owners.len());
            assert_eq!(owners.len(), 2);
        }
    }

    #[test]
    fn few_tilings_are_remembered() {
        let mut cache = TileCache::default();
        for n in 0..3 * TILINGS_MAX as u64 {
            cache.map(&shards(3), n, Some(&[1000 + n, 1000]));
            assert!(cache.tilings.len() <= TILINGS_MAX);
        }
    }
}
