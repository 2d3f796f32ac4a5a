//! A bounded ring of bytes from one process to another: one writes, the other reads, and neither waits for the other here.
//!
//! What the other side says of how far it is is never believed without a look: a ring that makes no sense is an error, and no byte
//! outside it is touched.

use super::atomic::Atomic;
use forebay_core::{Error, Result};

/// Everything in a ring begins at multiples of this, a line of the cache: so that the reader of one record does not take the line
/// in which the next one is written.
pub(crate) const LINE: usize = 64;

/// The memory of a ring, which both sides have.
pub(crate) trait Memory {
    /// What counts its bytes.
    type Count: Atomic;

    /// How many bytes were written from the beginning on; its writer's alone to change.
    fn written(&self) -> Result<&Self::Count>;
    /// How many were taken; its reader's alone to change.
    fn taken(&self) -> Result<&Self::Count>;
    /// 1 while its writer waits for room.
    fn cramped(&self) -> Result<&Self::Count>;
    /// How many it holds: a power of two, and of whole lines.
    fn capacity(&self) -> usize;
    /// How many a record takes at most.
    fn largest(&self) -> usize {
        self.capacity() / 4 + LINE
    }
    /// Writes at a place that is the writer's by the counts.
    fn write(&self, at: usize, bytes: &[u8]) -> Result<()>;
    /// Reads at a place that is the reader's by the counts.
    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()>;
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct Writer<M> {
    memory: M,
    written: u64,
    taken: u64,
}

impl<M: Memory> Writer<M> {
    pub(crate) fn new(memory: M) -> Writer<M> {
        Writer { memory, written: 0, taken: 0 }
    }

    /// How many bytes can be written now, if it has to be so many: what is known is asked again only where it is too little.
    pub(crate) fn room(&mut self, wanted: usize) -> Result<usize> {
        let capacity = self.memory.capacity() as u64;
        if capacity - (self.written - self.taken) < wanted as u64 {
            let taken = self.memory.taken()?.get();
            if taken < self.taken || taken > self.written || !taken.is_multiple_of(LINE as u64) {
                return Err(senseless());
            }
            self.taken = taken;
        }
        Ok((capacity - (self.written - self.taken)) as usize)
    }

    /// The same for who waits for it: if it is too little the reader wakes this process once there is more.
    pub(crate) fn wait_for_room(&mut self, wanted: usize) -> Result<usize> {
        self.memory.cramped()?.set(1);
        M::Count::fence();
        self.room(wanted)
    }

    /// Writes a record of these parts, one behind the other. There must be room for it.
    pub(crate) fn write(&mut self, parts: &[&[u8]]) -> Result<()> {
        let mut at = self.written;
        for part in parts {
            let place = (at as usize) & (self.memory.capacity() - 1);
            let (first, second) = part.split_at(part.len().min(self.memory.capacity() - place));
            self.memory.write(place, first)?;
            self.memory.write(0, second)?;
            at += part.len() as u64;
        }
        self.written = at.next_multiple_of(LINE as u64);
        self.memory.written()?.set(self.written);
        Ok(())
    }
}

/// The end that reads.
#[derive(Debug)]
pub(crate) struct Reader<M> {
    memory: M,
    written: u64,
    taken: u64,
}

impl<M: Memory> Reader<M> {
    pub(crate) fn new(memory: M) -> Reader<M> {
        Reader { memory, written: 0, taken: 0 }
    }

    /// How many bytes were written ever.
    pub(crate) fn written_by_now(&self) -> Result<u64> {
        Ok(self.memory.written()?.get())
    }

    /// How many bytes were taken ever.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// How many bytes there are to read.
    pub(crate) fn available(&mut self) -> Result<usize> {
        if self.written == self.taken {
            let written = self.memory.written()?.get();
            let valid = self.taken..=self.taken.saturating_add(self.memory.capacity() as u64);
            if !valid.contains(&written) || !written.is_multiple_of(LINE as u64) {
                return Err(senseless());
            }
            self.written = written;
        }
        Ok((self.written - self.taken) as usize)
    }

    /// Looks at bytes from `skipped` on after those that were taken.
    pub(crate) fn read(&self, skipped: usize, bytes: &mut [u8]) -> Result<()> {
        let place = (self.taken as usize).wrapping_add(skipped) & (self.memory.capacity() - 1);
        let (first, second) = bytes.split_at_mut(bytes.len().min(self.memory.capacity() - place));
        self.memory.read(place, first)?;
        self.memory.read(0, second)
    }

    /// Goes on behind a record of so many bytes: its room is the writer's again. `true`: that may wait for room, and is to be woken.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<bool> {
        self.taken += bytes.next_multiple_of(LINE) as u64;
        self.memory.taken()?.set(self.taken);
        // Once there is room for any record, not for each one that was read: who writes as fast as this reads would be woken each time. A
        // look that comes too early is made good when there is nothing more to read; with the last record alone in it nobody waits.
        let room = self.memory.capacity() as u64 - (self.written - self.taken);
        if room >= self.memory.largest() as u64 { self.relieve() } else { Ok(false) }
    }

    /// There is nothing more to read: whether the writer waits for room, and is to be woken.
    pub(crate) fn is_empty_at_last(&self) -> Result<bool> {
        M::Count::fence();
        self.relieve()
    }

    /// Whether the writer waits for room.
    pub(crate) fn is_cramped(&self) -> bool {
        self.memory.cramped().is_ok_and(|cramped| cramped.get() == 1)
    }

    fn relieve(&self) -> Result<bool> {
        let cramped = self.memory.cramped()?;
        Ok(cramped.get() == 1 && cramped.set_if(1, 0))
    }
}

fn senseless() -> Error {
    Error::protocol("the counts of the memory that two processes share make no sense")
}
