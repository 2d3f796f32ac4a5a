//! Who this process is, as it tells servers.

use forebay_core::identity::Identity;

/// Longer names of hosts are cut: they are for people.
const HOST_MAX: usize = 64;

/// Who a handle of this process is, which may have a name.
pub(crate) fn identity(name: Option<&str>) -> Identity {
    Identity { name: name.map(str::to_owned), host: host(), pid: std::process::id() }
}

/// The name of this host.
pub(crate) fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(HOST_MAX).collect()
}
