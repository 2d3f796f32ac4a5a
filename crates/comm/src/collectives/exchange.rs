//! Many sends and receives of one collective at the same time.

use super::expect;
use crate::comm::Comm;
use crate::receiving::Receive;
use crate::sending::Send;
use crate::target::{Place, Target};
use crate::task::Task;
use forebay_core::Result;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// What goes on at the same time.
pub(super) struct Exchange<'a> {
    comm: &'a Comm,
    task: &'a Task,
    sends: Vec<Send<'a>>,
    receives: Vec<Awaited<'a>>,
}

struct Awaited<'a> {
    source: u32,
    expected: usize,
    receive: Receive<'a>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(comm: &'a Comm, task: &'a Task) -> Exchange<'a> {
        Exchange { comm, task, sends: Vec::new(), receives: Vec::new() }
    }

    /// Sends to a rank.
    pub(super) fn send(&mut self, dest: u32, tag: u64, bytes: &'a [u8]) {
        self.sends.push(self.comm.put(self.task, dest, tag, bytes));
    }

    /// Fills memory with what a rank sends.
    #[allow(unsafe_code)]
    pub(super) fn fill(&mut self, source: u32, tag: u64, into: &'a mut [u8]) {
        let expected = into.len();
        // SAFETY: the memory is borrowed as long as this lives, and with it the receive.
        let place = unsafe { Place::new(into.as_mut_ptr(), expected) };
        let receive = self.comm.receive(self.task, (source, tag), Target::Place(place)).among_others();
        self.receives.push(Awaited { source, expected, receive });
    }

    /// Waits until all of it has ended, or one has failed.
    pub(super) async fn finish(self) -> Result<()> {
        self.finish_beside(std::future::ready(Ok(()))).await
    }

    /// The same, while something else goes on as well, which ends too.
    pub(super) async fn finish_beside(mut self, other: impl Future<Output = Result<()>>) -> Result<()> {
        let mut other = pin!(other);
        let mut is_other_over = false;
        poll_fn(|context| {
            if !is_other_over && let Poll::Ready(ended) = other.as_mut().poll(context) {
                is_other_over = true;
                if ended.is_err() {
                    return Poll::Ready(ended);
                }
            }
            match self.advance(context) {
                Ok(true) if is_other_over => Poll::Ready(Ok(())),
                Ok(_) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Goes on; whether all of it has ended.
    fn advance(&mut self, context: &mut Context<'_>) -> Result<bool> {
        for send in self.sends.iter_mut().filter(|send| !send.is_over()) {
            if let Poll::Ready(Err(error)) = Pin::new(send).poll(context) {
                return Err(error);
            }
        }
        for place in (0..self.receives.len()).rev() {
            let Awaited { source, expected, receive } = &mut self.receives[place];
            if let Poll::Ready(received) = Pin::new(receive).poll(context) {
                expect(self.comm, self.task, *source, received, *expected)?;
                drop(self.receives.swap_remove(place));
            }
        }
        Ok(self.receives.is_empty() && self.sends.iter().all(Send::is_over))
    }
}
