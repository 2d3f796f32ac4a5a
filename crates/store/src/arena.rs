//! One arena: an anonymous memory file and the life of its ranges.

use crate::allocator::Allocator;
use crate::mapping::{Access, Mapping};
use crate::ranges::RangeSet;
use crate::{PAGE, pages};
use forebay_core::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Blocks of at least this size are placed by [`lead`].
const LARGE: u64 = 32 << 20;
/// One line of the cache.
const LEAD: u64 = 64;

/// How far into its range a block of this size is to begin that is copied there; its range has room for that.
///
/// Large arrays of a C library begin 16 bytes into a page. Where a copy's target lies a little *before* its source,
/// as seen within a page, the processor takes each load for one of what was just stored and waits (4K aliasing):
/// a copy of 64 MiB then takes 6 to 8 per cent longer than to a little behind.
pub fn lead(bytes: u64) -> u64 {
    if bytes >= LARGE { LEAD } else { 0 }
}

/// Where the range begins in which a block lies.
pub fn range_of(offset: u64) -> u64 {
    offset / PAGE * PAGE
}

/// A range of an arena, as it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Tells this use of the range from earlier and later ones.
    pub generation: u64,
    /// Whether pages of it have never been touched, or were given back.
    pub fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeState {
    Reserved,
    Committed,
    /// Being touched for whoever reserves it next: not counted as used.
    Ahead,
}

#[derive(Debug, Clone, Copy)]
struct Use {
    bytes: u64,
    /// What it takes of the arena.
    length: u64,
    generation: u64,
    state: RangeState,
}

/// A memory file, its free ranges and the used ones. The file is as large as the budget, but sparse: only
/// touched pages cost memory. Behind its ranges it has one page for words that its producer and the server
/// share ([`crate::begin_word`]).
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    /// Bytes that are handed out in ranges.
    size: u64,
    allocator: Allocator,
    used: BTreeMap<u64, Use>,
    used_bytes: u64,
    touched: RangeSet,
    next_generation: u64,
    mapping: OnceLock<Arc<Mapping>>,
    /// The least touched but unused bytes since the last trim: memory that was not needed all that while.
    idle_low: u64,
    /// Whether its memory is another server's, which lives: that one accounts for it, and gives it back.
    foreign: bool,
    /// Whether it was, and that one is dead: readers may have it mapped of whom this one does not know.
    inherited: bool,
}

impl Arena {
    /// Makes a memory file of this size (rounded up to pages) and seals its size.
    pub fn create(size: u64) -> Result<Arena> {
        let size = pages(size.max(1));
        let failed = |what: &str, e: rustix::io::Errno| {
            Error::io(format!("cannot {what} an arena of {size} bytes"), &e.into())
        };
        let file = rustix::fs::memfd_create("forebay-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| failed("create (memfd_create)", e))?;
        rustix::fs::ftruncate(&file, size + PAGE).map_err(|e| failed("size (ftruncate)", e))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| failed("seal (fcntl F_ADD_SEALS)", e))?;
        Ok(Arena::new(file, size, false))
    }

    /// An arena of another server on this host. Its memory stays while it is held here, should that server die.
    pub fn of_another(file: OwnedFd, size: u64) -> Result<Arena> {
        let bytes = rustix::fs::fstat(&file).map(|status| status.st_size as u64).unwrap_or(0);
        if size <= PAGE || !size.is_multiple_of(PAGE) || bytes != size {
            return Err(Error::protocol(format!("an arena of {size} bytes in a file of {bytes}")));
        }
        Ok(Arena::new(file, size - PAGE, true))
    }

    fn new(file: OwnedFd, size: u64, foreign: bool) -> Arena {
        Arena {
            file,
            size,
            allocator: Allocator::new(size),
            used: BTreeMap::new(),
            used_bytes: 0,
            touched: RangeSet::default(),
            next_generation: 1,
            mapping: OnceLock::new(),
            idle_low: 0,
            foreign,
            inherited: false,
        }
    }

    /// Its size, the page of words included; most of it costs no memory.
    pub fn size(&self) -> u64 {
        self.size + PAGE
    }

    /// A mapping of its page of words alone.
    pub fn words(&self) -> Result<Mapping> {
        Mapping::part(self.file.as_fd(), self.size, PAGE, Access::Write)
    }

    /// Bytes of ranges that are reserved or committed, in whole pages.
    pub fn used_bytes(&self) -> u64 {
        if self.foreign { 0 } else { self.used_bytes }
    }

    /// Bytes of pages that were touched and not given back: what it costs.
    pub fn touched_bytes(&self) -> u64 {
        self.touched.total()
    }

