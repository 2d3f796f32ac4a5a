//! Which host this is, as far as sharing memory goes.

use forebay_wire::message::HostId;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// This host's identity: the boot of its kernel and this process's network namespace, in which abstract
/// socket names live. Containers with networks of their own count as hosts of their own.
pub fn this_host() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/net").map(|m| m.ino()).unwrap_or_default();
    HostId(format!("{}.{namespace:x}", boot.trim()))
}

/// Where a process id has its meaning: the boot of the kernel and this process's PID namespace. Containers of
/// one host may share its network and still number their processes by themselves.
pub fn process_space() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or_default();
    HostId(format!("{}.pid.{namespace:x}", boot.trim()))
}
