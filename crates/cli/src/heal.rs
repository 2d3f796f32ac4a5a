//! `forebay heal`: a group goes on that has lost half of its servers or more.

use crate::Common;
use crate::output::Output;
use forebay_client::core::ids::ServerId;
use forebay_client::{Admin, Result};
use serde_json::json;
use std::process::ExitCode;

/// How.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Heal {
    /// Give up the servers that do not answer: none of them runs any more
    #[arg(long)]
    force: bool,
}

pub(crate) fn heal(common: &Common, heal: &Heal, output: &Output) -> Result<ExitCode> {
    let (kept, given_up) = Admin::open(&common.group_options()?)?.heal(heal.force)?;
    let numbers = |servers: &[ServerId]| servers.iter().map(|id| id.0).collect::<Vec<_>>();
    let result = json!({ "kept": numbers(&kept), "given_up": numbers(&given_up), "healed": heal.force });
    output.result(&result, |_| {
        let (kept, given_up) = (names(&kept), names(&given_up));
        if heal.force {
            return vec![format!("The group goes on with {kept}, and has given up {given_up}.")];
        }
        vec![
            format!("Can go on: {kept}. Not reached by them: {given_up}."),
            "That is too few to agree on going on without the others. If those are gone for".into(),
            "good, `forebay heal --force` gives them up, and what only they held. End those".into(),
            "that still run first: what they take on would be lost.".into(),
        ]
    });
    Ok(if heal.force { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn names(servers: &[ServerId]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
