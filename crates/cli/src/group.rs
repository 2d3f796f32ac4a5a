//! `forebay up` and `forebay down`: a group of servers on this machine.

use crate::Common;
use crate::output::{Output, bytes};
use crate::serve::{Memory, Network};
use forebay_client::core::ids::Lineage;
use forebay_client::transport::ConnectionFile;
use forebay_client::transport::group_file::path_of;
use forebay_client::{Admin, Error, ErrorKind, GroupOptions, Result};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Start a group of servers on this machine, in the background. They listen on
/// loopback only unless --bind says otherwise. `forebay down` ends them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Up {
    /// How many servers
    #[arg(long, short = 'n', default_value_t = 1)]
    servers: u32,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    network: Network,
}

/// A group has a sensible number of servers.
pub(crate) fn check_servers(servers: u32) -> Result<()> {
    if servers == 0 || servers > 4096 {
        return Err(Error::invalid(format!("{servers} servers: a group has 1 to 4096")));
    }
    Ok(())
}

fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for other processes, which cannot be waited for otherwise"
    )]
    std::thread::sleep(Duration::from_millis(5));
}

fn log_of(group: &Path) -> PathBuf {
    group.with_extension("log")
}

pub(crate) fn up(common: &Common, up: &Up, output: &Output) -> Result<ExitCode> {
    check_servers(up.servers)?;
    let group = path_of(common.group.as_deref())?;
    remove_stale(common, &group)?;
    let log = log_of(&group);
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&log);
    let file = file.map_err(|e| Error::io(format!("cannot write the servers' log {}", log.display()), &e))?;
    let lineage = forebay_server::new_lineage()?;
    let mut children = Vec::new();
    let result = (0..up.servers)
        .try_for_each(|_| {
            let copy = file.try_clone().map_err(|e| Error::io("cannot share the servers' log", &e))?;
            children.push(spawn(common, up, &group, &lineage, copy)?);
            Ok(())
        })
        .and_then(|()| wait_until_up(common, &group, &lineage, &log, &mut children));
    if let Err(error) = result {
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
        remove_ours(&group, &lineage);
        return Err(error);
    }
    let admin =
        Admin::open(&GroupOptions { group: Some(group.display().to_string()), ..common.group_options()? })?;
    let status = admin.status()?;
    let value = json!({ "group": group, "log": log, "servers": status["servers"] });
    output.result(&value, |_| {
        let budget: u64 = servers(&status).filter_map(|server| server["budget_bytes"].as_u64()).sum();
        let named = common.group.as_deref().map_or(String::new(), |group| format!(" --group {group}"));
        vec![
            format!("{} servers are up, with room for {} together.", up.servers, bytes(budget)),
            format!("Group:  {}", group.display()),
            format!("Next:   forebay status{named}     End:  forebay down{named}"),
        ]
    });
    Ok(ExitCode::SUCCESS)
}

/// Removes a connection file, if it is still this group's.
fn remove_ours(group: &Path, lineage: &Lineage) {
    if ConnectionFile::read(group).is_ok_and(|file| file.lineage == *lineage) {
        let _ = std::fs::remove_file(group);
    }
}

fn servers(status: &Value) -> impl Iterator<Item = &Value> {
    status["servers"].as_array().into_iter().flatten()
}

/// A file whose servers are all gone is removed; a running group is not touched.
fn remove_stale(common: &Common, group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    ConnectionFile::read(group)?;
    let options = GroupOptions {
        group: Some(group.display().to_string()),
        timeout: Some(Duration::from_secs(5)),
        ..common.group_options()?
    };
    let alive = match Admin::open(&options) {
        Ok(admin) => servers(&admin.status()?).any(|server| server.get("error").is_none()),
        Err(error) if error.kind == ErrorKind::Timeout => false,
        Err(error) => return Err(error),
    };
    if alive {
        return Err(Error::conflict(format!(
            "a group is running at {}: end it with `forebay down`, or choose another --group",
            group.display()
        )));
    }
    std::fs::remove_file(group)
        .map_err(|e| Error::io(format!("cannot remove the stale {}", group.display()), &e))
}

fn spawn(common: &Common, up: &Up, group: &Path, lineage: &Lineage, log: std::fs::File) -> Result<Child> {
    let own = std::env::current_exe().map_err(|e| Error::io("cannot find the command forebay itself", &e))?;
    let errors = log.try_clone().map_err(|e| Error::io("cannot share the servers' log", &e))?;
    let mut command = Command::new(own);
    command.arg("serve").arg("--group").arg(absolute(group)).args(["--servers", &up.servers.to_string()]);
    command.args(["--lineage", &lineage.to_string()]);
    let budget = up.memory.budget.map(|budget| budget.to_string());
    let bind = if up.network.bind.is_empty() {
        vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]
    } else {
        up.network.bind.clone()
    };
    for ip in bind {
        command.args(["--bind", &ip.to_string()]);
    }
    if let Some(budget) = &budget {
        command.args(["--budget", budget]);
    }
    if let Some(ip) = up.network.advertise {
        command.args(["--advertise", &ip.to_string()]);
    }
    if let Some((first, last)) = up.network.ports {
        command.args(["--ports", &format!("{first}-{last}")]);
    }
    if up.network.encrypt {
        command.arg("--encrypt");
    }
    for _ in 0..common.verbose {
        command.arg("-v");
    }
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // Not ended by a Ctrl-C that is meant for something else.
        .process_group(0)
        .spawn()
        .map_err(|e| Error::io("cannot start a server", &e))
}

/// A path that does not begin with a dash and contains a slash, so that it is taken as a path.
fn absolute(path: &Path) -> PathBuf {
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
    let told = || std::fs::read_to_string(log).unwrap_or_default();
    loop {
        for child in children.iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                let told = told();
                let last: Vec<&str> = told.lines().rev().take(5).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("a server ended at once ({status}): {}", last.join("; ")),
                ));
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
            if servers(&status).all(|server| server.get("error").is_none()) {
                return Ok(());
            }
        }
        if Instant::now() > deadline {
            return Err(Error::timeout(format!(
                "the group was not up within {patience:.0?}; see {}",
                log.display()
            )));
        }
        pause();
    }
}

pub(crate) fn down(common: &Common, output: &Output) -> Result<ExitCode> {
    let group = path_of(common.group.as_deref())?;
    let admin = Admin::open(&common.group_options()?)?;
    let pids: Vec<u32> = admin.group().file().servers.iter().map(|server| server.pid).collect();
    let before = admin.status()?;
    let running = servers(&before).filter(|server| server.get("error").is_none()).count();
    admin.shutdown()?;
    let deadline = Instant::now() + common.timeout.unwrap_or(Duration::from_secs(30));
    let reachable = || -> Result<usize> {
        Ok(servers(&admin.status()?).filter(|server| server.get("error").is_none()).count())
    };
    while reachable()? > 0 || pids.iter().any(|pid| is_server(*pid)) {
        if Instant::now() > deadline {
            return Err(Error::timeout("a server did not end in time; see `forebay status`"));
        }
        pause();
    }
    remove_ours(&group, &admin.group().file().lineage);
    let _ = std::fs::remove_file(log_of(&group));
    output.result(&json!({ "ended": running }), |_| vec![format!("{running} servers ended.")]);
    Ok(ExitCode::SUCCESS)
}

/// Whether this process is a server on this machine that has not ended.
fn is_server(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    name.trim() == "forebay" && !ended
}
