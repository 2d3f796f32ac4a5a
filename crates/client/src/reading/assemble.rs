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
use forebay_core::parts::holders_of;
use forebay_core::region::Region;
use forebay_core::selection::Selection;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::pieces::Copied;
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
    let held = holders_of(selection, 0, blocks);
    Ok(held.into_iter().filter_map(|(index, part)| Some((blocks.get(index)?, part))).collect())
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
    from: &BlockSource<'_>,
    field: &Field,
    block: &BlockRecord,
    selection: &Selection,
    part: &Region,
    target: &mut Target<'_>,
) -> Result<Option<RemotePart>> {
    let low = block.extent.ghost_low();
    let Some(mut place) = block.extent.selection().place_of(&selection.part(part)) else {
        return Err(Error::internal("a block does not hold what was found in it"));
    };
    place.offset.iter_mut().zip(&low).for_each(|(offset, low)| *offset += low);
    read_place(from, field.dtype.size(), block, &place, part, target)
}

/// Reads elements of a block's array as it is stored, to a region of the array that is filled; gives it back if it has to be fetched.
fn read_place(
    &BlockSource { pool, term, .. }: &BlockSource<'_>,
    element: usize,
    block: &BlockRecord,
    place: &Selection,
    region: &Region,
    target: &mut Target<'_>,
) -> Result<Option<RemotePart>> {
    let stored = block.extent.stored_shape();
    let Selection { offset, step, .. } = place;
    if let Some(inline) = &block.inline {
        return target.fill_from_slice(inline, &stored, offset, step).map(|()| None);
    }
    if let Some(arena) = pool.arena(&block.location, term)? {
        let (mapping, start) = arena.show_all(block.location.offset, block.location.bytes)?;
        return target.fill_from_mapping(&mapping, start, &stored, offset, step).map(|()| None);
    }
    let part = Part { offset: offset.clone(), shape: region.shape().into(), step: step.clone() };
    Ok(Some(RemotePart { location: block.location, stored, element, part, region: region.clone() }))
}

/// Copies elements of several blocks to where they belong in an array.
pub(crate) fn copy(
    from: &BlockSource<'_>,
    copies: &[Copied],
    element: usize,
    target: &mut Target<'_>,
) -> Result<()> {
    let mut remote = Vec::new();
    for Copied { record, from: place, to } in copies {
        remote.extend(read_place(from, element, record, place, to, &mut target.part(to)?)?);
    }
    fetch_all(from.pool, &remote, target, |_, error| error.during(from.step.clone()))
}
