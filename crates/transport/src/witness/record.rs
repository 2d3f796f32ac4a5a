//! A record on disk that several processes change in turn, each under a lock of its file, though any of them may be stopped
//! while it holds the lock.
//!
//! What it says stands in one of two slots, each with a number, a length and a checksum; the other one is written next. So a
//! process that is killed while it writes leaves what was there before, and its lock is gone with it.
//!
//! One that is stopped keeps its lock, maybe for ever. Then whoever has waited for long enough *seals* the file, and all go on
//! with another one, the next *generation*, which begins with what the sealed one said. Whoever holds the lock looks for the
//! seal last of all: if there is one, what it did counts for nothing. So a change that counts was written before the seal was
//! made, and what is read after that has it; one that was not to count may be in it as well, which is as if its author had
//! been lost before it could say so. Who goes on first makes the next file, by a link, which succeeds once. Nothing is ever
//! undone, and it does not matter if a file is sealed whose lock was only waited for, not held.
//!
//! The seal is a bit of the file's mode: it lasts as long as anybody has the file open, whoever removes its name, and what a
//! network's file system answers to a write tells it as well. That there is a next generation is noted in the file, which seals
//! it, too, should somebody change its mode; so nobody makes another one where its name was removed.

use crate::written;
use forebay_core::view::mix;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the lock is tried.
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// When a lock could not be had for so long, its file is sealed.
const SEALED_AFTER: Duration = Duration::from_secs(3);
/// Room for what one slot holds.
const SLOT: u64 = 8 << 20;
/// A slot's number, length and checksum.
const HEAD: usize = 24;

/// Tries that failed so long ago have nothing to do with those that fail now.
const TRIES_APART: Duration = Duration::from_secs(10);
/// The bit of a sealed file's mode: its owner could execute it.
const SEAL: u32 = 0o100;
/// Where a file says that there is a next generation.
const FOLLOWED: u64 = 2 * SLOT;

/// The record, open.
#[derive(Debug)]
pub(super) struct Record {
    /// The file of the first generation, which is there for as long as the record.
    path: PathBuf,
    /// The others are called after its inode, so that nobody takes another group's for them: no other file has that as long as
    /// this one is open.
    first: File,
    /// The lock of a file is the process's: its threads take turns.
    turn: Mutex<Generation>,
}

#[derive(Debug)]
struct Generation {
    number: u32,
    file: File,
    blocked: Option<LockContended>,
}

/// The lock could not be had, again and again.
#[derive(Debug, Clone, Copy)]
struct LockContended {
    since: Instant,
    last: Instant,
}

/// The record while nobody else changes it.
pub(super) struct LockedRecord<'a> {
    file: &'a File,
    path: &'a Path,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn is_sealed(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.mode() & SEAL != 0 || is_followed(file)?)
}

fn seal(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600 | SEAL))
}

fn is_followed(file: &File) -> io::Result<bool> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, FOLLOWED)?;
    Ok(byte != [0])
}

