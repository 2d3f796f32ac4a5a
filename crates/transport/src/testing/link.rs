//! What every [`Link`] does, whatever carries its bytes: order, waiting, room, descriptors, the end and death.

use crate::{Kind, Link};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Result};
use std::time::{Duration, Instant};

/// Nothing that the suite waits for takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes connected links of one implementation.
pub trait Pairs {
    /// Two ends of one connection.
    fn pair(&mut self) -> (Box<dyn Link>, Box<dyn Link>);

    /// Lets what was sent arrive, where nobody else does.
    fn carry(&mut self) {}

    /// Whether a link refuses bytes for a peer that has died. Where it does not, who sends learns of that death by the end that
    /// it receives.
    fn refuses_bytes_for_the_dead(&self) -> bool {
        true
    }
}

/// Runs the whole suite.
pub fn suite(pairs: &mut impl Pairs) {
    where_nothing_is_sent_nothing_is_received(pairs);
    bytes_arrive_whole_and_in_order(pairs);
    what_arrives_is_noticed(pairs);
    a_link_that_is_full_takes_no_more_and_loses_nothing(pairs);
    descriptors_arrive_or_are_refused(pairs);
    the_end_comes_after_all_that_was_sent(pairs);
    a_link_to_a_dead_peer_fails_and_goes_on_failing(pairs);
}

