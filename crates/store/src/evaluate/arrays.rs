//! The elements of a piece, whose bytes can be shown.

use crate::evaluate::dense::Buffers;
use crate::evaluate::gather::{gather, nothing};
use crate::evaluate::units::{CACHED, boxes_of};
use crate::evaluate::window::{FieldArray, Window};
use forebay_core::selection::Selection;
use forebay_core::{Error, Result};
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{Piece, Source};
use forebay_query::plan::{Aggregate, Program};

/// Bytes that can be shown for one call: in shared memory they stay as they are no longer.
pub trait Shown {
    /// Shows them.
    fn show(&self, use_them: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// The answers to questions about aggregates, of parts of a piece: `bytes` are those of its sources. What fits the cache is read once for
/// all questions. Fails as [`gather`] does.
pub fn gather_piece<B: Shown>(
    questions: &[(&Aggregate, &Question)],
    piece: &Piece,
    parts: &[Selection],
    bytes: &[Option<B>],
) -> Result<Vec<Gathered>> {
    let mut answers: Vec<Gathered> =
        questions.iter().map(|(aggregate, question)| nothing(aggregate, question)).collect::<Result<_>>()?;
    let mut gathered = Err(Error::internal("nothing was shown"));
    with_all(&piece.sources, bytes, Vec::new(), &mut |arrays| {
        let window = Window::of(piece, arrays);
        gathered = parts.iter().try_for_each(|part| {
            let window = Window { part: part.clone(), ..window.clone() };
            gather_all(questions, &window, &mut answers)
        });
    })?;
    gathered.map(|()| answers)
}

/// Takes the answers of a window in.
fn gather_all(
    questions: &[(&Aggregate, &Question)],
    window: &Window<'_>,
    answers: &mut [Gathered],
) -> Result<()> {
    let programs: Vec<&Program> = questions.iter().map(|(aggregate, _)| &aggregate.program).collect();
    let mut buffers = Buffers::default();
    let units = boxes_of(&window.part, CACHED);
    let first = units.first().map(|part| Window { part: part.clone(), ..window.clone() });
    let is_copied = first.is_some_and(|first| buffers.dense(&first, &programs).is_some());
    if let ([(aggregate, question)], [answer], false) = (questions, &mut *answers, is_copied) {
        answer.merge(gather(aggregate, question, window)?);
        return Ok(());
    }
    for part in units {
        let unit = Window { part, ..window.clone() };
        let dense = buffers.dense(&unit, &programs);
        let shown = dense.as_ref().unwrap_or(&unit);
        for ((aggregate, question), answer) in questions.iter().zip(answers.iter_mut()) {
            answer.merge(gather(aggregate, question, shown)?);
        }
    }
    Ok(())
}

/// Shows the arrays of all fields together.
fn with_all<B: Shown>(
    sources: &[Option<Source>],
    bytes: &[Option<B>],
    arrays: Vec<Option<FieldArray<'_>>>,
    use_them: &mut dyn FnMut(Vec<Option<FieldArray<'_>>>),
) -> Result<()> {
    let (Some((source, sources)), Some((next, rest))) = (sources.split_first(), bytes.split_first()) else {
        use_them(arrays);
        return Ok(());
    };
    let (Some(source), Some(next)) = (source, next) else {
        return with_all(sources, rest, arrays.into_iter().chain([None]).collect(), use_them);
    };
    let mut shown = Ok(());
    next.show(&mut |bytes| {
        let arrays = arrays.iter().cloned().chain([Some(FieldArray::of(source, bytes))]).collect();
        shown = with_all(sources, rest, arrays, use_them);
    })?;
    shown
}
