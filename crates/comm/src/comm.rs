//! The communicator of one execution.

use crate::hub::Hub;
use crate::mail::Envelope;
use crate::receiving::{Probe, Receive};
use crate::sending::Send;
use crate::target::{Place, Source, Target};
use crate::task::Task;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an operation waits unless [`Comm::set_timeout`] says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// As good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Which message was received, or is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u64,
    /// Its length.
    pub bytes: u64,
}

impl From<Envelope> for Status {
    fn from(Envelope { label, bytes }: Envelope) -> Status {
        Status { source: label.source, tag: label.tag, bytes }
    }
}

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

    /// Sends to a rank, this one included. Returns when the bytes may be reused.
    ///
    /// Up to 16 KiB are copied into memory that both processes share, or a socket, and are on their way when this returns. More
    /// is read by a receiver on this host where it lies, so that this waits until it is received; to another host up to 4 MiB
    /// are on their way. To itself it never waits, and copies once.
    pub fn send(&self, dest: u32, tag: u64, bytes: &[u8]) -> Result<()> {
        self.check_rank(dest)?;
        let task = self.task("message", 0);
        self.hub.run(&task, self.put(&task, dest, tag, bytes))
    }

    /// Receives what a rank sent with this tag. Waits for it. What arrives is copied once on its way here.
    pub fn recv(&self, source: u32, tag: u64) -> Result<Vec<u8>> {
        self.check_rank(source)?;
        let task = self.task("message", 0);
        self.hub.run(&task, self.get(&task, source, tag))
    }

    /// As [`Comm::recv`], from any rank, or with any tag, where that is `None`.
    pub fn recv_any(&self, source: Option<u32>, tag: Option<u64>) -> Result<(Status, Vec<u8>)> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        let task = self.task("message", 0);
        let receive = Receive::new(&self.hub, &task, (source, tag), Target::Made(Vec::new()));
        let (envelope, target) = self.hub.run(&task, receive)?;
        Ok((envelope.into(), target.made()))
    }

    /// The same into the caller's memory, which is filled from its beginning on. A message that is longer than that is an error, and gone.
    #[allow(unsafe_code)]
    pub fn recv_into(&self, source: Option<u32>, tag: Option<u64>, bytes: &mut [u8]) -> Result<Status> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        let task = self.task("message", 0);
        // SAFETY: the memory is borrowed until this returns, and with that the receive has ended.
        let place = unsafe { Place::new(bytes.as_mut_ptr(), bytes.len()) };
        let receive = Receive::new(&self.hub, &task, (source, tag), Target::Place(place));
        self.hub.run(&task, receive).map(|(envelope, _)| envelope.into())
    }

    /// The message that would be received, which is left where it is. Waits for it.
    pub fn probe(&self, source: Option<u32>, tag: Option<u64>) -> Result<Status> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        let task = self.task("message", 0);
        self.hub.run(&task, Probe::new(&self.hub, &task, (source, tag))).map(Status::from)
    }

    /// The same, if it is there. Does not wait.
    pub fn iprobe(&self, source: Option<u32>, tag: Option<u64>) -> Result<Option<Status>> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        let task = self.task("message", 0);
        Ok(Probe::new(&self.hub, &task, (source, tag)).now()?.map(Status::from))
    }

    /// A part of a call: bytes are sent.
    #[allow(unsafe_code)]
    pub(crate) fn put<'a>(&'a self, task: &'a Task, dest: u32, tag: u64, bytes: &'a [u8]) -> Send<'a> {
        // SAFETY: the bytes are borrowed as long as the future lives, which gives them up when it is dropped; nothing here leaks one.
        let source = unsafe { Source::new(bytes.as_ptr(), bytes.len()) };
        Send::new(&self.hub, task, dest, tag, source)
    }

    /// A part of a call: bytes are received.
    pub(crate) async fn get(&self, task: &Task, source: u32, tag: u64) -> Result<Vec<u8>> {
        let target = Target::Made(Vec::new());
        let (_, target) = Receive::new(&self.hub, task, (Some(source), Some(tag)), target).await?;
        Ok(target.made())
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
        let expired = AtomicBool::new(false);
        Task { comm: self.id, rank: self.rank, what, space, timeout, deadline, expired }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.hub.close(self.id);
    }
}
