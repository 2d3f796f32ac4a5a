//! Other servers leave the group: what they say and ask before they go.

use super::{Components, Node};
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_wire::peer::cluster;

impl Node {
    /// Members that are there.
    pub(crate) fn others(&self, state: &Components) -> Vec<ServerId> {
        let standing = self.standing();
        let members = standing.view.members.iter().copied();
        members.filter(|id| *id != self.id && !state.common.members.is_gone(*id)).collect()
    }

    /// Another server says that it leaves, or asks if it may go.
    pub(super) fn on_leaving(&self, state: &mut Components, from: ServerId, token: u64, may_go: bool) {
        let result = match may_go {
            false => self.let_leave(state, from),
            true if self.needs(state, from) => Err(Error::conflict("copies are still to be made")),
            true => Ok(()),
        };
        self.tell(state, from, cluster::Message::LeavingAnswer { token, result });
    }

    /// Another server leaves: it is given nothing more, and what it holds of this one's, others are to hold. Not if this
    /// one is as good as gone; and of the last two that both leave, the one with the lower number does.
    fn let_leave(&self, state: &mut Components, from: ServerId) -> Result<()> {
        let stays = |id: &ServerId| *id != from && !state.common.members.leaves(*id);
        let alone = !self.others(state).iter().any(stays);
        if state.common.members.goes() || (state.common.members.this_one_leaves() && alone && self.id < from)
        {
            return Err(Error::conflict(format!("{} leaves the group itself", self.id)));
        }
        state.common.members.note_leaving(from);
        self.replicas_backup_lost(state, from);
        Ok(())
    }

    /// Whether copies of what this server holds are to be made before another one goes, which has some.
    fn needs(&self, state: &Components, leaving: ServerId) -> bool {
        let able = self.others(state);
        let able = able.iter().filter(|id| !state.common.members.leaves(**id)).count();
        state.replication.primary.would_lack_without(leaving, able)
    }

    /// Another server stays after all.
    pub(super) fn on_stays(&self, state: &mut Components, from: ServerId) {
        state.coordination.forget_counts_of(from);
        if state.common.members.note_staying(from) {
            self.pipelines_stay(state, from);
            self.replicas_on_members(state, &[]);
        }
    }
}
