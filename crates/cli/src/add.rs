//! `forebay add`: more servers on this machine for a group that runs.

use crate::Common;
use crate::group::{StartedServers, absolute, name_here, pause, server_count, spawn};
use crate::output::Output;
use crate::serve::{GroupSettings, Network, parse_budget};
use crate::servers_log;
use forebay_client::core::ids::ServerId;
use forebay_client::transport::connection_file::path_of;
use forebay_client::transport::{Address, ConnectionFile};
use forebay_client::{Admin, Error, Group, GroupOptions, Result};
use serde_json::json;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

/// How long servers may take to say what their budget is.
const ANSWER: Duration = Duration::from_secs(2);

/// Add servers on this machine to a running group, in the background. They
/// listen where the group's other servers on this machine do, else on loopback,
/// unless --bind says otherwise.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Add {
    /// How many servers [default: 1]
    #[arg(value_name = "COUNT", value_parser = server_count())]
    count: Option<u32>,
    /// The same, as `forebay up` has it
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = server_count(), conflicts_with = "count")]
    servers: Option<u32>,
    /// Bytes of blocks that each server may hold, such as 512M or 64G
    /// [default: as much as the group's servers on this machine; without one
    /// there, half of what is free]
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    budget: Option<u64>,
    #[command(flatten)]
    network: Network,
}

pub(crate) fn add(common: &Common, add: &Add, output: &Output) -> Result<ExitCode> {
    let count = add.count.or(add.servers).unwrap_or(1);
    let path = absolute(&path_of(common.group.as_deref())?);
    let options = GroupOptions { group: Some(path.display().to_string()), ..common.group_options()? };
    let file = Group::find(&options)?.known().file.clone();
    let lineage = file.lineage;
    let log = servers_log::path(&path);
    let printed = servers_log::append(&log, &lineage)?;
    let before = servers_log::length(&log);
    let (leash, mut hold) = std::io::pipe().map_err(|e| Error::io("cannot make a pipe", &e))?;
    let mut network = add.network.clone();
    if !network.binds() {
        network.bind_to(bound_here(&file));
    }
    let budget = add.budget.or_else(|| budget_here(&options));
    let for_all = GroupSettings::default();
    let servers = StartedServers { servers: count, budget, network: &network, for_all: &for_all };
    let mut children = Vec::new();
    let joined = (0..count)
        .try_for_each(|_| {
            children.push(spawn(common, &servers, &path, &lineage, &printed, &leash)?);
            Ok(())
        })
        .and_then(|()| wait_until_members(&path, options.patience(), (&log, before), &mut children))
        .and_then(|joined| {
            let let_go = hold.write_all(&vec![1; count as usize]);
            let_go.map(|()| joined).map_err(|e| Error::io("cannot let the servers go on alone", &e))
        });
    let (ids, all) = joined.inspect_err(|_| {
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
    })?;
    let value = json!({ "added": ids.iter().map(|id| id.0).collect::<Vec<_>>(), "servers": all });
    output.result(&value, |_| {
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let joined = if ids.len() == 1 { "joined" } else { "have joined" };
        vec![format!("{} {joined}; the group has {all} servers.", names.join(", "))]
    });
    Ok(ExitCode::SUCCESS)
}

/// The budget of a server of the group on this machine, the least if they differ; nothing if none there answers at once.
fn budget_here(options: &GroupOptions) -> Option<u64> {
    let options = GroupOptions { timeout: Some(ANSWER), ..options.clone() };
    let admin = Admin::open(&options).ok()?;
    let here: Vec<u64> = {
        let known = admin.group().known();
        let here = known.file.servers.iter().filter(|server| name_here(server).is_some());
        here.map(|server| u64::from(server.id.0)).collect()
    };
    let status = admin.status().ok()?;
    let of_here = status.servers.iter().filter(|server| here.contains(&server.server));
    of_here.filter_map(|server| server.budget_bytes).min()
}

/// Where the group's servers on this machine listen.
fn bound_here(file: &ConnectionFile) -> Vec<IpAddr> {
    let here = file.servers.iter().filter(|server| name_here(server).is_some());
    let addresses = here.filter_map(|server| server.parsed().ok()).flatten();
    let mut bound: Vec<IpAddr> = addresses
        .filter_map(|address| match address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Shm { .. } => None,
        })
        .collect();
    bound.sort_unstable();
    bound.dedup();
    bound
}

/// Waits until the connection file names all of them; their ids, and how many servers there are.
fn wait_until_members(
    path: &Path,
    patience: Duration,
    (log, before): (&Path, u64),
    children: &mut [Child],
) -> Result<(Vec<ServerId>, usize)> {
    let deadline = Instant::now() + patience;
    loop {
        let file = ConnectionFile::read(path)?;
        let here = file.servers.iter().filter(|server| name_here(server).is_some());
        let ours = here.filter(|server| children.iter().any(|child| child.id() == server.pid));
        let ids: Vec<ServerId> = ours.map(|server| server.id).collect();
        if ids.len() == children.len() {
            return Ok((ids, file.servers.len()));
        }
        for child in children.iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(servers_log::ended_at_once(log, before, status));
            }
        }
        if Instant::now() > deadline {
            return Err(Error::timeout(format!(
                "the servers were not admitted within {patience:.0?}: more than half of the group must answer for that; \
                 see {} and `forebay status`",
                log.display()
            )));
        }
        pause();
    }
}
