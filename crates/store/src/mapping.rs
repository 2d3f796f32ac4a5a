//! Mapping an arena into a process.
//!
//! This is where shared memory meets safe code. Other processes may write to it at any time, so no
//! reference to its bytes is ever made for longer than one copy, and never while a range that somebody
//! else may write is meant: callers say which range they own by the protocol (a grant that is theirs to
//! write, or a committed block that they hold and nobody writes).
#![allow(unsafe_code)]

use crate::PAGE;
use forebay_core::{Error, Result};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// What a mapping is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading only: a stray write faults.
    Read,
    /// Reading and writing.
    Write,
}

/// A whole arena, mapped. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
    access: Access,
}

// SAFETY: a mapping is an address range; all access goes through raw copies whose ranges the protocol
// assigns to one writer at a time, whatever thread it runs on.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a memory file. Costs no memory until pages are touched.
    ///
    /// A mapping for writing is not inherited by forked children: a stray write there faults instead of
    /// spoiling a block that the parent has handed over.
    pub fn new(file: BorrowedFd<'_>, bytes: u64, access: Access) -> Result<Mapping> {
        Mapping::part(file, 0, bytes, access)
    }

    /// Maps a part of a memory file that begins at a page. Offsets count from there.
    pub fn part(file: BorrowedFd<'_>, start: u64, bytes: u64, access: Access) -> Result<Mapping> {
        let length = usize::try_from(bytes)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| Error::invalid("an arena is empty"))?;
        let size =
            rustix::fs::fstat(file).map_err(|e| Error::io("cannot look at an arena", &e.into()))?.st_size;
        if start.checked_add(bytes).is_none_or(|end| end > size as u64) {
            // Reading past its end would be a fatal signal.
            return Err(Error::protocol(format!("an arena of {size} bytes was announced as {bytes}")));
        }
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let failed = |call: &str, e: rustix::io::Errno| {
            Error::io(format!("cannot map ({call}) an arena of {bytes} bytes"), &e.into())
        };
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                start,
            )
        }
        .map_err(|e| failed("mmap", e))?;
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::internal("mmap gave a null address"))?;
        if access == Access::Write {
            // SAFETY: the range was mapped just now and is ours.
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork) }
                .map_err(|e| failed("madvise", e))?;
        }
        Ok(Mapping { start, bytes, access })
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(Error::protocol(format!(
                "range {offset} + {length} lies outside its arena of {} bytes",
                self.bytes
            )));
        }
        Ok(())
    }

    /// The address of a range, for reading. Valid while the mapping lives; its content is stable while the
    /// block there is held.
    pub fn address(&self, offset: u64, length: u64) -> Result<*const u8> {
        self.check(offset, length)?;
        // SAFETY: the range lies inside the mapping.
        Ok(unsafe { self.start.as_ptr().add(offset as usize) })
    }

    /// The address of a range, for writing.
    pub fn address_mut(&self, offset: u64, length: u64) -> Result<*mut u8> {
        if self.access != Access::Write {
            return Err(Error::internal("an arena mapped for reading cannot be written"));
        }
        self.check(offset, length)?;
        // SAFETY: the range lies inside the mapping.
        Ok(unsafe { self.start.as_ptr().add(offset as usize) })
    }

    /// The word at a place, which other processes may change at any time.
    pub fn atomic(&self, offset: u64) -> Result<&AtomicU64> {
        let address = self.address_mut(offset, 8)?.cast::<AtomicU64>();
        if !address.is_aligned() {
            return Err(Error::internal(format!("a word at {offset} is not aligned")));
        }
        // SAFETY: the word lies inside the mapping, which lives as long as the reference, is aligned, and is
        // only ever accessed atomically: no range that is handed out contains it.
        Ok(unsafe { &*address })
    }

    /// The same of 32 bits.
    pub fn atomic32(&self, offset: u64) -> Result<&AtomicU32> {
        let address = self.address_mut(offset, 4)?.cast::<AtomicU32>();
        if !address.is_aligned() {
            return Err(Error::internal(format!("a word at {offset} is not aligned")));
        }
        // SAFETY: as above.
        Ok(unsafe { &*address })
    }

    /// Copies bytes into a range that is the caller's to write.
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let target = self.address_mut(offset, source.len() as u64)?;
        // SAFETY: the range was checked; `source` is ordinary memory of this process, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        Ok(())
    }

    /// Copies a range out, of a block that the caller holds.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let source = self.address(offset, target.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    /// A range that is the caller's to write, as a slice for one system call to fill.
    pub fn with_writable<T>(&self, offset: u64, length: u64, fill: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let target = self.address_mut(offset, length)?;
        // SAFETY: by the protocol nobody else reads or writes a range that is reserved for the caller.
        Ok(fill(unsafe { std::slice::from_raw_parts_mut(target, length as usize) }))
    }

    /// A range of a block that the caller holds, as a slice for one system call to read.
    pub fn with_readable<T>(&self, offset: u64, length: u64, use_it: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let source = self.address(offset, length)?;
        // SAFETY: nobody writes to a committed block while it is held.
        Ok(use_it(unsafe { std::slice::from_raw_parts(source, length as usize) }))
    }

    /// Brings the pages of a range into this mapping in one go: about four times as fast as touching them
    /// one by one. Only an optimisation: failure is ignored (kernels before 5.14 do not know it).
    pub fn populate(&self, offset: u64, length: u64) {
        let start = offset / PAGE * PAGE;
        let end = crate::pages(offset + length).min(self.bytes);
        if start >= end {
            return;
        }
        let advice = match self.access {
            Access::Read => Advice::LinuxPopulateRead,
            Access::Write => Advice::LinuxPopulateWrite,
        };
        // SAFETY: the range lies inside the mapping; populating changes no content.
        let _ = unsafe {
            rustix::mm::madvise(
                self.start.as_ptr().add(start as usize).cast(),
                (end - start) as usize,
                advice,
            )
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}
