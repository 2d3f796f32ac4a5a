//! The receiving half of a connection.

use super::{CHUNK, Pollable, lost};
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_wire::frame::{self, Decoder, Frame, Header};
use forebay_wire::seal::{Opener, PLAIN_MAX};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    link: Arc<AsyncFd<Pollable>>,
    decoder: Decoder,
    descriptors: Vec<OwnedFd>,
}

impl Receiver {
    /// Receives from this link, opening what is sealed.
    pub(super) fn new(link: Arc<AsyncFd<Pollable>>, opener: Option<Opener>) -> Receiver {
        Receiver { link, decoder: Decoder::new(opener), descriptors: Vec::new() }
    }

    /// The next frame and its descriptors; `None` when the peer has closed between frames.
    pub async fn next(&mut self) -> Result<Option<(Frame, Vec<OwnedFd>)>> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                let n = usize::from(frame.header.descriptors);
                if n > self.descriptors.len() {
                    return Err(Error::protocol("a frame's descriptors did not arrive"));
                }
                let rest = self.descriptors.split_off(n);
                return Ok(Some((frame, std::mem::replace(&mut self.descriptors, rest))));
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Looks again and again, giving way to others, whether something comes: for where it is known to come at
    /// once, since being woken takes longer. Blocks its thread for up to `patience`. What came is given by `next`.
    pub fn spin(&mut self, patience: Duration) {
        let started = Instant::now();
        while self.decoder.is_empty() {
            let space = &mut [IoSliceMut::new(self.decoder.space())];
            match self.link.get_ref().0.try_receive(space, &mut self.descriptors) {
                Ok(received) => return self.decoder.on_filled(received),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && started.elapsed() < patience => {
                    std::thread::yield_now();
                }
                // An error comes again when somebody waits.
                Err(_) => return,
            }
        }
    }

    /// Whether the peer has sent something that `next` has not looked at yet. Costs a system call.
    pub fn has_unread(&self) -> bool {
        // A connection that has broken says so when it is read.
        rustix::io::ioctl_fionread(self.link.get_ref().0.descriptor()).is_ok_and(|bytes| bytes > 0)
    }

    /// Waits until the peer has closed the connection, or it broke, without taking what it has sent; notices within
    /// half a second. For use while something else is waited for on the peer's behalf.
    pub async fn hung_up(&self) {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let descriptor = self.link.get_ref().0.descriptor();
            let mut poll = [PollFd::from_borrowed_fd(descriptor, PollFlags::RDHUP)];
            let looked = rustix::event::poll(&mut poll, Some(&now));
            if looked.is_ok_and(|ready| ready > 0) && poll[0].revents().intersects(gone) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn fill(&mut self) -> Result<usize> {
        let (decoder, descriptors) = (&mut self.decoder, &mut self.descriptors);
        let received = self
            .link
            .async_io(Interest::READABLE, |link| {
                link.0.try_receive(&mut [IoSliceMut::new(decoder.space())], descriptors)
            })
            .await
            .map_err(|e| lost(&e))?;
        if self.descriptors.len() > 4 * frame::DESCRIPTORS_MAX {
            return Err(Error::protocol("descriptors arrived that no frame announced"));
        }
        self.decoder.on_filled(received);
        Ok(received)
    }

    /// Receives a payload into a range of an arena that is the caller's to write.
    pub async fn payload_into(&mut self, mapping: &Mapping, offset: u64, header: &Header) -> Result<()> {
        let (mut at, end) = (offset, offset + header.payload);
        while at < end {
            let want = (end - at).min(CHUNK as u64 * 4);
            let n = if header.sealed_payload {
                mapping.with_writable(at, want, |target| self.decoder.take_sealed_payload(target))??
            } else {
                mapping.with_writable(at, want, |target| self.decoder.take_payload(target))?
            } as u64;
            at += n;
            if n > 0 || at == end {
                continue;
            }
            if header.sealed_payload {
                if self.fill().await? == 0 {
                    return Err(Error::unreachable("the peer closed the connection within its data"));
                }
            } else {
                let descriptors = &mut self.descriptors;
                let received = self
                    .link
                    .async_io(Interest::READABLE, |link| {
                        mapping
                            .with_writable(at, want, |target| {
                                link.0.try_receive(&mut [IoSliceMut::new(target)], descriptors)
                            })
                            .map_err(io::Error::other)?
                    })
                    .await
                    .map_err(|e| lost(&e))?;
                if received == 0 {
                    return Err(Error::unreachable("the peer closed the connection within its data"));
                }
                at += received as u64;
            }
        }
        Ok(())
    }

    /// Receives a payload and throws it away: what it belonged to was refused.
    pub async fn discard_payload(&mut self, header: &Header) -> Result<()> {
        let mut scratch = vec![0; 2 * PLAIN_MAX];
        let mut left = header.payload;
        while left > 0 {
            let want = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = if header.sealed_payload {
                self.decoder.take_sealed_payload(&mut scratch)?
            } else {
                self.decoder.take_payload(&mut scratch[..want])
            };
            left = left
                .checked_sub(n as u64)
                .ok_or_else(|| Error::protocol("a payload is longer than its frame said"))?;
            if n == 0 && left > 0 && self.fill().await? == 0 {
                return Err(Error::unreachable("the peer closed the connection within its data"));
            }
        }
        Ok(())
    }

    /// The process at the other end, if the kernel vouches for it.
    pub fn peer_process(&self) -> Option<u32> {
        self.link.get_ref().0.peer_process()
    }

    /// Which transport the connection uses.
    pub fn kind(&self) -> crate::Kind {
        self.link.get_ref().0.kind()
    }
}
