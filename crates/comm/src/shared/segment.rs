//! The memory that two processes of one host share: for each direction a ring and the words of loans.

use super::file;
use super::loan::{LOANS, Loan};
use super::ring::{LINE, Memory};
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes of a ring. A message that fits into a quarter of it goes through it at once.
pub(crate) const RING: usize = 64 << 10;

const WRITTEN: u64 = 0;
const TAKEN: u64 = LINE as u64;
/// Set by who waits for room.
const CRAMPED: u64 = 2 * LINE as u64;
const LOAN_WORDS: u64 = 3 * LINE as u64;
const DATA: u64 = 4096;
const DIRECTION: u64 = DATA + RING as u64;
const BYTES: u64 = 2 * DIRECTION;

const _: () = assert!(LOAN_WORDS + 8 * LOANS as u64 <= DATA && RING.is_power_of_two());

/// One direction of it.
#[derive(Debug, Clone)]
pub(crate) struct Direction {
    memory: Arc<Mapping>,
    start: u64,
}

/// Both directions as one of the two processes has them.
#[derive(Debug)]
pub(crate) struct Segment {
    /// What this one writes.
    pub(crate) outward: Direction,
    /// What the other one writes.
    pub(crate) inward: Direction,
}

impl Segment {
    /// A new one, and what is passed to the other process.
    pub(crate) fn new() -> Result<(Segment, OwnedFd)> {
        let file = file::new("forebay-comm", BYTES)?;
        let memory = Arc::new(file::map(&file, BYTES)?);
        Ok((Segment::over(&memory, 0, DIRECTION), file))
    }

    /// The one that another process has made.
    pub(crate) fn of_peer(file: BorrowedFd<'_>) -> Result<Segment> {
        file::check(file, BYTES)?;
        Ok(Segment::over(&Arc::new(file::map(file, BYTES)?), DIRECTION, 0))
    }

    fn over(memory: &Arc<Mapping>, outward: u64, inward: u64) -> Segment {
        let direction = |start| Direction { memory: memory.clone(), start };
        Segment { outward: direction(outward), inward: direction(inward) }
    }
}

impl Direction {
    fn word(&self, at: u64) -> Result<&AtomicU64> {
        self.memory.atomic(self.start + at)
    }

    /// A loan that its writer has given.
    pub(crate) fn loan(&self, place: u32, number: u32) -> Result<Loan<'_, AtomicU64>> {
        if place as usize >= LOANS {
            return Err(Error::protocol(format!("there is no loan {place}")));
        }
        Ok(Loan { word: self.word(LOAN_WORDS + 8 * u64::from(place))?, number })
    }
}

impl Memory for Direction {
    type Count = AtomicU64;

    fn written(&self) -> Result<&AtomicU64> {
        self.word(WRITTEN)
    }

    fn taken(&self) -> Result<&AtomicU64> {
        self.word(TAKEN)
    }

    fn cramped(&self) -> Result<&AtomicU64> {
        self.word(CRAMPED)
    }

    fn capacity(&self) -> usize {
        RING
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.memory.write(self.start + DATA + at as u64, bytes)
    }

    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.memory.read(self.start + DATA + at as u64, bytes)
    }
}
