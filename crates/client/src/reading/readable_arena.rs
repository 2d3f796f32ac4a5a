//! An arena of a server on this host, mapped for reading.

use crate::connection::rpc::{Rpc, lock};
use forebay_core::Result;
use forebay_store::ranges::RangeSet;
use forebay_store::{Access, Mapping, PAGE, pages};
use forebay_transport::fork::ForkGuard;
use forebay_wire::client::reading::Request;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// An arena, for reading. When nobody looks at it any more, its server is told so.
#[derive(Debug)]
pub(crate) struct ReadableArena {
    mapped: ArenaMapping,
    guard: ForkGuard,
    rpc: Arc<Rpc>,
    /// The number by which the server knows this reader of the arena.
    reader: u64,
    bytes: u64,
    /// At which step of this reader something was read there last.
    used: AtomicU64,
}

#[derive(Debug)]
enum ArenaMapping {
    /// The whole arena, and what of it was brought into the mapping.
    Whole(Arc<Mapping>, Mutex<RangeSet>),
    /// The process has no address space for the whole (arenas are large, and there is one for each rank): each block is mapped
    /// by itself.
    Parts(OwnedFd),
}

impl ReadableArena {
    pub(super) fn new(file: OwnedFd, bytes: u64, rpc: Arc<Rpc>, reader: u64) -> ReadableArena {
        let mapped = match Mapping::new(file.as_fd(), bytes, Access::Read) {
            Ok(mapping) => ArenaMapping::Whole(Arc::new(mapping), Mutex::default()),
            Err(_) => ArenaMapping::Parts(file),
        };
        ReadableArena { mapped, guard: ForkGuard::new(), rpc, reader, bytes, used: AtomicU64::new(0) }
    }

    /// How much of the address space it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Something is read there at this step of the reader, by its count.
    pub(super) fn note_used(&self, step: u64) {
        self.used.store(step, Ordering::Relaxed);
    }

    /// When that was the last time.
    pub(super) fn last_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A mapping that shows a range, and where the range starts in it. Valid as long as this arena lives.
    pub(crate) fn show(&self, offset: u64, bytes: u64) -> Result<(Arc<Mapping>, u64)> {
        match &self.mapped {
            ArenaMapping::Whole(mapping, _) => Ok((mapping.clone(), offset)),
            ArenaMapping::Parts(file) => {
                let before = offset % PAGE;
                let part = Mapping::part(file.as_fd(), offset - before, pages(before + bytes), Access::Read)?;
                Ok((Arc::new(part), before))
            }
        }
    }

    /// As [`ReadableArena::show`], and brings the range into the mapping in one go, before all of it is read.
    pub(crate) fn show_all(&self, offset: u64, bytes: u64) -> Result<(Arc<Mapping>, u64)> {
        let (mapping, start) = self.show(offset, bytes)?;
        match &self.mapped {
            ArenaMapping::Whole(_, populated) => {
                let mut populated = lock(populated);
                let end = offset + pages(bytes);
                if !populated.contains(offset, end) {
                    mapping.populate(offset, bytes);
                    populated.insert(offset, end);
                }
            }
            ArenaMapping::Parts(_) => mapping.populate(start, bytes),
        }
        Ok((mapping, start))
    }
}

impl Drop for ReadableArena {
    fn drop(&mut self) {
        if !self.guard.is_child() {
            let _ = self.rpc.tell(&Request::CloseArena { reader: self.reader });
        }
    }
}
