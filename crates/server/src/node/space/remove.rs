//! Removing a field of the space at a step, everywhere: by the server that describes it.

use super::{Node, OWNERS_PATIENCE};
use crate::space::owner::removal::{Removal, RemovalStart};
use crate::space::{FieldAtStep, PendingAnswer};
use forebay_core::{Error, Result};
use tokio::time::{Instant, timeout_at};

impl Node {
    /// Removes a field's blocks at a step: when this has returned nobody finds them any more. Their memory is
    /// free once no reader looks at them. Waits for the other owners of the field, and for what is just being put. `false` if
    /// another server describes the field.
    pub(crate) async fn space_remove(&self, key: &FieldAtStep) -> Result<bool> {
        let deadline = Instant::now() + OWNERS_PATIENCE;
        self.space_known(key, deadline).await?;
        let late = || Error::timeout(format!("another removal of {key} takes too long"));
        let (removal, revoked) = loop {
            match self.in_space(|space, cx, group| space.owner.begin_removal(cx, group, key)) {
                RemovalStart::NotOwned => return Ok(false),
                RemovalStart::Done => return Ok(true),
                RemovalStart::Busy(change) => timeout_at(deadline, change).await.map_err(|_| late())?,
                RemovalStart::Begun(removal, revoked) => break (removal, revoked),
            }
        };
        let revoked = self.space_answers(revoked, deadline, key).await;
        let forgotten = self.in_space(|space, cx, _| space.owner.on_revoked(cx, &removal));
        let forgotten = self.space_answers(forgotten, deadline, key).await;
        self.in_space(|space, cx, _| space.owner.end_removal(cx, &removal));
        revoked.and(forgotten).map(|()| true)
    }

    /// An array has taken the place of one of which other servers own parts: they are made to forget those.
    pub(super) fn space_forget_replaced(&self, removal: Removal, revoked: Vec<PendingAnswer>) {
        let node = self.me.clone();
        tokio::spawn(async move {
            let Some(node) = node.upgrade() else { return };
            let deadline = Instant::now() + OWNERS_PATIENCE;
            let revoked = node.space_answers(revoked, deadline, removal.key()).await;
            let forgotten = node.in_space(|space, cx, _| space.owner.on_revoked(cx, &removal));
            let forgotten = node.space_answers(forgotten, deadline, removal.key()).await;
            if let Err(error) = revoked.and(forgotten) {
                tracing::warn!("of what was replaced: {error}");
            }
        });
    }

    /// Waits for all answers. A server that is gone has nothing left to say; one that is silent is an error.
    async fn space_answers(
        &self,
        pending: Vec<PendingAnswer>,
        deadline: Instant,
        key: &FieldAtStep,
    ) -> Result<()> {
        let mut result = Ok(());
        for PendingAnswer { server, token, answer } in pending {
            if timeout_at(deadline, answer).await.is_err() {
                self.state.lock().common.questions.take(token);
                result = result.and(Err(Error::timeout(format!(
                    "{server}, which knows blocks of {key}, did not answer in time; remove it again"
                ))));
            }
        }
        result
    }
}
