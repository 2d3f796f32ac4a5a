//! What a consumer's connection does: attaches, releases, maps arenas, fetches bytes, uses the space.

use super::{Session, left};
use crate::node::{Attached, Held, Node};
use forebay_core::ids::{Epoch, RunNumber, ServerId, StepNumber, check_name};
use forebay_core::region::{Dims, MAX_NDIM, Region};
use forebay_core::steps::{Attachment, AttachmentId, Start, check_replicas};
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_store::strided::Target;
use forebay_transport::asynchronous::Payload;
use forebay_wire::frame::Header;
use forebay_wire::message::{Bytes, Part, PutBlock, SpacePut, ToClient, ToServer};
use std::sync::Arc;
use tokio::time::timeout;

/// How many mappings of arenas a client may have.
const MAPPINGS_MAX: usize = 1 << 16;
/// How much of a fetched part is gathered at a time.
const PIECE: u64 = 1 << 20;

impl Session {
    /// Attaches to a stream that this server coordinates. Answers once it is agreed from which step on it takes part:
    /// steps that begin after that are for it. `back`: what named it at a coordinator before this one.
    pub(super) async fn attach(
        &mut self,
        stream: String,
        attachment: Attachment,
        start: Start,
        back: Option<AttachmentId>,
    ) -> Result<ToClient> {
        check_name("stream", &stream)?;
        // A reader that has given up meanwhile must not take the place that is kept for it: it comes once more.
        let elsewhere = tokio::select! {
            biased;
            () = left(&self.receiver, self.process.as_deref()) => {
                return Err(Error::unreachable("the reader has left"));
            }
            elsewhere = self.find_told(&stream) => elsewhere?,
        };
        if let Some(server) = elsewhere {
            return Ok(ToClient::AskInstead(server));
        }
        let node = self.node.clone();
        let id = {
            let mut state = node.state.lock();
            let kept = |id: &AttachmentId| {
                state.known_attachments.contains(&stream, *id) && !state.attachments.contains_key(id)
            };
            let id = back.filter(kept).unwrap_or_else(|| AttachmentId(node.unique()));
            let outbox = self.outbox.clone();
            state.attachments.insert(id, Attached::Consumer { outbox });
            match node.coordinator(&mut state, &stream).attach(id, attachment, start) {
                Ok(effects) => {
                    self.attachments.push((id, stream.clone()));
                    node.apply(&mut state, &stream, effects);
                    node.drain(&mut state);
                }
                Err(error) => {
                    state.attachments.remove(&id);
                    node.forget_idle(&mut state, &stream);
                    return Err(error);
                }
            }
            id
        };
        let agreed = tokio::select! {
            biased;
            agreed = timeout(self.patience, node.agreed_on(&stream, id)) => agreed.is_ok(),
            () = left(&self.receiver, self.process.as_deref()) => false,
        };
        if agreed {
            let from = node.coordinator(&mut node.state.lock(), &stream).takes_part_from(id);
            return Ok(ToClient::Attached { attachment: id, from });
        }
        self.attachments.retain(|(known, _)| *known != id);
        node.detach(id, Some(stream.clone()));
        Err(Error::timeout(format!(
            "the servers did not agree in time from which step of stream '{stream}' on a new reader takes part: one of \
             them stands still"
        )))
    }

    /// As `find_elsewhere`; if it is this one, waits until it has been told all that the coordinator before it knew: else
    /// a reader would not be told of runs that are over.
    async fn find_told(&self, stream: &str) -> Result<Option<ServerId>> {
        let told = async {
            loop {
                let elsewhere = self.find_elsewhere(stream).await?;
                if elsewhere.is_some() || self.node.until_settled(stream).await {
                    return Ok(elsewhere);
                }
            }
        };
        timeout(self.patience, told).await.unwrap_or_else(|_| {
            Err(Error::timeout(format!(
                "not all servers have told what they know of stream '{stream}', whose coordinator has gone: one stands still"
            )))
        })
    }

    /// The server that coordinates a stream, if it is another one.
    pub(super) async fn find_elsewhere(&self, stream: &str) -> Result<Option<ServerId>> {
        let found = timeout(self.patience, self.node.find_place(stream)).await;
        let server = found.map_err(|_| {
            Error::timeout(format!(
                "it is not known yet which server coordinates stream '{stream}': one stands still"
            ))
        })?;
        Ok((server != self.node.id).then_some(server))
    }

    /// Has finished with a step.
    pub(super) fn release(&mut self, id: AttachmentId, run: RunNumber, step: StepNumber, pinned: bool) {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else { return };
        let mut state = self.node.state.lock();
        let effects = self.node.coordinator(&mut state, stream).release(id, run, step, pinned);
        self.node.apply(&mut state, stream, effects);
        self.node.drain(&mut state);
    }

