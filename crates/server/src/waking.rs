//! A server that stood still - its process was stopped, its machine slept - may have been given up meanwhile, and does not
//! know: what lies in its sockets is old, ranks that went elsewhere seem to have died, and readers that still listen would
//! be told so. Before it does anything else, it asks the others whether the group has gone on without it.
//!
//! What it acknowledges needs a lease in any case ([`crate::lease`]); this is for all that it only tells.

use crate::forming;
use crate::node::Node;
use crate::surroundings::off_thread;
use crate::watched::Watched;
use forebay_core::membership::Message;
use forebay_core::seeded::{Bug, seeded};
use forebay_transport::group_file::ConnectionFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// How long the others may take to say whether they have gone on without it. After that it goes on as if they had not.
const ANSWER: Duration = Duration::from_secs(1);

/// Whether this server has stood still.
#[derive(Debug)]
pub(crate) struct Waking {
    /// After this long without running it may have been given up.
    still: Duration,
    /// When it was last seen to run, in nanoseconds of its clock.
    ran: AtomicU64,
    /// Whether it has stood still, and does not know yet what has become of it.
    unsure: Watched<bool>,
}

impl Waking {
    /// Of a server that is given up when it was `silent` for so long.
    pub(crate) fn new(silent: Duration) -> Waking {
        Waking { still: silent / 3, ran: AtomicU64::new(u64::MAX), unsure: Watched::new(false) }
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

impl Node {
    /// Waits, if this server has stood still, until it knows whether the group has gone on without it: if so, nothing is to
    /// be done any more by who asks. Costs a look at the clock.
    pub(crate) async fn goes_on(&self) -> bool {
        if !self.waking.is_sure(self.hosted.now()) {
            self.waking.unsure.wait_for(|unsure| !unsure).await;
        }
        // One that has left still answers who has not gone elsewhere yet.
        !self.hosted.out.get() || self.state.lock().common.members.goes()
    }

    /// Asks the other members for their rosters, and those that the connection file names: all that this server knows may
    /// have gone meanwhile. A later roster comes into force, be this server in it or not.
    async fn ask_what_has_become(self: &Arc<Node>) {
        let epoch = self.standing().view.epoch;
        let path = self.group.clone();
        // A file system that hangs must not hold this server up.
        let file = timeout(ANSWER, off_thread(move || ConnectionFile::read(&path))).await;
        let also = file
            .ok()
            .and_then(|file| file.flatten().ok())
            .filter(|file| file.lineage == self.lineage && !seeded(Bug::AsksOnlyThoseItKnew))
            .map(|file| file.servers);
        let mut asked = forming::ask_members(self, also.unwrap_or_default(), ANSWER);
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
pub(crate) async fn run(node: Arc<Node>) {
    loop {
        while !node.waking.runs(node.hosted.now()) {
            tracing::info!("this server stood still: it asks whether the group has gone on without it");
            let began = node.hosted.now();
            node.ask_what_has_become().await;
            node.waking.asked(began, node.hosted.now());
        }
        let _ = timeout(node.waking.still / 4, node.waking.unsure.wait_for(|unsure| unsure)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_stood_still_asks_until_it_has_not_meanwhile() {
        let at = Duration::from_millis;
        let waking = Waking::new(at(9000));
        assert!(waking.runs(at(100)) && waking.is_sure(at(3000)) && waking.runs(at(3100)));
        assert!(!waking.is_sure(at(6101)), "more than a third of the time after which it is given up");
        assert!(!waking.runs(at(6102)));
        waking.asked(at(6102), at(20_000));
        assert!(!waking.runs(at(20_001)), "it stood still while it asked");
        waking.asked(at(20_001), at(21_000));
        assert!(waking.runs(at(21_001)));
    }
}
