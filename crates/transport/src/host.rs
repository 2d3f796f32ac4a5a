//! Which host this is, as far as sharing memory goes, and who else lives on it.

use forebay_core::{Error, Result};
use forebay_wire::connection::HostId;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// This host's identity: the boot of its kernel and this process's network namespace, in which abstract
/// socket names live. Containers with networks of their own count as hosts of their own.
///
/// It is read once: a process that has no descriptors left is still where it was.
pub fn this_host() -> HostId {
    static KNOWN: OnceLock<HostId> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return known.clone();
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = fs::metadata("/proc/self/ns/net").map(|m| m.ino());
    let is_read = boot.is_ok() && namespace.is_ok();
    let found = HostId(format!("{}.{:x}", boot.unwrap_or_default().trim(), namespace.unwrap_or_default()));
    if is_read { KNOWN.get_or_init(|| found).clone() } else { found }
}

/// Where a process id has its meaning: the boot of the kernel and this process's PID namespace. Containers of
/// one host may share its network and still number their processes by themselves.
pub fn process_space() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or_default();
    HostId(format!("{}.pid.{namespace:x}", boot.trim()))
}

/// From now on this process is asked to end (SIGTERM) when the thread that started it ends, with its process at
/// the latest. Notices also where this process is busy and looks at no connection.
pub fn end_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| Error::io("cannot ask to be told of the server's end", &e.into()))
}
