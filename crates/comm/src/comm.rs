//! The communicator of one execution.

use crate::endpoint::Endpoint;
use crate::hub::Hub;
use crate::kind::Kind;
use crate::mail::Envelope;
use crate::receiving::{Probe, Receive};
use crate::sending::Send;
use crate::spare::Scratch;
use crate::target::{Place, Source, Target};
use crate::task::{Space, Task};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Address;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long an operation waits unless [`Comm::set_timeout`] says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// How many parts there may be.
const PARTS_MAX: u32 = 1 << 24;
/// How many characters of a reason are told.
const REASON_MAX: usize = 1000;

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

/// The ranks of one execution, or of a part of them. May be used by many threads, but collectives are called in one order by all
/// ranks. Once it and all parts of it are dropped it is closed: who still waits for this rank in it fails at once.
#[derive(Debug)]
pub struct Comm {
    pub(crate) hub: Arc<Hub>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    whole: Arc<Whole>,
    /// Which part of the whole; 0 is all of it.
    part: u32,
    /// The rank of each of its ranks in the whole.
    ranks: Arc<[u32]>,
    /// Whether all of them are on one host, as far as their addresses tell: all ranks see the same.
    pub(crate) is_one_host: bool,
    /// Whether they are, and are more than it has cores.
    pub(crate) shares_cores: bool,
    timeout: Mutex<Duration>,
    collectives: AtomicU64,
}

/// What all parts of a comm have in common.
#[derive(Debug)]
struct Whole {
    hub: Arc<Hub>,
    id: u64,
    /// This process among all.
    rank: u32,
    /// For each rank the first one on the same host.
    hosts: Vec<u32>,
    /// The endpoint, if it is there for this comm alone. Its drop, after this one's, waits until the others have read what was sent.
    _endpoint: Option<Endpoint>,
}

impl Endpoint {
    /// Opens the communicator of one execution. `id` is the same on every member, unique, and grows;
    /// `members[i]` are the addresses of rank i. Waits for nobody: connections are made when first needed.
    pub fn comm(&self, id: u64, rank: u32, members: Vec<Vec<String>>) -> Result<Comm> {
        Comm::open(self.hub().clone(), id, rank, members, None)
    }

    /// The same, of an endpoint that is there for one communicator: it ends with that and with all parts of it.
    pub fn into_comm(self, id: u64, rank: u32, members: Vec<Vec<String>>) -> Result<Comm> {
        Comm::open(self.hub().clone(), id, rank, members, Some(self))
    }
}

impl Comm {
    pub(crate) fn open(
        hub: Arc<Hub>,
        id: u64,
        rank: u32,
        members: Vec<Vec<String>>,
        endpoint: Option<Endpoint>,
    ) -> Result<Comm> {
        let (size, hosts) = (members.len() as u32, hosts_of(&members));
        hub.open(id, rank, members)?;
        let whole = Whole { hub: hub.clone(), id, rank, hosts, _endpoint: endpoint };
        Ok(Comm::new(hub, Arc::new(whole), 0, (rank, (0..size).collect()), TIMEOUT_DEFAULT))
    }

    fn new(
        hub: Arc<Hub>,
        whole: Arc<Whole>,
        part: u32,
        (rank, ranks): (u32, Arc<[u32]>),
        timeout: Duration,
    ) -> Comm {
        let (size, timeout) = (ranks.len() as u32, Mutex::new(timeout));
        let mut hosts = ranks.iter().map(|rank| whole.hosts.get(*rank as usize));
        let first = hosts.next().flatten();
        let is_one_host = hosts.all(|host| host == first);
        let shares_cores = is_one_host && size as usize > hub.host_cores;
        Comm {
            hub,
            rank,
            size,
            whole,
            part,
            ranks,
            is_one_host,
            shares_cores,
            timeout,
            collectives: AtomicU64::new(0),
        }
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
        self.whole.id
    }

