//! The connection file, kept as the group goes on: written by its first member, looked at by those that have lost others, and
//! removed by the last.

use crate::cluster::Cluster;
use crate::environment::{Environment, off_thread};
use crate::peers::dialling;
use forebay_core::ids::{Epoch, Lineage, ServerId};
use forebay_core::membership::{Evidence, Message};
use forebay_core::roster::Roster;
use forebay_transport::connection_file::ConnectionFile;
use forebay_transport::witness;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How often a member that has lost others looks whether the group has gone on without it, and one that is not the first
/// whether the connection file tells of the roster in force.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// After so many looks at which nothing was left of the group, it has ended.
pub(crate) const LOOKS: u32 = 3;
/// How long to wait for who writes the connection file before it is removed.
const REMOVAL: Duration = Duration::from_secs(10);
/// How long one server is asked for its roster.
const ASK: Duration = Duration::from_secs(5);

impl Cluster {
    /// Writes the connection file, in the background.
    pub(super) fn write_file(&self, roster: Arc<Roster>) {
        let (witness, path) = (self.driver.witness.clone(), self.connection_file.clone());
        let file = ConnectionFile::of(&roster, self.secret.clone());
        let write = move || {
            let written = file.replace_earlier(&path, &witness).map(drop);
            if let Err(error) = written.or_else(|e| if path.exists() { Err(e) } else { Ok(()) }) {
                tracing::warn!("the connection file does not tell of epoch {}: {error}", file.epoch);
            }
        };
        let environment = self.environment.clone();
        tokio::spawn(async move { off_thread(&*environment, write).await });
    }

    /// Removes the connection file, if it is still this group's. One that tells of a later epoch than this server knows is left,
    /// unless `with_all_others`: nobody goes on then.
    pub fn remove_file(&self, with_all_others: bool) {
        let removed = self.driver.witness.locked_within(REMOVAL, || {
            let up_to = if with_all_others { Epoch::MAX } else { self.epoch() };
            remove_file(&self.connection_file, &self.lineage, up_to);
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!("the connection file is not removed: {error}");
        }
    }
}

/// Looks now and then whether the group has gone on without this server. Apart from all else: a file system may hang.
pub(crate) async fn look_now_and_then(cluster: Arc<Cluster>) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut nothing_left = 0;
    while nothing_left < LOOKS {
        looks.tick().await;
        reconcile(&cluster).await;
        nothing_left = if is_abandoned(&cluster).await { nothing_left + 1 } else { 0 };
    }
    tracing::warn!(
        "this server ends: its group, of {}, has ended without it",
        cluster.connection_file.display()
    );
    cluster.driver.abandoned.notify_one();
}

/// Whether this server is out, or has lost all others, or so many that those which are left cannot go on by themselves, and what
/// they shared is gone, too, or another group's: one that was cut off when its group was ended is to end as well.
async fn is_abandoned(cluster: &Arc<Cluster>) -> bool {
    let members = cluster.standing().view.members.clone();
    let stuck = {
        let gone = members.iter().filter(|id| cluster.is_gone(**id)).count();
        let alone = gone > 0 && gone + 1 == members.len();
        alone || 2 * gone > members.len() || cluster.driver.out.get()
    };
    if !stuck {
        return false;
    }
    has_ended(&*cluster.environment, &cluster.connection_file, cluster.lineage).await
}

/// Whether the connection file and this server tell of the same roster; whichever is behind is told.
async fn reconcile(cluster: &Arc<Cluster>) {
    let standing = cluster.standing();
    let members = standing.view.members.iter().copied();
    let gone: Vec<ServerId> = members.filter(|id| cluster.is_gone(*id)).collect();
    if !gone.is_empty() {
        // Those that were told may not have heard it; this server will never speak to them again.
        gone.iter().for_each(|id| cluster.suspect(*id, Evidence::Lost));
    }
    if cluster.driver.out.get() {
        let roster = cluster.driver.membership.lock().roster().clone();
        cluster.dial_members(&roster, false);
    }
    // Those whom it is to tell of the roster without it may have gone, too: then a later one lets it end.
    let asks = !gone.is_empty() || cluster.driver.out.get();
    // The first looks in any case: one that was stopped as it wrote the file may have written what was true long ago.
    let first = standing.roster.ids().next() == Some(cluster.id);
    if !asks && !first && cluster.driver.filed.load(Ordering::Relaxed) == standing.view.epoch {
        return;
    }
    let path = cluster.connection_file.clone();
    let Ok(Ok(file)) = off_thread(&*cluster.environment, move || ConnectionFile::read(&path)).await else {
        return;
    };
    if file.lineage != cluster.lineage {
        return;
    }
    if file.epoch < standing.view.epoch {
        return cluster.write_file(standing.roster.clone());
    }
    if file.epoch == standing.view.epoch {
        cluster.driver.filed.store(file.epoch, Ordering::Relaxed);
    }
    if file.epoch == standing.view.epoch || !asks {
        return;
    }
    for server in &file.servers {
        match dialling::ask_roster(&*cluster.environment, server, &file, Instant::now() + ASK).await {
            Ok(roster) => return cluster.heard_of_members(server.id, Message::InForce(roster), None),
            Err(error) if error.is_retryable() => {}
            Err(error) => tracing::info!("{} does not tell its roster: {error}", server.id),
        }
    }
}

/// Whether what the servers of a group share is gone, or another group's. A file system that does not say so says nothing.
pub(crate) async fn has_ended(environment: &dyn Environment, group: &Path, lineage: Lineage) -> bool {
    let path = group.to_owned();
    let is_missing =
        |path: &Path| std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    let looked = off_thread(environment, move || match ConnectionFile::read(&path) {
        Ok(file) => file.lineage != lineage,
        Err(_) => is_missing(&path) && is_missing(&witness::path_beside(&path)),
    });
    looked.await.unwrap_or(false)
}

/// Removes the connection file and the witness beside it, if they are still this group's, and it has not gone on since this
/// epoch: one that was cut off may take itself for the last one.
pub(crate) fn remove_file(path: &Path, lineage: &Lineage, epoch: Epoch) {
    let ours = ConnectionFile::read(path).is_ok_and(|file| file.lineage == *lineage && file.epoch <= epoch);
    if ours {
        let _ = std::fs::remove_file(path);
        witness::remove(path);
    }
}
