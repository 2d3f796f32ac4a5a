//! The bytes of pieces: where they lie on this server, or copied.

use super::super::{HeldBytes, Node};
use crate::node::fetching::Wanted;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::region::Dims;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::pieces::{Copied, Held, Source};
use forebay_store::evaluate::Shown;
use forebay_store::strided::Target;
use forebay_wire::evaluation::Cost;
use std::sync::Arc;

/// How many bytes an array may have that is copied together.
const COPIED_MAX: u64 = 64 << 20;

/// The bytes of an array.
#[derive(Debug)]
pub(super) enum Bytes {
    /// A block, where it lies.
    Held(HeldBytes),
    /// A copy.
    Copied(Vec<u8>),
}

impl Shown for Bytes {
    fn show(&self, use_them: &mut dyn FnMut(&[u8])) -> Result<()> {
        match self {
            Bytes::Held(held) => held.mapping.with_readable(held.offset, held.bytes, use_them),
            Bytes::Copied(bytes) => {
                use_them(bytes);
                Ok(())
            }
        }
    }
}

impl Node {
    /// The bytes of a source. What is copied waits for other servers, if it comes from there.
    pub(super) async fn source_bytes(self: &Arc<Node>, source: &Source, cost: &mut Cost) -> Result<Bytes> {
        match &source.held {
            Held::Block(BlockRecord { inline: Some(bytes), .. }) => Ok(Bytes::Copied(bytes.to_vec())),
            Held::Block(record) => self.held(&record.location).map(Bytes::Held),
            Held::Copies(copies) => self.copied(source, copies, cost).await.map(Bytes::Copied),
        }
    }

    fn held(self: &Arc<Node>, location: &Location) -> Result<HeldBytes> {
        let Location { arena, offset, bytes, generation, .. } = *location;
        let held = self.hold_bytes(arena, offset, generation, bytes);
        held.map_err(|error| Error::new(ErrorKind::Lost, format!("a block is held no longer: {error}")))
    }

    async fn copied(
        self: &Arc<Node>,
        source: &Source,
        copies: &[Copied],
        cost: &mut Cost,
    ) -> Result<Vec<u8>> {
        let bytes = source.bytes().filter(|bytes| *bytes <= COPIED_MAX);
        let bytes = bytes.ok_or_else(|| {
            Error::new(ErrorKind::Full, "what goes with a few elements of a field is more than 64 MiB")
        })?;
        let element = source.dtype.size();
        let mut all = vec![0; bytes as usize];
        for Copied { record, from, to } in copies {
            let (stored, location) = (record.extent.stored_shape(), &record.location);
            if from.shape[..] != *to.shape() || from.span_in(&stored).is_none() {
                return Err(Error::protocol("elements that are to be copied lie outside their block"));
            }
            let is_elsewhere = record.inline.is_none() && location.server != self.id;
            let fetched = if is_elsewhere {
                cost.fetched += to.volume() * element as u64;
                let began = self.environment.now();
                let fetched = self.fetch_part(&Wanted { location, stored: &stored, element, from }).await?;
                cost.waiting += (self.environment.now() - began).as_secs_f64();
                Some(fetched)
            } else {
                None
            };
            let mut all = Target::from_slice(&mut all, &source.shape, element)?;
            let mut target = all.part(to)?;
            if let Some(inline) = &record.inline {
                target.fill_from_slice(inline, &stored, &from.offset, &from.step)?;
            } else if let Some(dense) = fetched {
                let (zero, one): (Dims, Dims) = from.shape.iter().map(|_| (0, 1)).unzip();
                target.fill_from_mapping(&dense, 0, &from.shape, &zero, &one)?;
            } else {
                let held = self.held(location)?;
                target.fill_from_mapping(&held.mapping, held.offset, &stored, &from.offset, &from.step)?;
            }
        }
        Ok(all)
    }
}
