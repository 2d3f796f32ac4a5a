//! What all ranks do together, each in a file of its own.
//!
//! All wait, by the comm's deadline; all are to be called by every rank, in the same order. A rank may
//! return from one while others are still in it. After a failure the results of other ranks are unknown,
//! but what was left over from it is never taken for part of a later collective.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod doubling;
mod exchange;
mod gather;
mod layout;
mod near;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod tree;

pub(crate) use layout::{blocks_of, equal_blocks};

use crate::comm::Comm;
use crate::kind::WAY;
use crate::mail::Envelope;
use crate::receiving::Receive;
use crate::reduction::{Reduction, Side};
use crate::sending::Send;
use crate::target::{Place, Source, Target};
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// The way up a tree, the way down, and what goes straight: what one collective sends in both directions has different tags.
const UP: u64 = 0;
const DOWN: u64 = 1;
const ASIDE: u64 = 2;
/// Beside these: the ways of few ranks on one host. Ranks that do not go the same way, since they give different numbers of bytes, notice it
/// by that.
const NEAR: u64 = 1 << WAY;
/// The same in parts.
const PARTS: u64 = 2 << WAY;

/// Up to so many bytes a message is short: it is on its way once it is sent, and rounds cost more than what it carries.
const SHORT: usize = 8 << 10;

impl Comm {
    /// 1, 2, 4 ... below the size.
    fn distances(&self) -> impl Iterator<Item = u32> + use<> {
        let size = self.size;
        std::iter::successors(Some(1u32), |distance| distance.checked_mul(2))
            .take_while(move |distance| *distance < size)
    }

    fn up(&self, distance: u32) -> u32 {
        self.rank_at(self.rank, distance)
    }

    fn down(&self, distance: u32) -> u32 {
        self.rank_at(self.rank, self.size - distance)
    }

    /// This rank's place in a tree with this root: 0 is the root.
    fn place(&self, root: u32) -> u32 {
        (self.rank + self.size - root) % self.size
    }

    fn rank_at(&self, root: u32, place: u32) -> u32 {
        (root + place) % self.size
    }

    /// Fills memory with what a rank sends.
    #[allow(unsafe_code)]
    pub(crate) async fn fill(&self, task: &Task, source: u32, tag: u64, into: &mut [u8]) -> Result<()> {
        // SAFETY: the memory is borrowed until the receive has ended or is dropped; nothing here leaks one.
        let place = unsafe { Place::new(into.as_mut_ptr(), into.len()) };
        self.receive_exactly(task, (source, tag), Target::Place(place), into.len()).await
    }

    /// Fills the beginning of memory with what a rank sends. Returns how many bytes that was.
    #[allow(unsafe_code)]
    pub(crate) async fn fill_some(
        &self,
        task: &Task,
        source: u32,
        tag: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        // SAFETY: the memory is borrowed until the receive has ended or is dropped; nothing here leaks one.
        let place = unsafe { Place::new(into.as_mut_ptr(), into.len()) };
        let (envelope, _) = self.receive(task, (source, tag), Target::Place(place)).await?;
        Ok((envelope.bytes as usize).min(into.len()))
    }

    /// Combines what a rank sends with this rank's own, which stands in `from` or in the memory of the result.
    #[allow(unsafe_code)]
    async fn combine(
        &self,
        task: &Task,
        (source, tag): (u32, u64),
        (from, into): (Option<&[u8]>, &mut [u8]),
        (reduction, side): (&Reduction, Side),
    ) -> Result<()> {
        let Some(combine) = reduction.in_pieces(side) else {
            let mut theirs = vec![0; into.len()];
            self.fill(task, source, tag, &mut theirs).await?;
            carry(from, into);
            return self.combine_here(task, into, &mut theirs, (reduction, side));
        };
        // SAFETY: both are borrowed until the receive has ended or is dropped; nothing here leaks one.
        let (place, own) = unsafe {
            let own = from.map(|own| Source::new(own.as_ptr(), own.len()));
            (Place::new(into.as_mut_ptr(), into.len()), own)
        };
        self.receive_exactly(task, (source, tag), Target::Combined(place, combine, own), into.len()).await
    }

