//! All arenas of a server, under one byte budget.

use crate::arena::{Arena, Range};
use crate::{Access, Mapping, PAGE, pages};
use forebay_core::ids::Epoch;
use forebay_core::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a server's memory is used for, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Ranges that are reserved or committed.
    pub staged: u64,
    /// The most that was ever staged.
    pub peak: u64,
    /// Pages of arenas that cost memory now.
    pub touched: u64,
    /// The limit.
    pub budget: u64,
}

/// Pages that are touched before somebody needs them: those of a whole server, all unused ones included. Its
/// memory shall not exceed what is staged by more than this and what the process itself takes.
const AHEAD_MAX: u64 = 32 << 20;

/// The largest arena of another server: larger ones cannot be mapped.
const BACKUP_ARENA_MAX: u64 = 1 << 46;

/// A free range whose pages are to be touched before somebody reserves them.
#[derive(Debug)]
pub struct PrefaultRange {
    arena: u32,
    range: Range,
    file: OwnedFd,
}

impl PrefaultRange {
    /// Touches the pages. Takes about a second a gigabyte. Not through the server's own mapping: what is mapped
    /// here counts as this process's memory as long as it is.
    pub fn touch(&self) {
        let bytes = pages(self.range.bytes);
        if let Ok(mapping) = Mapping::part(self.file.as_fd(), self.range.offset, bytes, Access::Write) {
            mapping.populate(0, bytes);
        }
    }
}

/// All arenas of a server.
#[derive(Debug)]
pub struct Store {
    budget: u64,
    peak: u64,
    arenas: BTreeMap<u32, Entry>,
    next: u32,
    /// What [`Store::network_arena`] gives.
    network: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    arena: Arena,
    /// Whether somebody may still reserve: when not, it goes with its last block.
    open: bool,
    /// Those who have it mapped for reading, each with the term in which it was told of what it looks at.
    readers: BTreeMap<u64, Epoch>,
    /// Ranges that are free but for those who may still look at them.
    seen: Vec<LingeringRange>,
}

/// A range that nobody needs any more, but somebody may still look at.
#[derive(Debug)]
struct LingeringRange {
    offset: u64,
    generation: u64,
    readers: BTreeSet<u64>,
}

impl Store {
    /// An empty store that never holds more than `budget` bytes.
    pub fn new(budget: u64) -> Store {
        Store { budget: pages(budget), peak: 0, arenas: BTreeMap::new(), next: 1, network: None }
    }

    /// What is used.
    pub fn usage(&self) -> Usage {
        let sum = |of: fn(&Arena) -> u64| self.arenas.values().map(|entry| of(&entry.arena)).sum();
        Usage {
            staged: sum(Arena::used_bytes),
            peak: self.peak,
            touched: sum(Arena::touched_bytes),
            budget: self.budget,
        }
    }

    /// Makes an arena; returns its number and size. It costs no memory yet.
    pub fn create_arena(&mut self) -> Result<(u32, u64)> {
        // Twice the budget, so that holes between blocks never stand in the way: addresses cost nothing.
        let arena = Arena::create(self.budget.saturating_mul(2))?;
        let (number, size) = (self.next, arena.size());
        self.next += 1;
        let entry = Entry { arena, open: true, readers: BTreeMap::new(), seen: Vec::new() };
        self.arenas.insert(number, entry);
        Ok((number, size))
    }

    /// Makes an arena in which blocks of another server are held too, each in the range that it has there: in that
    /// server's own memory if this is its descriptor, else in as large a one.
    pub fn add_backup_arena(&mut self, file: Option<OwnedFd>, size: u64) -> Result<u32> {
        if size > BACKUP_ARENA_MAX {
            return Err(Error::protocol(format!("an arena of {size} bytes")));
        }
        let arena = match file {
            Some(file) => Arena::of_another(file, size)?,
            None => Arena::create(size.saturating_sub(PAGE))?,
        };
        let number = self.next;
        self.next += 1;
        let entry = Entry { arena, open: true, readers: BTreeMap::new(), seen: Vec::new() };
        self.arenas.insert(number, entry);
        Ok(number)
    }

    /// Nothing of another server is held in this arena any more, whatever is there.
    pub fn remove_backup_arena(&mut self, arena: u32) {
        self.arenas.remove(&arena);
    }