    /// Splits it: all ranks with the same color are together, in the order of `key`, then of their ranks here. `None` is in no part, and
    /// gets none. All ranks call it. Each part has messages and collectives of its own.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Comm>> {
        let free = self.hub.state.lock().mail.next_part(self.id());
        let mine = [color.map_or(u64::MAX, u64::from), key as u64, free.into()];
        let entries = self.all_tell(mine)?;
        let part = self.agree_on_part(highest(entries.iter().map(|[.., free]| *free)))?;
        let Some(color) = color.map(u64::from) else {
            self.hub.close_part(self.id(), part);
            return Ok(None);
        };
        let mut together: Vec<(i64, u32)> = (0..)
            .zip(&entries)
            .filter(|(_, [other, ..])| *other == color)
            .map(|(rank, [_, key, _])| (*key as i64, rank))
            .collect();
        together.sort_unstable();
        let rank = together.iter().position(|(_, rank)| *rank == self.rank).unwrap_or_default() as u32;
        let ranks = together.iter().map(|(_, rank)| self.in_whole(*rank)).collect();
        let (hub, whole, timeout) = (self.hub.clone(), self.whole.clone(), *self.timeout.lock());
        Ok(Some(Comm::new(hub, whole, part, (rank, ranks), timeout)))
    }

    /// A number for all parts of one split that none of these ranks has had before: this one, unless other communicators are split by other
    /// threads meanwhile. Where one of them was quicker on some rank, all try the next number.
    fn agree_on_part(&self, mut part: u32) -> Result<u32> {
        loop {
            if part >= PARTS_MAX {
                let text = "a communicator is split no more than 16 million times";
                return Err(Error::new(ErrorKind::Full, text));
            }
            let is_mine = self.hub.state.lock().mail.open_part(self.id(), part);
            let told = self.all_tell([u64::from(!is_mine)]);
            if told.as_ref().is_ok_and(|told| told.iter().all(|[is_taken]| *is_taken == 0)) {
                return Ok(part);
            }
            if is_mine {
                if let Err(error) = &told {
                    // Another rank may have heard of all in time.
                    self.revoke_part(part, &error.text);
                }
                self.hub.close_part(self.id(), part);
            }
            told?;
            let free = self.hub.state.lock().mail.next_part(self.id());
            // Another distance for each communicator, so that two do not meet again.
            let next = free.max(part + 1 + self.part % 16);
            part = highest(self.all_tell([next.into()])?.into_iter().map(|[next]| next));
        }
    }

    /// What each rank tells, by rank.
    fn all_tell<const N: usize>(&self, mine: [u64; N]) -> Result<Vec<[u64; N]>> {
        let mine: Vec<u8> = mine.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut all = vec![0; mine.len() * self.size as usize];
        self.allgather_into(&mine, &mut all, &vec![mine.len(); self.size as usize])?;
        let numbers: Vec<u64> = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Ok(numbers.as_chunks().0.to_vec())
    }

    /// The same ranks once more, with messages and collectives of their own. All ranks call it.
    pub fn dup(&self) -> Result<Comm> {
        self.split(Some(0), 0)?.ok_or_else(|| Error::internal("a copy of a communicator has no ranks"))
    }

    /// Ends it on all ranks: what they have begun in it and what they begin fails with `Unreachable`, which tells this rank and why, on
    /// this rank, too. What has arrived may still be received. Parts of it, and what it is a part of, go on.
    ///
    /// Waits for nobody: other ranks hear of it at once if they have talked to this one, wait for it, or for one that knows; else as soon as
    /// they do. One rank calls it that cannot go on, so that nobody waits for it in vain. This is MPI's `MPI_Comm_revoke` ("User-Level Failure Mitigation", chapter of the proposal
    /// to the MPI Forum).
    pub fn revoke(&self, why: &str) -> Result<()> {
        self.hub.check_process()?;
        self.revoke_part(self.part, why);
        Ok(())
    }

    fn revoke_part(&self, part: u32, why: &str) {
        let (rank, id) = (self.whole.rank, self.id());
        let why: String = why.chars().take(REASON_MAX).collect();
        let why = format!("rank {rank} has revoked communicator {id}: {why}");
        self.hub.revoke(id, part, (rank, &why));
    }

    /// The rank in the whole of a rank here.
    pub(crate) fn in_whole(&self, rank: u32) -> u32 {
        self.ranks.get(rank as usize).copied().unwrap_or(rank)
    }

    pub(crate) fn status(&self, Envelope { label, bytes }: Envelope) -> Status {
        let here = self.ranks.iter().position(|rank| *rank == label.source);
        Status { source: here.map_or(label.source, |rank| rank as u32), tag: label.tag, bytes }
    }

    /// Which rank to receive from, in the whole.
    pub(crate) fn source_of(&self, source: Option<u32>) -> Result<Option<u32>> {
        source.map(|source| self.check_rank(source).map(|()| self.in_whole(source))).transpose()
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
        let task = self.task("message", Kind::default(), 0);
        self.hub.run(&task, self.put(&task, dest, tag, bytes))
    }

    /// Receives what a rank sent with this tag. Waits for it. What arrives is copied once on its way here.
    pub fn recv(&self, source: u32, tag: u64) -> Result<Vec<u8>> {
        self.check_rank(source)?;
        let task = self.task("message", Kind::default(), 0);
        self.hub.run(&task, self.get(&task, source, tag))
    }

    /// As [`Comm::recv`], from any rank, or with any tag, where that is `None`.
    pub fn recv_any(&self, source: Option<u32>, tag: Option<u64>) -> Result<(Status, Vec<u8>)> {
        let source = self.source_of(source)?;
        let task = self.task("message", Kind::default(), 0);
        let receive = Receive::new(&self.hub, &task, (source, tag), Target::Made(Vec::new()));
        let (envelope, target) = self.hub.run(&task, receive)?;
        Ok((self.status(envelope), target.made()))
    }

    /// The same into the caller's memory, which is filled from its beginning on. A message that is longer than that is an error, and gone.
    #[allow(unsafe_code)]
    pub fn recv_into(&self, source: Option<u32>, tag: Option<u64>, bytes: &mut [u8]) -> Result<Status> {
        let source = self.source_of(source)?;
        let task = self.task("message", Kind::default(), 0);
        // SAFETY: the memory is borrowed until this returns, and with that the receive has ended.
        let place = unsafe { Place::new(bytes.as_mut_ptr(), bytes.len()) };
        let receive = Receive::new(&self.hub, &task, (source, tag), Target::Place(place));
        self.hub.run(&task, receive).map(|(envelope, _)| self.status(envelope))
    }

    /// The message that would be received, which is left where it is. Waits for it.
    pub fn probe(&self, source: Option<u32>, tag: Option<u64>) -> Result<Status> {
        let source = self.source_of(source)?;
        let task = self.task("message", Kind::default(), 0);
        self.hub.run(&task, Probe::new(&self.hub, &task, (source, tag))).map(|found| self.status(found))
    }

    /// The same, if it is there. Does not wait.
    pub fn iprobe(&self, source: Option<u32>, tag: Option<u64>) -> Result<Option<Status>> {
        self.hub.check_process()?;
        let source = self.source_of(source)?;
        let task = self.task("message", Kind::default(), 0);
        self.hub.advance_requests();
        Ok(Probe::new(&self.hub, &task, (source, tag)).now()?.map(|found| self.status(found)))
    }

    /// A part of a call: bytes are sent.
    #[allow(unsafe_code)]
    pub(crate) fn put<'a>(&'a self, task: &'a Task, dest: u32, tag: u64, bytes: &'a [u8]) -> Send<'a> {
        // SAFETY: the bytes are borrowed as long as the future lives, which gives them up when it is dropped; nothing here leaks one.
        let source = unsafe { Source::new(bytes.as_ptr(), bytes.len()) };
        Send::new(&self.hub, task, self.in_whole(dest), task.kind.tag(tag), source)
    }

    /// A part of a call: bytes are received.
    pub(crate) async fn get(&self, task: &Task, source: u32, tag: u64) -> Result<Vec<u8>> {
        let from = (Some(self.in_whole(source)), Some(task.kind.tag(tag)));
        let (_, target) = Receive::new(&self.hub, task, from, Target::Made(Vec::new())).await?;
        Ok(target.made())
    }

    /// Memory of so many bytes, whatever stands in it.
    pub(crate) fn scratch(&self, bytes: usize) -> Scratch<'_> {
        self.hub.spare.take(bytes)
    }

    /// The wait for what was put aside.
    pub(crate) fn waiting(&self) -> Task {
        self.task("request", Kind::default(), 0)
    }

    /// A message that is sent or received.
    pub(crate) fn single(&self) -> Task {
        self.task("message", Kind::default(), 0)
    }

    /// The beginning of the next collective.
    pub(crate) fn collective(&self, kind: Kind) -> Task {
        let number = self.collectives.fetch_add(1, Ordering::Relaxed) + 1;
        self.task(kind.name(), kind, number)
    }

    pub(crate) fn check_rank(&self, rank: u32) -> Result<()> {
        if rank >= self.size {
            let last = self.size - 1;
            return Err(Error::invalid(format!(
                "communicator {} has ranks 0 to {last}, not {rank}",
                self.id()
            )));
        }
        Ok(())
    }

    fn task(&self, what: &'static str, kind: Kind, number: u64) -> Task {
        let (timeout, deadline) = (*self.timeout.lock(), OnceLock::new());
        let (comm, rank, ranks) = (self.whole.id, self.whole.rank, self.ranks.clone());
        let (space, expired) = (Space::new(self.part, number), AtomicBool::new(false));
        Task { comm, rank, ranks, what, kind, space, timeout, deadline, expired }
    }
}

fn highest(parts: impl Iterator<Item = u64>) -> u32 {
    parts.max().map_or(0, |part| part.min(PARTS_MAX.into()) as u32)
}

/// For each member the first one on the same host.
fn hosts_of(members: &[Vec<String>]) -> Vec<u32> {
    let host = |addresses: &Vec<String>| {
        addresses.iter().find_map(|address| match address.parse() {
            Ok(Address::Shm { host, .. }) => Some(host),
            _ => None,
        })
    };
    let mut first = HashMap::new();
    (0..)
        .zip(members)
        .map(|(rank, member)| host(member).map_or(rank, |host| *first.entry(host).or_insert(rank)))
        .collect()
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.part > 0 && !self.hub.is_of_parent() {
            self.hub.close_part(self.id(), self.part);
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.hub.is_of_parent() {
            return std::mem::forget(self.hub.clone());
        }
        self.hub.close(self.id);
    }
}
