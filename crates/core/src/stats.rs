//! Statistics of the elements of a block, and of several blocks together.
//!
//! Infinities are values like others; NaN are left out and counted. Integers are added exactly, floats as pairs of doubles (the
//! error-free sum of T. J. Dekker, "A floating-point technique for extending the available precision", 1971), and squared
//! distances from the mean are merged as in T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm
//! for computing sample variances" (1979): the result does not depend on how elements lie in blocks, but for the last bits.
//!
//! - [`value`]: an element, exactly, and sums;
//! - [`merged`]: of elements that lie in blocks in any way;
//! - [`block`]: of one block, and of its tiles.

mod block;
mod merged;
#[cfg(test)]
mod tests;
mod value;

pub use block::{BlockStats, Extremes, Moments, StatsOfBlock, TILE_BYTES, TILES_MAX, tile_bytes};
pub use merged::Stats;
pub use value::{Sum, Value};
