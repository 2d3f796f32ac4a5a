//! Assembling a region from blocks, whoever holds them: exactly what was asked for, or an error that says
//! what is missing, before anything is written; or what there is of it, if the caller says so.

use crate::check_dtype::check_dtype;
use crate::holes::Holes;
use crate::reading::remote::{RemotePart, fetch_all};
use crate::reading::server_pool::ServerPool;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::coverage;
use forebay_core::ids::Epoch;
use forebay_core::region::Region;
use forebay_core::selection::Selection;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;
use std::collections::HashMap;

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
    let about = |block: &BlockRecord, error: Error| {
        error.during(format!("{} of field '{}' at {step}", block.key, field.name))
    };
    let (mut remote, mut blocks) = (Vec::new(), Vec::new());
    for (block, part) in &parts {
        let read = read_part(from, field, block, selection, part, &mut target.part(part)?);
        if let Some(elsewhere) = read.map_err(|error| about(block, error))? {
            remote.push(elsewhere);
            blocks.push(*block);
        }
    }
    fetch_all(from.pool, &remote, target, |index, error| match blocks.get(index) {
        Some(block) => about(block, error),
        None => error,
    })
}

/// Which blocks hold which part of a selection: boxes of it that have no element in common.
pub(crate) fn covered<'a>(
    field: &Field,
    blocks: &'a [BlockRecord],
    selection: &Selection,
) -> Result<Vec<(&'a BlockRecord, Region)>> {
    field.span_of(selection)?;
    let placed = blocks.iter().filter(|block| block.level == 0 && block.extent.offset().is_some());
    let (with_gaps, dense): (Vec<_>, Vec<_>) = placed.partition(|block| block.extent.step().is_some());
    let within = |block: &BlockRecord| selection.within(&block.extent.interior());
    // Their interiors are disjoint.
    let mut parts: Vec<_> = dense.into_iter().filter_map(|block| Some((block, within(block)?))).collect();
    if with_gaps.is_empty() {
        return Ok(parts);
    }
    // Other parts of the same block may have some of their elements, too.
    let mut known: HashMap<(u32, u64), Vec<Region>> = HashMap::new();
    for (block, part) in &parts {
        known.entry((block.key.rank, block.key.number)).or_default().push(part.clone());
    }
    for block in with_gaps {
        let Some(part) = within(block) else { continue };
        if !block.extent.selection().holds(&selection.part(&part)) {
            continue;
        }
        let known = known.entry((block.key.rank, block.key.number)).or_default();
        let pieces = known.iter().fold(vec![part], |pieces, known| {
            pieces.iter().flat_map(|piece| piece.subtract(known)).collect()
        });
        known.extend(pieces.iter().cloned());
        parts.extend(pieces.into_iter().map(|piece| (block, piece)));
    }
    Ok(parts)
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
    // They are disjoint, so that counting elements tells whether all are there.
    let wanted = selection.shape.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
    if Some(found) != wanted {
        let whole = Region::whole(&selection.shape)?;
        let missing = coverage::missing(&whole, parts.iter().map(|(_, part)| part));
        let place = match missing {
            Some(part) if part == whole => selection.to_string(),
            Some(part) => format!("{}, which is part of {selection}", selection.part(&part)),
            None => format!("a part of {selection}"),
        };
        let text = format!("field '{}' at {step}: nothing was put at {place}", field.name);
        return Err(Error::new(ErrorKind::NotCovered, text));
    }
    Ok(parts)
}

/// Reads a part of a block; gives it back if it has to be fetched.
fn read_part(
    &BlockSource { pool, term, .. }: &BlockSource<'_>,
    field: &Field,
    block: &BlockRecord,
    selection: &Selection,
    part: &Region,
    target: &mut Target<'_>,
) -> Result<Option<RemotePart>> {
    let (stored, low) = (block.extent.stored_shape(), block.extent.ghost_low());
    let Some(Selection { mut offset, step, .. }) = block.extent.selection().place_of(&selection.part(part))
    else {
        return Err(Error::internal("a block does not hold what was found in it"));
    };
    offset.iter_mut().zip(&low).for_each(|(offset, low)| *offset += low);
    if let Some(inline) = &block.inline {
        return target.fill_from_slice(inline, &stored, &offset, &step).map(|()| None);
    }
    if let Some(arena) = pool.arena(&block.location, term)? {
        let (mapping, start) = arena.show_all(block.location.offset, block.location.bytes)?;
        return target.fill_from_mapping(&mapping, start, &stored, &offset, &step).map(|()| None);
    }
    let (location, element) = (block.location, field.dtype.size());
    let (region, part) = (part.clone(), Part { offset, shape: part.shape().into(), step });
    Ok(Some(RemotePart { location, stored, element, part, region }))
}
