//! What the statistics of a block say of a piece, and of several pieces.

use super::verdict::{Limit, Verdict, answer, verdict};
use crate::gather::{Extreme, Gathered, Partial, Question, Stage, Total};
use crate::interval::{Interval, Registers};
use crate::pieces::{Held, Piece};
use crate::plan::{Aggregate, Lane, Measure, Weights};
use crate::value::{Number, Place};
use forebay_core::block::BlockRecord;
use forebay_core::c_order::index_of;
use forebay_core::region::Dims;
use forebay_core::stats::{BlockStats, Sum, Value};

/// What is known of a piece.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OfPiece {
    /// Its answer.
    Known(Gathered),
    /// What bounds say.
    Bounded(Verdict),
}

/// Which of these pieces need no look for a question: their answers, or `None` for those that need one.
pub fn known_pieces<'a>(
    aggregate: &Aggregate,
    question: &Question,
    pieces: impl Iterator<Item = &'a Piece>,
) -> Vec<Option<Gathered>> {
    let mut registers = Registers::default();
    let found =
        pieces.map(|piece| (piece.part.volume(), of_piece(aggregate, question, piece, &mut registers)));
    let found: Vec<(u64, OfPiece)> = found.collect();
    let mut limit = Limit::of(aggregate.measure);
    if let Some(limit) = &mut limit {
        for (_, found) in found.iter().filter(|(elements, _)| *elements > 0) {
            match found {
                OfPiece::Known(answer) => limit.take_answer(answer),
                OfPiece::Bounded(verdict) => limit.take(*verdict),
            }
        }
    }
    let answer_of = |(elements, found): (u64, OfPiece)| match found {
        OfPiece::Known(known) => Some(known),
        OfPiece::Bounded(Verdict::All) => Some(answer(aggregate.measure, true, elements)),
        OfPiece::Bounded(Verdict::Nothing) => Some(answer(aggregate.measure, false, elements)),
        OfPiece::Bounded(verdict) => {
            let is_beaten = limit.is_some_and(|limit| limit.beats(verdict));
            is_beaten.then(|| answer(aggregate.measure, false, elements))
        }
    };
    found.into_iter().map(answer_of).collect()
}

/// What is known of a piece.
pub(super) fn of_piece(
    aggregate: &Aggregate,
    question: &Question,
    piece: &Piece,
    registers: &mut Registers,
) -> OfPiece {
    if let Some(answer) = whole(aggregate, question, piece) {
        return OfPiece::Known(answer);
    }
    let interval = |field: u16| Some(Interval::of_stats(stats_of(piece, usize::from(field))?.1));
    OfPiece::Bounded(verdict(aggregate, question, interval, registers))
}

/// The block of a field of which the elements of a piece are, if that has statistics.
pub(super) fn stats_of(piece: &Piece, field: usize) -> Option<(&BlockRecord, &BlockStats)> {
    let Held::Block(record) = &piece.sources.get(field)?.as_ref()?.held else { return None };
    let stats = record.stats.as_ref()?;
    // Statistics are of the interior: ghosts are another block's.
    let interior = record.extent.interior();
    let all = piece.part.span_in(&(0..interior.ndim()).map(|d| interior.end(d)).collect::<Dims>())?;
    interior.contains(&all).then_some((record, stats))
}

/// Whether a piece is all of the interior of a block.
pub(super) fn is_whole(piece: &Piece, record: &BlockRecord) -> bool {
    piece.part.volume() == record.extent.interior().volume() && piece.part.is_dense()
}

/// The answer of a piece that is all of a block, whose elements are gathered as they are.
fn whole(aggregate: &Aggregate, question: &Question, piece: &Piece) -> Option<Gathered> {
    let field = aggregate.program.bare_field()?;
    let (record, stats) = stats_of(piece, usize::from(field))?;
    if question.stage != Stage::First || !is_whole(piece, record) {
        return None;
    }
    let lane = aggregate.program.instructions[aggregate.program.value?.index()].lane;
    let extreme = |value: Value, at: u64| Extreme {
        value: number_of(value, lane),
        place: Place { level: piece.level, block: piece.block, index: index_at(piece, at) },
    };
    let partial = match aggregate.measure {
        Measure::Min => Partial::Least(stats.extremes.map(|found| extreme(found.min, found.min_at))),
        Measure::Max => Partial::Greatest(stats.extremes.map(|found| extreme(found.max, found.max_at))),
        Measure::Sum(Weights::None) => match stats.moments?.sum {
            // Those of floats are exact in an evaluation, and of the statistics the first digits.
            Sum::Int(sum) if lane != Lane::F64 && lane != Lane::F32 => {
                Partial::Sum(Total::Integer(sum), stats.count)
            }
            _ => return None,
        },
        Measure::Histogram(_) => {
            let bounds = stats.extremes.map(|found| (found.min.to_f64(), found.max.to_f64()));
            // Those of the numbers that are finite are asked for.
            if bounds.is_some_and(|(min, max)| !(min.is_finite() && max.is_finite())) {
                return None;
            }
            Partial::Bounds(bounds)
        }
        _ => return None,
    };
    Some(Gathered { elements: piece.part.volume(), nan: stats.nan, partial: Ok(partial) })
}

/// The index of an element of a piece that is all of a block.
fn index_at(piece: &Piece, before: u64) -> Dims {
    let mut index = index_of(before, &piece.part.shape);
    index.iter_mut().zip(&piece.part.offset).for_each(|(index, offset)| *index += offset);
    index
}

/// A value as the number that a lane of a program has.
fn number_of(value: Value, lane: Lane) -> Number {
    match value {
        Value::Int(value) => Number::Integer(value.into()),
        Value::Unsigned(value) => Number::Integer(value.into()),
        Value::Float(value) if lane == Lane::F32 => Number::F32(value as f32),
        Value::Float(value) => Number::F64(value),
    }
}