/// Removes a record, the first generation last. Those who have it open still share what they have.
pub(super) fn remove(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_later = |entry: &str| {
        let rest = entry.strip_prefix(&*name).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit() || b"-.".contains(&byte)))
    };
    let entries = path.parent().and_then(|directory| std::fs::read_dir(directory).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if of_later(&entry.file_name().to_string_lossy()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_file(path);
}

impl Record {
    /// Makes a record that says this; one that is there is replaced.
    pub(super) fn create(path: PathBuf, text: &[u8]) -> Result<Record> {
        remove(&path);
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
        let failed = |e| Error::io(format!("cannot make the witness {}", path.display()), &e);
        let file = options.open(&path).map_err(failed)?;
        // The room for what is to be written later, where a full disk would keep all from going on.
        file.write_all_at(&[0], FOLLOWED).map_err(failed)?;
        LockedRecord { file: &file, path: &path }.write_slot(1, text)?;
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        lock.map_err(|e| Error::io(format!("cannot lock (flock) {}", path.display()), &e.into()))?;
        rustix::fs::flock(&file, FlockOperation::Unlock).map_err(|e| failed(e.into()))?;
        if is_sealed(&file).map_err(failed)? {
            let _ = std::fs::remove_file(&path);
            let text = format!(
                "{} cannot be sealed: its file system has every file executable. Choose another --group",
                path.display()
            );
            return Err(Error::io(text, &io::ErrorKind::Unsupported.into()));
        }
        Record::of(path.clone(), file).map_err(failed)
    }

    /// Opens one that was made before.
    pub(super) fn open(path: PathBuf) -> io::Result<Record> {
        let file = open(&path)?;
        Record::of(path, file)
    }

    fn of(path: PathBuf, file: File) -> io::Result<Record> {
        let first = file.try_clone()?;
        Ok(Record { path, first, turn: Mutex::new(Generation { number: 0, file, blocked: None }) })
    }

    /// Reads or changes the record while nobody else does. Waits for the lock for `patience`, and when it could not be had for
    /// three seconds, in this call and those just before, goes on without whoever has it. An error says that nothing was
    /// changed, or that it counts for nothing.
    pub(super) fn change<T>(
        &self,
        patience: Duration,
        act: impl FnOnce(&LockedRecord<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.locked(patience, act)? {
            (result, true) => result,
            (_, false) => Err(Error::timeout(format!(
                "{} was locked for so long that others have gone on without this process",
                self.path.display()
            ))),
        }
    }

    /// Does something under the lock, which waits as [`Record::change`] does: the result, and whether this process had the lock
    /// up to the end. An error says that nothing was done.
    pub(super) fn locked<T>(
        &self,
        patience: Duration,
        act: impl FnOnce(&LockedRecord<'_>) -> T,
    ) -> Result<(T, bool)> {
        let mut deadline = Instant::now() + patience;
        let late =
            || Error::timeout(format!("{} is locked by a process that stands still", self.path.display()));
        let failed = |e: io::Error| Error::io(format!("cannot lock (flock) {}", self.path.display()), &e);
        let mut turn = self.turn.try_lock_until(deadline).ok_or_else(late)?;
        loop {
            let had = match rustix::fs::flock(&turn.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::WOULDBLOCK | Errno::INTR) => false,
                Err(e) => return Err(failed(e.into())),
            };
            let sealed = is_sealed(&turn.file);
            if had && sealed.as_ref().is_ok_and(|sealed| !sealed) {
                break;
            }
            let _ = rustix::fs::flock(&turn.file, FlockOperation::Unlock);
            if sealed.map_err(failed)? {
                *turn = self.next(&turn)?;
                continue;
            }
            let now = Instant::now();
            let before = turn.blocked.filter(|blocked| now < blocked.last + TRIES_APART);
            let since = before.map_or(now, |blocked| blocked.since);
            turn.blocked = Some(LockContended { since, last: now });
            if now >= deadline {
                if now < since + SEALED_AFTER {
                    return Err(late());
                }
                seal(&turn.file).map_err(failed)?;
                deadline = now + patience;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a lock with a deadline cannot be waited for otherwise"
            )]
            std::thread::sleep(TRY_AGAIN);
        }
        turn.blocked = None;
        let result = act(&LockedRecord { file: &turn.file, path: &self.path });
        let counts = is_sealed(&turn.file).is_ok_and(|sealed| !sealed);
        let _ = rustix::fs::flock(&turn.file, FlockOperation::Unlock);
        Ok((result, counts))
    }

    /// Whether its name is gone. A file system that does not say so says nothing.
    pub(super) fn is_gone(&self) -> bool {
        self.path.try_exists().is_ok_and(|there| !there)
    }

    fn file_of(&self, generation: u32) -> io::Result<PathBuf> {
        if generation == 0 {
            return Ok(self.path.clone());
        }
        let mut name = OsString::from(&self.path);
        name.push(format!("-{:x}-{generation}", self.first.metadata()?.ino()));
        Ok(name.into())
    }

    /// What follows a generation that is sealed.
    fn next(&self, sealed: &Generation) -> Result<Generation> {
        let failed = |e: io::Error| Error::io(format!("cannot go on from {}", self.path.display()), &e);
        let next = self.file_of(sealed.number + 1).map_err(failed)?;
        if !next.try_exists().map_err(failed)? {
            if is_followed(&sealed.file).map_err(failed)? {
                return Err(failed(io::ErrorKind::NotFound.into()));
            }
            let (number, text) = self.read_anew(sealed)?;
            let bytes = slot(number, &text);
            let write = |file: &File| {
                file.write_all_at(&[0], FOLLOWED)?;
                file.write_all_at(&bytes, number % 2 * SLOT)
            };
            let temporary = written::beside(&next, write).map_err(failed)?;
            let linked = written::publish(&temporary, &next);
            let _ = std::fs::remove_file(&temporary);
            match linked {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
                _ => {}
            }
        }
        let file = open(&next).map_err(failed)?;
        sealed.file.write_all_at(&[1], FOLLOWED).map_err(failed)?;
        // Its name may have been removed meanwhile, and another one made.
        let inode = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.ino()).map_err(failed);
        if inode(std::fs::metadata(&next))? != inode(file.metadata())? {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(Generation { number: sealed.number + 1, file, blocked: None })
    }

    /// What a generation says, opened once more, so that a network's file system shows what others wrote; unless its name is
    /// gone.
    fn read_anew(&self, generation: &Generation) -> Result<(u64, Vec<u8>)> {
        let failed = |e: io::Error| Error::io(format!("cannot look for {}", self.path.display()), &e);
        let path = self.file_of(generation.number).map_err(failed)?;
        let inode = |file: &File| file.metadata().map(|metadata| metadata.ino()).ok();
        let again = open(&path).ok().filter(|file| inode(file) == inode(&generation.file));
        LockedRecord { file: again.as_ref().unwrap_or(&generation.file), path: &path }.read_slots()
    }
}

impl LockedRecord<'_> {
    /// What the record says.
    pub(super) fn read(&self) -> Result<Vec<u8>> {
        self.read_slots().map(|(_, text)| text)
    }

    /// Has the record say this, which is on disk then.
    pub(super) fn write(&self, text: &[u8]) -> Result<()> {
        let (number, _) = self.read_slots()?;
        self.write_slot(number + 1, text)
    }

    pub(super) fn damaged(&self) -> Error {
        let text = format!("the witness {} is damaged", self.path.display());
        Error::io(text, &io::ErrorKind::InvalidData.into())
    }

    fn read_slots(&self) -> Result<(u64, Vec<u8>)> {
        let slots = (0..2).filter_map(|slot| self.read_slot(slot));
        slots.max_by_key(|(number, _)| *number).ok_or_else(|| self.damaged())
    }

    fn read_slot(&self, slot: u64) -> Option<(u64, Vec<u8>)> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, slot * SLOT).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (number, bytes, sum) = (word(0)?, word(8)?, word(16)?);
        // Nothing was ever written with number 0.
        if number == 0 || bytes > SLOT - HEAD as u64 {
            return None;
        }
        let mut text = vec![0; usize::try_from(bytes).ok()?];
        self.file.read_exact_at(&mut text, slot * SLOT + HEAD as u64).ok()?;
        (checksum(number, &text) == sum).then_some((number, text))
    }

    fn write_slot(&self, number: u64, text: &[u8]) -> Result<()> {
        if text.len() as u64 > SLOT - HEAD as u64 {
            let why = format!("a roster of {} bytes is too long for a witness", text.len());
            return Err(Error::invalid(why));
        }
        let written = self.file.write_all_at(&slot(number, text), number % 2 * SLOT);
        let failed = |e: io::Error| Error::io(format!("cannot write {}", self.path.display()), &e);
        written.and_then(|()| self.file.sync_data()).map_err(failed)
    }
}

