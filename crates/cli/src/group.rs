//! `forebay up` and `forebay down`: a group of servers on this machine.

use crate::Common;
use crate::output::{Output, bytes};
use crate::serve::{GroupSettings, Memory, Network};
use crate::servers_log;
use forebay_client::core::ids::Lineage;
use forebay_client::store::budget::available_memory;
use forebay_client::transport::connection_file::{ServerEntry, path_of};
use forebay_client::transport::shm::ShmLink;
use forebay_client::transport::{Address, ConnectionFile, host};
use forebay_client::{Admin, Error, ErrorKind, GroupOptions, Result};
use serde_json::json;
use std::fs::File;
use std::io::{PipeReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

/// Start a group of servers on this machine, in the background. They listen on
/// loopback only unless --bind says otherwise. `forebay down` ends them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Up {
    /// How many servers
    #[arg(long, short = 'n', default_value_t = 1, value_parser = server_count())]
    servers: u32,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    for_all: GroupSettings,
}

/// A group has a sensible number of servers.
pub(crate) fn server_count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4096)
}

pub(crate) fn pause() {
    pause_for(Duration::from_millis(5));
}

/// Lets so much time pass.
pub(crate) fn pause_for(time: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for other processes, which cannot be waited for otherwise"
    )]
    std::thread::sleep(time);
}

pub(crate) fn up(common: &Common, up: &Up, output: &Output) -> Result<ExitCode> {
    let group = path_of(common.group.as_deref())?;
    remove_stale(common, &group)?;
    let lineage = forebay_server::new_lineage()?;
    let log = servers_log::path(&group);
    let file = servers_log::create(&log, &lineage)?;
    // Until each server has a byte of this pipe, all of them end with this command, however it does. In one
    // piece: none is let go without the others.
    let (leash, mut hold) = std::io::pipe().map_err(|e| Error::io("cannot make a pipe", &e))?;
    let mut children = Vec::new();
    let Up { memory, network, for_all, .. } = up;
    let started = StartedServers { servers: up.servers, budget: memory.budget, network, for_all };
    let result = (0..up.servers)
        .try_for_each(|_| {
            children.push(spawn(common, &started, &group, &lineage, &file, &leash)?);
            Ok(())
        })
        .and_then(|()| wait_until_up(common, &group, &lineage, &log, &mut children))
        .and_then(|()| {
            let let_go = hold.write_all(&vec![1; up.servers as usize]);
            let_go.map_err(|e| Error::io("cannot let the servers go on alone", &e))
        });
    if let Err(error) = result {
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
        remove_ours(&group, &lineage);
        servers_log::remove_of(&log, &lineage);
        return Err(error);
    }
    let admin =
        Admin::open(&GroupOptions { group: Some(group.display().to_string()), ..common.group_options()? })?;
    let status = admin.status()?;
    let value = json!({ "group": group, "log": log, "servers": status.servers });
    output.result(&value, |_| {
        let budget: u64 = status.servers.iter().filter_map(|server| server.budget_bytes).sum();
        let named = common.group.as_deref().map_or(String::new(), |group| format!(" --group {group}"));
        let ready = match up.servers {
            1 => format!("1 server is up, with room for {}.", bytes(budget)),
            count => format!("{count} servers are up, with room for {} together.", bytes(budget)),
        };
        let free = available_memory();
        let note = (budget > free).then(|| {
            format!("Note:   only {} of memory are free here: the kernel ends what takes more", bytes(free))
        });
        let lines = [
            Some(ready),
            note,
            Some(format!("Group:  {}", group.display())),
            Some(format!("Next:   forebay status{named}     End:  forebay down{named}")),
        ];
        lines.into_iter().flatten().collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// Removes a connection file, if it is still this group's.
fn remove_ours(group: &Path, lineage: &Lineage) {
    if ConnectionFile::read(group).is_ok_and(|file| file.lineage == *lineage) {
        let _ = std::fs::remove_file(group);
    }
}

/// How many servers answer.
fn answering(admin: &Admin) -> Result<usize> {
    Ok(admin.status()?.servers.iter().filter(|server| server.error.is_none()).count())
}

/// A file whose servers are all gone is removed; a running group is not touched.
fn remove_stale(common: &Common, group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    let there = || {
        Err(Error::conflict(format!(
            "there are servers of the group {}: end it with `forebay down`, or choose another --group",
            group.display()
        )))
    };
    // Those of this host may still be forming, or stand still.
    if ConnectionFile::read(group)?.servers.iter().any(is_listening_here) {
        return there();
    }
    let options = GroupOptions {
        group: Some(group.display().to_string()),
        timeout: Some(Duration::from_secs(5)),
        ..common.group_options()?
    };
    let alive = match Admin::open(&options) {
        Ok(admin) => answering(&admin)? > 0,
        Err(error) if error.kind == ErrorKind::Timeout => false,
        Err(error) => return Err(error),
    };
    if alive {
        return there();
    }
    std::fs::remove_file(group)
        .map_err(|e| Error::io(format!("cannot remove the stale {}", group.display()), &e))
}

/// Servers that a command starts.
pub(crate) struct StartedServers<'a> {
    /// How many at once.
    pub(crate) servers: u32,
    pub(crate) budget: Option<u64>,
    pub(crate) network: &'a Network,
    pub(crate) for_all: &'a GroupSettings,
}

/// Starts one of them. It ends with this command until it has a byte of the leash.
pub(crate) fn spawn(
    common: &Common,
    up: &StartedServers<'_>,
    group: &Path,
    lineage: &Lineage,
    log: &File,
    leash: &PipeReader,
) -> Result<Child> {
    let own = std::env::current_exe().map_err(|e| Error::io("cannot find the command forebay itself", &e))?;
    let copies = log.try_clone().and_then(|out| Ok((out, log.try_clone()?, leash.try_clone()?)));
    let (out, errors, leash) = copies.map_err(|e| Error::io("cannot start a server", &e))?;
    let mut command = Command::new(own);
    command.arg("serve").arg("--group").arg(absolute(group)).args(["--servers", &up.servers.to_string()]);
    command.args(["--lineage", &lineage.to_string(), "--leash"]);
    let mut bind = up.network.bind()?;
    if bind.is_empty() {
        bind.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    for ip in bind {
        command.args(["--bind", &ip.to_string()]);
    }
    if let Some(budget) = up.budget {
        command.args(["--budget", &budget.to_string()]);
    }
    if let Some(ip) = up.network.advertise {
        command.args(["--advertise", &ip.to_string()]);
    }
    if let Some((first, last)) = up.network.ports {
        command.args(["--ports", &format!("{first}-{last}")]);
    }
    if up.for_all.encrypt {
        command.arg("--encrypt");
    }
    if let Some(silence) = up.for_all.silence {
        command.args(["--silence", &silence.as_secs_f64().to_string()]);
    }
    for _ in 0..common.verbose {
        command.arg("-v");
    }
    command
        .stdin(leash)
        .stdout(out)
        .stderr(errors)
        // Not ended by a Ctrl-C that is meant for something else.
        .process_group(0)
        .spawn()
        .map_err(|e| Error::io("cannot start a server", &e))
}

/// A path that does not begin with a dash and contains a slash, so that it is taken as a path.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn wait_until_up(
    common: &Common,
    group: &Path,
    lineage: &Lineage,
    log: &Path,
    children: &mut [Child],
) -> Result<()> {
    let patience = common.timeout.unwrap_or(Duration::from_secs(30));
    let deadline = Instant::now() + patience;
    loop {
        for child in children.iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(servers_log::ended_at_once(log, 0, status));
            }
        }
        if group.exists()
            && ConnectionFile::read(group).is_ok_and(|file| file.is_complete() && file.lineage == *lineage)
        {
            let options = GroupOptions {
                group: Some(absolute(group).display().to_string()),
                ..common.group_options()?
            };
            let status = Admin::open(&options)?.status()?;
            if status.servers.iter().all(|server| server.error.is_none()) {
                return Ok(());
            }
        }
        if Instant::now() > deadline {
            return Err(Error::timeout(format!(
                "the group was not up within {patience:?}; the last that servers said:\n  {}",
                servers_log::last_lines(log, 0)
            )));
        }
        pause();
    }
}

