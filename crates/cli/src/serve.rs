//! `forebay serve`: one server, in the foreground.

use crate::Common;
use crate::duration::duration;
use crate::output::Output;
use forebay_client::core::ids::Lineage;
use forebay_client::transport::connection_file::path_of;
use forebay_client::{Error, Result};
use forebay_cluster::ClusterOptions;
use forebay_cluster::failure::{SILENCE_MAX, SILENCE_MIN};
use forebay_server::ServerOptions;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Run one server in the foreground. The first server on a connection file
/// founds the group and writes the file; others join through it, at any time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Serve {
    /// How many servers a group that is founded waits for before it is used
    #[arg(long, default_value_t = 1, value_parser = crate::group::server_count())]
    pub(crate) servers: u32,
    #[command(flatten)]
    pub(crate) memory: Memory,
    #[command(flatten)]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) for_all: GroupSettings,
    /// The lineage that the group must have
    #[arg(long, value_name = "HEX", hide = true)]
    pub(crate) lineage: Option<Lineage>,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) watch_parent: Option<u32>,
    /// A directory of the group's own, to be removed when that process has ended
    #[arg(long, value_name = "DIR", hide = true, requires = "watch_parent")]
    pub(crate) private_place: Option<PathBuf>,
    /// End when the pipe that is standard input ends before a byte came
    #[arg(long, hide = true)]
    pub(crate) leash: bool,
}

/// Memory of a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Memory {
    /// Bytes of blocks that each server may hold, such as 512M or 64G
    /// [default: half of what is free, shared by the servers]
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    pub(crate) budget: Option<u64>,
}

/// Network of a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Network {
    /// Addresses to listen on for other hosts; repeat for several, or give what
    /// `hostname -i` says
    #[arg(long, value_name = "IP", value_parser = addresses)]
    bind: Vec<Addresses>,
    /// The address that others are told, if it differs from --bind
    #[arg(long, value_name = "IP")]
    pub(crate) advertise: Option<IpAddr>,
    /// Ports that may be used, such as 7000-7010 [default: any]
    #[arg(long, value_name = "A-B", value_parser = parse_ports)]
    pub(crate) ports: Option<(u16, u16)>,
}

/// One or several addresses, as `hostname -i` prints them.
#[derive(Debug, Clone)]
struct Addresses(Vec<IpAddr>);

/// Of several addresses, those that other hosts may reach: not the loopback, nor those of one link alone.
fn addresses(text: &str) -> std::result::Result<Addresses, String> {
    let parts = text.split(|c: char| c.is_whitespace() || c == ',').filter(|part| !part.is_empty());
    let parsed = parts.map(|part| part.parse().map_err(|_| format!("'{part}' is no IP address")));
    let given: Vec<IpAddr> = parsed.collect::<std::result::Result<_, _>>()?;
    if given.is_empty() {
        return Err("no IP address: `ip -brief address` lists those of this machine".into());
    }
    let is_far = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let far: Vec<IpAddr> = given.iter().copied().filter(is_far).collect();
    Ok(Addresses(if given.len() == 1 || far.is_empty() { given } else { far }))
}

impl Network {
    /// Whether addresses were given.
    pub(crate) fn binds(&self) -> bool {
        !self.bind.is_empty()
    }

    /// Listens on these addresses.
    pub(crate) fn bind_to(&mut self, all: Vec<IpAddr>) {
        self.bind = all.into_iter().map(|ip| Addresses(vec![ip])).collect();
    }

    /// The addresses to listen on. Others can be told none that stands for all addresses.
    pub(crate) fn bind(&self) -> Result<Vec<IpAddr>> {
        let all: Vec<IpAddr> = self.bind.iter().flat_map(|addresses| addresses.0.iter().copied()).collect();
        match all.iter().find(|ip| ip.is_unspecified()) {
            Some(any) if self.advertise.is_none() => Err(Error::invalid(format!(
                "--bind {any}: other hosts cannot be told to come to {any}; give an address of this machine (`ip -brief \
                 address` lists them), or say with --advertise what others are told"
            ))),
            _ => Ok(all),
        }
    }
}

/// What the first server of a group decides for all.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GroupSettings {
    /// Encrypt bulk data between hosts too, not only control messages; the
    /// first server of a group decides for all
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// How long until the others give up a server that is silent, and not
    /// before half of them; the first server of a group decides for all
    /// [default: 10]
    #[arg(long, value_name = "DURATION", value_parser = parse_silence)]
    pub(crate) silence: Option<Duration>,
}

