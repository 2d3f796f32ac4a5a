//! `forebay leave`: a server leaves its group, and nothing that it held is lost.

use crate::output::Output;
use crate::{Common, servers_log};
use forebay_client::transport::connection_file::path_of;
use forebay_client::{Admin, Result, ServerId};
use serde_json::json;
use std::process::ExitCode;

/// What is to leave.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Leave {
    /// Which one, as `forebay status` names it: server2, or 2
    #[arg(value_parser = server)]
    server: ServerId,
    /// Give up what no other server can hold, also with the last server
    #[arg(long)]
    discard: bool,
}

fn server(name: &str) -> std::result::Result<ServerId, String> {
    let number = name.strip_prefix("server").unwrap_or(name);
    number.parse().map(ServerId).map_err(|_| "give a server's name or number, as server2 or 2".to_owned())
}

pub(crate) fn leave(common: &Common, leave: &Leave, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    let server = admin.remove_server(leave.server, leave.discard)?;
    // The last one ends its group.
    let path = path_of(common.group.as_deref())?;
    if !path.exists() {
        servers_log::remove_of(&servers_log::path(&path), &admin.group().known().file.lineage);
    }
    let left = admin.group().known().view.members.iter().filter(|id| **id != server).count();
    output.result(&json!({ "left": server.0, "servers": left }), |_| {
        vec![match left {
            0 => format!("{server} has left; it was the last one of the group."),
            1 => format!("{server} has left; the group has 1 server."),
            count => format!("{server} has left; the group has {count} servers."),
        }]
    });
    Ok(ExitCode::SUCCESS)
}
