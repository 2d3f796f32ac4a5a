//! Which elements of which fields meet, element by element.

use crate::syntax::Level;
use crate::value::{Unknown, UnknownKind};
use forebay_core::contract::{Association, Field, Index, Slice};
use forebay_core::region::Dims;
use forebay_core::selection::Selection;

/// Some elements of one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// By their indexes.
    Slice(Slice),
    /// One element, whose dimension is left out.
    Index(Index),
    /// From one coordinate to another, both included.
    Coordinates(f64, f64),
}

/// Which elements of fields of one stream are taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// The stream.
    pub stream: String,
    /// Of which refinement level.
    pub level: Level,
    /// Which elements in each dimension; `None`: all.
    pub ranges: Option<Vec<Range>>,
    /// The global shape when the text was checked; `None` if blocks have no place in one.
    pub shape: Option<Dims>,
}

/// A field, and which of its elements are taken.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedField {
    /// The field as it was when the text was checked.
    pub field: Field,
    /// Which elements, by their place among the domains.
    pub domain: usize,
}

impl Domain {
    /// Its elements in a field as it is at a step; `None` for all elements of blocks without a place. Says what lies outside.
    pub fn selection(&self, field: &Field) -> Result<Option<Selection>, Unknown> {
        let Some(shape) = self.shape_of(field)? else { return Ok(None) };
        let shape = &shape;
        let all = vec![Range::Slice(Slice::ALL); shape.len()];
        let ranges = self.ranges.as_ref().unwrap_or(&all);
        if ranges.len() != shape.len() {
            let text = format!("field '{}' has {} dimensions, not {}", field.name, shape.len(), ranges.len());
            return Err(Unknown::new(UnknownKind::Mismatch, text));
        }
        let (mut offset, mut counts, mut step) = (Dims::new(), Dims::new(), Dims::new());
        for (dim, range) in ranges.iter().enumerate() {
            let (first, count, distance) = range.within(field, shape, dim)?;
            offset.push(first);
            counts.push(count);
            step.push(if count == 1 { 1 } else { distance });
        }
        Ok(Some(Selection { offset, shape: counts, step }))
    }

    /// The extents of its level in a field; `None` if blocks have no place, or all levels are taken as they are.
    pub fn shape_of(&self, field: &Field) -> Result<Option<Dims>, Unknown> {
        let Some(shape) = &field.shape else { return Ok(None) };
        match self.level {
            Level::One(0) => Ok(Some(shape.clone())),
            Level::All => Ok(None),
            Level::One(level) => {
                let finer = |(n, by): (&u64, &u32)| n.checked_mul(u64::from(*by).checked_pow(level)?);
                let shape: Option<Dims> = shape.iter().zip(&field.refinement).map(finer).collect();
                shape.filter(|shape| shape.len() == field.refinement.len()).map(Some).ok_or_else(|| {
                    let text =
                        format!("field '{}': level {level} has no shape: declare refinement=", field.name);
                    Unknown::new(UnknownKind::Mismatch, text)
                })
            }
        }
    }

    /// Whether a dimension is left out, since one element of it is taken.
    pub fn leaves_out(&self, dim: usize) -> bool {
        self.ranges.as_ref().is_some_and(|ranges| matches!(ranges.get(dim), Some(Range::Index(_))))
    }
}

impl Range {
    /// The first element, how many, and how far from each other, in a dimension of an array of this shape.
    fn within(self, field: &Field, shape: &[u64], dim: usize) -> Result<(u64, u64, u64), Unknown> {
        let n = shape[dim];
        let outside = |what: String| {
            let text =
                format!("field '{}': {what} in dimension {dim} lies outside the shape {shape:?}", field.name);
            Unknown::new(UnknownKind::NotCovered, text)
        };
        let (first, stop, step) = match self {
            Range::Slice(Slice { start, stop, step }) => {
                let place = |index: Option<Index>, all: u64| match index {
                    Some(index) => index.among(n).ok_or_else(|| outside(index.to_string())),
                    None => Ok(all),
                };
                (place(start, 0)?, place(stop, n)?, step)
            }
            Range::Index(index) => {
                let first =
                    index.among(n).filter(|first| *first < n).ok_or_else(|| outside(index.to_string()))?;
                (first, first + 1, 1)
            }
            Range::Coordinates(low, high) => {
                let (first, stop) = Coordinates::of(field, dim).between(low, high, n);
                if first >= stop {
                    return Err(outside(format!("{low:?}..{high:?}")));
                }
                (first, stop, 1)
            }
        };
        if n > 0 && first >= stop && self != Range::Slice(Slice::ALL) {
            let text = format!("field '{}': the region has no elements in dimension {dim}", field.name);
            return Err(Unknown::new(UnknownKind::NotCovered, text));
        }
        Ok((first, stop.saturating_sub(first).div_ceil(step), step))
    }
}

