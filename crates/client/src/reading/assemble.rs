//! Assembling a region from blocks, whoever holds them: exactly what was asked for, or an error that says
//! what is missing, before anything is written.

use crate::holder::Holders;
use crate::typed::check_dtype;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::coverage;
use forebay_core::ids::Epoch;
use forebay_core::region::{Dims, Region};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;

/// Every `step[d]`-th element of a box of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The first element in each dimension.
    pub offset: Dims,
    /// How many elements in each dimension.
    pub shape: Dims,
    /// The distance between them.
    pub step: Dims,
}

impl Selection {
    /// A whole region.
    pub fn region(region: &Region) -> Selection {
        Selection {
            offset: region.offset().into(),
            shape: region.shape().into(),
            step: region.shape().iter().map(|_| 1).collect(),
        }
    }

    /// Checks it against a field's shape; returns the box that it spans.
    pub fn span(&self, field: &Field) -> Result<Region> {
        let fail = |text: String| Err(Error::out_of_bounds(format!("field '{}': {text}", field.name)));
        let Some(global) = &field.shape else {
            return fail(
                "its blocks have no place in a global array; read them one by one with blocks()".into(),
            );
        };
        let n = global.len();
        if self.offset.len() != n || self.shape.len() != n || self.step.len() != n {
            return fail(format!("a selection of {} dimensions from a field of {n}", self.shape.len()));
        }
        let mut span = Dims::new();
        for d in 0..n {
            if self.step[d] == 0 {
                return fail("a selection of every 0 elements; use 1 for all".into());
            }
            let extent = match self.shape[d] {
                0 => Some(0),
                count => (count - 1).checked_mul(self.step[d]).and_then(|extent| extent.checked_add(1)),
            };
            let inside = extent
                .and_then(|extent| self.offset[d].checked_add(extent))
                .is_some_and(|end| end <= global[d]);
            let Some(extent) = extent.filter(|_| inside) else {
                return fail(format!(
                    "a selection from {} of {} elements every {} reaches outside the shape {:?} in dimension {d}",
                    self.offset[d],
                    self.shape[d],
                    self.step[d],
                    &global[..]
                ));
            };
            span.push(extent);
        }
        Region::new(&self.offset, &span)
    }

    /// Which of the selected elements lie in a box: as a region of the selection.
    fn within(&self, interior: &Region) -> Option<Region> {
        let (mut offset, mut shape) = (Dims::new(), Dims::new());
        for d in 0..self.shape.len() {
            let first = interior.offset()[d].saturating_sub(self.offset[d]).div_ceil(self.step[d]);
            let end =
                interior.end(d).saturating_sub(self.offset[d]).div_ceil(self.step[d]).min(self.shape[d]);
            if first >= end {
                return None;
            }
            offset.push(first);
            shape.push(end - first);
        }
        Region::new(&offset, &shape).ok()
    }
}

/// What blocks are read from.
pub(crate) struct Origin<'a> {
    pub(crate) holders: &'a Holders,
    /// The step, for errors.
    pub(crate) step: String,
    /// The term in which was told of them.
    pub(crate) term: Epoch,
}

/// Fills `target`, which has the selection's shape, from these blocks of a field.
pub(crate) fn read(
    from: &Origin<'_>,
    field: &Field,
    blocks: &[BlockRecord],
    selection: &Selection,
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
    for (block, part) in parts(step, field, blocks, selection)? {
        read_part(from, field, block, selection, &part, &mut target.part(&part)?)
            .map_err(|error| error.during(format!("{} of field '{}' at {step}", block.key, field.name)))?;
    }
    Ok(())
}

/// Which blocks hold which part of a selection; together they hold all of it.
pub(crate) fn parts<'a>(
    step: &str,
    field: &Field,
    blocks: &'a [BlockRecord],
    selection: &Selection,
) -> Result<Vec<(&'a BlockRecord, Region)>> {
    let span = selection.span(field)?;
    let mut parts = Vec::new();
    if selection.shape.contains(&0) {
        return Ok(parts);
    }
    let mut found = 0u64;
    for block in blocks.iter().filter(|block| block.level == 0 && block.extent.offset().is_some()) {
        if let Some(part) = selection.within(&block.extent.interior()) {
            found += part.volume();
            parts.push((block, part));
        }
    }
    // Interiors are disjoint, so that counting elements tells whether all are there.
    let wanted = selection.shape.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
    if Some(found) != wanted {
        let interiors: Vec<Region> = parts.iter().map(|(block, _)| block.extent.interior()).collect();
        let missing = coverage::missing(&span, interiors.iter());
        return Err(Error::new(
            ErrorKind::NotCovered,
            format!(
                "field '{}' at {step}: nothing was put at {}, which is part of {span}",
                field.name,
                missing.map_or_else(|| "a part".to_owned(), |part| part.to_string())
            ),
        ));
    }
    Ok(parts)
}

fn read_part(
    &Origin { holders, term, .. }: &Origin<'_>,
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
    if let Some(arena) = holders.arena(&block.location, term)? {
        let (mapping, start) = arena.show_all(block.location.offset, block.location.bytes)?;
        return target.fill_from_mapping(&mapping, start, &stored, &offset, &selection.step);
    }
    let wire_part = Part { offset, shape: part.shape().into(), step: selection.step.clone() };
    if let Some(dense) = target.as_dense() {
        return holders.fetch(&block.location, &stored, field.dtype.size(), wire_part, dense);
    }
    let element = field.dtype.size();
    let mut dense = vec![0; part.volume() as usize * element];
    holders.fetch(&block.location, &stored, element, wire_part, &mut dense)?;
    let zero: Dims = part.shape().iter().map(|_| 0).collect();
    let one: Dims = part.shape().iter().map(|_| 1).collect();
    target.fill_from_slice(&dense, part.shape(), &zero, &one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_meet_boxes_where_they_should() {
        let selection = Selection { offset: [1][..].into(), shape: [4][..].into(), step: [3][..].into() };
        // Elements 1, 4, 7, 10.
        let within = |offset: u64, shape: u64| {
            let found = selection.within(&Region::new(&[offset], &[shape]).unwrap());
            found.map(|region| (region.offset()[0], region.shape()[0]))
        };
        assert_eq!(within(0, 5), Some((0, 2)));
        assert_eq!(within(5, 2), None);
        assert_eq!(within(5, 3), Some((2, 1)));
        assert_eq!(within(10, 90), Some((3, 1)));
        assert_eq!(within(11, 90), None);
    }
}
