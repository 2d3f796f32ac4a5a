//! The witness: a record beside the connection file that has a vote where a group's members are an even number.
//!
//! One process at a time looks at it and changes it, under a lock, on whatever host it runs: see [`record`]. It is made once,
//! by the founder, and every server keeps it open: should somebody remove it, those who have it open still share it, and
//! nobody makes another one that has forgotten what the first has voted for.

mod record;

use self::record::{LockedRecord, Record};
use forebay_core::agreement::{Acceptor, Answer, Question};
use forebay_core::ids::{Epoch, Lineage};
use forebay_core::roster::Roster;
use forebay_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for another process that has the record locked.
const PATIENCE: Duration = Duration::from_secs(1);

/// The record, open.
#[derive(Debug)]
pub struct Witness {
    record: Record,
    path: PathBuf,
}

/// What it remembers: its vote on the roster of one epoch.
#[derive(Debug, Serialize, Deserialize)]
struct Vote {
    lineage: Lineage,
    epoch: Epoch,
    acceptor: Acceptor<Arc<Roster>>,
}

impl Vote {
    fn read(locked: &LockedRecord<'_>) -> Result<Vote> {
        serde_json::from_slice(&locked.read()?).map_err(|_| locked.damaged())
    }

    fn to_text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::internal(format!("cannot write a vote: {e}")))
    }
}

/// Where the record of a group stands.
pub fn path_beside(group: &Path) -> PathBuf {
    let name = group.file_name().unwrap_or_default().to_string_lossy();
    group.with_file_name(format!(".{name}.witness"))
}

/// Removes the record of a group that has ended.
pub fn remove(group: &Path) {
    record::remove(&path_beside(group));
}

impl Witness {
    /// Makes the record of a group that is being founded; one that an earlier group has left is replaced.
    pub fn create(group: &Path, lineage: Lineage) -> Result<Witness> {
        let path = path_beside(group);
        let vote = Vote { lineage, epoch: 0, acceptor: Acceptor::default() };
        Ok(Witness { record: Record::create(path.clone(), &vote.to_text()?)?, path })
    }

    /// Opens the record of a group that was founded before.
    pub fn open(group: &Path) -> Result<Witness> {
        let path = path_beside(group);
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
        Ok(Witness { record: Record::open(path.clone()).map_err(failed)?, path })
    }

    /// Its answer about the roster of an epoch; `None` if it votes on a later one already. Waits for others that have it
    /// locked, for a second at most, and until what it answers is on disk.
    pub fn answer(
        &self,
        lineage: Lineage,
        epoch: Epoch,
        question: Question<Arc<Roster>>,
    ) -> Result<Option<Answer<Arc<Roster>>>> {
        self.record.change(PATIENCE, |locked| {
            let mut vote = Vote::read(locked)?;
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
            locked.write(&vote.to_text()?)?;
            Ok(Some(answer))
        })
    }

    /// Does something while no other server of the group does something under this lock. Waits for it for a second at most.
    /// One that was stopped while it had the lock may go on with what it does when others have not waited for it any more.
    pub fn locked<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.locked_within(PATIENCE, act)
    }

    /// As `locked`, and tells whether this process had the lock up to the end: others may have gone on without it.
    pub(crate) fn locked_to_the_end<T>(&self, act: impl FnOnce() -> T) -> Result<(T, bool)> {
        self.record.locked(PATIENCE, |_| act())
    }

    /// Whether somebody has removed it, as the group does when it ends.
    pub(crate) fn is_gone(&self) -> bool {
        self.record.is_gone()
    }

    /// As `locked`, with another bound on the wait: who holds the lock may be waiting for a slow disk.
    pub fn locked_within<T>(&self, patience: Duration, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.record.locked(patience, |_| act())?.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::agreement::Ballot;
    use forebay_core::ids::ServerId;
    use forebay_core::roster::{Candidate, Incarnation, Settings};

    const LINEAGE: Lineage = Lineage([3; 16]);

    fn roster(pid: u32) -> Arc<Roster> {
        let founder =
            Candidate { incarnation: Incarnation(u64::MAX), pid, addresses: Vec::new(), formerly: None };
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
    fn who_holds_the_lock_for_long_is_not_waited_for_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("g.json");
        let (one, other) = (Witness::create(&group, LINEAGE).unwrap(), Witness::open(&group).unwrap());
        let result = one.locked(|| Ok(other.answer(LINEAGE, 2, Question::Prepare(ballot(1, 0)))));
        assert_eq!(result.unwrap().unwrap_err().kind, ErrorKind::Timeout);
    }
}
