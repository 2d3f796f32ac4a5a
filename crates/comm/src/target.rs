//! Where the bytes of a message go.
#![allow(unsafe_code)]

use crate::operation::Combine;

/// Memory of a caller, who waits until it is filled or the receive is given up.
#[derive(Debug)]
pub(crate) struct Place {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: whoever makes one keeps the memory until it is dropped, whichever thread writes to it.
unsafe impl Send for Place {}

impl Place {
    /// # Safety
    ///
    /// The memory must be valid for writing until this is dropped, and nobody else may look at it until then.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize) -> Place {
        Place { start, bytes }
    }

    fn slice(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: see `new`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

/// Memory of a caller for an operation that goes on after the call: of the caller's until then.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: whoever makes one keeps the memory as long as it is used, whichever thread uses it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    ///
    /// The memory must be valid until the operation that it is given to is over or dropped: for reading if it only sends from it, else for
    /// writing, too. Until then nobody else may write to it, nor read what the operation writes.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Memory {
        Memory { start, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: see `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: see `new`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    pub(crate) fn place(self) -> Place {
        Place { start: self.start, bytes: self.bytes }
    }
}

/// Memory of a caller that is sent from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    start: *const u8,
    bytes: usize,
}

// SAFETY: whoever makes one keeps the memory as it is while it is used, whichever thread reads it.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// # Safety
    ///
    /// The memory must be valid, and as it is, as long as this is used.
    pub(crate) unsafe fn new(start: *const u8, bytes: usize) -> Source {
        Source { start, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Where it lies, for another process.
    pub(crate) fn address(&self) -> u64 {
        self.start.addr() as u64
    }

    pub(crate) fn slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: see `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// Memory of so many bytes, whatever stands in it. There are no more than a record carries.
pub(crate) fn first_of(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    &mut scratch[..bytes]
}

/// Where the bytes of a message go.
pub(crate) enum Target {
    /// To memory that is made for it.
    Made(Vec<u8>),
    /// To a caller's memory, which may be longer.
    Place(Place),
    /// They are combined with what is in a caller's memory, or with these, in that memory.
    Combined(Place, Combine, Option<Source>),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "for up to {} bytes", self.longest())
    }
}

impl Target {
    /// How long a message may be.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Target::Made(_) => usize::MAX,
            Target::Place(place) | Target::Combined(place, ..) => place.bytes,
        }
    }

    /// The memory that was made; none of a message that went to a caller's.
    pub(crate) fn made(self) -> Vec<u8> {
        match self {
            Target::Made(made) => made,
            Target::Place(_) | Target::Combined(..) => Vec::new(),
        }
    }

    /// A message of so many bytes begins. `false`: there is no memory for it.
    pub(crate) fn begin(&mut self, bytes: usize) -> bool {
        match self {
            Target::Made(made) => made.try_reserve_exact(bytes).is_ok(),
            _ => true,
        }
    }

    /// The memory for these bytes of it, which follow those that have come, if they lie somewhere.
    pub(crate) fn space(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
        match self {
            Target::Made(made) => {
                made.resize(at + bytes, 0);
                made.get_mut(at..)
            }
            Target::Place(place) => place.slice().get_mut(at..at + bytes),
            Target::Combined(..) => None,
        }
    }

    /// Bytes of it have come. Those that are combined come in whole elements: pieces are of multiples of 64 bytes, but for the last.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Target::Combined(place, combine, own) = self {
            let Some(space) = place.slice().get_mut(at..at + bytes.len()) else { return };
            match own.as_ref().and_then(|own| own.slice().get(at..at + bytes.len())) {
                Some(own) => (combine.apart)(space, own, bytes),
                None => (combine.into)(space, bytes),
            }
            return;
        }
        if let Some(space) = self.space(at, bytes.len()) {
            space.copy_from_slice(bytes);
        }
    }
}
