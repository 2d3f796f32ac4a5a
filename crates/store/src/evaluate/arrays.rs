//! The elements of a piece, whose bytes can be shown.

use crate::evaluate::gather::gather;
use crate::evaluate::window::{FieldArray, Window};
use forebay_core::{Error, Result};
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{Piece, Source};
use forebay_query::plan::Aggregate;

/// Bytes that can be shown for one call: in shared memory they stay as they are no longer.
pub trait Shown {
    /// Shows them.
    fn show(&self, use_them: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// The answer to a question about an aggregate, of the elements of a piece: `bytes` are those of its sources. Fails as [`gather`]
/// does.
pub fn gather_piece<B: Shown>(
    aggregate: &Aggregate,
    question: &Question,
    piece: &Piece,
    bytes: &[Option<B>],
) -> Result<Gathered> {
    let mut found = Err(Error::internal("nothing was shown"));
    with_all(&piece.sources, bytes, Vec::new(), &mut |arrays| {
        found = gather(aggregate, question, &Window::of(piece, arrays));
    })?;
    found
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