    /// Its handle is closed: it wants nothing more, but arrays of these steps live on.
    pub(super) fn close_attachment(&mut self, id: AttachmentId, held: &[(RunNumber, StepNumber)]) {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else { return };
        let mut state = self.node.state.lock();
        let effects = self.node.coordinator(&mut state, stream).close(id, held);
        self.node.apply(&mut state, stream, effects);
        self.node.drain(&mut state);
    }

    /// Hands out an arena for reading.
    pub(super) fn open_arena(&mut self, request: u64, arena: u32, term: Epoch) -> Result<Option<ToClient>> {
        if !self.shared_memory {
            return Err(Error::invalid("memory is not shared on this connection: fetch instead"));
        }
        if self.readers.len() >= MAPPINGS_MAX {
            return Err(Error::invalid(format!("this client has {MAPPINGS_MAX} arenas mapped already")));
        }
        let reader = self.node.unique();
        let opened = self.node.store.lock().readable_descriptor(arena, reader, term);
        let (descriptor, bytes) = opened.map_err(|_| {
            Error::new(forebay_core::ErrorKind::Lost, format!("arena {arena} is gone with all its blocks"))
        })?;
        self.readers.insert(reader);
        self.reply_with(request, ToClient::Arena { bytes, reader }, descriptor)?;
        Ok(None)
    }

    /// Does not have an arena mapped any more.
    pub(super) fn close_arena(&mut self, reader: u64) {
        // Only its own: what another one looks at is not to be used again.
        if self.readers.remove(&reader) {
            self.node.reader_gone(reader);
        }
    }

    /// Sends bytes of a block.
    pub(super) fn fetch(&mut self, request: u64, message: ToServer) -> Result<Option<ToClient>> {
        let ToServer::Fetch { arena, offset, bytes, generation, stored, element, part } = message else {
            return Err(Error::internal("not a fetch"));
        };
        let selection = Selection::check(&stored, element, bytes, &part)?;
        let reading = Reading { node: self.node.clone(), reader: self.node.unique() };
        let mapping = {
            let mut store = self.node.store.lock();
            store.check_committed(arena, offset, generation, bytes)?;
            store.add_reader(arena, reading.reader)?;
            store.mapping(arena)?
        };
        let payload = selection.payload(mapping, offset, reading);
        self.outbox.push_with(self.node.header(request), &ToClient::Data, Vec::new(), Some(payload))?;
        Ok(None)
    }

    /// Puts a block to be kept.
    pub(super) async fn space_put(&mut self, header: &Header, put: SpacePut) -> Result<Option<ToClient>> {
        let (field, block) = (&put.field, &put.block);
        let checked = field.check().and_then(|()| {
            let name = format!("block {}", block.number);
            forebay_core::directory::check_block_fits(field, &name, block.level, &block.extent)?;
            check_replicas(put.replicas)?;
            block.extent.bytes(field.dtype)
        });
        let leaves = self.node.leaves.get();
        let bytes = match checked {
            Ok(bytes) if !leaves => bytes,
            refused => {
                if let (Bytes::Granted { offset, generation, .. }, Some(writing)) =
                    (&block.bytes, &mut self.space_writing)
                {
                    writing.abort(&self.node, *offset, *generation);
                }
                self.receiver.discard_payload(header).await?;
                return refused.map(|_| Some(ToClient::Leaves));
            }
        };
        let node = self.node.clone();
        let held = match &block.bytes {
            Bytes::Granted { arena, offset, generation } => {
                let held = Held { arena: *arena, offset: *offset, generation: *generation };
                self.writing()?.0.commit(&node, held, bytes)?;
                held
            }
            _ => self.space_take(header, block, bytes).await?,
        };
        // What other servers fail at is no failure of this connection.
        let kept = node.space_keep(put, bytes, held, self.patience).await;
        Ok(Some(kept.map_or_else(ToClient::Failed, |()| ToClient::Done)))
    }

