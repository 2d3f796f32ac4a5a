//! The arrays of a piece, as this reader gets them, and what is gathered of them.

use crate::reading::assemble;
use crate::reading::block_view::BlockBytes;
use crate::reading::seen::SeenBlock;
use crate::reading::step::Step;
use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_core::selection::Selection;
use forebay_query::decide::decide;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{Held, Piece, Source};
use forebay_query::plan::{Aggregate, Plan};
use forebay_store::evaluate::{Shown, gather_piece, nothing};
use forebay_store::strided::Target;
use std::sync::Arc;

/// The answer to a question, of the elements of a piece. Reads them where they lie, or fetches them, unless statistics decide.
pub(super) fn answer_of(
    step: &Step,
    plan: &Plan,
    (aggregate, question): (&Aggregate, &Question),
    piece: &Piece,
) -> Result<Gathered> {
    let (known, unread) = decide(piece, &[(aggregate, question)]);
    let mut bytes = Vec::with_capacity(piece.sources.len());
    for (source, planned) in piece.sources.iter().zip(&plan.fields) {
        let of = |source| bytes_of(step, step.field(&planned.field.name)?, source);
        bytes.push(source.as_ref().filter(|_| !unread.is_empty()).map(of).transpose()?);
    }
    let mut all = nothing(aggregate, question)?;
    known.into_iter().for_each(|known| all.merge(known));
    if !unread.is_empty() {
        let parts: Vec<Selection> = unread.into_iter().flat_map(|unread| unread.parts).collect();
        let read = gather_piece(&[(aggregate, question)], piece, &parts, &bytes)?;
        read.into_iter().for_each(|read| all.merge(read));
    }
    Ok(all)
}

impl Shown for BlockBytes {
    fn show(&self, use_them: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.with(use_them)
    }
}

fn bytes_of(step: &Step, field: &Field, source: &Source) -> Result<BlockBytes> {
    match &source.held {
        Held::Block(record) => step.bytes_of(field, &SeenBlock { record, cut: None }, &step.hold_of(field)?),
        Held::Copies(copies) => {
            let (shape, element) = (&source.shape, field.dtype.size());
            let mut buffer = step.buffer(shape.iter().product::<u64>() as usize * element);
            let mut all = Target::from_slice(buffer.as_mut(), shape, element)?;
            assemble::copy(&step.source_of(field), copies, element, &mut all)?;
            Ok(BlockBytes::Owned(Arc::new(buffer)))
        }
    }
}