fn where_nothing_is_sent_nothing_is_received(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    assert_eq!(a.kind(), b.kind());
    pairs.carry();
    for link in [&a, &b] {
        assert_eq!(try_receive(&**link, &mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!is_ready(&**link, PollFlags::IN, Duration::ZERO));
    }
}

/// Both ways at once, in pieces that neither side cuts alike.
fn bytes_arrive_whole_and_in_order(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    let said: [Vec<u8>; 2] = [0, 1].map(|seed| (0..3_000_017).map(|i| pattern(seed, i)).collect());
    let mut heard = [Vec::new(), Vec::new()];
    let mut sent = [0, 0];
    let (deadline, mut piece) = (Instant::now() + PATIENCE, 1);
    while heard[0].len() < said[0].len() || heard[1].len() < said[1].len() {
        assert!(
            Instant::now() < deadline,
            "{sent:?} bytes were sent, {:?} came",
            heard.each_ref().map(Vec::len)
        );
        for (way, (from, to)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
            piece = piece * 7 % 65_537;
            let rest = &said[way][sent[way]..];
            let (first, second) = rest[..rest.len().min(2 * piece)].split_at(rest.len().min(piece));
            if !rest.is_empty() {
                match from.try_send(&[IoSlice::new(first), IoSlice::new(second)], &[]) {
                    Ok(taken) => {
                        assert!(taken > 0, "some bytes are taken, or none with an error");
                        sent[way] += taken;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                }
            }
            pairs.carry();
            let (mut one, mut other) = (vec![0; 1 + piece / 2], vec![0; piece]);
            let mut space = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
            match to.try_receive(&mut space, &mut Vec::new()) {
                Ok(length) => {
                    assert!(length > 0, "the connection has ended");
                    heard[way].extend(one.into_iter().chain(other).take(length));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    }
    assert!(heard == said);
}

/// Who waits for the descriptor wakes: when bytes arrive, and when the peer is gone.
fn what_arrives_is_noticed(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    assert!(is_ready(&*a, PollFlags::OUT, Duration::ZERO), "there is room at first");
    send_all(pairs, &*a, b"news");
    pairs.carry();
    assert!(is_ready(&*b, PollFlags::IN, PATIENCE));
    assert_eq!(receive_some(pairs, &*b).unwrap(), b"news");
    assert!(!is_ready(&*b, PollFlags::IN, Duration::ZERO));
    drop(a);
    pairs.carry();
    assert!(is_ready(&*b, PollFlags::IN, PATIENCE));
}

/// Whoever does not read is waited for; then all goes on.
fn a_link_that_is_full_takes_no_more_and_loses_nothing(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    let (piece, mut sent) = (vec![7; 100_000], 0);
    let deadline = Instant::now() + PATIENCE;
    let full = loop {
        match a.try_send(&[IoSlice::new(&piece)], &[]) {
            Ok(taken) => sent += taken,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                // What is under way may make room yet.
                pairs.carry();
                if !is_ready(&*a, PollFlags::OUT, Duration::from_millis(20)) {
                    break sent;
                }
            }
        }
        assert!(Instant::now() < deadline && sent < 256 << 20, "it takes bytes without end");
    };
    let mut heard = 0;
    while heard < full {
        heard += receive_some(pairs, &*b).unwrap().len();
    }
    assert_eq!(heard, full);
    send_all(pairs, &*a, b"more");
    assert_eq!(receive_some(pairs, &*b).unwrap(), b"more");
}

/// Where a link is one of shared memory, a file that is sent is the same file at the other end.
fn descriptors_arrive_or_are_refused(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    let file = rustix::fs::memfd_create("sent", MemfdFlags::CLOEXEC).unwrap();
    let sent = a.try_send(&[IoSlice::new(b"file")], &[file.as_fd()]);
    if a.kind() == Kind::Shm {
        assert_eq!(sent.unwrap(), 4);
        let mut files = Vec::new();
        let mut bytes = [0; 4];
        wait(pairs, || b.try_receive(&mut [IoSliceMut::new(&mut bytes)], &mut files)).unwrap();
        assert_eq!((&bytes, files.len()), (b"file", 1));
        let inode = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_ino;
        assert_eq!(inode(files[0].as_fd()), inode(file.as_fd()));
        assert!(!b.lost_descriptors());
    } else {
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidInput);
        // Nothing was taken of that.
        send_all(pairs, &*a, b"none");
        assert_eq!(receive_some(pairs, &*b).unwrap(), b"none");
    }
}

/// A peer that closes, or dies, has said all that it sent; then nothing comes any more, ever.
fn the_end_comes_after_all_that_was_sent(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    let last: Vec<u8> = (0..50_000).map(|i| pattern(2, i)).collect();
    send_all(pairs, &*a, &last);
    drop(a);
    let mut heard = Vec::new();
    loop {
        let some = receive_some(pairs, &*b).unwrap();
        if some.is_empty() {
            break;
        }
        heard.extend(some);
    }
    assert!(heard == last, "{} bytes", heard.len());
    assert!(receive_some(pairs, &*b).unwrap().is_empty());
}

/// An error, soon, and no signal that would end the process.
fn a_link_to_a_dead_peer_fails_and_goes_on_failing(pairs: &mut impl Pairs) {
    let (a, b) = pairs.pair();
    drop(b);
    if !pairs.refuses_bytes_for_the_dead() {
        send_all(pairs, &*a, &[1; 1000]);
        return assert!(receive_some(pairs, &*a).unwrap().is_empty());
    }
    let deadline = Instant::now() + PATIENCE;
    let mut failed = 0;
    while failed < 3 {
        assert!(Instant::now() < deadline, "what nobody will hear is taken without end");
        pairs.carry();
        match a.try_send(&[IoSlice::new(&[1; 1000])], &[]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                    "{error}"
                );
                failed += 1;
            }
            Ok(_) => assert_eq!(failed, 0, "it works again"),
        }
    }
}

// ---- what the suite is made of ----------------------------------------------------------------------

fn pattern(seed: usize, at: usize) -> u8 {
    (at * 31 + (at >> 9) * 7 + seed * 101) as u8
}

fn is_ready(link: &dyn Link, flags: PollFlags, patience: Duration) -> bool {
    let mut waited = [PollFd::from_borrowed_fd(link.descriptor(), flags)];
    poll(&mut waited, Some(&Timespec::try_from(patience).unwrap())).unwrap();
    waited[0].revents().intersects(flags)
}

fn try_receive(link: &dyn Link, space: &mut [u8]) -> Result<usize> {
    link.try_receive(&mut [IoSliceMut::new(space)], &mut Vec::<OwnedFd>::new())
}

/// Tries until it need not wait.
fn wait<T>(pairs: &mut impl Pairs, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        assert!(Instant::now() < deadline, "nothing happens");
        pairs.carry();
    }
}

/// Some bytes; none mean that the peer has closed.
fn receive_some(pairs: &mut impl Pairs, link: &dyn Link) -> Result<Vec<u8>> {
    let mut space = vec![0; 1 << 16];
    let length = wait(pairs, || try_receive(link, &mut space))?;
    space.truncate(length);
    Ok(space)
}

fn send_all(pairs: &mut impl Pairs, link: &dyn Link, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = wait(pairs, || link.try_send(&[IoSlice::new(bytes)], &[])).unwrap();
        bytes = &bytes[taken..];
    }
}
