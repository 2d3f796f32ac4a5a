//! `forebay completion` and `forebay man`: what shells and `man` are told of this command.

use crate::Arguments;
use clap::CommandFactory;
use clap_complete::CompletionCandidate;
use clap_complete::env::Shells;
use forebay_client::status::GroupStatus;
use forebay_client::{Admin, Error, GroupOptions, Result};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long a shell waits for names.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print what has a shell complete this command's arguments
///
///     eval "$(forebay completion bash)"
///
/// Names of streams and fields are asked of the group.
#[derive(Debug, Clone, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completion {
    /// bash, zsh, fish, elvish or powershell
    shell: String,
}

/// Write manual pages into a directory
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Man {
    /// The directory
    directory: PathBuf,
}

pub(crate) fn completion(completion: &Completion) -> Result<ExitCode> {
    let shells = Shells::builtins();
    let shell = shells.completer(&completion.shell).ok_or_else(|| {
        let known: Vec<&str> = shells.names().collect();
        Error::invalid(format!(
            "the shell '{}' is not known; there are {}",
            completion.shell,
            known.join(", ")
        ))
    })?;
    let written = shell.write_registration("COMPLETE", "forebay", "forebay", "forebay", &mut io::stdout());
    written.map_err(|e| Error::io("cannot write", &e))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(man: &Man) -> Result<ExitCode> {
    clap_mangen::generate_to(Arguments::command(), &man.directory)
        .map_err(|e| Error::io(format!("cannot write to {}", man.directory.display()), &e))?;
    Ok(ExitCode::SUCCESS)
}

/// The names of the group's streams that begin like this.
pub(crate) fn streams(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let status = group_status();
    let names = status.streams.iter().map(|stream| &stream.name[..]);
    names.filter(|name| name.starts_with(&*begun)).map(CompletionCandidate::new).collect()
}

/// The names of all streams' fields that begin like this.
pub(crate) fn fields(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let status = group_status();
    let fields = status.streams.iter().flat_map(|stream| &stream.fields);
    let mut names: Vec<&str> = fields.map(|field| &field.name[..]).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter(|name| name.starts_with(&*begun)).map(CompletionCandidate::new).collect()
}

/// The status of the group that the environment names; nothing if there is none: a shell shows no errors.
fn group_status() -> GroupStatus {
    let options = GroupOptions { timeout: Some(PATIENCE), ..GroupOptions::default() };
    Admin::open(&options).and_then(|admin| admin.status()).unwrap_or_default()
}