/// Memory is given out in pieces of this many bytes.
const PAGE: u64 = 4096;

/// A number of bytes with an optional K, M, G or T.
pub(crate) fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let bad = || format!("'{text}' is no number of bytes: write 1000000, 512M or 64G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).filter(|n| *n > 0).ok_or_else(bad)
}

/// As `parse_bytes`, of memory that is to hold something: 64 is most likely meant to be 64M.
pub(crate) fn parse_budget(text: &str) -> std::result::Result<u64, String> {
    let budget = parse_bytes(text)?;
    if budget < PAGE {
        return Err(format!(
            "{budget} bytes hold no block: memory is given out in pages of {PAGE}; write 64M or 2G"
        ));
    }
    Ok(budget)
}

fn parse_silence(text: &str) -> std::result::Result<Duration, String> {
    let silence = duration(text)?;
    if !(SILENCE_MIN..=SILENCE_MAX).contains(&silence) {
        let (least, most) = (SILENCE_MIN.as_secs(), SILENCE_MAX.as_secs());
        return Err(format!(
            "{text}: give {least} to {most} seconds; below, busy servers would be taken for dead ones"
        ));
    }
    Ok(silence)
}

fn parse_ports(text: &str) -> std::result::Result<(u16, u16), String> {
    let bad = || format!("'{text}' is no range of ports: write 7000-7010");
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    let (first, last) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
    if first == 0 || first > last { Err(bad()) } else { Ok((first, last)) }
}

/// Standard input, not blocking.
fn leash() -> Result<Arc<OwnedFd>> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let leash =
        input.and_then(|input| Ok(rustix::io::ioctl_fionbio(&input, true).map(|()| Arc::new(input))?));
    leash.map_err(|e| Error::io("cannot watch standard input", &e))
}

pub(crate) fn serve(common: &Common, serve: &Serve, output: &Output) -> Result<ExitCode> {
    let leash = serve.leash.then(leash).transpose()?;
    let options = ServerOptions {
        cluster: ClusterOptions {
            group: path_of(common.group.as_deref())?,
            servers: serve.servers,
            lineage: serve.lineage,
            bind: serve.network.bind()?,
            advertise: serve.network.advertise,
            ports: serve.network.ports,
            seal_payload: serve.for_all.encrypt,
            silence: serve.for_all.silence,
        },
        budget: serve.memory.budget,
        watch_parent: serve.watch_parent,
        private_place: serve.private_place.clone(),
        leash,
    };
    let group = options.cluster.group.display().to_string();
    forebay_server::run(options, |id| {
        output.remark(&format!("{id} (process {}) is a member of the group of {group}", std::process::id()));
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_ports_are_parsed() {
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!((parse_bytes("7"), parse_budget("8K")), (Ok(7), Ok(8192)));
        assert!(parse_budget("64").is_err_and(|error| error.contains("64M")));
        for bad in ["", "0", "x", "1.5G", "-1", "99999999T", "1Q"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_silence("12.5"), Ok(Duration::from_millis(12_500)));
        for bad in ["", "0.5", "-1", "nan", "inf", "1e9", "500ms"] {
            assert!(parse_silence(bad).is_err(), "{bad}");
        }
        let bound =
            |text: &str| addresses(text).map(|all| all.0.iter().map(IpAddr::to_string).collect::<Vec<_>>());
        assert_eq!(bound("127.0.0.1").unwrap(), ["127.0.0.1"]);
        assert_eq!(bound("127.0.1.1 10.0.0.5 fe80::1 2001:db8::5\n").unwrap(), ["10.0.0.5", "2001:db8::5"]);
        assert_eq!(bound("10.0.0.5,10.1.0.5").unwrap(), ["10.0.0.5", "10.1.0.5"]);
        assert!(bound("").is_err_and(|error| error.contains("ip -brief address")));
        assert!(bound("10.0.0.5 node7").is_err_and(|error| error.contains("'node7'")));
        assert_eq!(parse_ports("7000-7010"), Ok((7000, 7010)));
        for bad in ["7000", "0-1", "5-4", "a-b", "1-70000"] {
            assert!(parse_ports(bad).is_err(), "{bad}");
        }
    }
}
