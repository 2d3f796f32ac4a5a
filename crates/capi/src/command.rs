//! Running the command `forebay`, for what only that can do: starting servers, and a pipeline's code.

use forebay_client::{Error, ErrorKind, GroupOptions, Result, ServerId, TransportChoice};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names the command, where it is not the first on the path.
const VARIABLE: &str = "FOREBAY_COMMAND";

/// Runs it for a group; what it told.
pub(crate) fn run(options: &GroupOptions, arguments: &[&str]) -> Result<Value> {
    let program = std::env::var_os(VARIABLE).unwrap_or_else(|| "forebay".into());
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
