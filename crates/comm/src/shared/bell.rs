//! What wakes a process that sleeps: a word in memory that its peers share, and the kernel's wait on it.
//!
//! Who is about to sleep says so, looks once more, and sleeps. Who has written something for it looks whether it sleeps, and wakes it
//! if so. One of both sees the other, whatever the order: no wake is lost. What is written where the other one does not look by itself,
//! such as the word of a loan, is counted, so that it looks there again. A defective peer can spoil both words; therefore nobody sleeps
//! longer than [`NAP`] without a look.

use super::atomic::Atomic;
use super::file;
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// How long nobody looks at most.
pub(crate) const NAP: Duration = Duration::from_millis(100);

const AWAKE: u64 = 0;
pub(super) const ASLEEP: u64 = 1;
/// A page.
const BYTES: u64 = 4096;

/// The word, for who sleeps.
pub(crate) fn lie_down<A: Atomic>(word: &A) {
    word.set(ASLEEP);
    A::fence();
}

/// It sleeps no more.
pub(crate) fn get_up<A: Atomic>(word: &A) {
    word.set(AWAKE);
}

/// Something was written for it: whether the kernel must wake it.
pub(crate) fn must_be_woken<A: Atomic>(word: &A) -> bool {
    A::fence();
    word.get() == ASLEEP && word.set_if(ASLEEP, AWAKE)
}

/// Where what others have told is counted: in another line than the word, which they look at each time.
const TOLD: u64 = 64;

/// One process's bell: it sleeps by it, its peers ring.
#[derive(Debug)]
pub(crate) struct Bell {
    memory: Mapping,
}

impl Bell {
    /// A new one, and what is passed to peers.
    pub(crate) fn new() -> Result<(Bell, OwnedFd)> {
        let file = file::new("forebay-bell", BYTES)?;
        Ok((Bell { memory: file::map(&file, BYTES)? }, file))
    }

    /// A peer's.
    pub(crate) fn of_peer(file: BorrowedFd<'_>) -> Result<Bell> {
        file::check(file, BYTES)?;
        Ok(Bell { memory: file::map(file, BYTES)? })
    }

    fn word(&self) -> Result<&AtomicU32> {
        self.memory.atomic32(0)
    }

    /// How often peers have told this process to look again.
    pub(crate) fn told(&self) -> u64 {
        self.memory.atomic(TOLD).map_or(0, Atomic::get)
    }

    /// Something has changed for the one whose bell this is, where it does not look by itself.
    pub(crate) fn tell(&self) {
        if let Ok(told) = self.memory.atomic(TOLD) {
            told.count();
        }
        self.ring();
    }

    /// Something was written into a ring for the one whose bell this is.
    pub(crate) fn ring(&self) {
        if let Ok(word) = self.word()
            && must_be_woken(word)
        {
            let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
        }
    }

    /// Sleeps until it is rung, unless `is_there` says that there is something already; at most so long, or until a signal comes.
    pub(crate) fn sleep(&self, longest: Duration, mut is_there: impl FnMut() -> bool) -> Result<()> {
        let word = self.word()?;
        lie_down(word);
        if !is_there() {
            let nap = longest.min(NAP);
            let nap = Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos().into() };
            match futex::wait(word, futex::Flags::empty(), ASLEEP as u32, Some(&nap)) {
                Ok(())
                | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::TIMEDOUT) => {}
                Err(e) => {
                    get_up(word);
                    return Err(Error::io("cannot wait for other processes (futex)", &e.into()));
                }
            }
        }
        get_up(word);
        Ok(())
    }
}
