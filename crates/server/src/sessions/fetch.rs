//! Parts of blocks, as they are sent to readers on other hosts.

use crate::node::{HeldBytes, Node};
use forebay_core::region::{Boxes, Dims, MAX_NDIM, Region};
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_store::strided::Target;
use forebay_transport::asynchronous::Payload;
use forebay_wire::client::reading::{FETCHED_AT_ONCE_MAX, Fetch, Part};
use std::sync::Arc;

/// How much of a fetched part is gathered at a time, in bytes.
const PIECE: u64 = 1 << 20;

/// The bytes that are asked for, as they are sent: nothing is copied before. The block is held until they are.
pub(super) fn payload(node: &Arc<Node>, fetch: &Fetch) -> Result<Payload> {
    let Held { selection, bytes } = Held::find(node, fetch)?;
    Ok(selection.payload(bytes.mapping.clone(), bytes.offset, bytes))
}

/// The bytes of several small parts, one after the other. All blocks are held until all are sent.
pub(super) fn payload_of_many(node: &Arc<Node>, fetches: Vec<Fetch>) -> Result<Payload> {
    if fetches.len() > FETCHED_AT_ONCE_MAX {
        return Err(Error::protocol(format!("{} parts are asked for at once", fetches.len())));
    }
    let held = fetches.iter().map(|fetch| Held::find(node, fetch)).collect::<Result<Vec<Held>>>()?;
    if held.iter().any(|held| held.selection.bytes > PIECE) {
        return Err(Error::protocol("a large part is asked for together with others"));
    }
    let bytes = held.iter().map(|held| held.selection.bytes).sum();
    let mut sent = 0;
    let generator = Box::new(move |out: &mut Vec<u8>| {
        // Many small ones are sent together.
        let full = out.len() + PIECE as usize;
        while let Some(next) = held.get(sent)
            && out.len() < full
        {
            sent += 1;
            next.append(out)?;
        }
        Ok(())
    });
    Ok(Payload::Generated { generator, bytes })
}

/// A part of a block that is held, to be sent.
struct Held {
    selection: Selection,
    bytes: HeldBytes,
}

impl Held {
    fn find(node: &Arc<Node>, fetch: &Fetch) -> Result<Held> {
        let Fetch { arena, offset, bytes, generation, .. } = *fetch;
        let selection = Selection::check(&fetch.stored, fetch.element, bytes, &fetch.part)?;
        Ok(Held { selection, bytes: node.hold_bytes(arena, offset, generation, bytes)? })
    }

    /// Appends its bytes, dense and row-major.
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        let Selection { stored, element, part, bytes } = &self.selection;
        let start = out.len();
        out.resize(start + *bytes as usize, 0);
        if *bytes == 0 {
            return Ok(());
        }
        let mut target = Target::from_slice(&mut out[start..], &part.shape, *element)?;
        target.fill_from_mapping(&self.bytes.mapping, self.bytes.offset, stored, &part.offset, &part.step)
    }
}

/// A checked part of a stored array.
struct Selection {
    stored: Dims,
    element: usize,
    part: Part,
    bytes: u64,
}

impl Selection {
    fn check(stored: &[u64], element: u8, bytes: u64, part: &Part) -> Result<Selection> {
        let whole = Region::whole(stored)?;
        let n = stored.len();
        let element = usize::from(element);
        let size = whole.volume().checked_mul(element as u64);
        let same = part.offset.len() == n && part.shape.len() == n && part.step.len() == n && n <= MAX_NDIM;
        if !same || size != Some(bytes) || ![1, 2, 4, 8, 16].contains(&element) {
            return Err(Error::protocol("a fetch does not describe its block"));
        }
        let inside = (0..n).all(|d| {
            let last = part.shape[d].saturating_sub(1).checked_mul(part.step[d]);
            let last = last.and_then(|span| span.checked_add(part.offset[d]));
            part.step[d] > 0 && (part.shape[d] == 0 || last.is_some_and(|last| last < stored[d]))
        });
        if !inside {
            return Err(Error::out_of_bounds("a fetch reaches outside its block"));
        }
        let bytes =
            if part.shape.contains(&0) { 0 } else { part.shape.iter().product::<u64>() * element as u64 };
        Ok(Selection { stored: stored.into(), element, part: part.clone(), bytes })
    }

