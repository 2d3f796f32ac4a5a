//! What the kernel, its limits and filters let servers and clients do: each is tried, since versions do not tell.

use crate::output::bytes;
use forebay_client::store::budget::available_memory;
use forebay_client::store::{Access, Arena, Mapping};
use forebay_client::transport::connection_file::runtime_directory;
use rustix::fs::{CWD, FlockOperation, RenameFlags, renameat_with};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was found, or what is wrong.
pub(super) type Found = Result<String, String>;

/// Fewer open files are soon too few for a server.
const OPEN_FILES_MIN: u64 = 256;
/// With less memory nothing can be staged that is worth it.
const MEMORY_MIN: u64 = 256 << 20;

/// Makes a memory file as large as a server's would be, seals it, writes to it and reads it through another mapping.
pub(super) fn shared_memory() -> Found {
    let size = (available_memory() / 2).max(1 << 20);
    let mut arena = Arena::create(size).map_err(|e| e.text)?;
    let range = arena.reserve(4096).ok_or("no room in a new arena")?;
    arena.mapping().and_then(|mapping| mapping.write(range.offset, b"forebay")).map_err(|e| e.text)?;
    let file = arena.readable_descriptor().map_err(|e| e.text)?;
    let mapping = Mapping::new(file.as_fd(), 4096, Access::Read);
    let mut told = [0; 7];
    mapping.and_then(|mapping| mapping.read(range.offset, &mut told)).map_err(|e| e.text)?;
    Ok(format!("memory files of {} can be made, sealed and mapped", bytes(size)))
}

pub(super) fn memory() -> Found {
    let free = available_memory();
    if free < MEMORY_MIN {
        Err(format!("only {} are free", bytes(free)))
    } else {
        Ok(format!("{} are free", bytes(free)))
    }
}

pub(super) fn open_files() -> Found {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let text = format!("{limit} files may be open");
    if limit < OPEN_FILES_MIN { Err(format!("only {text}")) } else { Ok(text) }
}

/// The sizes that files and the address space of a process may have.
pub(super) fn limits() -> Found {
    let limits = [("files", "ulimit -f", Resource::Fsize), ("the address space", "ulimit -v", Resource::As)];
    let limited = limits.iter().filter_map(|(what, shown, resource)| {
        let limit = getrlimit(*resource).current?;
        Some(format!("{what} may have {} ({shown})", bytes(limit)))
    });
    let limited: Vec<String> = limited.collect();
    if limited.is_empty() {
        Ok("files and the address space are not limited".into())
    } else {
        Err(limited.join(", "))
    }
}

/// Watches a process: so servers know at once that another one has ended.
pub(super) fn watching() -> Found {
    let watched = pidfd_open(getpid(), PidfdFlags::empty());
    watched.map(|_| "the end of a process can be watched".into()).map_err(|e| format!("pidfd_open: {e}"))
}

pub(super) fn place() -> Found {
    runtime_directory().map(|path| path.display().to_string()).map_err(|e| e.text)
}

/// Locks a file and gives it a second name, where the group's connection file is, or would be.
pub(super) fn locks(group: Option<&str>) -> Found {
    let directory = match group.filter(|group| group.contains('/')) {
        Some(path) => Path::new(path).parent().map(Path::to_path_buf).unwrap_or_default(),
        None => runtime_directory().map_err(|e| e.text)?,
    };
    let tried = directory.join(format!(".forebay-doctor-{}", std::process::id()));
    let done = locked_and_linked(&tried);
    for file in [&tried, &second_name(&tried)] {
        // One that was not made cannot be removed.
        let _ = fs::remove_file(file);
    }
    done.map(|what| format!("{what} in {}", directory.display()))
}

fn second_name(file: &Path) -> PathBuf {
    file.with_extension("second")
}

fn locked_and_linked(tried: &Path) -> Result<&'static str, String> {
    let failed = |what: &str, e: &std::io::Error| {
        format!("{what} in {}: {e}", tried.parent().unwrap_or(tried).display())
    };
    let file = File::create_new(tried).map_err(|e| failed("no file can be made", &e))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| failed("no file can be locked", &e.into()))?;
    if fs::hard_link(tried, second_name(tried)).is_ok() {
        return Ok("locks and hard links work");
    }
    let renamed = renameat_with(CWD, tried, CWD, second_name(tried), RenameFlags::NOREPLACE);
    renamed.map_err(|e| {
        failed("no file can have a second name, or be renamed without replacing another", &e.into())
    })?;
    Ok("locks work, hard links do not: files are renamed instead,")
}

/// Which system this is.
pub(super) fn system() -> Found {
    let uname = rustix::system::uname();
    let shown = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    // The wheel runs from 2.28 on; `getconf` is part of glibc.
    let glibc = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok();
    let glibc = glibc.map(|run| String::from_utf8_lossy(&run.stdout).trim().to_owned());
    let glibc = glibc.filter(|text| !text.is_empty()).map(|text| format!(", {text}")).unwrap_or_default();
    Ok(format!("{} {} on {}{glibc}", shown(uname.sysname()), shown(uname.release()), shown(uname.machine())))
}
