//! Who this process is, as it tells servers.

use forebay_core::identity::Identity;

/// Longer names of hosts are cut: they are for people.
const HOST_MAX: usize = 64;

/// Who a handle of this process is, which may have a name.
pub(crate) fn identity(name: Option<&str>) -> Identity {
    let uname = rustix::system::uname();
    let host: String =
        uname.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(HOST_MAX).collect();
    Identity { name: name.map(str::to_owned), host, pid: std::process::id() }
}
