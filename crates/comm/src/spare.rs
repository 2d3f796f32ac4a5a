//! Memory that operations need on the way, kept for the next ones: fresh memory costs more than what is done with it.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};

/// How many bytes are kept.
const KEPT_MAX: usize = 32 << 20;
/// In how many pieces.
const PIECES_MAX: usize = 16;

/// What is kept, by its size.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

/// Memory of so many bytes, whatever stands in it.
pub(crate) struct Scratch<'a> {
    spare: &'a Spare,
    memory: Vec<u8>,
    bytes: usize,
}

impl Spare {
    /// The smallest piece that is large enough, or the largest there is, made larger.
    pub(crate) fn take(&self, bytes: usize) -> Scratch<'_> {
        let mut memory = Vec::new();
        if bytes > 0 {
            let mut kept = self.0.lock();
            let place = kept.partition_point(|piece| piece.len() < bytes);
            if let Some(last) = kept.len().checked_sub(1) {
                memory = kept.remove(place.min(last));
            }
        }
        if memory.len() < bytes {
            // What stands there need not be copied.
            memory.clear();
            memory.resize(bytes, 0);
        }
        Scratch { spare: self, memory, bytes }
    }

    fn give(&self, memory: Vec<u8>) {
        let mut kept = self.0.lock();
        let held: usize = kept.iter().map(Vec::len).sum();
        if memory.is_empty() || held + memory.len() > KEPT_MAX || kept.len() >= PIECES_MAX {
            return;
        }
        let place = kept.partition_point(|piece| piece.len() < memory.len());
        kept.insert(place, memory);
    }
}

impl Scratch<'_> {
    /// Only its beginning is needed.
    pub(crate) fn cut(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Deref for Scratch<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl DerefMut for Scratch<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.spare.give(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_used_again_up_to_a_bound() {
        let spare = Spare::default();
        let sizes = || spare.0.lock().iter().map(Vec::len).collect::<Vec<_>>();
        drop((spare.take(100), spare.take(1000), spare.take(0)));
        assert_eq!(sizes(), [100, 1000]);
        let smallest = spare.take(50);
        assert_eq!((smallest.len(), sizes()), (50, vec![1000]));
        let grown = spare.take(2000);
        assert_eq!((grown.len(), sizes()), (2000, vec![]));
        drop((smallest, grown, spare.take(KEPT_MAX + 1)));
        assert_eq!(sizes(), [100, 2000]);
        drop((0..40).map(|_| spare.take(8)).collect::<Vec<_>>());
        assert_eq!(sizes().len(), PIECES_MAX);
    }
}
