//! Which parts of a piece have to be read, and for which questions.

use super::block::{OfPiece, of_piece, stats_of};
use super::verdict::{Limit, Verdict, answer, verdict};
use crate::gather::{Gathered, Partial, Question};
use crate::interval::{Interval, Registers};
use crate::pieces::Piece;
use crate::plan::Aggregate;
use forebay_core::c_order::boxes_of;
use forebay_core::dtype::Dtype;
use forebay_core::region::{Dims, Region};
use forebay_core::selection::Selection;
use forebay_core::stats::{BlockStats, Value, tile_bytes};
use std::ops::Range;

/// Elements of a piece that have to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Unread {
    /// Which: no element is in two parts.
    pub parts: Vec<Selection>,
    /// For which questions, by their places.
    pub questions: Vec<usize>,
}

/// What the statistics that come with a piece say for each question, of the elements that they decide; and which others have to be read
/// for which questions. It takes about 0.2 us for each tile and question.
pub fn decide(piece: &Piece, questions: &[(&Aggregate, &Question)]) -> (Vec<Gathered>, Vec<Unread>) {
    let mut known = Vec::with_capacity(questions.len());
    let (mut open, mut registers) = (Vec::new(), Registers::default());
    for (place, (aggregate, question)) in questions.iter().enumerate() {
        known.push(Gathered { elements: 0, nan: 0, partial: Ok(Partial::Elements) });
        let elements = piece.part.volume();
        match of_piece(aggregate, question, piece, &mut registers) {
            OfPiece::Known(answer) => known[place] = answer,
            OfPiece::Bounded(Verdict::All) => known[place] = answer(aggregate.measure, true, elements),
            OfPiece::Bounded(Verdict::Nothing) => known[place] = answer(aggregate.measure, false, elements),
            OfPiece::Bounded(_) => open.push(place),
        }
    }
    if open.is_empty() {
        return (known, Vec::new());
    }
    let fields = questions.iter().flat_map(|(aggregate, _)| aggregate.program.fields());
    let Some(tiles) = Tiles::of(piece, fields) else {
        return (known, vec![Unread { parts: vec![piece.part.clone()], questions: open }]);
    };
    let mut to_read = ToRead::new(tiles.volumes.len(), questions.len());
    for place in open {
        let (aggregate, question) = questions[place];
        known[place] = tiles.look_up(aggregate, question, &mut registers, |tile| to_read.insert(tile, place));
    }
    (known, tiles.runs(&to_read))
}

/// The tiles of a piece's blocks.
struct Tiles<'a> {
    piece: &'a Piece,
    /// The box of which tiles are consecutive elements.
    interior: Region,
    /// How many elements a tile has.
    each: u64,
    /// How many of these are elements of the piece.
    volumes: Vec<u64>,
    /// By field: what is known of its tiles.
    bounds: Vec<Option<Bounds>>,
}

/// What is known of a field.
enum Bounds {
    /// Of each tile.
    OfTiles(Vec<Interval>),
    /// Of all of it.
    OfBlock(Interval),
}

impl<'a> Tiles<'a> {
    /// Those of the fields that are asked for; `None` if nothing is known of any tile.
    fn of(piece: &'a Piece, fields: impl Iterator<Item = u16>) -> Option<Tiles<'a>> {
        let mut interior: Option<Region> = None;
        let mut each = 0;
        let mut of_fields = Vec::new();
        for field in fields {
            let field = usize::from(field);
            let Some((record, stats)) = stats_of(piece, field) else { continue };
            let dtype = piece.sources[field].as_ref()?.dtype;
            let own = record.extent.interior();
            let fits = !stats.tiles.is_empty() && interior.as_ref().is_none_or(|known| *known == own);
            if fits {
                let tile = tile_bytes(record.extent.interior_bytes(dtype)) / dtype.size() as u64;
                each = each.max(tile);
                interior = Some(own);
                of_fields.push((field, dtype, stats, Some(tile)));
            } else {
                of_fields.push((field, dtype, stats, None));
            }
        }
        let interior = interior?;
        let mut bounds: Vec<Option<Bounds>> = (0..piece.sources.len()).map(|_| None).collect();
        for (field, dtype, stats, tile) in of_fields {
            bounds[field] = match tile {
                // Types have 1, 2, 4 or 8 bytes, so that the largest tile is several of any other.
                Some(tile) if each % tile == 0 => {
                    Some(Bounds::OfTiles(intervals(stats, dtype, (each / tile) as usize)))
                }
                _ => Some(Bounds::OfBlock(Interval::of_stats(stats))),
            };
        }
        let all = interior.volume();
        let is_whole = piece.part.volume() == all && piece.part.is_dense();
        let mut tiles = Tiles { piece, interior, each, volumes: Vec::new(), bounds };
        let volume = |tile: usize| {
            let (first, end) = (tile as u64 * each, ((tile as u64 + 1) * each).min(all));
            if is_whole { end - first } else { tiles.parts(tile..tile + 1).map(|part| part.volume()).sum() }
        };
        let volumes = (0..all.div_ceil(each) as usize).map(volume).collect();
        tiles.volumes = volumes;
        Some(tiles)
    }

    /// The elements of the piece that lie in some consecutive tiles.
    fn parts(&self, tiles: Range<usize>) -> impl Iterator<Item = Selection> + '_ {
        let (first, end) = (tiles.start as u64 * self.each, tiles.end as u64 * self.each);
        let place = |region: Region| {
            let offset: Dims =
                region.offset().iter().zip(self.interior.offset()).map(|(own, first)| own + first).collect();
            Region::new(&offset, region.shape()).ok()
        };
        let boxes = boxes_of(self.interior.shape(), first, end).into_iter().filter_map(place);
        boxes.filter_map(|region| self.piece.part.cut_to(&region))
    }