pub(crate) fn down(common: &Common, output: &Output) -> Result<ExitCode> {
    let group = path_of(common.group.as_deref())?;
    let options = common.group_options()?;
    let deadline = Instant::now() + options.patience();
    let admin = Admin::open(&options)?;
    let running = admin.shutdown()?;
    let known = admin.group().known();
    let file = &known.file;
    while file.servers.iter().any(is_running_here) || answering(&admin)? > 0 {
        if Instant::now() > deadline {
            return Err(Error::timeout("a server did not end in time; see `forebay status`"));
        }
        pause();
    }
    remove_ours(&group, &file.lineage);
    servers_log::remove(&servers_log::path(&group));
    output.result(&json!({ "ended": running }), |_| {
        vec![if running == 1 { "1 server ended.".into() } else { format!("{running} servers ended.") }]
    });
    Ok(ExitCode::SUCCESS)
}

/// A server's name on this host, if it is there.
pub(crate) fn name_here(server: &ServerEntry) -> Option<String> {
    let here = host::this_host();
    server.parsed().ok()?.into_iter().find_map(|address| match address {
        Address::Shm { host, name } if host == here => Some(name),
        _ => None,
    })
}

/// Whether somebody listens under a server's name, which no other ever has, whether it answers or not.
fn is_listening_here(server: &ServerEntry) -> bool {
    let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
    name_here(server).is_some_and(|name| !ShmLink::connect(&name).is_err_and(refused))
}

/// Whether this is a server on this host whose process has not ended.
fn is_running_here(server: &ServerEntry) -> bool {
    let pid = server.pid;
    if name_here(server).is_none() {
        return false;
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    name.trim() == "forebay" && !ended
}
