//! `forebay status`: what servers, streams and pipelines do, once or again and again.

mod text;

pub(crate) use text::{phase, pipelines, rate};

use crate::duration::patience;
use crate::live::{Live, Next};
use crate::output::Output;
use crate::{Common, UNREACHED};
use forebay_client::status::{GroupStatus, LostServer, ServerStatus};
use forebay_client::{Admin, Error, Result};
use std::process::ExitCode;
use std::time::Duration;

/// Show servers, streams and pipelines
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Status {
    /// Show it again and again, every so many seconds, until Ctrl-C [default:
    /// 2]; with --json one object a line
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "2", value_parser = patience)]
    watch: Option<Duration>,
}

pub(crate) fn status(common: &Common, status: &Status, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    let Some(pause) = status.watch else {
        let told = admin.status()?;
        output.result(&told.to_json(), |_| text::lines(&told));
        let silent = told.servers.iter().all(|server| server.error.is_some());
        return Ok(if silent { UNREACHED.into() } else { ExitCode::SUCCESS });
    };
    let mut live = Live::new(output.is_json(), pause);
    loop {
        match admin.status() {
            Ok(told) if output.is_json() => live.line(&told.to_json()),
            Ok(told) => live.show(&text::lines(&told)),
            Err(error) => live.show(&[error.text]),
        }
        if live.wait() == Next::Over {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The status of those servers that answer. The others are named on standard error: what they coordinate is not in
/// it. An error if none answers.
pub(crate) fn of_reachable(admin: &Admin, output: &Output) -> Result<GroupStatus> {
    let status = admin.status()?;
    let silent: Vec<String> = status.servers.iter().filter_map(silence).collect();
    if silent.len() == status.servers.len() {
        return Err(Error::unreachable(format!("no server of the group answers: {}", silent.join("; "))));
    }
    for server in &status.lost {
        output.remark(&lost(server));
    }
    for server in silent {
        output.remark(&format!("{server}; streams and pipelines that it coordinates are not known"));
    }
    Ok(status)
}

/// That the group has given up a server.
fn lost(server: &LostServer) -> String {
    let name = format!("server{} (process {})", server.server, server.pid);
    match server.back_as {
        Some(id) => format!("{name} was given up, and has come back as server{id}"),
        None => format!("{name} was lost, with what only it held"),
    }
}

/// That a server does not answer, and why, if it is so.
fn silence(server: &ServerStatus) -> Option<String> {
    let error = server.error.as_ref()?;
    Some(format!("server{} (process {}) does not answer: {error}", server.server, server.pid))
}
