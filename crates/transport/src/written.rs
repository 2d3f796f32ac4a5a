//! Files that others see whole or not at all: they are written beside their place, under a name that nobody else has.

use rustix::fs::{CWD, RenameFlags};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Gives a file that was written beside `path` this name, unless it is taken: then `AlreadyExists`. Its first name is gone then,
/// or is to be removed. Where the file system or a filter refuses hard links, it is renamed, which is atomic, too.
pub(crate) fn publish(temporary: &Path, path: &Path) -> io::Result<()> {
    let Err(refused) = std::fs::hard_link(temporary, path) else { return Ok(()) };
    if refused.kind() == io::ErrorKind::AlreadyExists || refused.kind() == io::ErrorKind::NotFound {
        return Err(refused);
    }
    let renamed = rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE);
    renamed.map_err(|error| match error {
        rustix::io::Errno::EXIST => error.into(),
        // Neither: the first reason is told.
        _ => refused,
    })
}

/// Makes and writes a file beside `path`, readable by its owner only, and waits until it is on disk. It is to be linked or
/// renamed; after an error nothing is left.
pub(crate) fn beside(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // Its keys are random: process ids do not tell containers or hosts apart.
    let random = RandomState::new().build_hasher().finish();
    let temporary = path.with_file_name(format!(".{}.{random:016x}", name.trim_start_matches('.')));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    match write(&file).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(temporary),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}
