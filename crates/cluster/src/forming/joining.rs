//! Joining a group: one member after the other is asked, until one has this server admitted.

use crate::ClusterOptions;
use crate::environment::Environment;
use crate::failure::{SILENCE, SILENCE_MAX, SILENCE_MIN};
use crate::peers::dialling::{ask, ask_roster};
use forebay_core::ids::ServerId;
use forebay_core::roster::{Candidate, Roster, Settings};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::connection_file::{ConnectionFile, ServerEntry};
use forebay_transport::witness::Witness;
use forebay_wire::handshake::Secret;
use forebay_wire::peer::cluster;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long it may take to become a member.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one member may take to have a server admitted, before another one is asked.
const ADMISSION: Duration = Duration::from_secs(10);
/// How long to wait before all members are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long none of the members may be reachable before they are taken for dead.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// Within this, a founder that has written the connection file has made the witness.
const WITNESSED: Duration = Duration::from_secs(2);
/// How long to wait before it is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a member knows of its group.
pub(super) type GroupAnswer = (ServerId, Secret, Arc<Roster>, Witness);

pub(super) async fn join_in_time(
    options: &ClusterOptions,
    environment: &dyn Environment,
    own: &Candidate,
) -> Result<GroupAnswer> {
    let mut last = None;
    let joined = timeout(PATIENCE, join(options, environment, own, &mut last)).await;
    joined.unwrap_or_else(|_| Err(not_admitted(&options.group, last)))
}

/// Asks one member after the other until one has this server admitted. `last` is why the last one did not.
async fn join(
    options: &ClusterOptions,
    environment: &dyn Environment,
    own: &Candidate,
    last: &mut Option<Error>,
) -> Result<GroupAnswer> {
    let began = Instant::now();
    let mut one_answers = false;
    loop {
        let file = ConnectionFile::read(&options.group)?;
        // A member that could not reach it would be in the others' way.
        let witness = match Witness::open(&options.group) {
            // The founder makes it right after the connection file.
            Err(error) if error.kind == ErrorKind::ConnectionFile && began.elapsed() < WITNESSED => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            opened => opened?,
        };
        if options.lineage.is_some_and(|lineage| lineage != file.lineage) {
            return Err(Error::conflict(format!(
                "another group is being started at {}: wait for it, or give another --group",
                options.group.display()
            )));
        }
        for member in &file.servers {
            match ask_to_join(options, environment, own, member, &file).await {
                Ok(roster) => {
                    let me = roster.find(own.incarnation).map(|member| member.id);
                    let id =
                        me.ok_or_else(|| Error::protocol(format!("{} admitted another server", member.id)))?;
                    return Ok((id, file.secret, roster, witness));
                }
                Err(error) if error.is_retryable() => {
                    tracing::info!("{error}");
                    one_answers |= error.kind != ErrorKind::Unreachable;
                    *last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if !one_answers && began.elapsed() > UNREACHABLE {
            let why = last.take().map_or_else(String::new, |error| error.text);
            return Err(Error::unreachable(format!(
                "no server that {} names can be reached: {why}. If they are all gone, `forebay up` starts a new group",
                options.group.display()
            )));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Asks a member to have this server admitted; the roster in which it is.
async fn ask_to_join(
    options: &ClusterOptions,
    environment: &dyn Environment,
    own: &Candidate,
    member: &ServerEntry,
    file: &ConnectionFile,
) -> Result<Arc<Roster>> {
    let deadline = Instant::now() + ADMISSION;
    // Before it is a member, so that nothing is to be undone.
    if options.silence.is_some() || options.seal_payload {
        check_settings(options, ask_roster(environment, member, file, deadline).await?.settings)?;
    }
    let question = cluster::Message::Join(own.clone());
    ask(environment, member, file, question, deadline, "the admission of this server").await
}

/// What all servers of a group do alike that this one founds.
pub(super) fn settings(options: &ClusterOptions) -> Settings {
    let silence = options.silence.unwrap_or(SILENCE).clamp(SILENCE_MIN, SILENCE_MAX);
    Settings { silence_ms: silence.as_millis() as u64, seal_payload: options.seal_payload }
}

/// An error if this server is to do something otherwise than its group does.
fn check_settings(options: &ClusterOptions, group: Settings) -> Result<()> {
    let own = settings(options);
    let why = if options.silence.is_some() && own.silence_ms != group.silence_ms {
        let silence = Duration::from_millis(group.silence_ms);
        format!(
            "gives up servers that are silent for {silence:?}, not {:?}",
            options.silence.unwrap_or_default()
        )
    } else if own.seal_payload && !group.seal_payload {
        "does not encrypt bulk data".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::conflict(format!(
        "the group of {} {why}: its first server has decided that for all. Leave it out here, or start the group with it",
        options.group.display()
    )))
}

fn not_admitted(group: &Path, last: Option<Error>) -> Error {
    let why = last.map_or_else(String::new, |error| format!(": {error}"));
    Error::timeout(format!(
        "the group of {} did not admit this server within {PATIENCE:?}{why}",
        group.display()
    ))
}