    /// Whether nothing of it is in use.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// A descriptor for its producer, which may write.
    pub fn writable_descriptor(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|e| Error::io("cannot share an arena", &e))
    }

    /// A descriptor for readers, which cannot map it for writing.
    pub fn readable_descriptor(&self) -> Result<OwnedFd> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(
            &path,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(|e| Error::io("cannot open an arena for reading (is /proc mounted?)", &e.into()))
    }

    /// The server's own mapping, made at first use: for bytes that come or go over the network.
    pub fn mapping(&self) -> Result<Arc<Mapping>> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping.clone());
        }
        let mapping = Arc::new(Mapping::new(self.file.as_fd(), self.size(), Access::Write)?);
        Ok(self.mapping.get_or_init(|| mapping).clone())
    }

    /// Reserves a range; `None` if no hole is large enough. Page-aligned. The room for a block's lead is not counted
    /// as used, so that as many blocks fit into a budget as it seems.
    pub fn reserve(&mut self, bytes: u64) -> Option<Range> {
        let range = self.take(bytes, pages(bytes.max(1) + lead(bytes)), RangeState::Reserved)?;
        self.used_bytes += pages(bytes.max(1));
        self.idle_low = self.idle_low.min(self.touched.total() - self.used_bytes);
        Some(range)
    }

    fn take(&mut self, bytes: u64, length: u64, state: RangeState) -> Option<Range> {
        let offset = self.allocator.allocate(length)?;
        let fresh = !self.touched.contains(offset, offset + length);
        self.touched.insert(offset, offset + length);
        let generation = self.next_generation;
        self.next_generation += 1;
        self.used.insert(offset, Use { bytes, length, generation, state });
        Some(Range { offset, bytes, generation, fresh })
    }

    /// A block of another server, which gave it this range of its own arena, is held here too. `false` if the range is
    /// in use for another one.
    pub fn take_at(&mut self, offset: u64, generation: u64, bytes: u64) -> bool {
        if bytes > self.size {
            return false;
        }
        let (start, length) = (range_of(offset), pages(bytes.max(1) + lead(bytes)));
        if !self.allocator.allocate_at(start, length) {
            return false;
        }
        if !self.foreign {
            self.touched.insert(start, start + length);
        }
        self.used.insert(start, Use { bytes, length, generation, state: RangeState::Committed });
        self.used_bytes += pages(bytes.max(1));
        true
    }

    /// The other server, whose arena it was, is dead: what is in use is this server's to account for and to give back.
    /// The rest goes with the arena: somebody may still look at it.
    pub fn adopt(&mut self) {
        if std::mem::take(&mut self.foreign) {
            self.inherited = true;
            for (start, used) in &self.used {
                self.touched.insert(*start, start + used.length);
            }
        }
    }

    /// Whether readers may have it mapped who did so at another server, which is dead.
    pub fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// Holds a block no longer, but does not touch its pages: they go when nobody has the arena mapped any more.
    pub fn leave(&mut self, offset: u64, generation: u64) -> Result<()> {
        let length = self.find(offset, generation)?.length;
        let start = range_of(offset);
        self.touched.remove(start, start + length);
        self.free(offset, generation)
    }

    /// Takes a free range out, to touch its pages before somebody reserves them; [`Arena::free`] lets it be
    /// reserved. Counts as touched from now on, but not as used.
    pub fn take_prefault_range(&mut self, bytes: u64) -> Option<Range> {
        self.take(bytes, pages(bytes.max(1)), RangeState::Ahead)
    }

    fn find(&mut self, offset: u64, generation: u64) -> Result<&mut Use> {
        self.used.get_mut(&range_of(offset)).filter(|used| used.generation == generation).ok_or_else(|| {
            Error::protocol(format!(
                "range {offset} of generation {generation} is not in use: the handle is stale"
            ))
        })
    }

    /// Checks that a range is in use.
    pub fn check_in_use(&mut self, offset: u64, generation: u64) -> Result<()> {
        self.find(offset, generation).map(drop)
    }

    /// A reserved range now holds a block of `bytes`, from this offset on.
    pub fn commit(&mut self, offset: u64, generation: u64, bytes: u64) -> Result<()> {
        let used = self.find(offset, generation)?;
        let within = [0, lead(bytes)].contains(&(offset % PAGE));
        if used.state != RangeState::Reserved || used.bytes != bytes || !within {
            return Err(Error::protocol(format!(
                "range {offset}: {bytes} bytes do not fit its reservation, or twice"
            )));
        }
        used.state = RangeState::Committed;
        Ok(())
    }

    /// Checks that a committed block of this length is there.
    pub fn check_committed(&self, offset: u64, generation: u64, bytes: u64) -> Result<()> {
        let found = self.used.get(&range_of(offset));
        match found.filter(|used| {
            used.generation == generation && used.state == RangeState::Committed && used.bytes == bytes
        }) {
            Some(_) => Ok(()),
            None => Err(Error::new(
                forebay_core::ErrorKind::Lost,
                "the block is not held any more: its step was released, dropped or removed",
            )),
        }
    }

    /// The length of the block that was committed at this offset.
    pub fn length_of(&self, offset: u64, generation: u64) -> Option<u64> {
        let found = self.used.get(&range_of(offset));
        let there = found.filter(|used| used.generation == generation && used.state == RangeState::Committed);
        there.map(|used| used.bytes)
    }

    /// Gives a range back, whatever its state. Its pages stay until [`Arena::trim`].
    pub fn free(&mut self, offset: u64, generation: u64) -> Result<()> {
        let Use { bytes, length, state, .. } = *self.find(offset, generation)?;
        let start = range_of(offset);
        self.used.remove(&start);
        if state != RangeState::Ahead {
            self.used_bytes -= pages(bytes.max(1));
        }
        self.allocator.free(start, length);
        Ok(())
    }

    /// Gives back to the system what was touched but not used at any time since the last call, highest
    /// addresses first, and at least `at_least` bytes if there are so many unused. Returns how many.
    pub fn trim(&mut self, at_least: u64) -> u64 {
        if self.foreign {
            return 0;
        }
        let idle = self.touched.total() - self.used_bytes;
        let goal = self.idle_low.min(idle).max(at_least.min(idle));
        let mut freed = 0;
        let holes: Vec<(u64, u64)> = self.allocator.holes_from_top().collect();
        for (start, end) in holes {
            if freed >= goal {
                break;
            }
            let parts: Vec<(u64, u64)> = self.touched.within(start, end).collect();
            for (part_start, part_end) in parts.into_iter().rev() {
                let length = (part_end - part_start).min(pages(goal.saturating_sub(freed)));
                if length > 0 && self.punch(part_end - length, length) {
                    freed += length;
                }
            }
        }
        self.idle_low = self.touched.total() - self.used_bytes;
        freed
    }

    fn punch(&mut self, start: u64, length: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = rustix::fs::fallocate(&self.file, flags, start, length).is_ok();
        if done {
            self.touched.remove(start, start + length);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(arena: &Arena) -> u64 {
        rustix::fs::fstat(&arena.file).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn ranges_live_and_pages_go_back() {
        let mut arena = Arena::create(1 << 40).unwrap();
        let a = arena.reserve(3 * PAGE - 5).unwrap();
        assert!(a.fresh);
        arena.mapping().unwrap().write(a.offset, &vec![7; a.bytes as usize]).unwrap();
        assert_eq!(allocated(&arena), 3 * PAGE);
        arena.commit(a.offset, a.generation, a.bytes).unwrap();
        assert!(arena.commit(a.offset, a.generation, a.bytes).is_err(), "twice");
        assert!(arena.check_committed(a.offset, a.generation, a.bytes).is_ok());
        arena.free(a.offset, a.generation).unwrap();
        assert!(arena.free(a.offset, a.generation).is_err(), "stale");
        let b = arena.reserve(2 * PAGE).unwrap();
        assert!(!b.fresh && b.offset == a.offset && b.generation != a.generation);
        arena.free(b.offset, b.generation).unwrap();
        arena.trim(0);
        assert_eq!(arena.touched_bytes(), 3 * PAGE, "it was in use since the last trim");
        assert_eq!(arena.trim(0), 3 * PAGE);
        assert_eq!((allocated(&arena), arena.touched_bytes(), arena.used_bytes()), (0, 0, 0));
    }

    #[test]
    fn large_blocks_may_begin_a_little_into_their_ranges() {
        let mut arena = Arena::create(1 << 40).unwrap();
        assert_eq!((lead(LARGE - 1), lead(LARGE)), (0, LEAD));
        let large = arena.reserve(LARGE).unwrap();
        let next = arena.reserve(5).unwrap();
        assert_eq!(next.offset, large.offset + LARGE + PAGE, "there is room behind");
        assert!(arena.commit(large.offset + 8, large.generation, LARGE).is_err(), "neither here nor there");
        arena.commit(large.offset + LEAD, large.generation, LARGE).unwrap();
        arena.check_committed(large.offset + LEAD, large.generation, LARGE).unwrap();
        assert!(arena.commit(next.offset + LEAD, next.generation, 5).is_err(), "a small one has no room");
        arena.free(large.offset + LEAD, large.generation).unwrap();
        arena.free(next.offset, next.generation).unwrap();
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.reserve(LARGE).unwrap().offset, large.offset);
    }

    #[test]
    fn readers_cannot_write() {
        let arena = Arena::create(PAGE).unwrap();
        let file = arena.readable_descriptor().unwrap();
        assert!(Mapping::new(file.as_fd(), PAGE, Access::Write).is_err());
        assert!(Mapping::new(file.as_fd(), PAGE, Access::Read).is_ok());
        assert!(Mapping::new(file.as_fd(), 3 * PAGE, Access::Read).is_err(), "shorter than announced");
        assert!(rustix::fs::ftruncate(arena.writable_descriptor().unwrap(), 0).is_err(), "sealed");
    }
}
