//! How those are woken who wait until something of a field changes at this owner.

use super::FieldAtStep;
use forebay_cluster::environment::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Ends when something of a field changes.
pub(crate) type Change = Pin<Box<OwnedNotified>>;

/// The fields that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Changes(HashMap<FieldAtStep, Arc<Notify>>);

impl Changes {
    /// What ends with the next change of a field. To be called in the event in which what is waited for was not there.
    pub(super) fn next(&mut self, key: &FieldAtStep) -> Change {
        // Fields that nobody waits for any more are let go of here: each waiter adds one at most.
        self.0.retain(|known, changed| known == key || Arc::strong_count(changed) > 1);
        let changed = self.0.entry(key.clone()).or_default().clone();
        let mut changed = Box::pin(changed.notified_owned());
        changed.as_mut().enable();
        changed
    }

    /// Something of a field has changed.
    pub(super) fn wake(&self, key: &FieldAtStep) {
        if let Some(changed) = self.0.get(key) {
            changed.notify_waiters();
        }
    }
}