    /// Takes the bytes of a block of the space that come over the connection.
    async fn space_take(&mut self, header: &Header, block: &PutBlock, bytes: u64) -> Result<Held> {
        let sent = match &block.bytes {
            Bytes::Inline(given) => given.len() as u64,
            _ => header.payload,
        };
        if sent != bytes {
            self.receiver.discard_payload(header).await?;
            return Err(Error::protocol(format!("{sent} bytes for a block of {bytes}")));
        }
        let node = self.node.clone();
        let (held, fresh) = match node.space_reserve(bytes) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.receiver.discard_payload(header).await?;
                return Err(error);
            }
        };
        let mapping = node.store.lock().mapping(held.arena);
        let filled = match (mapping, &block.bytes) {
            (Err(error), _) => Err(error),
            (Ok(mapping), Bytes::Inline(given)) => mapping.write(held.offset, given),
            (Ok(mapping), _) => {
                if fresh {
                    mapping.populate(held.offset, bytes);
                }
                self.receiver.payload_into(&mapping, held.offset, header).await
            }
        };
        let kept =
            filled.and_then(|()| node.store.lock().commit(held.arena, held.offset, held.generation, bytes));
        if let Err(error) = kept {
            node.free([held]);
            return Err(error);
        }
        Ok(held)
    }
}

impl Node {
    /// Waits while others are telling of a stream, which this server coordinates in the place of another one; `false` if it
    /// had to, so that it may not be this one any more. The caller sets the deadline.
    async fn until_settled(&self, stream: &str) -> bool {
        let mut at_once = true;
        loop {
            let settled = self.agreed.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if !self.state.lock().coordinators.get(stream).is_some_and(|stream| stream.is_taking_over()) {
                return at_once;
            }
            at_once = false;
            settled.await;
        }
    }

    /// Waits until it is agreed from which step on an attachment takes part. The caller sets the deadline.
    async fn agreed_on(&self, stream: &str, id: AttachmentId) {
        loop {
            let decided = self.agreed.notified();
            tokio::pin!(decided);
            decided.as_mut().enable();
            if self.coordinator(&mut self.state.lock(), stream).is_agreed(id) {
                return;
            }
            decided.await;
        }
    }

    /// An attachment is gone.
    pub(crate) fn detach(&self, id: AttachmentId, stream: Option<String>) {
        let mut state = self.state.lock();
        state.attachments.remove(&id);
        if let Some(stream) = stream {
            let effects = self.coordinator(&mut state, &stream).detach(id);
            self.apply(&mut state, &stream, effects);
            self.drain(&mut state);
            self.forget_idle(&mut state, &stream);
        }
    }
}

/// A block's bytes are being sent.
#[derive(Debug)]
struct Reading {
    node: Arc<Node>,
    reader: u64,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.node.reader_gone(self.reader);
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
        let mut pieces = Pieces::new(&self.part.shape, self.element);
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

/// Cuts a shape, in row-major order, into boxes of at most [`PIECE`] bytes.
struct Pieces {
    shape: Dims,
    /// The dimension that is cut into runs; those before it are taken one index at a time.
    cut: usize,
    /// How many indices of it make a run.
    run: u64,
    /// Where the next box begins; `None` at the end.
    next: Option<Dims>,
}

impl Pieces {
    /// Of an array with at least one dimension and one element.
    fn new(shape: &[u64], element: usize) -> Pieces {
        let mut cut = shape.len() - 1;
        let mut inner = element as u64;
        while cut > 0 && inner * shape[cut] <= PIECE {
            inner *= shape[cut];
            cut -= 1;
        }
        Pieces {
            shape: shape.into(),
            cut,
            run: (PIECE / inner).max(1),
            next: Some(shape.iter().map(|_| 0).collect()),
        }
    }
}

impl Iterator for Pieces {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let first = self.next.take()?;
        let mut shape = self.shape.clone();
        shape[..self.cut].fill(1);
        shape[self.cut] = self.run.min(self.shape[self.cut] - first[self.cut]);
        let mut after = first.clone();
        after[self.cut] += shape[self.cut];
        for d in (1..=self.cut).rev() {
            if after[d] == self.shape[d] {
                after[d] = 0;
                after[d - 1] += 1;
            }
        }
        self.next = (after[0] < self.shape[0]).then_some(after);
        Region::new(&first, &shape).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_and_in_order() {
        for (shape, element) in [
            (vec![3, 5, 7], 8),
            (vec![2, 1 << 20, 3], 8),
            (vec![3 << 20], 1),
            (vec![2, 2, 700_000], 4),
            (vec![1, 1, 1, 1 << 18, 5], 16),
            (vec![1 << 20, 1], 2),
        ] {
            let volume: u64 = shape.iter().product();
            let mut at = 0;
            for piece in Pieces::new(&shape, element) {
                let first = (0..shape.len()).fold(0, |at, d| at * shape[d] + piece.offset()[d]);
                assert_eq!(first, at, "{shape:?}: {piece} does not follow");
                assert!(piece.volume() * element as u64 <= PIECE, "{shape:?}: {piece}");
                at += piece.volume();
            }
            assert_eq!(at, volume);
        }
    }

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