    /// What another server needs to hold blocks of this arena, too: its descriptor and size.
    pub fn backup_descriptor(&mut self, arena: u32) -> Result<(OwnedFd, u64)> {
        let arena = &self.entry(arena)?.arena;
        Ok((arena.writable_descriptor()?, arena.size()))
    }

    /// Whether this arena is there.
    pub fn has_arena(&self, arena: u32) -> bool {
        self.arenas.contains_key(&arena)
    }

    /// Holds a block of another server in this range. `false` if there is no room.
    pub fn hold_at(&mut self, arena: u32, offset: u64, generation: u64, bytes: u64) -> Result<bool> {
        let before = self.usage().staged;
        let entry = self.entry(arena)?;
        if !entry.arena.take_at(offset, generation, bytes) {
            return Err(Error::protocol(format!("range {offset} holds another block already")));
        }
        let usage = self.usage();
        if usage.staged > self.budget && usage.staged > before {
            self.free(arena, offset, generation)?;
            return Ok(false);
        }
        self.peak = self.peak.max(usage.staged);
        Ok(true)
    }

    /// The server is dead whose blocks are held in this arena: it goes with the last of them.
    pub fn adopt(&mut self, arena: u32) {
        if let Some(entry) = self.arenas.get_mut(&arena) {
            entry.arena.adopt();
        }
        self.close_arena(arena);
        self.peak = self.peak.max(self.usage().staged);
    }

    fn entry(&mut self, arena: u32) -> Result<&mut Entry> {
        self.arenas.get_mut(&arena).ok_or_else(|| Error::protocol(format!("there is no arena {arena}")))
    }

    /// The arena into which the server receives what comes over the network, made at first use. It is one for
    /// all clients: each arena takes address space of twice the budget where it is mapped.
    pub fn network_arena(&mut self) -> Result<u32> {
        if let Some(arena) = self.network {
            return Ok(arena);
        }
        let (arena, _) = self.create_arena()?;
        self.network = Some(arena);
        Ok(arena)
    }

    /// Nobody will reserve in it any more: it goes with its last block.
    pub fn close_arena(&mut self, arena: u32) {
        if let Some(entry) = self.arenas.get_mut(&arena) {
            entry.open = false;
        }
        self.drop_if_done(arena);
    }

    fn drop_if_done(&mut self, arena: u32) {
        if let Some(entry) = self.arenas.get_mut(&arena).filter(|entry| !entry.open && entry.arena.is_empty())
        {
            // Readers may have it mapped for long: its pages must not wait for them.
            entry.arena.trim(u64::MAX);
            self.arenas.remove(&arena);
        }
    }

    /// Reserves a range. `None` if the budget has no room now; an error if it never can.
    pub fn reserve(&mut self, arena: u32, bytes: u64) -> Result<Option<Range>> {
        let wanted = pages(bytes.max(1));
        if wanted > self.budget {
            return Err(Error::new(
                ErrorKind::OverBudget,
                format!(
                    "{bytes} bytes can never fit into this server's budget of {}: start the group with a larger \
                     --budget, with more servers, or put smaller blocks",
                    self.budget
                ),
            ));
        }
        if self.usage().staged + wanted > self.budget {
            return Ok(None);
        }
        let range = self.entry(arena)?.arena.reserve(bytes);
        let usage = self.usage();
        self.peak = self.peak.max(usage.staged);
        if usage.touched > self.budget {
            // Pages that lie unused elsewhere make room for the new ones.
            let mut excess = usage.touched - self.budget;
            for entry in self.arenas.values_mut() {
                excess = excess.saturating_sub(entry.arena.trim(excess));
            }
        }
        Ok(range)
    }

    /// Takes a range of an arena whose next user will reserve `bytes`, to touch it ahead: as much as the arena
    /// lacks and bounds allow. `None` if there is nothing to do.
    pub fn take_prefault_range(&mut self, arena: u32, bytes: u64) -> Option<PrefaultRange> {
        let usage = self.usage();
        let unused = usage.touched - usage.staged;
        let room = AHEAD_MAX.saturating_sub(unused).min(self.budget.saturating_sub(usage.touched));
        let entry = self.arenas.get_mut(&arena).filter(|entry| entry.open)?;
        let lacking = pages(bytes).saturating_sub(entry.arena.touched_bytes() - entry.arena.used_bytes());
        let length = lacking.min(room / PAGE * PAGE);
        if length == 0 {
            return None;
        }
        let file = entry.arena.writable_descriptor().ok()?;
        let range = entry.arena.take_prefault_range(length)?;
        Some(PrefaultRange { arena, range, file })
    }

