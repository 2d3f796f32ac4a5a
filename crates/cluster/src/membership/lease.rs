//! What this server may promise: it acknowledges something only while most members stand behind it
//! ([`forebay_core::lease`]), so that one which is cut off, or stood still, promises nothing that the group does not keep.

use crate::cluster::Cluster;
use forebay_core::{Error, Result};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often it is looked whether the lease has to be asked for again.
const LOOK: Duration = Duration::from_millis(20);

impl Cluster {
    /// Waits until this server may acknowledge something. To be called just before it does. Costs a lock while the lease
    /// lasts, and the answers of half the members where it has not been used for a second.
    pub async fn may_acknowledge(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let changed = self.driver.lease.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.use_lease() {
                return Ok(());
            }
            if self.driver.out.get() {
                return Err(Error::unreachable(format!("the group has gone on without {}", self.id)));
            }
            if Instant::now() >= deadline {
                let (id, members) = (self.id, self.standing().view.members.len());
                return Err(Error::timeout(format!(
                    "{id} cannot promise to keep it: too few of the {members} servers answer it; `forebay status` says \
                     which, and `forebay heal` goes on without those that are gone for good"
                )));
            }
            let _ = timeout_at(deadline.min(Instant::now() + LOOK), changed).await;
        }
    }
}
