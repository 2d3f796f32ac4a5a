//! Becoming a member: the first server founds the group and writes the connection file, the others join through it.
//!
//! Who is first is decided by the file system: the file is created by a hard link, which succeeds once. Until all servers
//! have come that the founder waits for, the file says so, and clients wait.

mod joining;
mod listening;

pub use listening::pollable;

use crate::ClusterOptions;
use crate::environment::{Environment, Machine};
use crate::membership::connection_file::{has_ended, remove_file};
use crate::membership::{LOOK, LOOKS};
use forebay_core::ids::{Epoch, Lineage, ServerId};
use forebay_core::roster::{Candidate, Incarnation, Roster};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Listener;
use forebay_transport::connection_file::ConnectionFile;
use forebay_transport::witness::Witness;
use forebay_wire::handshake::Secret;
use joining::{GroupAnswer, join_in_time, settings};
use listening::{advertised, listen};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

/// A server that is a member of its group.
#[derive(Debug)]
pub struct FormedMember {
    pub(crate) environment: Arc<dyn Environment>,
    /// Which one it is.
    pub id: ServerId,
    pub(crate) incarnation: Incarnation,
    pub(crate) secret: Secret,
    /// The roster with which it became one.
    pub roster: Arc<Roster>,
    pub(crate) witness: Witness,
    pub(crate) connection_file: PathBuf,
    pub(crate) addresses: Vec<String>,
}

impl FormedMember {
    fn new(
        options: &ClusterOptions,
        environment: Arc<dyn Environment>,
        own: Candidate,
        joined: GroupAnswer,
    ) -> FormedMember {
        let (id, secret, roster, witness) = joined;
        let (incarnation, addresses, connection_file) =
            (own.incarnation, own.addresses, options.group.clone());
        FormedMember { environment, id, incarnation, secret, roster, witness, connection_file, addresses }
    }
}

/// Founds the group, with this lineage, or joins it.
pub async fn form(options: &ClusterOptions, lineage: Lineage) -> Result<(Vec<Listener>, FormedMember)> {
    let listeners = listen(options)?;
    let own = candidate(options, &listeners, None)?;
    let formed = become_member(options, lineage, own, Arc::new(Machine::this())).await?;
    Ok((listeners, formed))
}

/// Who this server is and was, and where it listens.
fn candidate(
    options: &ClusterOptions,
    listeners: &[Listener],
    formerly: Option<ServerId>,
) -> Result<Candidate> {
    let incarnation = Incarnation(u64::from_le_bytes(random()?));
    let addresses = advertised(options, listeners);
    Ok(Candidate { incarnation, pid: std::process::id(), addresses, formerly })
}

/// Joins the group of this lineage again, from `joins_at` on and until one of its members can be reached; nothing once the
/// group has ended. It founds none, and joins no other: what it holds is of this one.
pub async fn join_again(
    options: &ClusterOptions,
    lineage: Lineage,
    formerly: ServerId,
    joins_at: Instant,
) -> Result<Option<(Vec<Listener>, FormedMember)>> {
    let options = ClusterOptions { lineage: Some(lineage), ..options.clone() };
    let environment: Arc<dyn Environment> = Arc::new(Machine::this());
    let mut nothing_left = 0;
    while nothing_left < LOOKS {
        if Instant::now() >= joins_at {
            match join_once(&options, formerly, environment.clone()).await {
                Ok(joined) => return Ok(Some(joined)),
                Err(error) => tracing::info!("it is no member yet: {error}"),
            }
        }
        tokio::time::sleep(LOOK).await;
        nothing_left =
            if has_ended(&*environment, &options.group, lineage).await { nothing_left + 1 } else { 0 };
    }
    tracing::warn!("this server ends: its group, of {}, has ended without it", options.group.display());
    Ok(None)
}

async fn join_once(
    options: &ClusterOptions,
    formerly: ServerId,
    environment: Arc<dyn Environment>,
) -> Result<(Vec<Listener>, FormedMember)> {
    let listeners = listen(options)?;
    let own = candidate(options, &listeners, Some(formerly))?;
    let joined = join_in_time(options, &*environment, &own).await?;
    Ok((listeners, FormedMember::new(options, environment, own, joined)))
}

/// As [`form`], once it is known who this server is and where it listens.
pub async fn become_member(
    options: &ClusterOptions,
    lineage: Lineage,
    own: Candidate,
    environment: Arc<dyn Environment>,
) -> Result<FormedMember> {
    let roster = Roster::founded(lineage, own.clone(), options.servers, settings(options));
    let file = ConnectionFile::of(&roster, Secret(random()?));
    match file.create(&options.group) {
        Ok(()) => {
            let witness = Witness::create(&options.group, lineage)
                .inspect_err(|_| remove_file(&options.group, &lineage, Epoch::MAX))?;
            let joined = (ServerId(0), file.secret, Arc::new(roster), witness);
            Ok(FormedMember::new(options, environment, own, joined))
        }
        Err(error) if error.kind == ErrorKind::Conflict => {
            let joined = join_in_time(options, &*environment, &own).await?;
            Ok(FormedMember::new(options, environment, own, joined))
        }
        Err(error) => Err(error),
    }
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Error::io("cannot read random numbers", &e))?;
    Ok(bytes)
}
