//! `forebay wait`: waits until a stream has come so far, for scripts.

use crate::Common;
use crate::completion;
use crate::group::pause_for;
use crate::output::Output;
use clap_complete::ArgValueCompleter;
use forebay_client::status::{GroupStatus, StreamStatus};
use forebay_client::{Admin, Error, ErrorKind, Result};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long it may take unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(40);

/// Wait until a stream has come so far
///
/// Exit status 0 as soon as it is so, 1 with the reason if it can be so no
/// more, or is not within --timeout (30 seconds). Disturbs nobody: nothing is
/// demanded of the simulation.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wait {
    /// The stream, which may not exist yet
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: String,
    #[command(flatten)]
    until: Until,
}

#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct Until {
    /// Until this step, or a later one, is closed; while nobody reads the
    /// stream and it keeps no steps: until a rank has begun a later one
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Until its latest run has ended; if that crashed, the exit status is 1
    #[arg(long)]
    ended: bool,
    /// Until so many readers (consumers and pipelines) are attached
    #[arg(long, value_name = "N")]
    readers: Option<u64>,
}

/// What is known of what is waited for.
enum Known {
    /// It is so; this is how.
    Yes(String),
    /// It is not; this is how far it is.
    NotYet(String),
    /// It will not be.
    Never(Error),
}

pub(crate) fn wait(common: &Common, wait: &Wait, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    let patience = common.timeout.unwrap_or(PATIENCE);
    let deadline = Instant::now() + patience;
    let mut before = None;
    loop {
        let known = match admin.status() {
            Ok(status) => {
                let stream = status.stream(&wait.stream);
                let over_before = *before.get_or_insert_with(|| stream.and_then(run_that_is_over));
                let known = look(wait, &status, over_before);
                if let (Known::Yes(how), Some(stream)) = (&known, stream) {
                    output.result(&reached(stream), |_| vec![how.clone()]);
                    return Ok(ExitCode::SUCCESS);
                }
                known
            }
            // Servers may come back.
            Err(error) if error.is_retryable() => Known::NotYet(error.text),
            Err(error) => return Err(error),
        };
        match known {
            Known::Never(error) => return Err(error),
            Known::NotYet(how) | Known::Yes(how) if Instant::now() >= deadline => {
                return Err(Error::timeout(format!(
                    "{} within {patience:?}: {how}; give it longer with --timeout",
                    wanted(wait)
                )));
            }
            Known::NotYet(_) | Known::Yes(_) => {}
        }
        pause_for(LOOK.min(deadline.saturating_duration_since(Instant::now())));
    }
}

/// A stream, as programs are told that it has come so far.
fn reached(stream: &StreamStatus) -> serde_json::Value {
    json!({
        "stream": stream.name, "run": stream.run, "phase": stream.phase, "last_closed": stream.last_closed,
        "reached": stream.reached, "attached": stream.attached,
    })
}

/// What did not come about.
fn wanted(wait: &Wait) -> String {
    let stream = &wait.stream;
    match wait.until {
        Until { step: Some(step), .. } => format!("step {step} of stream '{stream}' was not closed"),
        Until { readers: Some(readers), .. } => format!("stream '{stream}' did not have {readers} readers"),
        _ => format!("stream '{stream}' did not end"),
    }
}

/// The latest run of a stream, if it is over.
fn run_that_is_over(stream: &StreamStatus) -> Option<u64> {
    stream.is_over().then_some(stream.run)
}

/// How a run ended that was not to end yet.
fn ended(stream: &StreamStatus) -> Error {
    let place = stream.reached.map_or(" before its first step".to_owned(), |step| format!(" at step {step}"));
    let why = stream.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let kind = if stream.phase == "crashed" { ErrorKind::Crashed } else { ErrorKind::Ended };
    Error::new(kind, format!("stream '{}' has {}{place}{why}", stream.name, stream.phase))
}

/// Looks whether it is so. `over_before`: the run that was over when the waiting began; another one may come.
fn look(wait: &Wait, status: &GroupStatus, over_before: Option<u64>) -> Known {
    let silent = status.servers.iter().any(|server| server.error.is_some());
    let Some(stream) = status.stream(&wait.stream) else {
        let why = match silent {
            true => "a server that does not answer may coordinate it",
            false => "nobody has opened it yet",
        };
        return Known::NotYet(why.to_owned());
    };
    let phase = crate::status::phase(stream);
    if let Some(readers) = wait.until.readers {
        let text = format!("it has {}", stream.attached);
        return if stream.attached >= readers { Known::Yes(text) } else { Known::NotYet(text) };
    }
    let Some(step) = wait.until.step else {
        return match &stream.phase[..] {
            "finished" => Known::Yes(phase),
            "crashed" => Known::Never(ended(stream)),
            _ => Known::NotYet(format!("it is {phase}")),
        };
    };
    if has_closed(stream, step) {
        return Known::Yes(phase);
    }
    match stream.is_over() {
        true if over_before != Some(stream.run) => Known::Never(ended(stream)),
        true => Known::NotYet(format!("its latest run is {phase}, and no other has begun")),
        false => Known::NotYet(format!("it is {phase}")),
    }
}

/// Whether a step is over: closed, or, where none are closed since nobody wants them, passed.
fn has_closed(stream: &StreamStatus, step: u64) -> bool {
    let closed = stream.last_closed.is_some_and(|closed| closed >= step);
    let unwatched = stream.attached == 0 && stream.held.steps == 0;
    let passed = stream.reached.is_some_and(|reached| reached > step);
    let ended = stream.phase == "finished" && stream.reached.is_some_and(|reached| reached >= step);
    closed || (unwatched && passed) || ended
}