    /// Combines memory with what has come from a rank. If a function fails, all ranks are told.
    fn combine_here(
        &self,
        task: &Task,
        into: &mut [u8],
        theirs: &mut [u8],
        (reduction, side): (&Reduction, Side),
    ) -> Result<()> {
        reduction.combine(into, theirs, side).inspect_err(|error| {
            let why = task.failed(error.kind, Some(0), &error.text).text;
            self.hub.spread_failure(task, &why);
        })
    }

    async fn receive_exactly(
        &self,
        task: &Task,
        (source, tag): (u32, u64),
        target: Target,
        expected: usize,
    ) -> Result<()> {
        let received = self.receive(task, (source, tag), target).await;
        expect(self, task, source, received, expected)
    }

    /// A part of a collective: a message of a rank.
    fn receive<'a>(&'a self, task: &'a Task, (source, tag): (u32, u64), target: Target) -> Receive<'a> {
        Receive::new(&self.hub, task, (Some(self.in_whole(source)), Some(task.kind.tag(tag))), target)
    }

    /// All other ranks, the next one upwards first.
    pub(crate) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// What a rank gives itself.
    fn keep_own(&self, task: &Task, from: &[u8], into: &mut [u8]) -> Result<()> {
        if from.len() != into.len() {
            return Err(self.refuse(task, self.rank, from.len() as u64, into.len()));
        }
        into.copy_from_slice(from);
        Ok(())
    }

    /// A rank gives as many bytes as this one does not expect: all are told, since it does not go on.
    fn refuse(&self, task: &Task, source: u32, bytes: u64, expected: usize) -> Error {
        let rank = self.rank;
        let why = format_args!("rank {source} gives {bytes} bytes where rank {rank} has {expected}");
        let error = task.failed(ErrorKind::Invalid, Some(0), why);
        self.hub.spread_failure(task, &error.text);
        error
    }
}

/// What a rank gives to a reduction goes where the result will be, unless it stands there.
fn carry(from: Option<&[u8]>, into: &mut [u8]) {
    if let Some(from) = from {
        into.copy_from_slice(from);
    }
}

/// What a rank gives to a reduction is as long as the result.
pub(crate) fn check_operand(from: Option<&[u8]>, into: &[u8], reduction: &Reduction) -> Result<()> {
    if let Some(from) = from.filter(|from| from.len() != into.len()) {
        let (given, room) = (from.len(), into.len());
        return Err(Error::invalid(format!("{given} bytes are reduced to {room}")));
    }
    reduction.check(into.len())
}

/// What a rank gave, which is to be of so many bytes.
fn expect(
    comm: &Comm,
    task: &Task,
    source: u32,
    received: Result<(Envelope, Target)>,
    expected: usize,
) -> Result<()> {
    match received {
        Ok((Envelope { bytes, .. }, _)) if bytes == expected as u64 => Ok(()),
        Ok((Envelope { bytes, .. }, _)) => Err(comm.refuse(task, source, bytes, expected)),
        Err(error) => {
            if error.kind == ErrorKind::Invalid {
                comm.hub.spread_failure(task, &error.text);
            }
            Err(error)
        }
    }
}

/// Waits for one thing, while sends get on as well.
pub(crate) async fn beside<T>(sends: &mut [Send<'_>], wanted: impl Future<Output = Result<T>>) -> Result<T> {
    let mut wanted = pin!(wanted);
    poll_fn(|context| {
        for send in sends.iter_mut().filter(|send| !send.is_over()) {
            if let Poll::Ready(Err(error)) = Pin::new(send).poll(context) {
                return Poll::Ready(Err(error));
            }
        }
        wanted.as_mut().poll(context)
    })
    .await
}

/// Waits for sends that are not over yet.
pub(crate) async fn finish(sends: Vec<Send<'_>>) -> Result<()> {
    for send in sends.into_iter().filter(|send| !send.is_over()) {
        send.await?;
    }
    Ok(())
}

/// Waits for a send and a receive that go on at the same time.
async fn both(mut send: Send<'_>, receive: impl Future<Output = Result<()>>) -> Result<()> {
    beside(std::slice::from_mut(&mut send), receive).await?;
    if send.is_over() { Ok(()) } else { send.await }
}

#[cfg(test)]
mod tests;
