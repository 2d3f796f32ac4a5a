//! Buffers for bytes that are copied or fetched, used again and again: fresh memory costs more than the copy.

use crate::connection::rpc::lock;
use std::sync::{Arc, Mutex, Weak};

/// How many bytes of buffers lie ready at most.
const READY_BYTES_MAX: usize = 512 << 20;
/// How many.
const READY_MAX: usize = 16;

/// Buffers that lie ready.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    ready: Mutex<Vec<Vec<u8>>>,
}

/// Bytes in this process. Their memory is used again when the last owner is gone.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    home: Weak<Buffers>,
}

impl Buffers {
    /// A buffer of this length, with any content.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Buffer {
        let mut ready = lock(&self.ready);
        // A buffer that is much too large does not fit: the rest of it would be memory that nobody uses.
        let fits = |buffer: &Vec<u8>| buffer.len() >= length && buffer.len() / 2 <= length;
        let bytes = match ready.iter().rposition(fits) {
            Some(index) => {
                let mut bytes = ready.swap_remove(index);
                bytes.truncate(length);
                bytes
            }
            None => vec![0; length],
        };
        Buffer { bytes, home: Arc::downgrade(self) }
    }

    fn give_back(&self, bytes: Vec<u8>) {
        let mut ready = lock(&self.ready);
        let held: usize = ready.iter().map(Vec::capacity).sum();
        if ready.len() < READY_MAX && held + bytes.capacity() <= READY_BYTES_MAX {
            ready.push(bytes);
        }
    }
}

impl Buffer {
    /// Bytes of its own, whose memory is not used again.
    pub(crate) fn own(bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, home: Weak::new() }
    }

    /// The bytes, to be filled.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_in_bounds() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.take(1000);
        let address = first.as_ptr();
        drop(first);
        let again = buffers.take(900);
        assert_eq!((again.as_ptr(), again.len()), (address, 900));
        drop(again);
        let small = buffers.take(10);
        assert_ne!(small.as_ptr(), address, "much too large for so few bytes");
        let many: Vec<Buffer> = (0..40).map(|_| buffers.take(64)).collect();
        drop(many);
        assert!(lock(&buffers.ready).len() <= READY_MAX);
        let outlives = buffers.take(5);
        drop(buffers);
        assert_eq!(outlives.len(), 5);
    }
}
