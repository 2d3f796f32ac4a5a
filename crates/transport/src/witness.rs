//! The witness: a record beside the connection file that has a vote where a group's members are an even number.
//!
//! One process at a time looks at it and changes it, under a lock of the file, on whatever host it runs. It is made once,
//! by the founder, and every server keeps it open: should somebody remove it, those who have it open still share it, and
//! nobody makes another one that has forgotten what the first has voted for.
//!
//! What it remembers stands in one of two slots, each with a number, a length and a checksum; the other one is written
//! next. So a server that is killed while it writes leaves what was there before.

use forebay_core::agreement::{Acceptor, Answer, Question};
use forebay_core::ids::{Epoch, Lineage};
use forebay_core::roster::Roster;
use forebay_core::view::mix;
use forebay_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for another process that has the record locked.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the lock is tried.
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// Room for what one slot holds: rosters of thousands of servers.
const SLOT: u64 = 8 << 20;
/// A slot's number, length and checksum.
const HEAD: usize = 24;

/// The record, open.
#[derive(Debug)]
pub struct Witness {
    file: File,
    path: PathBuf,
    /// The lock of the file is the process's: its threads take turns.
    turn: Mutex<()>,
}

/// What it remembers: its vote on the roster of one epoch.
#[derive(Debug, Serialize, Deserialize)]
struct Vote {
    lineage: Lineage,
    epoch: Epoch,
    acceptor: Acceptor<Arc<Roster>>,
}

/// Where the record of a group stands.
pub fn path_beside(group: &Path) -> PathBuf {
    let name = group.file_name().unwrap_or_default().to_string_lossy();
    group.with_file_name(format!(".{name}.witness"))
}

impl Witness {
    /// Makes the record of a group that is being founded; one that an earlier group has left is replaced.
    pub fn create(group: &Path, lineage: Lineage) -> Result<Witness> {
        let path = path_beside(group);
        let failed = |e| Error::io(format!("cannot make the witness {}", path.display()), &e);
        let _ = std::fs::remove_file(&path);
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
        let witness = Witness { file: options.open(&path).map_err(failed)?, path, turn: Mutex::default() };
        witness.write(1, &Vote { lineage, epoch: 0, acceptor: Acceptor::default() })?;
        Ok(witness)
    }

    /// Opens the record of a group that was founded before.
    pub fn open(group: &Path) -> Result<Witness> {
        let path = path_beside(group);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(
                ErrorKind::ConnectionFile,
                format!(
                    "there is no {}, which the servers of a group share: join through the connection file that the \
                     first server wrote, not through a copy of it",
                    path.display()
                ),
            ),
            _ => Error::io(format!("cannot open the witness {}", path.display()), &e),
        };
        let file = opened.map_err(failed)?;
        Ok(Witness { file, path, turn: Mutex::default() })
    }

    /// Its answer about the roster of an epoch; `None` if it votes on a later one already. Waits for others that have it
    /// locked, for a second at most, and until what it answers is on disk.
    pub fn answer(
        &self,
        lineage: Lineage,
        epoch: Epoch,
        question: Question<Arc<Roster>>,
    ) -> Result<Option<Answer<Arc<Roster>>>> {
        self.locked(|| {
            let (number, mut vote) = self.read()?;
            if vote.lineage != lineage {
                return Err(Error::conflict(format!("{} is another group's witness", self.path.display())));
            }
            if epoch < vote.epoch {
                return Ok(None);
            }
            if epoch > vote.epoch {
                vote = Vote { lineage, epoch, acceptor: Acceptor::default() };
            }
            let answer = vote.acceptor.answer(question);
            self.write(number + 1, &vote)?;
            Ok(Some(answer))
        })
    }

    /// Does something while no other server of the group does something under this lock. Waits for it for a second at most.
    pub fn locked<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.locked_within(PATIENCE, act)
    }

    /// As `locked`, with another bound on the wait: who holds the lock may be waiting for a slow disk.
    pub fn locked_within<T>(&self, patience: Duration, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + patience;
        let late = || {
            let text = format!("{} is locked by a process that stands still", self.path.display());
            Err(Error::timeout(text))
        };
        let Some(_turn) = self.turn.try_lock_until(deadline) else { return late() };
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => return late(),
                Err(e) => {
                    return Err(Error::io(format!("cannot lock {}", self.path.display()), &e.into()));
                }
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a lock with a deadline cannot be waited for otherwise"
            )]
            std::thread::sleep(TRY_AGAIN);
        }
        let result = act();
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        result
    }

    fn read(&self) -> Result<(u64, Vote)> {
        let slots = (0..2).filter_map(|slot| self.read_slot(slot));
        let latest = slots.max_by_key(|(number, _)| *number);
        let damaged = || {
            Error::io(
                format!("the witness {} is damaged", self.path.display()),
                &std::io::ErrorKind::InvalidData.into(),
            )
        };
        let (number, text) = latest.ok_or_else(damaged)?;
        Ok((number, serde_json::from_slice(&text).map_err(|_| damaged())?))
    }

    fn read_slot(&self, slot: u64) -> Option<(u64, Vec<u8>)> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, slot * SLOT).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (number, bytes, sum) = (word(0)?, word(8)?, word(16)?);
        if bytes > SLOT - HEAD as u64 {
            return None;
        }
        let mut text = vec![0; usize::try_from(bytes).ok()?];
        self.file.read_exact_at(&mut text, slot * SLOT + HEAD as u64).ok()?;
        (checksum(number, &text) == sum).then_some((number, text))
    }

    fn write(&self, number: u64, vote: &Vote) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(format!("cannot write {}", self.path.display()), &e);
        let text = serde_json::to_vec(vote).map_err(|e| failed(e.into()))?;
        if text.len() as u64 > SLOT - HEAD as u64 {
            return Err(Error::invalid(format!(
                "a roster of {} bytes is too long for a witness",
                text.len()
            )));
        }
        let words = [number, text.len() as u64, checksum(number, &text)];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(text);
        self.file.write_all_at(&bytes, number % 2 * SLOT).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}

