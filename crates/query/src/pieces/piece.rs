//! Elements of one block, and where the bytes are of all that is computed with them.

use forebay_core::block::BlockRecord;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId};
use forebay_core::region::{Dims, Region};
use forebay_core::selection::Selection;
use serde::{Deserialize, Serialize};

/// Elements of one block of the first field that a program takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Which: by their indexes in the global array, or in the interior of a block without a place.
    pub part: Selection,
    /// All elements that the question is about, of this and other pieces.
    pub all: Selection,
    /// The global shape, whose ends have no neighbours behind them; of a block without a place that of its interior.
    pub shape: Dims,
    /// The refinement level.
    pub level: u32,
    /// The block, if it has no place in a global array.
    pub block: Option<BlockKey>,
    /// The server that holds it.
    pub server: ServerId,
    /// Where the elements are, by the place of the field in the plan: of those that the program takes.
    pub sources: Vec<Option<Source>>,
}

/// A dense, row-major array with the elements of a field, and where it lies among all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The type of its elements.
    pub dtype: Dtype,
    /// The index of its first element, in each dimension; ghosts may lie before 0.
    pub origin: Vec<i64>,
    /// Its extents.
    pub shape: Dims,
    /// Where it is.
    pub held: Held,
}

/// Where an array is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Held {
    /// It is a block, as that is stored.
    Block(BlockRecord),
    /// It has to be made of elements of several blocks.
    Copies(Vec<Copied>),
}

/// Elements of a block that are copied into an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Copied {
    /// The block.
    pub record: BlockRecord,
    /// Which elements of the block's array as it is stored.
    pub from: Selection,
    /// Which elements of the array that is made.
    pub to: Region,
}

impl Piece {
    /// The same of a part of its elements. Arrays that have to be made hold what goes with these alone: so many before and behind
    /// each of them as `reach` says, by field and dimension.
    pub fn narrowed(&self, part: Selection, reach: impl Fn(usize, usize) -> (i64, i64)) -> Option<Piece> {
        let narrowed = |(field, source): (usize, &Option<Source>)| match source {
            Some(source) => source.narrowed(&part, |dim| reach(field, dim)).map(Some),
            None => Some(None),
        };
        let sources = self.sources.iter().enumerate().map(narrowed).collect::<Option<Vec<_>>>()?;
        Some(Piece { sources, part, ..self.clone() })
    }

    /// How many bytes are copied before anything is computed; `None` beyond 64 bits.
    pub fn copied_bytes(&self) -> Option<u64> {
        let mut sources =
            self.sources.iter().flatten().filter(|source| matches!(source.held, Held::Copies(_)));
        sources.try_fold(0u64, |sum, source| sum.checked_add(source.bytes()?))
    }
}

impl Source {
    /// Its bytes; `None` beyond 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.size() as u64, |bytes, n| bytes.checked_mul(*n))
    }

    /// The same of a block that cannot be read where it lies: its elements are copied.
    pub fn as_copied(self) -> Source {
        let Held::Block(record) = self.held else { return self };
        let whole = Region::whole(&record.extent.stored_shape());
        let copied = whole.map(|to| Copied { from: Selection::region(&to), record, to });
        Source { held: Held::Copies(copied.into_iter().collect()), ..self }
    }

    fn narrowed(&self, part: &Selection, reach: impl Fn(usize) -> (i64, i64)) -> Option<Source> {
        let Held::Copies(copies) = &self.held else { return Some(self.clone()) };
        let (mut offset, mut shape, mut origin) = (Dims::new(), Dims::new(), Vec::new());
        for (dim, (first, extent)) in self.origin.iter().zip(&self.shape).enumerate() {
            let (below, above) = reach(dim);
            let begin = i64::try_from(*part.offset.get(dim)?).ok()?;
            let end = begin.checked_add_unsigned(part.extent(dim)?)?;
            let low = begin.checked_sub(below)?.max(*first);
            let high = end.checked_add(above)?.min(first.checked_add_unsigned(*extent)?);
            offset.push(low.checked_sub(*first)?.try_into().ok()?);
            shape.push(high.checked_sub(low)?.try_into().ok()?);
            origin.push(low);
        }
        let all = Region::new(&offset, &shape).ok()?;
        let copies = copies.iter().filter_map(|Copied { record, from, to }| {
            let common = to.intersect(&all)?;
            let of = |outer: &Region| {
                let offset: Dims = common.offset().iter().zip(outer.offset()).map(|(a, b)| a - b).collect();
                Region::new(&offset, common.shape()).ok()
            };
            Some(Copied { record: record.clone(), from: from.part(&of(to)?), to: of(&all)? })
        });
        let held = Held::Copies(copies.collect());
        Some(Source { dtype: self.dtype, origin, shape, held })
    }

    /// The blocks of which bytes are read.
    pub fn records(&self) -> impl Iterator<Item = &BlockRecord> {
        let (block, copies) = match &self.held {
            Held::Block(record) => (Some(record), [].as_slice()),
            Held::Copies(copies) => (None, copies.as_slice()),
        };
        block.into_iter().chain(copies.iter().map(|copied| &copied.record))
    }

    /// The same, to be changed.
    pub fn records_mut(&mut self) -> impl Iterator<Item = &mut BlockRecord> {
        let (block, copies) = match &mut self.held {
            Held::Block(record) => (Some(record), [].as_mut_slice()),
            Held::Copies(copies) => (None, copies.as_mut_slice()),
        };
        block.into_iter().chain(copies.iter_mut().map(|copied| &mut copied.record))
    }
}
