//! Whether what is installed is of one version, and what the servers of the group are.

use super::programs::run_python;
use forebay_client::{Admin, ErrorKind, GroupOptions};
use std::time::Duration;

/// The version of this command.
const OWN: &str = env!("CARGO_PKG_VERSION");
/// How long the group's servers may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints the versions of the package and of the library that is installed with it.
const INSTALLED: &str = "
import ctypes, forebay
try:
    library = ctypes.CDLL(forebay.get_library())
    library.fb_version.restype = ctypes.c_char_p
    told = library.fb_version().decode()
except forebay.NotFound:
    told = '-'
print(forebay.__version__, told)
";

/// Whether command, Python package and library are of one version.
pub(super) fn installed() -> Result<String, String> {
    let Ok(told) = run_python(INSTALLED) else {
        return Ok(format!("command {OWN}; there is no Python package beside it"));
    };
    let (package, library) = told.split_once(' ').unwrap_or((&told, "-"));
    let text = match library {
        "-" => format!("command {OWN}, Python package {package}, no library"),
        _ => format!("command {OWN}, Python package {package}, library {library}"),
    };
    let is_one = package == OWN && (library == "-" || library == OWN);
    if is_one { Ok(text) } else { Err(text) }
}

/// The servers of the group that is meant, if there is one.
pub(super) fn group(options: &GroupOptions) -> Result<String, String> {
    let options = GroupOptions { timeout: Some(options.timeout.unwrap_or(PATIENCE)), ..options.clone() };
    let status = match Admin::open(&options).and_then(|admin| admin.status()) {
        Ok(status) => status,
        Err(error) if error.kind == ErrorKind::ConnectionFile && options.group.is_none() => {
            let named = std::env::var("FOREBAY_GROUP").ok().filter(|name| !name.is_empty());
            let what = named.map_or("the default name".to_owned(), |name| format!("FOREBAY_GROUP={name}"));
            return Ok(format!("none is running under {what}"));
        }
        Err(error) => return Err(error.text),
    };
    // Servers that speak another version of the protocol say so in the error.
    if let Some(server) = status.servers.iter().find(|server| server.error.is_some()) {
        return Err(format!("server{}: {}", server.server, server.error.clone().unwrap_or_default()));
    }
    let mut versions: Vec<&str> =
        status.servers.iter().filter_map(|server| server.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    let count = status.servers.len();
    let text =
        format!("{count} server{} of version {}", if count == 1 { "" } else { "s" }, versions.join(", "));
    if versions.iter().all(|version| *version == OWN) { Ok(text) } else { Err(text) }
}