/// Where an element of a refinement level lies in a dimension.
pub(crate) fn coordinate(field: &Field, dim: usize, level: u32, index: u64) -> f64 {
    let finer = field.refinement.get(dim).copied().unwrap_or(1);
    Coordinates::finer(field, dim, f64::from(finer).powi(level.min(i32::MAX as u32) as i32)).at(index)
}

/// Where the elements of a dimension lie in space.
#[derive(Debug, Clone, Copy)]
struct Coordinates {
    first: f64,
    spacing: f64,
}

impl Coordinates {
    /// Element i lies at origin + i spacing; without them at 0 and with a distance of 1.
    fn of(field: &Field, dim: usize) -> Coordinates {
        Coordinates::finer(field, dim, 1.0)
    }

    /// The same of elements so many of which lie where one of level 0 does. The first cells of all levels begin at the same place, half a
    /// spacing before the one of level 0; the first vertices lie at the same place.
    fn finer(field: &Field, dim: usize, count: f64) -> Coordinates {
        let whole = field.spacing.get(dim).copied().unwrap_or(1.0);
        let spacing = whole / count;
        let shift = if field.association == Association::Cell { 0.5 * (spacing - whole) } else { 0.0 };
        Coordinates { first: field.origin.get(dim).copied().unwrap_or(0.0) + shift, spacing }
    }

    fn at(self, index: u64) -> f64 {
        self.first + index as f64 * self.spacing
    }

    /// The first of `n` elements that lies between two coordinates, and the one behind the last.
    fn between(self, low: f64, high: f64, n: u64) -> (u64, u64) {
        // They grow, or fall, with the index.
        let falls = self.spacing < 0.0;
        let is_before = |index: u64| if falls { self.at(index) > high } else { self.at(index) < low };
        let is_within = |index: u64| if falls { self.at(index) >= low } else { self.at(index) <= high };
        (partition(n, is_before), partition(n, is_within))
    }
}

/// The first of `n` for which something does not hold that holds for all before it.
fn partition(n: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::dtype::Dtype;

    fn field(shape: &[u64]) -> Field {
        let mut field = Field::new("U", Dtype::F64, Some(shape), shape.len());
        field.spacing = vec![0.1; shape.len()];
        field.origin = vec![1.0; shape.len()];
        field
    }

    fn of(range: Range, n: u64) -> Result<(u64, u64, u64), String> {
        range.within(&field(&[n]), &[n], 0).map_err(|unknown| unknown.text)
    }

    #[test]
    fn regions_are_not_clipped() {
        let slice = |start, stop, step| Range::Slice(Slice { start, stop, step });
        let (from_start, from_end) =
            (|index| Some(Index::FromStart(index)), |index| Some(Index::FromEnd(index)));
        assert_eq!(of(slice(from_start(2), from_end(1), 3), 9), Ok((2, 2, 3)));
        assert_eq!(of(slice(None, None, 1), 0), Ok((0, 0, 1)), "all of nothing");
        assert!(
            of(slice(None, from_start(10), 1), 9)
                .unwrap_err()
                .contains("10 in dimension 0 lies outside the shape [9]")
        );
        assert!(of(slice(from_start(3), from_start(3), 1), 9).unwrap_err().contains("no elements"));
        assert_eq!(of(Range::Index(Index::FromEnd(1)), 9), Ok((8, 1, 1)));
        assert!(
            of(Range::Index(Index::FromStart(9)), 9).is_err()
                && of(Range::Index(Index::FromEnd(1)), 0).is_err()
        );
    }

    #[test]
    fn coordinates_are_those_of_cells_and_vertices() {
        let mut field = field(&[10]);
        // At 1.0, 1.1 ... 1.9.
        let of = |field: &Field, low, high| Coordinates::of(field, 0).between(low, high, 10);
        assert_eq!(of(&field, 1.05, 1.25), (1, 3));
        assert_eq!(of(&field, -5.0, 0.99), (0, 0));
        // Of level 1 two cells lie in the first one, which reaches from 0.95 to 1.05.
        field.refinement = vec![2];
        let finer: Vec<String> = (0..3).map(|i| format!("{:.3}", coordinate(&field, 0, 1, i))).collect();
        assert_eq!(finer, ["0.975", "1.025", "1.075"]);
        let third = Coordinates::of(&field, 0).at(3);
        assert_eq!(of(&field, third, third), (3, 4), "both ends are included");
        field.association = Association::Vertex;
        assert_eq!(of(&field, 1.0, 9.0), (0, 10));
        field.spacing = vec![-0.5];
        assert_eq!(of(&field, -1.0, 0.5), (1, 5), "1, 0.5, 0, -0.5, -1");
        field.spacing = vec![0.0];
        assert_eq!((of(&field, 1.0, 2.0), of(&field, 2.0, 3.0)), ((0, 10), (10, 10)));
    }
}