fn slot(number: u64, text: &[u8]) -> Vec<u8> {
    let words = [number, text.len() as u64, checksum(number, text)];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(text);
    bytes
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
    use forebay_core::ErrorKind;
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn record() -> (tempfile::TempDir, PathBuf, Record) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".g.json.witness");
        let record = Record::create(path.clone(), b"one").unwrap();
        (directory, path, record)
    }

    fn says(record: &Record) -> Vec<u8> {
        record.change(PATIENCE, |locked| locked.read()).unwrap()
    }

    #[test]
    fn who_dies_while_it_writes_leaves_what_was_there() {
        let (_directory, path, record) = record();
        record.change(PATIENCE, |locked| locked.write(b"another")).unwrap();
        let file = open(&path).unwrap();
        // Cut off in the middle of the text.
        file.write_all_at(&[0; 3], HEAD as u64).unwrap();
        assert_eq!(says(&record), b"one");
        file.set_len(0).unwrap();
        let error = record.change(PATIENCE, |locked| locked.read()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
    }

    /// Holds the lock until it is told to go on; then it writes, and says whether that counts.
    fn stop_in_lock<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        record: &'scope Record,
        text: &'static [u8],
    ) -> (mpsc::SyncSender<()>, std::thread::ScopedJoinHandle<'scope, Result<()>>) {
        let ((has_it, wait), (go_on, told)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let stopped = scope.spawn(move || {
            record.change(PATIENCE, |locked| {
                has_it.send(()).unwrap();
                told.recv().unwrap();
                locked.write(text)
            })
        });
        wait.recv().unwrap();
        (go_on, stopped)
    }

    #[test]
    fn who_is_stopped_in_the_lock_is_not_waited_for_for_ever() {
        let (directory, path, one) = record();
        let (two, three) = (Record::open(path.clone()).unwrap(), Record::open(path.clone()).unwrap());
        std::thread::scope(|scope| {
            let (go_on, stopped) = stop_in_lock(scope, &one, b"late");
            let error = two.change(PATIENCE, |locked| locked.read()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Timeout, "it may only be slow");
            two.change(SEALED_AFTER, |locked| locked.write(b"two")).unwrap();
            assert_eq!(says(&three), b"two", "others see the seal");
            go_on.send(()).unwrap();
            assert_eq!(stopped.join().unwrap().unwrap_err().kind, ErrorKind::Timeout);
            assert_eq!(says(&one), b"two");
            // Once more, and with a lock that nobody has waited for yet.
            let (go_on, stopped) = stop_in_lock(scope, &three, b"later");
            one.change(SEALED_AFTER, |locked| locked.write(b"three")).unwrap();
            let four = Record::open(path.clone()).unwrap();
            assert_eq!((says(&two), says(&four)), (b"three".to_vec(), b"three".to_vec()));
            go_on.send(()).unwrap();
            assert!(stopped.join().unwrap().is_err());
            assert_eq!(says(&three), b"three");
        });
        let another = directory.path().join(".g.json.witness-2.witness");
        std::fs::write(&another, b"of another group").unwrap();
        // Who was behind does not go on from where it was.
        let behind = Record::open(path.clone()).unwrap();
        remove(&path);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "of another group");
        assert_eq!(says(&one), b"three", "those who have it open still share it");
        assert_eq!(behind.change(PATIENCE, |locked| locked.read()).unwrap_err().kind, ErrorKind::Io);
        std::thread::scope(|scope| {
            let (go_on, stopped) = stop_in_lock(scope, &one, b"latest");
            two.change(SEALED_AFTER, |locked| locked.write(b"four")).unwrap();
            go_on.send(()).unwrap();
            assert!(stopped.join().unwrap().is_err());
            assert_eq!(says(&one), b"four", "though its names were removed");
        });
    }

    #[test]
    fn what_counts_is_not_lost_though_all_go_on_at_any_moment() {
        let (_directory, path, first) = record();
        first.change(PATIENCE, |locked| locked.write(b"0")).unwrap();
        let counted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread: u32| {
                    let record = Record::open(path.clone()).unwrap();
                    scope.spawn(move || {
                        let add = |locked: &LockedRecord<'_>| {
                            let text = String::from_utf8(locked.read()?).map_err(|_| locked.damaged())?;
                            let n: u64 = text.parse().map_err(|_| locked.damaged())?;
                            locked.write((n + 1).to_string().as_bytes())
                        };
                        let mut counted = 0;
                        for i in 0..50 {
                            if i % 10 == 2 * thread {
                                seal(&record.turn.lock().file).unwrap();
                            }
                            counted += u64::from(record.change(Duration::from_secs(10), add).is_ok());
                        }
                        counted
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        let said: u64 = String::from_utf8(says(&first)).unwrap().parse().unwrap();
        assert!(counted > 100, "{counted}");
        assert!((counted..=200).contains(&said), "{counted} counted, it says {said}");
    }
}
