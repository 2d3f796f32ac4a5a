//! A server that stood still - its process was stopped, its machine slept - may have been given up meanwhile, and does not
//! know: what lies in its sockets is old, ranks that went elsewhere seem to have died, and readers that still listen would
//! be told so. Before it does anything else, it asks the others whether the group has gone on without it.
//!
//! What it acknowledges needs a lease in any case ([`crate::membership::lease`]); this is for all that it only tells.

use crate::cluster::Cluster;
use crate::environment::off_thread;
use crate::peers::dialling;
use crate::watched::Watched;
use forebay_core::membership::Message;
use forebay_core::seeded::{Bug, seeded};
use forebay_transport::connection_file::ConnectionFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// How long the others may take to say whether they have gone on without it. After that it goes on as if they had not.
const ANSWER: Duration = Duration::from_secs(1);

/// Whether this server has stood still.
#[derive(Debug)]
pub(crate) struct StallGuard {
    /// After this long without running it may have been given up.
    still: Duration,
    /// When it was last seen to run, in nanoseconds of its clock.
    ran: AtomicU64,
    /// Whether it has stood still, and does not know yet what has become of it.
    unsure: Watched<bool>,
}

impl StallGuard {
    /// Of a server that is given up when it was `silent` for so long.
    pub(crate) fn new(silent: Duration) -> StallGuard {
        StallGuard { still: silent / 3, ran: AtomicU64::new(u64::MAX), unsure: Watched::new(false) }
    }

    /// Whether all is well, now being what the clock says.
    fn is_sure(&self, now: Duration) -> bool {
        let ran = Duration::from_nanos(self.ran.load(Ordering::SeqCst));
        if now.saturating_sub(ran) > self.still {
            self.unsure.set(true);
        }
        !self.unsure.get()
    }

    /// It runs now. To be called more often than the time after which it has stood still.
    fn runs(&self, now: Duration) -> bool {
        let sure = self.is_sure(now);
        self.ran.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        sure
    }

    /// The others were asked, from then on until now. If that took so long that it stood still again, what they have told may
    /// be old: they are to be asked once more.
    fn asked(&self, began: Duration, now: Duration) {
        self.runs(now);
        if now.saturating_sub(began) <= 2 * ANSWER + self.still {
            self.unsure.set(false);
        }
    }
}

impl Cluster {
    /// Waits, if this server has stood still, until it knows whether the group has gone on without it: if so, nothing is to
    /// be done any more by who asks. Costs a look at the clock.
    pub async fn goes_on(&self) -> bool {
        if !self.stall_guard.is_sure(self.driver.now()) {
            self.stall_guard.unsure.wait_for(|unsure| !unsure).await;
        }
        // One that has left still answers who has not gone elsewhere yet.
        !self.driver.out.get() || self.has_drained()
    }

    /// Asks the other members for their rosters, and those that the connection file names: all that this server knows may
    /// have gone meanwhile. A later roster comes into force, be this server in it or not.
    async fn ask_what_has_become(self: &Arc<Cluster>) {
        let epoch = self.standing().view.epoch;
        let path = self.connection_file.clone();
        // A file system that hangs must not hold this server up.
        let file = timeout(ANSWER, off_thread(&*self.environment, move || ConnectionFile::read(&path))).await;
        let also = file
            .ok()
            .and_then(|file| file.flatten().ok())
            .filter(|file| file.lineage == self.lineage && !seeded(Bug::AsksOnlyThoseItKnew))
            .map(|file| file.servers);
        let mut asked = dialling::ask_members(self, also.unwrap_or_default(), ANSWER);
        while let Some(answer) = asked.join_next().await {
            if let Ok(Some((server, roster))) = answer
                && roster.epoch > epoch
            {
                self.heard_of_members(server, Message::InForce(roster), None);
            }
        }
    }
}

/// Sees that this server runs, and asks what has become of it when it has not.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    loop {
        while !cluster.stall_guard.runs(cluster.driver.now()) {
            tracing::info!("this server stood still: it asks whether the group has gone on without it");
            let began = cluster.driver.now();
            cluster.ask_what_has_become().await;
            cluster.stall_guard.asked(began, cluster.driver.now());
        }
        let _ = timeout(cluster.stall_guard.still / 4, cluster.stall_guard.unsure.wait_for(|unsure| unsure))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_stood_still_asks_until_it_has_not_meanwhile() {
        let at = Duration::from_millis;
        let guard = StallGuard::new(at(9000));
        assert!(guard.runs(at(100)) && guard.is_sure(at(3000)) && guard.runs(at(3100)));
        assert!(!guard.is_sure(at(6101)), "more than a third of the time after which it is given up");
        assert!(!guard.runs(at(6102)));
        guard.asked(at(6102), at(20_000));
        assert!(!guard.runs(at(20_001)), "it stood still while it asked");
        guard.asked(at(20_001), at(21_000));
        assert!(guard.runs(at(21_001)));
    }
}
