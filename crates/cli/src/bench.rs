//! `forebay bench`: runs the benchmarks, which are a Python package, with the same Python as pipelines.

use crate::{Common, pipeline};
use forebay_client::{Error, Result};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Measure speed and memory on this machine, as ratios to its limits and to
/// other systems. `forebay bench --help` lists the benchmarks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Bench {
    /// What to measure, and options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn bench(common: &Common, bench: &Bench) -> Result<ExitCode> {
    let mut command = Command::new(pipeline::python());
    command.args(["-m", "forebay.bench"]).args(&bench.arguments);
    if common.json && !bench.arguments.iter().any(|argument| argument == "--json") {
        command.arg("--json");
    }
    Err(Error::io("cannot run Python for the benchmarks (is it installed?)", &command.exec()))
}
