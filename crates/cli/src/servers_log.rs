//! Where the servers of `forebay up` print: a file beside the connection file. Its first line says whose it is,
//! so that a user's file of that name is neither emptied nor removed.

use forebay_client::core::ids::Lineage;
use forebay_client::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How every such file begins; the group's lineage follows.
const FIRST: &str = "Log of the servers of Forebay's group ";

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

/// What the servers printed.
pub(crate) fn read(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.split_once('\n').map_or(String::new(), |(_, printed)| printed.to_owned())
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
    use forebay_client::ErrorKind;

    #[test]
    fn only_logs_of_groups_are_emptied_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = path(&directory.path().join("run.json"));
        assert_eq!(path.file_name().unwrap(), "run.json.forebay.log");
        let (one, two) = (Lineage([1; 16]), Lineage([2; 16]));
        writeln!(create(&path, &one).unwrap(), "said").unwrap();
        assert_eq!(read(&path), "said\n");
        writeln!(create(&path, &two).unwrap(), "again").unwrap();
        assert_eq!(read(&path), "again\n");
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
