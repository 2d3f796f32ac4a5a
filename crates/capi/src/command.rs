//! Running the command `forebay`, for what only that can do: starting servers, and a pipeline's code.

use forebay_client::{Error, ErrorKind, GroupOptions, Result, ServerId, TransportChoice};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names the command, where it is neither installed beside this library nor the first on the path.
const VARIABLE: &str = "FOREBAY_COMMAND";

/// The command: the one that the variable names, that is installed beside this library, or the first on the path.
fn program() -> OsString {
    let named = std::env::var_os(VARIABLE);
    named.or_else(|| beside(&library()?)).unwrap_or_else(|| "forebay".into())
}

/// Where this library, or the program that it is linked into, lies: the file of which this function is a part.
fn library() -> Option<PathBuf> {
    let here = library as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| file_at(line, here))
}

/// The file that is mapped where this line of `/proc/PID/maps` says, if that holds an address.
fn file_at(line: &str, address: usize) -> Option<PathBuf> {
    let (range, rest) = line.split_once(' ')?;
    let (first, end) = range.split_once('-')?;
    let place = |text| usize::from_str_radix(text, 16).ok();
    let path = rest.splitn(5, ' ').nth(4)?.trim_start();
    ((place(first)?..place(end)?).contains(&address) && path.starts_with('/')).then(|| path.into())
}

/// The command of the tree that a library lies in.
fn beside(library: &Path) -> Option<OsString> {
    let command = library.parent()?.parent()?.join("bin/forebay");
    command.is_file().then(|| command.into_os_string())
}

/// Runs it for a group; what it told.
pub(crate) fn run(options: &GroupOptions, arguments: &[&str]) -> Result<Value> {
    let program = program();
    let mut command = Command::new(&program);
    command.arg("--json").args(["--transport", choice(options.transport)]);
    if let Some(group) = &options.group {
        if group.trim_start().starts_with('{') {
            return Err(Error::unsupported(
                "this needs the connection file itself: its text holds the group's secret, which a command line shows to \
                 everybody; give the file's path, or the group's name",
            ));
        }
        command.args(["--group", group]);
    }
    if let Some(timeout) = options.timeout {
        command.args(["--timeout", &timeout.as_secs_f64().to_string()]);
    }
    // Not over a pipe, which the servers that it starts may keep open.
    let mut told = scratch()?;
    let errors = scratch()?;
    let copy = |file: &File| file.try_clone().map_err(|e| Error::io("cannot run a command", &e));
    command.args(arguments).stdin(Stdio::null()).stdout(copy(&told)?).stderr(copy(&errors)?);
    let done = command.status().map_err(|e| {
        Error::io(
            format!(
                "cannot run the command {}: have it on the path, or let {VARIABLE} name it",
                program.display()
            ),
            &e,
        )
    })?;
    let text = content(&mut told)?;
    let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
    if done.success() {
        return Ok(value);
    }
    let kind = ErrorKind::ALL.into_iter().find(|kind| value["error"].as_str() == Some(&kind.name()));
    match (kind, value["text"].as_str()) {
        (Some(kind), Some(text)) => {
            let server = value["server"].as_u64().and_then(|server| u32::try_from(server).ok());
            let error = Error::new(kind, text);
            Err(server.map(ServerId).into_iter().fold(error, Error::about))
        }
        _ => {
            let mut errors = errors;
            let why = content(&mut errors)?;
            Err(Error::internal(format!("{} {}: {}", program.display(), arguments.join(" "), why.trim())))
        }
    }
}

fn choice(transport: TransportChoice) -> &'static str {
    use forebay_client::Choice;
    transport.named().name
}

/// A file that has no name any more.
fn scratch() -> Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("forebay-{}-{number}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let failed = |e: &std::io::Error| Error::io(format!("cannot make a file in {}", path.display()), e);
    let file = made.map_err(|e| failed(&e))?;
    std::fs::remove_file(&path).map_err(|e| failed(&e))?;
    Ok(file)
}

fn content(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|e| Error::io("cannot read what a command told", &e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lies_beside_the_library() {
        let line =
            "7f48d7400000-7f48d7500000 r-xp 00001000 fd:00 4242    /opt/my forebay/lib/libforebay.so.0";
        assert_eq!(file_at(line, 0x7f48d7400010).unwrap(), Path::new("/opt/my forebay/lib/libforebay.so.0"));
        assert_eq!(file_at(line, 0x7f48d7500000), None);
        assert_eq!(file_at("7f48d7400000-7f48d7500000 rw-p 00000000 00:00 0 ", 0x7f48d7400010), None);
        assert_eq!(library(), std::env::current_exe().ok(), "this test's program");
        let tree = tempfile::tempdir().unwrap();
        let library = tree.path().join("lib/libforebay.so.0");
        assert_eq!(beside(&library), None);
        std::fs::create_dir(tree.path().join("bin")).unwrap();
        std::fs::write(tree.path().join("bin/forebay"), "").unwrap();
        assert_eq!(beside(&library), Some(tree.path().join("bin/forebay").into()));
    }
}
