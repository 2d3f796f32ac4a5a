//! What all ranks do together, each in a file of its own.
//!
//! All wait, by the comm's deadline; all are to be called by every rank, in the same order. A rank may
//! return from one while others are still in it. After a failure the results of other ranks are unknown,
//! but what was left over from it is never taken for part of a later collective.

mod allgather;
mod allreduce;
mod barrier;
mod bcast;
mod doubling;
mod gather;
mod reduce;

use crate::comm::Comm;
use crate::mail::Envelope;
use crate::operation::Combine;
use crate::receiving::Receive;
use crate::sending::Send;
use crate::target::{Place, Target};
use crate::task::Task;
use forebay_core::{ErrorKind, Result};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// The way up a tree, the way down, and what goes straight: what one collective sends in both directions has different tags.
const UP: u64 = 0;
const DOWN: u64 = 1;
const ASIDE: u64 = 2;

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
    async fn fill(&self, task: &Task, source: u32, tag: u64, into: &mut [u8]) -> Result<()> {
        // SAFETY: the memory is borrowed until the receive has ended or is dropped; nothing here leaks one.
        let place = unsafe { Place::new(into.as_mut_ptr(), into.len()) };
        self.receive_exactly(task, (source, tag), Target::Place(place), into.len()).await
    }

    /// Combines memory with what a rank sends.
    #[allow(unsafe_code)]
    async fn combine(
        &self,
        task: &Task,
        (source, tag): (u32, u64),
        into: &mut [u8],
        combine: Combine,
    ) -> Result<()> {
        // SAFETY: as above.
        let place = unsafe { Place::new(into.as_mut_ptr(), into.len()) };
        self.receive_exactly(task, (source, tag), Target::Combined(place, combine), into.len()).await
    }

    async fn receive_exactly(
        &self,
        task: &Task,
        (source, tag): (u32, u64),
        target: Target,
        expected: usize,
    ) -> Result<()> {
        let received = Receive::new(&self.hub, task, (Some(source), Some(tag)), target).await;
        let error = match received {
            Ok((Envelope { bytes, .. }, _)) if bytes == expected as u64 => return Ok(()),
            Ok((Envelope { bytes, .. }, _)) => task.failed(
                ErrorKind::Invalid,
                Some(tag),
                format_args!("rank {source} gives {bytes} bytes where rank {} has {expected}", self.rank),
            ),
            Err(error) => error,
        };
        if error.kind == ErrorKind::Invalid {
            // The others need not wait for what this rank does not send.
            self.hub.state.lock().spread(self.id, self.rank, &error.text);
        }
        Err(error)
    }
}

/// Waits for one thing, while sends get on as well.
async fn beside<T>(sends: &mut [Send<'_>], wanted: impl Future<Output = Result<T>>) -> Result<T> {
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

/// Waits for a send and a receive that go on at the same time.
async fn both(mut send: Send<'_>, receive: impl Future<Output = Result<()>>) -> Result<()> {
    beside(std::slice::from_mut(&mut send), receive).await?;
    if send.is_over() { Ok(()) } else { send.await }
}