    /// Where the part lies in the block, if it is one piece.
    fn contiguous(&self) -> Option<u64> {
        let n = self.stored.len();
        let mut whole_below = true;
        for d in (0..n).rev() {
            let full = self.part.shape[d] == self.stored[d];
            if self.part.shape[d] > 1 && (self.part.step[d] != 1 || !whole_below) {
                return None;
            }
            whole_below &= full;
        }
        let first = (0..n).fold(0, |at, d| at * self.stored[d] + self.part.offset[d]);
        Some(first * self.element as u64)
    }

    /// The part's bytes, dense: sent from where they lie if they are one piece, gathered in rows otherwise. The guard
    /// is dropped when all are sent.
    fn payload(self, mapping: Arc<Mapping>, offset: u64, guard: impl Send + 'static) -> Payload {
        // Of no bytes, the offset of the part may be anything.
        let first = if self.bytes == 0 { Some(0) } else { self.contiguous() };
        if let Some(first) = first {
            return Payload::Mapped {
                mapping,
                offset: offset + first,
                bytes: self.bytes,
                guard: Box::new(guard),
            };
        }
        let bytes = self.bytes;
        let mut pieces = Boxes::new(&self.part.shape, PIECE / self.element as u64);
        let generator = Box::new(move |out: &mut Vec<u8>| {
            let _kept = &guard;
            let Some(piece) = pieces.next() else { return Ok(()) };
            let first: Dims = (0..piece.ndim())
                .map(|d| self.part.offset[d] + piece.offset()[d] * self.part.step[d])
                .collect();
            let start = out.len();
            out.resize(start + piece.volume() as usize * self.element, 0);
            let mut target = Target::from_slice(&mut out[start..], piece.shape(), self.element)?;
            target.fill_from_mapping(&mapping, offset, &self.stored, &first, &self.part.step)
        });
        Payload::Generated { generator, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_fetches_are_refused_or_harmless() {
        let part = |offset: &[u64], shape: &[u64], step: &[u64]| Part {
            offset: offset.into(),
            shape: shape.into(),
            step: step.into(),
        };
        let check =
            |stored: &[u64], element, bytes, part: Part| Selection::check(stored, element, bytes, &part);
        assert!(check(&[10], 8, 80, part(&[5], &[6], &[1])).is_err());
        assert!(check(&[10], 8, 80, part(&[0], &[2], &[u64::MAX])).is_err());
        assert!(check(&[10], 8, 80, part(&[u64::MAX], &[2], &[1])).is_err());
        assert!(check(&[10], 8, 80, part(&[0], &[1], &[0])).is_err());
        assert!(check(&[10], 8, 81, part(&[0], &[1], &[1])).is_err());
        assert!(check(&[10], 3, 30, part(&[0], &[1], &[1])).is_err());
        assert!(check(&[10], 8, 80, part(&[0, 0], &[1, 1], &[1, 1])).is_err());
        assert!(check(&[1 << 32, 1 << 32], 8, 0, part(&[0, 0], &[1, 1], &[1, 1])).is_err());
        assert!(check(&[1; 9], 8, 8, part(&[0; 9], &[1; 9], &[1; 9])).is_err());
        // Nothing of a block, from anywhere: no arithmetic on that place.
        let arena = forebay_store::Arena::create(4096).unwrap();
        for (stored, bytes) in [(vec![10], 80), (vec![0, u64::MAX], 0)] {
            let zero: Dims = stored.iter().map(|_| 0).collect();
            let far: Dims = stored.iter().map(|_| u64::MAX).collect();
            let one: Dims = stored.iter().map(|_| 1).collect();
            let nothing = check(&stored, 8, bytes, part(&far, &zero, &one)).unwrap();
            let payload = nothing.payload(arena.mapping().unwrap(), 0, ());
            assert!(matches!(payload, Payload::Mapped { offset: 0, bytes: 0, .. }));
        }
    }
}
