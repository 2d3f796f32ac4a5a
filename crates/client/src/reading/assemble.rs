//! Assembling a region from blocks, whoever holds them: exactly what was asked for, or an error that says
//! what is missing, before anything is written; or what there is of it, if the caller says so.

use crate::check_dtype::check_dtype;
use crate::holes::Holes;
use crate::reading::selection::Selection;
use crate::reading::server_pool::ServerPool;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::coverage;
use forebay_core::ids::Epoch;
use forebay_core::region::{Dims, Region};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;

/// What blocks are read from.
pub(crate) struct BlockSource<'a> {
    pub(crate) pool: &'a ServerPool,
    /// The step, for errors.
    pub(crate) step: String,
    /// The term in which was told of them.
    pub(crate) term: Epoch,
}

/// Fills `target`, which has the selection's shape, from these blocks of a field.
pub(crate) fn read(
    from: &BlockSource<'_>,
    field: &Field,
    blocks: &[BlockRecord],
    selection: &Selection,
    holes: Holes,
    target: &mut Target<'_>,
) -> Result<()> {
    check_dtype(field, target.dtype())?;
    if target.shape() != &selection.shape[..] || target.element() != field.dtype.size() {
        return Err(Error::out_of_bounds(format!(
            "field '{}': the target has shape {:?}, the selection {:?}",
            field.name,
            target.shape(),
            &selection.shape[..]
        )));
    }
    let step = &from.step;
    let parts = match holes {
        Holes::Refused => parts(step, field, blocks, selection)?,
        Holes::Left => covered(field, blocks, selection)?,
    };
    for (block, part) in parts {
        read_part(from, field, block, selection, &part, &mut target.part(&part)?)
            .map_err(|error| error.during(format!("{} of field '{}' at {step}", block.key, field.name)))?;
    }
    Ok(())
}

/// Which blocks hold which part of a selection.
pub(crate) fn covered<'a>(
    field: &Field,
    blocks: &'a [BlockRecord],
    selection: &Selection,
) -> Result<Vec<(&'a BlockRecord, Region)>> {
    selection.span(field)?;
    let placed = blocks.iter().filter(|block| block.level == 0 && block.extent.offset().is_some());
    let parts = placed.filter_map(|block| Some((block, selection.within(&block.extent.interior())?)));
    Ok(parts.collect())
}

/// The same, where together they hold all of it.
pub(crate) fn parts<'a>(
    step: &str,
    field: &Field,
    blocks: &'a [BlockRecord],
    selection: &Selection,
) -> Result<Vec<(&'a BlockRecord, Region)>> {
    let parts = covered(field, blocks, selection)?;
    let found: u64 = parts.iter().map(|(_, part)| part.volume()).sum();
    // Interiors are disjoint, so that counting elements tells whether all are there.
    let wanted = selection.shape.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
    if Some(found) != wanted {
        let interiors: Vec<Region> = parts.iter().map(|(block, _)| block.extent.interior()).collect();
        let span = selection.span(field)?;
        let missing = coverage::missing(&span, interiors.iter());
        let place = match missing {
            Some(part) if part == span => span.to_string(),
            Some(part) => format!("{part}, which is part of {span}"),
            None => format!("a part of {span}"),
        };
        let text = format!("field '{}' at {step}: nothing was put at {place}", field.name);
        return Err(Error::new(ErrorKind::NotCovered, text));
    }
    Ok(parts)
}

fn read_part(
    &BlockSource { pool, term, .. }: &BlockSource<'_>,
    field: &Field,
    block: &BlockRecord,
    selection: &Selection,
    part: &Region,
    target: &mut Target<'_>,
) -> Result<()> {
    let stored = block.extent.stored_shape();
    let (interior, low) = (block.extent.interior(), block.extent.ghost_low());
    let offset: Dims = (0..stored.len())
        .map(|d| selection.offset[d] + part.offset()[d] * selection.step[d] - interior.offset()[d] + low[d])
        .collect();
    if let Some(inline) = &block.inline {
        return target.fill_from_slice(inline, &stored, &offset, &selection.step);
    }
    if let Some(arena) = pool.arena(&block.location, term)? {
        let (mapping, start) = arena.show_all(block.location.offset, block.location.bytes)?;
        return target.fill_from_mapping(&mapping, start, &stored, &offset, &selection.step);
    }
    let wire_part = Part { offset, shape: part.shape().into(), step: selection.step.clone() };
    if let Some(dense) = target.as_dense() {
        return pool.fetch(&block.location, &stored, field.dtype.size(), wire_part, dense);
    }
    let element = field.dtype.size();
    let mut dense = vec![0; part.volume() as usize * element];
    pool.fetch(&block.location, &stored, element, wire_part, &mut dense)?;
    let zero: Dims = part.shape().iter().map(|_| 0).collect();
    let one: Dims = part.shape().iter().map(|_| 1).collect();
    target.fill_from_slice(&dense, part.shape(), &zero, &one)
}
