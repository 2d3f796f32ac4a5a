//! Where the servers of `forebay up` print: a file beside the connection file. Its first line says whose it is,
//! so that a user's file of that name is neither emptied nor removed.

use forebay_client::core::ids::Lineage;
use forebay_client::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// How every such file begins; the group's lineage follows.
const FIRST: &str = "Log of the servers of Forebay's group ";

/// How many lines an error shows.
const LAST: usize = 5;

/// The file for a group: all of the connection file's name, and `.forebay.log`.
pub(crate) fn path(group: &Path) -> PathBuf {
    let mut name = group.file_name().unwrap_or_default().to_owned();
    name.push(".forebay.log");
    group.with_file_name(name)
}

/// Begins the file of a group; one of an earlier group is begun anew.
pub(crate) fn create(path: &Path, lineage: &Lineage) -> Result<File> {
    let failed = |e| Error::io(format!("cannot write the servers' log {}", path.display()), &e);
    let opened = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path);
    let mut file = opened.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // An empty one may be what is left of a start that was cut off.
    if !metadata.is_file() || (metadata.len() > 0 && !is_log(&mut file)) {
        return Err(Error::conflict(format!(
            "{} is where the servers would print, but it is not a log of theirs: move it away, or choose another \
             --group",
            path.display()
        )));
    }
    file.set_len(0).and_then(|()| writeln!(file, "{FIRST}{lineage}")).map_err(failed)?;
    Ok(file)
}

/// Opens the file of a group that runs, or begins it.
pub(crate) fn append(path: &Path, lineage: &Lineage) -> Result<File> {
    let text = std::fs::read(path).unwrap_or_default();
    if !text.starts_with(format!("{FIRST}{lineage}\n").as_bytes()) {
        return create(path, lineage);
    }
    let opened = OpenOptions::new().append(true).open(path);
    opened.map_err(|e| Error::io(format!("cannot write the servers' log {}", path.display()), &e))
}

/// What the servers printed after so many bytes of the file, but the first line.
fn read(path: &Path, after: u64) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let first = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1);
    let start = usize::try_from(after).unwrap_or(usize::MAX).clamp(first, text.len());
    String::from_utf8_lossy(&text[start..]).into_owned()
}

/// How long the file is.
pub(crate) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The error of a server that ended when it had just been started, with the last of what was printed since the file was so
/// long: others print there, too.
pub(crate) fn ended_at_once(path: &Path, after: u64, status: ExitStatus) -> Error {
    let last = last_lines(path, after);
    Error::new(
        ErrorKind::Io,
        format!("a server ended at once ({status}); the last that servers said:\n  {last}"),
    )
}

/// The last lines that servers printed since the file was so long.
pub(crate) fn last_lines(path: &Path, after: u64) -> String {
    let told = read(path, after);
    let lines: Vec<&str> = told.lines().collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n  ")
}

/// Removes the file, if it is a log of servers. Whose does not matter: a group that lost the race for this path
/// may have begun it anew.
pub(crate) fn remove(path: &Path) {
    if File::open(path).is_ok_and(|mut file| is_log(&mut file)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the file, if it is the log of this group.
pub(crate) fn remove_of(path: &Path, lineage: &Lineage) {
    let text = std::fs::read(path).unwrap_or_default();
    if text.starts_with(format!("{FIRST}{lineage}\n").as_bytes()) {
        let _ = std::fs::remove_file(path);
    }
}

fn is_log(file: &mut File) -> bool {
    let mut start = Vec::new();
    file.take(FIRST.len() as u64).read_to_end(&mut start).is_ok() && start == FIRST.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_of_groups_are_emptied_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = path(&directory.path().join("run.json"));
        assert_eq!(path.file_name().unwrap(), "run.json.forebay.log");
        let (one, two) = (Lineage([1; 16]), Lineage([2; 16]));
        writeln!(create(&path, &one).unwrap(), "said").unwrap();
        assert_eq!((read(&path, 0), read(&path, length(&path))), ("said\n".into(), String::new()));
        assert_eq!(read(&path, length(&path) - 3), "id\n");
        writeln!(create(&path, &two).unwrap(), "again").unwrap();
        assert_eq!(read(&path, 0), "again\n");
        remove_of(&path, &one);
        assert!(path.exists());
        remove_of(&path, &two);
        assert!(!path.exists());
        drop(create(&path, &one).unwrap());
        remove(&path);
        assert!(!path.exists());
        std::fs::write(&path, "mine\n").unwrap();
        assert_eq!(create(&path, &one).unwrap_err().kind, ErrorKind::Conflict);
        remove(&path);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine\n");
    }
}
