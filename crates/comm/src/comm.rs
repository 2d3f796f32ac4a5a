//! The communicator of one execution.

use crate::hub::Hub;
use crate::point::Task;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an operation waits unless [`Comm::set_timeout`] says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// As good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The ranks of one execution. May be used by many threads, but collectives are called in one order by all
/// ranks. Dropping it closes it: who still waits for this rank in it fails at once.
#[derive(Debug)]
pub struct Comm {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    timeout: Mutex<Duration>,
    collectives: AtomicU64,
}

impl Comm {
    pub(crate) fn open(hub: Arc<Hub>, id: u64, rank: u32, members: Vec<Vec<String>>) -> Result<Comm> {
        let size = members.len() as u32;
        hub.open(id, rank, members)?;
        Ok(Comm { hub, id, rank, size, timeout: Mutex::new(TIMEOUT_DEFAULT), collectives: AtomicU64::new(0) })
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Its number, the same on every rank.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How long one operation may wait in all, from the next one on.
    pub fn set_timeout(&self, timeout: Duration) {
        *self.timeout.lock() = timeout;
    }

    /// Sends to a rank, this one included. Returns when the bytes may be reused, which says nothing of
    /// their arrival. Copies once. Waits only while 4 MiB are on their way to that rank already, which is
    /// as long as it has no room for them ([`crate::UNREAD_MAX`]); to itself it never waits.
    pub fn send(&self, dest: u32, tag: u64, bytes: &[u8]) -> Result<()> {
        self.check_rank(dest)?;
        self.hub.send(&self.task("message", 0), dest, tag, bytes)
    }

    /// Receives what a rank sent with this tag. Waits for it. What arrives is copied once on its way here.
    pub fn recv(&self, source: u32, tag: u64) -> Result<Vec<u8>> {
        self.check_rank(source)?;
        self.hub.receive(&self.task("message", 0), source, tag)
    }

    /// The beginning of the next collective.
    pub(crate) fn collective(&self, what: &'static str) -> Task {
        self.task(what, self.collectives.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn check_rank(&self, rank: u32) -> Result<()> {
        if rank >= self.size {
            let last = self.size - 1;
            return Err(Error::invalid(format!(
                "communicator {} has ranks 0 to {last}, not {rank}",
                self.id
            )));
        }
        Ok(())
    }

    fn task(&self, what: &'static str, space: u64) -> Task {
        let (timeout, now) = (*self.timeout.lock(), Instant::now());
        let deadline = now.checked_add(timeout.min(FAR)).unwrap_or(now);
        Task { comm: self.id, rank: self.rank, what, space, timeout, deadline }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.hub.close(self.id);
    }
}