    /// What is known of tiles for a question; tells which have to be read.
    fn look_up(
        &self,
        aggregate: &Aggregate,
        question: &Question,
        registers: &mut Registers,
        mut read: impl FnMut(usize),
    ) -> Gathered {
        let mut verdicts = Vec::with_capacity(self.volumes.len());
        for tile in 0..self.volumes.len() {
            let interval = |field: u16| self.interval(usize::from(field), tile);
            verdicts.push(verdict(aggregate, question, interval, registers));
        }
        let mut limit = Limit::of(aggregate.measure);
        if let Some(limit) = &mut limit {
            // One that has none of the piece's elements has no extreme. Of one that lies in the piece in part the bounds hold, too.
            let there = verdicts.iter().zip(&self.volumes).filter(|(_, elements)| **elements > 0);
            there.for_each(|(verdict, _)| limit.take(*verdict));
        }
        let (mut counted, mut others) = (0, 0);
        for ((tile, verdict), elements) in verdicts.into_iter().enumerate().zip(&self.volumes) {
            match verdict {
                _ if *elements == 0 => {}
                Verdict::All => counted += elements,
                Verdict::Nothing => others += elements,
                verdict if limit.is_some_and(|limit| limit.beats(verdict)) => others += elements,
                _ => read(tile),
            }
        }
        let mut known = answer(aggregate.measure, false, others);
        if counted > 0 {
            known.merge(answer(aggregate.measure, true, counted));
        }
        known
    }

    fn interval(&self, field: usize, tile: usize) -> Option<Interval> {
        match self.bounds.get(field)?.as_ref()? {
            Bounds::OfBlock(interval) => Some(*interval),
            Bounds::OfTiles(intervals) => intervals.get(tile).copied(),
        }
    }

    /// What has to be read: consecutive tiles for the same questions together.
    fn runs(&self, to_read: &ToRead) -> Vec<Unread> {
        let mut runs: Vec<Unread> = Vec::new();
        let (count, mut first) = (self.volumes.len(), 0);
        while first < count {
            let end = (first + 1..count).find(|tile| !to_read.are_same(first, *tile)).unwrap_or(count);
            let questions: Vec<usize> = to_read.questions(first).collect();
            if !questions.is_empty() {
                let parts = self.parts(first..end);
                match runs.iter_mut().find(|run| run.questions == questions) {
                    Some(run) => run.parts.extend(parts),
                    None => runs.push(Unread { parts: parts.collect(), questions }),
                }
            }
            first = end;
        }
        runs
    }
}

/// By tile: the questions for which it has to be read, a bit for each.
struct ToRead {
    /// Words of a tile.
    words: usize,
    bits: Vec<u64>,
}

impl ToRead {
    fn new(tiles: usize, questions: usize) -> ToRead {
        let words = questions.div_ceil(u64::BITS as usize);
        ToRead { words, bits: vec![0; tiles * words] }
    }

    fn insert(&mut self, tile: usize, question: usize) {
        self.bits[tile * self.words + question / 64] |= 1 << (question % 64);
    }

    fn are_same(&self, a: usize, b: usize) -> bool {
        (0..self.words).all(|word| self.bits[a * self.words + word] == self.bits[b * self.words + word])
    }

    fn questions(&self, tile: usize) -> impl Iterator<Item = usize> + '_ {
        let words = self.bits[tile * self.words..][..self.words].iter().enumerate();
        words.flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * word + bit)
        })
    }
}

/// The bounds of tiles, so many joined.
fn intervals(stats: &BlockStats, dtype: Dtype, joined: usize) -> Vec<Interval> {
    let size = dtype.size();
    // Which tiles have NaN is not known. One without numbers has it.
    let none = Interval { nan: stats.nan > 0, ..Interval::of(f64::NAN) };
    let bytes = stats.tiles.chunks_exact(2 * size * joined);
    let rest = bytes.remainder();
    let of_tile = |pairs: &[u8]| {
        let pair = |(min, max): (&[u8], &[u8])| (Value::read(dtype, min), Value::read(dtype, max));
        let pairs = pairs.chunks_exact(2 * size).map(|pair| pair.split_at(size)).map(pair);
        pairs.fold(none, |all, (min, max)| all.with(min, max))
    };
    let of_doubles = |pair: &[u8; 16]| {
        let [min, max] =
            [0, 8].map(|first| pair[first..].first_chunk().copied().map_or(f64::NAN, f64::from_le_bytes));
        Interval { low: none.low.min(min), high: none.high.max(max), ..none }
    };
    if dtype == Dtype::F64 && joined == 1 {
        return stats.tiles.as_chunks::<16>().0.iter().map(of_doubles).collect();
    }
    bytes.chain(Some(rest).filter(|rest| !rest.is_empty())).map(of_tile).collect()
}
