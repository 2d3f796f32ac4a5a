//! Statistics of one block.

use super::merged::Stats;
use super::value::{Sum, Value};
use serde::{Deserialize, Serialize};

/// The least bytes of elements whose bounds a block keeps together.
pub const TILE_BYTES: u64 = 64 << 10;
/// The most tiles of a block: of a larger one they have more bytes.
pub const TILES_MAX: u64 = 4096;

/// How many bytes a tile has of a block of so many bytes: a multiple of [`TILE_BYTES`], twice that or four times ...
pub fn tile_bytes(block: u64) -> u64 {
    let mut tile = TILE_BYTES;
    while block.div_ceil(tile) > TILES_MAX {
        tile *= 2;
    }
    tile
}

/// The smallest and the largest of some elements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Extremes {
    /// The smallest.
    pub min: Value,
    /// The largest.
    pub max: Value,
    /// Where the first of the smallest lies, among the elements in C order.
    pub min_at: u64,
    /// Where the first of the largest lies.
    pub max_at: u64,
}

/// What is added up of elements: it takes longer than to compare them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// The sum of the numbers.
    pub sum: Sum,
    /// The sum of their squared distances from their mean.
    pub m2: f64,
}

/// Which statistics a block is to have. Each has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatsOfBlock {
    /// None.
    Nothing,
    /// How many numbers there are, the smallest and the largest, of tiles too: they cost little more than the copy.
    Extremes,
    /// Moments too.
    All,
}

/// Statistics of a block's interior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockStats {
    /// Of those that are numbers, infinities among them; `None` if there are none.
    pub extremes: Option<Extremes>,
    /// How many are numbers.
    pub count: u64,
    /// How many are not.
    pub nan: u64,
    /// What is added up of the numbers, if that was asked for.
    pub moments: Option<Moments>,
    /// The smallest and the largest element of each tile, in the field's own type, one pair after the other. A tile is as many
    /// consecutive elements of the interior, in C order, as [`tile_bytes`] says. One without numbers has NaN. A block of one tile
    /// has none.
    pub tiles: Box<[u8]>,
}

impl BlockStats {
    /// Those of no elements.
    pub fn empty() -> BlockStats {
        let moments = Some(Moments { sum: Sum::Int(0), m2: 0.0 });
        BlockStats { extremes: None, count: 0, nan: 0, moments, tiles: Box::default() }
    }

    /// All statistics; `None` if nothing was added up.
    pub fn whole(&self) -> Option<Stats> {
        let Moments { sum, m2 } = self.moments?;
        let bounds = self.extremes.map(|extremes| (extremes.min, extremes.max));
        Some(Stats { bounds, count: self.count, nan: self.nan, sum, m2 })
    }

    /// Whether they can be those of a block whose interior has so many bytes, with elements of this size.
    pub fn fits(&self, interior: u64, element: usize) -> bool {
        let tiles = interior.div_ceil(tile_bytes(interior));
        let tiles = if tiles > 1 { tiles } else { 0 };
        let elements = interior / element as u64;
        let lies = |extremes: Extremes| extremes.min_at < elements && extremes.max_at < elements;
        self.tiles.len() as u64 == tiles * 2 * element as u64
            && self.count.checked_add(self.nan) == Some(elements)
            && self.extremes.is_some() == (self.count > 0)
            && self.extremes.is_none_or(lies)
    }
}
