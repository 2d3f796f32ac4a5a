//! Which part of space each rank of a simulation has: what particles alone do not tell.

use forebay_core::contract::{Bounds, Field};
use forebay_core::dtype::Dtype;
use forebay_core::region::MAX_NDIM;
use forebay_core::{Error, Result};

/// The field in which they are staged: named in a contract like any other one.
pub const RANK_BOUNDS: &str = "rank_bounds";

/// Which part of space a rank has.
#[derive(Debug, Clone, PartialEq)]
pub struct RankBounds {
    /// Where what is its own lies.
    pub own: Bounds,
    /// Where this and its ghosts lie.
    pub with_ghosts: Bounds,
}

/// The field of the bounds of all ranks, in a space of so many dimensions: four rows for each rank.
pub(crate) fn field_of(ndim: usize, every: u32) -> Result<Field> {
    if !(1..=MAX_NDIM).contains(&ndim) {
        return Err(Error::invalid(format!("ndim is {ndim}: space has 1 to {MAX_NDIM} dimensions here")));
    }
    Ok(Field { every, ..Field::new(RANK_BOUNDS, Dtype::F64, None, 2) })
}

impl RankBounds {
    /// The numbers as they are staged, or what is wrong with them.
    pub(crate) fn to_values(&self) -> Result<Vec<f64>> {
        let RankBounds { own, with_ghosts } = self;
        let ndim = own.low.len();
        let rows = [&own.low, &own.high, &with_ghosts.low, &with_ghosts.high];
        let fail = |text: String| Err(Error::invalid(format!("the bounds of a rank: {text}")));
        if let Some(row) = rows.iter().find(|row| row.len() != ndim) {
            return fail(format!("{} numbers beside {ndim}", row.len()));
        }
        for d in 0..ndim {
            let [low, high, outer_low, outer_high] = rows.map(|row| row[d]);
            // What is not a number is in no order.
            let in_order = outer_low <= low && low <= high && high <= outer_high;
            if !in_order {
                return fail(format!(
                    "from {low} to {high} in dimension {d}, and with ghosts from {outer_low} to {outer_high}: these have to hold those"
                ));
            }
        }
        Ok(rows.into_iter().flatten().copied().collect())
    }

    /// What was staged.
    pub(crate) fn from_values(values: &[f64]) -> RankBounds {
        let row = |n: usize| values.chunks(values.len() / 4).nth(n).unwrap_or_default().to_vec();
        RankBounds {
            own: Bounds { low: row(0), high: row(1) },
            with_ghosts: Bounds { low: row(2), high: row(3) },
        }
    }
}