/// Tells a slot that was written whole from any other, not from a forged one.
fn checksum(number: u64, text: &[u8]) -> u64 {
    text.chunks(8).fold(mix(number), |sum, chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        mix(sum ^ u64::from_le_bytes(word) ^ chunk.len() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::agreement::Ballot;
    use forebay_core::ids::ServerId;
    use forebay_core::roster::{Candidate, Incarnation, Settings};

    const LINEAGE: Lineage = Lineage([3; 16]);

    fn roster(pid: u32) -> Arc<Roster> {
        let founder = Candidate { incarnation: Incarnation(u64::MAX), pid, addresses: Vec::new() };
        Arc::new(Roster::founded(LINEAGE, founder, 1, Settings::default()))
    }

    fn ballot(round: u64, proposer: u32) -> Ballot {
        Ballot { round, proposer: ServerId(proposer) }
    }

    fn ask(witness: &Witness, epoch: Epoch, question: Question<Arc<Roster>>) -> Option<Answer<Arc<Roster>>> {
        witness.answer(LINEAGE, epoch, question).unwrap()
    }

    #[test]
    fn two_servers_share_its_memory() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("g.json");
        let (one, other) = (Witness::create(&group, LINEAGE).unwrap(), Witness::open(&group).unwrap());
        let (low, high) = (ballot(1, 0), ballot(1, 1));
        assert_eq!(ask(&one, 2, Question::Accept(low, roster(1))), Some(Answer::Accepted(low)));
        let told = Answer::Promised(high, Some((low, roster(1))));
        assert_eq!(ask(&other, 2, Question::Prepare(high)), Some(told));
        let refused = Answer::Refused { asked: low, promised: high };
        assert_eq!(ask(&one, 2, Question::Accept(low, roster(3))), Some(refused));
        assert_eq!(ask(&one, 3, Question::Prepare(low)), Some(Answer::Promised(low, None)));
        assert_eq!(ask(&other, 2, Question::Prepare(high)), None, "it votes on a later roster");
        let another = one.answer(Lineage([4; 16]), 9, Question::Prepare(low));
        assert_eq!(another.unwrap_err().kind, ErrorKind::Conflict);
    }

    #[test]
    fn a_server_that_dies_while_it_writes_leaves_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("g.json");
        let witness = Witness::create(&group, LINEAGE).unwrap();
        ask(&witness, 2, Question::Accept(ballot(1, 0), roster(1)));
        let (number, vote) = witness.read().unwrap();
        witness.write(number + 1, &Vote { epoch: 7, ..vote }).unwrap();
        // Cut off in the middle of the text.
        let length = witness.file.metadata().unwrap().len();
        witness.file.write_all_at(&[0; 9], (number + 1) % 2 * SLOT + 40).unwrap();
        assert!(length > 40);
        assert_eq!(witness.read().unwrap().1.epoch, 2);
        witness.file.set_len(0).unwrap();
        assert_eq!(witness.read().unwrap_err().kind, ErrorKind::Io);
    }

    #[test]
    fn who_holds_the_lock_for_long_is_not_waited_for_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("g.json");
        let (one, other) = (Witness::create(&group, LINEAGE).unwrap(), Witness::open(&group).unwrap());
        let result = one.locked(|| Ok(other.answer(LINEAGE, 2, Question::Prepare(ballot(1, 0)))));
        assert_eq!(result.unwrap().unwrap_err().kind, ErrorKind::Timeout);
    }
}