    /// What was touched ahead may be reserved now.
    pub fn give_back_prefaulted(&mut self, ahead: &PrefaultRange) -> Result<()> {
        self.free(ahead.arena, ahead.range.offset, ahead.range.generation)
    }

    /// A reserved range now holds a block.
    pub fn commit(&mut self, arena: u32, offset: u64, generation: u64, bytes: u64) -> Result<()> {
        self.entry(arena)?.arena.commit(offset, generation, bytes)
    }

    /// Gives a range back.
    pub fn free(&mut self, arena: u32, offset: u64, generation: u64) -> Result<()> {
        let result = self.entry(arena)?.arena.free(offset, generation);
        self.drop_if_done(arena);
        result
    }

    /// Gives a range back of which it is not known who reads it, of those who were told of it in a term before this one: it
    /// is free once all of them are gone that have its arena mapped now.
    pub fn free_unseen(&mut self, arena: u32, offset: u64, generation: u64, before: Epoch) -> Result<()> {
        let entry = self.entry(arena)?;
        if before > 0 && entry.arena.is_inherited() {
            // They mapped it at a server that is dead, so that not even their number is known.
            let result = entry.arena.leave(offset, generation);
            self.drop_if_done(arena);
            return result;
        }
        let earlier = entry.readers.iter().filter(|(_, term)| **term < before);
        let readers: BTreeSet<u64> = earlier.map(|(reader, _)| *reader).collect();
        if readers.is_empty() {
            return self.free(arena, offset, generation);
        }
        entry.arena.check_in_use(offset, generation)?;
        entry.seen.push(LingeringRange { offset, generation, readers });
        Ok(())
    }

    /// Somebody reads from an arena that he did not map, until he is gone.
    pub fn add_reader(&mut self, arena: u32, reader: u64) -> Result<()> {
        self.entry(arena)?.readers.insert(reader, 0);
        Ok(())
    }

    /// A reader is gone, with its mappings. Returns whether memory became free.
    pub fn on_reader_gone(&mut self, reader: u64) -> bool {
        let mut freed = Vec::new();
        for (arena, entry) in &mut self.arenas {
            if entry.readers.remove(&reader).is_some() {
                entry.seen.retain_mut(|seen| {
                    seen.readers.remove(&reader);
                    if seen.readers.is_empty() {
                        freed.push((*arena, seen.offset, seen.generation));
                    }
                    !seen.readers.is_empty()
                });
            }
        }
        for (arena, offset, generation) in &freed {
            // It was in use until now.
            let _ = self.free(*arena, *offset, *generation);
        }
        !freed.is_empty()
    }

    /// The server's own mapping of an arena.
    pub fn mapping(&mut self, arena: u32) -> Result<Arc<Mapping>> {
        self.entry(arena)?.arena.mapping()
    }

    /// Checks that a block is held.
    pub fn check_committed(&mut self, arena: u32, offset: u64, generation: u64, bytes: u64) -> Result<()> {
        self.entry(arena)
            .map_err(|_| Error::new(ErrorKind::Lost, "the block is not held any more: its arena is gone"))?
            .arena
            .check_committed(offset, generation, bytes)
    }

    /// The length of a block that is held.
    pub fn length_of(&self, arena: u32, offset: u64, generation: u64) -> Option<u64> {
        self.arenas.get(&arena)?.arena.length_of(offset, generation)
    }

    /// The words that an arena's producer shares with the server.
    pub fn words(&mut self, arena: u32) -> Result<Mapping> {
        self.entry(arena)?.arena.words()
    }

    /// A descriptor of an arena, for its producer.
    pub fn writable_descriptor(&mut self, arena: u32) -> Result<OwnedFd> {
        self.entry(arena)?.arena.writable_descriptor()
    }

    /// A descriptor of an arena for a reader, and its size. The reader has it mapped until it is gone, and looks at what
    /// it was told of in this term.
    pub fn readable_descriptor(&mut self, arena: u32, reader: u64, term: Epoch) -> Result<(OwnedFd, u64)> {
        let entry = self.entry(arena)?;
        let descriptor = entry.arena.readable_descriptor()?;
        entry.readers.insert(reader, term);
        Ok((descriptor, entry.arena.size()))
    }

