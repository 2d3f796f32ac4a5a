//! Which servers coordinate streams: the server that the view has a stream fall to, unless another one coordinated it before.
//! (Design note 10.)

use forebay_cluster::environment::HashMap;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::view::View;
use forebay_wire::peer::PeerMessage;
use std::collections::BTreeSet;

/// How many messages may wait until it is known who coordinates their streams.
const DEFERRED_MAX: usize = 1 << 16;

/// Which servers coordinate streams that are not where the view alone would have them.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    elsewhere: HashMap<String, ServerId>,
    /// Who was thought to coordinate streams before others were heard to, since the view in force was adopted.
    moved: HashMap<String, BTreeSet<ServerId>>,
    /// Of which epoch each member has told what it coordinates in another one's place.
    told: HashMap<ServerId, Epoch>,
    /// The latest epoch of which others have told what follows from it.
    heard_of: Epoch,
    /// Messages that wait until all have told.
    deferred: Vec<(ServerId, PeerMessage)>,
}

impl Locations {
    /// The server that coordinates a stream in another one's place, if that is known.
    pub(crate) fn elsewhere(&self, stream: &str) -> Option<ServerId> {
        self.elsewhere.get(stream).copied()
    }

    /// A server coordinates a stream, wherever the view has it.
    pub(crate) fn note(&mut self, stream: &str, server: ServerId) {
        self.elsewhere.insert(stream.to_owned(), server);
    }

    /// Another server was thought to coordinate a stream until now.
    pub(crate) fn note_moved(&mut self, stream: &str, before: ServerId) {
        self.moved.entry(stream.to_owned()).or_default().insert(before);
    }

    /// Whether one of these servers was thought to coordinate a stream, since the view in force was adopted.
    pub(crate) fn was_coordinated_by(&self, stream: &str, servers: &[ServerId]) -> bool {
        let before = self.moved.get(stream);
        before.is_some_and(|before| servers.iter().any(|server| before.contains(server)))
    }

    /// A server coordinates a stream no more.
    pub(crate) fn forget(&mut self, stream: &str, server: ServerId) {
        if self.elsewhere(stream) == Some(server) {
            self.elsewhere.remove(stream);
        }
    }

    /// A view is in force without these servers.
    pub(crate) fn on_view(&mut self, left: &[ServerId]) {
        self.elsewhere.retain(|_, server| !left.contains(server));
        self.moved.clear();
    }

    /// A member has told which streams it coordinates in another one's place, as of an epoch.
    pub(crate) fn on_member_reported(&mut self, from: ServerId, epoch: Epoch) {
        let told = self.told.entry(from).or_default();
        *told = epoch.max(*told);
    }

    /// Whether every other member has told which streams it coordinates in another one's place, apart from those that are gone.
    pub(crate) fn all_told(&self, view: &View, me: ServerId, is_gone: impl Fn(ServerId) -> bool) -> bool {
        let told = |id: &ServerId| self.told.get(id).is_some_and(|epoch| *epoch >= view.epoch);
        view.members.iter().all(|id| *id == me || told(id) || is_gone(*id))
    }

    /// Another server tells what follows from the view of this epoch.
    pub(crate) fn note_heard_of(&mut self, epoch: Epoch) {
        self.heard_of = self.heard_of.max(epoch);
    }

    /// Whether others have told of a later epoch.
    pub(crate) fn have_heard_of_later(&self, epoch: Epoch) -> bool {
        self.heard_of > epoch
    }

    /// The message waits; `false` if too many do.
    pub(crate) fn defer(&mut self, from: ServerId, message: impl Into<PeerMessage>) -> bool {
        if self.deferred.len() >= DEFERRED_MAX {
            return false;
        }
        self.deferred.push((from, message.into()));
        true
    }

    /// What has waited is looked at again: it may wait once more.
    pub(crate) fn take_deferred(&mut self) -> Vec<(ServerId, PeerMessage)> {
        std::mem::take(&mut self.deferred)
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        if let Some((stream, _)) = self.moved.iter().find(|(_, before)| before.is_empty()) {
            return Err(format!("nobody was thought to coordinate stream '{stream}' before"));
        }
        match self.deferred.len() {
            0..=DEFERRED_MAX => Ok(()),
            count => Err(format!("{count} messages wait")),
        }
    }
}
