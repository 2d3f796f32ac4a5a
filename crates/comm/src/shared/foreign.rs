//! Reading the memory of another process of this user, where the kernel lets us (process_vm_readv(2)): one copy instead of two.
//!
//! It is tried once, when two processes meet: a number that the other one has told must lie where it said. Where it does not, be it
//! that the system forbids it or that the other process is in another namespace, long messages go through the ring.
#![allow(unsafe_code)]

use forebay_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Numbers of processes are given in turn: in this time there are not enough new ones to come to the same number again.
const JUST_NOW: Duration = Duration::from_millis(1);

/// Where a number of one's own lies by which others find out whether they can read it.
#[derive(Debug)]
pub(crate) struct Probe {
    number: Box<u128>,
}

impl Probe {
    pub(crate) fn new(number: u128) -> Probe {
        Probe { number: Box::new(number) }
    }

    /// What is told to others.
    pub(crate) fn told(&self) -> (u64, u128) {
        (std::ptr::from_ref(&*self.number).addr() as u64, *self.number)
    }
}

/// A process whose memory can be read.
#[derive(Debug)]
pub(crate) struct Foreign {
    process: i32,
    /// Tells whether it is still there: its number may be another one's by now.
    handle: OwnedFd,
    /// When it was last seen.
    seen: Cell<Option<Instant>>,
}

impl Foreign {
    /// The process, if this one may read it. It must be alive, such as the other end of a connection that is open.
    pub(crate) fn find(process: u32, (address, number): (u64, u128)) -> Option<Foreign> {
        let id = i32::try_from(process).ok()?;
        let handle = pidfd_open(Pid::from_raw(id)?, PidfdFlags::empty()).ok()?;
        let found = Foreign { process: id, handle, seen: Cell::new(None) };
        let mut bytes = [0; 16];
        found.read(address, &mut bytes).ok()?;
        (u128::from_ne_bytes(bytes) == number).then_some(found)
    }

    /// Copies from there. What was read is that process's only if it [is alive](Foreign::is_alive) after that.
    pub(crate) fn read(&self, address: u64, target: &mut [u8]) -> Result<()> {
        let mut at = 0;
        while at < target.len() {
            let rest = &mut target[at..];
            let here = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let there = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address as usize + at),
                iov_len: rest.len(),
            };
            // SAFETY: `here` is a range of this process that is borrowed for writing; `there` is none of this process's memory: the
            // kernel looks it up in the other one, and fails if it is not there.
            let copied =
                unsafe { libc::process_vm_readv(self.process, &raw const here, 1, &raw const there, 1, 0) };
            match usize::try_from(copied) {
                Ok(0) => {
                    return Err(Error::unreachable("the memory of another process ends within a message"));
                }
                Ok(copied) => at += copied,
                Err(_) => {
                    let e = std::io::Error::last_os_error();
                    return Err(Error::unreachable(format!("cannot read what another process lends: {e}")));
                }
            }
        }
        Ok(())
    }

    /// Whether it is still there, or was so just now: its number is not another one's so soon.
    pub(crate) fn is_alive(&self) -> bool {
        let now = Instant::now();
        if self.seen.get().is_some_and(|seen| now - seen < JUST_NOW) {
            return true;
        }
        let is_there = self.is_there();
        self.seen.set(is_there.then_some(now));
        is_there
    }

    fn is_there(&self) -> bool {
        let mut poll = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(0))
    }
}