    /// Gives pages back that were not needed since the last call; returns how many bytes.
    pub fn trim(&mut self) -> u64 {
        self.arenas.values_mut().map(|entry| entry.arena.trim(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_across_arenas() {
        let mut store = Store::new(1 << 20);
        let (a, _) = store.create_arena().unwrap();
        let (b, _) = store.create_arena().unwrap();
        assert_eq!(store.reserve(a, (1 << 20) + 1).unwrap_err().kind, ErrorKind::OverBudget);
        let first = store.reserve(a, 600 << 10).unwrap().unwrap();
        assert_eq!(store.reserve(b, 600 << 10).unwrap(), None);
        store.free(a, first.offset, first.generation).unwrap();
        assert!(store.reserve(b, 600 << 10).unwrap().is_some());
        let usage = store.usage();
        assert!(usage.touched <= usage.budget, "unused pages of the first arena went back: {usage:?}");
    }

    #[test]
    fn what_is_touched_ahead_is_reserved_next_and_is_bounded() {
        let mut store = Store::new(40 << 20);
        let (a, _) = store.create_arena().unwrap();
        let (b, _) = store.create_arena().unwrap();
        let first = store.reserve(a, 3 << 20).unwrap().unwrap();
        let ahead = store.take_prefault_range(a, 3 << 20).unwrap();
        assert!(store.take_prefault_range(a, 3 << 20).is_none(), "it is being done");
        ahead.touch();
        let (file, _) = store.readable_descriptor(a, 1, 0).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks * 512, 3 << 20);
        let usage = store.usage();
        assert_eq!((usage.staged, usage.peak, usage.touched), (3 << 20, 3 << 20, 6 << 20));
        store.give_back_prefaulted(&ahead).unwrap();
        let second = store.reserve(a, 3 << 20).unwrap().unwrap();
        assert!(first.fresh && !second.fresh);
        assert_eq!(store.usage().staged, 6 << 20);

        let most = store.take_prefault_range(b, 1 << 30).unwrap();
        assert_eq!(store.usage().touched, (6 << 20) + AHEAD_MAX);
        assert!(store.take_prefault_range(a, 1 << 30).is_none(), "all that may be unused is there");
        store.close_arena(b);
        assert!(store.take_prefault_range(b, 1).is_none(), "nobody will reserve there");
        store.give_back_prefaulted(&most).unwrap();
        assert_eq!(store.usage().touched, 6 << 20, "it went with its arena");
        assert!(store.take_prefault_range(b, 1).is_none());
    }

    #[test]
    fn what_may_be_looked_at_is_not_used_again() {
        let mut store = Store::new(1 << 20);
        let (a, _) = store.create_arena().unwrap();
        let range = store.reserve(a, 100).unwrap().unwrap();
        store.commit(a, range.offset, range.generation, 100).unwrap();
        for reader in 1..4 {
            store.readable_descriptor(a, reader, 0).unwrap();
        }
        assert!(!store.on_reader_gone(3));
        store.free_unseen(a, range.offset, range.generation, 7).unwrap();
        store.readable_descriptor(a, 4, 0).unwrap();
        assert!(!store.on_reader_gone(4), "it came later");
        assert!(!store.on_reader_gone(1));
        assert_ne!(store.reserve(a, 100).unwrap().unwrap().offset, range.offset);
        assert!(store.on_reader_gone(2));
        assert_eq!(store.reserve(a, 100).unwrap().unwrap().offset, range.offset);
        assert!(store.free_unseen(a, range.offset, range.generation, 7).is_err(), "it is free already");
        store.free_unseen(a, range.offset, range.generation + 2, 7).unwrap();
        assert_eq!(store.reserve(a, 100).unwrap().unwrap().offset, range.offset, "nobody has it mapped");
    }

    #[test]
    fn who_was_told_in_this_term_is_known() {
        let mut store = Store::new(1 << 20);
        let (a, _) = store.create_arena().unwrap();
        let range = store.reserve(a, 100).unwrap().unwrap();
        store.readable_descriptor(a, 1, 6).unwrap();
        store.readable_descriptor(a, 2, 7).unwrap();
        store.free_unseen(a, range.offset, range.generation, 7).unwrap();
        assert!(!store.on_reader_gone(2), "it was told in this term, and has let go of it");
        assert!(store.on_reader_gone(1));
        let again = store.reserve(a, 100).unwrap().unwrap();
        store.readable_descriptor(a, 3, 7).unwrap();
        store.free_unseen(a, again.offset, again.generation, 7).unwrap();
        assert_eq!(store.reserve(a, 100).unwrap().unwrap().offset, again.offset);
    }

    #[test]
    fn another_servers_blocks_outlive_it_and_cost_nothing_before() {
        let mut first = Store::new(1 << 20);
        let (a, size) = first.create_arena().unwrap();
        let mut put = |byte: u8| {
            let range = first.reserve(a, 5000).unwrap().unwrap();
            first.mapping(a).unwrap().write(range.offset, &[byte; 5000]).unwrap();
            first.commit(a, range.offset, range.generation, 5000).unwrap();
            range
        };
        let (held, other, seen) = (put(7), put(9), put(8));
        let file = first.writable_descriptor(a).unwrap();

        let mut second = Store::new(1 << 20);
        let copied = second.add_backup_arena(Some(file), size).unwrap();
        assert!(second.hold_at(copied, held.offset, held.generation, 5000).unwrap());
        assert!(second.hold_at(copied, held.offset, held.generation + 5, 5000).is_err());
        assert!(second.hold_at(copied, size, 9, 5000).is_err(), "beyond it");
        assert!(second.hold_at(copied, seen.offset, seen.generation, 5000).unwrap());
        assert_eq!(second.usage().staged, 0);
        drop(first);
        second.adopt(copied);
        assert_eq!((second.usage().staged, second.usage().touched), (16384, 16384));
        second.check_committed(copied, held.offset, held.generation, 5000).unwrap();
        let mut found = [0; 2];
        let (reader, _) = second.readable_descriptor(copied, 1, 4).unwrap();
        second.mapping(copied).unwrap().read(held.offset + 4998, &mut found).unwrap();
        assert_eq!(found, [7; 2]);
        second.mapping(copied).unwrap().read(other.offset, &mut found).unwrap();
        assert_eq!(found, [9; 2], "whoever looked at it does so still");
        let mapping = second.mapping(copied).unwrap();
        second.free_unseen(copied, seen.offset, seen.generation, 5).unwrap();
        assert!(second.check_committed(copied, seen.offset, seen.generation, 5000).is_err());
        second.free(copied, held.offset, held.generation).unwrap();
        assert_eq!(second.usage().touched, 0);
        mapping.read(seen.offset, &mut found).unwrap();
        assert_eq!(found, [8; 2], "readers that mapped it at the first one may look at it");
        assert!(second.check_committed(copied, held.offset, held.generation, 5000).is_err());
        assert_eq!(rustix::fs::fstat(&reader).unwrap().st_blocks * 512, 16384, "only of what is free");
    }

    #[test]
    fn copies_of_another_servers_blocks_count() {
        let mut store = Store::new(16 << 10);
        let copies = store.add_backup_arena(None, 1 << 20).unwrap();
        assert!(store.hold_at(copies, 8 << 10, 1, 9000).unwrap());
        assert_eq!(store.usage().staged, 12 << 10);
        assert!(!store.hold_at(copies, 64 << 10, 2, 9000).unwrap(), "no room");
        store.free(copies, 8 << 10, 1).unwrap();
        assert!(store.hold_at(copies, 64 << 10, 2, 9000).unwrap());
        let (own, _) = store.create_arena().unwrap();
        assert_eq!(store.reserve(own, 5000).unwrap(), None);
        store.adopt(copies);
        store.free(copies, 64 << 10, 2).unwrap();
        assert_eq!(store.usage().staged, 0);
        assert!(store.check_committed(copies, 0, 0, 0).is_err(), "it is gone with its last block");
    }

    #[test]
    fn a_closed_arena_goes_with_its_last_block() {
        let mut store = Store::new(1 << 20);
        let (a, _) = store.create_arena().unwrap();
        let range = store.reserve(a, 100).unwrap().unwrap();
        store.commit(a, range.offset, range.generation, 100).unwrap();
        store.mapping(a).unwrap().write(range.offset, &[7; 100]).unwrap();
        let (reader, _) = store.readable_descriptor(a, 1, 0).unwrap();
        let pages = || rustix::fs::fstat(&reader).unwrap().st_blocks;
        assert!(pages() > 0);
        store.close_arena(a);
        assert!(store.check_committed(a, range.offset, range.generation, 100).is_ok());
        store.free(a, range.offset, range.generation).unwrap();
        assert_eq!(
            store.check_committed(a, range.offset, range.generation, 100).unwrap_err().kind,
            ErrorKind::Lost
        );
        assert_eq!(
            (store.usage().touched, pages()),
            (0, 0),
            "its pages are gone although a reader has it open"
        );
    }
}
