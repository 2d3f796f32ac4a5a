//! Which parts of a piece have to be read, and for which questions.

use super::block::{of_piece, stats_of};
use super::verdict::{Limit, Verdict, verdict};
use crate::gather::{Gathered, Partial, Question};
use crate::interval::Interval;
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
    let mut open = Vec::new();
    for (place, (aggregate, question)) in questions.iter().enumerate() {
        known.push(Gathered { elements: 0, nan: 0, partial: Ok(Partial::Elements) });
        match of_piece(aggregate, question, piece) {
            Verdict::Known(answer) => known[place] = answer,
            _ => open.push(place),
        }
    }
    if open.is_empty() {
        return (known, Vec::new());
    }
    let fields = questions.iter().flat_map(|(aggregate, _)| aggregate.program.fields());
    let Some(tiles) = Tiles::of(piece, fields) else {
        return (known, vec![Unread { parts: vec![piece.part.clone()], questions: open }]);
    };
    // By tile: the questions for which it has to be read.
    let mut to_read: Vec<Vec<usize>> = vec![Vec::new(); tiles.volumes.len()];
    for place in open {
        let (aggregate, question) = questions[place];
        tiles.look_up(aggregate, question, &mut known[place], |tile| to_read[tile].push(place));
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
    bounds: Vec<Option<Bounds<'a>>>,
}

/// What is known of a field.
enum Bounds<'a> {
    /// Of each tile.
    OfTiles { dtype: Dtype, stats: &'a BlockStats, joined: usize },
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
        let mut bounds: Vec<Option<Bounds<'_>>> = (0..piece.sources.len()).map(|_| None).collect();
        for (field, dtype, stats, tile) in of_fields {
            bounds[field] = match tile {
                // Types have 1, 2, 4 or 8 bytes, so that the largest tile is several of any other.
                Some(tile) if each % tile == 0 => {
                    Some(Bounds::OfTiles { dtype, stats, joined: (each / tile) as usize })
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

    /// Takes in what is known of each tile for a question, and tells which have to be read.
    fn look_up(
        &self,
        aggregate: &Aggregate,
        question: &Question,
        known: &mut Gathered,
        mut read: impl FnMut(usize),
    ) {
        let of_tile = |(tile, elements): (usize, &u64)| {
            verdict(aggregate, question, *elements, |field| self.interval(usize::from(field), tile))
        };
        let verdicts: Vec<Verdict> = self.volumes.iter().enumerate().map(of_tile).collect();
        let mut limit = Limit::of(aggregate.measure);
        if let Some(limit) = &mut limit {
            // One that has none of the piece's elements has no extreme.
            let there = verdicts.iter().zip(&self.volumes).filter(|(_, elements)| **elements > 0);
            // Of a tile that lies in the piece in part its own extreme may be elsewhere, but its bounds hold.
            there.for_each(|(verdict, _)| limit.take(verdict));
        }
        for ((tile, verdict), elements) in verdicts.into_iter().enumerate().zip(&self.volumes) {
            match verdict {
                _ if *elements == 0 => {}
                Verdict::Known(answer) => known.merge(answer),
                verdict if limit.is_some_and(|limit| limit.beats(&verdict)) => known.elements += elements,
                _ => read(tile),
            }
        }
    }

    fn interval(&self, field: usize, tile: usize) -> Option<Interval> {
        match self.bounds.get(field)?.as_ref()? {
            Bounds::OfBlock(interval) => Some(*interval),
            Bounds::OfTiles { dtype, stats, joined } => {
                let size = dtype.size();
                let pairs = stats.tiles.chunks_exact(2 * size).skip(tile * joined).take(*joined);
                // Which tiles have NaN is not known.
                let none = Interval { nan: stats.nan > 0, ..Interval::of(f64::NAN) };
                // One without numbers has NaN.
                Some(pairs.fold(none, |all, pair| {
                    let (min, max) = pair.split_at(size);
                    all.with(Value::read(*dtype, min), Value::read(*dtype, max))
                }))
            }
        }
    }

    /// What has to be read: consecutive tiles for the same questions together.
    fn runs(&self, to_read: &[Vec<usize>]) -> Vec<Unread> {
        let mut runs: Vec<Unread> = Vec::new();
        let mut first = 0;
        while first < to_read.len() {
            let questions = &to_read[first];
            let same = to_read[first..].iter().take_while(|others| *others == questions).count();
            if !questions.is_empty() {
                let parts = self.parts(first..first + same);
                match runs.iter_mut().find(|run| run.questions == *questions) {
                    Some(run) => run.parts.extend(parts),
                    None => runs.push(Unread { parts: parts.collect(), questions: questions.clone() }),
                }
            }
            first += same;
        }
        runs
    }
}
