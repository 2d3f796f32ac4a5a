//! How a rank is reached, and why it is not.

use crate::dial;
use crate::hub::{Hub, HubState};
use crate::members::Members;
use crate::peers::{Link, Peer};
use crate::task::Task;
use forebay_core::{ErrorKind, Result};
use forebay_wire::comm::CommMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Hub {
    /// The connection to send on. Without one it is seen to that there will be: look again.
    pub(crate) fn route(
        self: &Arc<Hub>,
        state: &mut HubState,
        task: &Task,
        other: u32,
    ) -> Result<Option<Arc<Link>>> {
        #[cfg(test)]
        if self.network.is_some() {
            return Ok(None);
        }
        let HubState { comms, peers, .. } = state;
        let Some(member) = comms.get_mut(&task.comm).and_then(|members| members.member(other)) else {
            return Err(task.failed(ErrorKind::Invalid, None, format_args!("there is no rank {other}")));
        };
        if let Some(link) = peers.sending(member.peer) {
            return Ok(Some(link.clone()));
        }
        if let Some(peer) = peers.get(member.peer).filter(|peer| !peer.dialling && !peer.ending) {
            peer.dialling = true;
            drop(self.runtime.spawn(dial::dial(self.clone(), member.peer, member.addresses.clone())));
        }
        Ok(None)
    }

    /// The endpoint of a rank.
    pub(crate) fn peer_of<'a>(
        &self,
        state: &'a mut HubState,
        task: &Task,
        rank: u32,
    ) -> Option<&'a mut Peer> {
        let peer = state.comms.get_mut(&task.comm)?.member(rank)?.peer;
        state.peers.get(peer)
    }

    /// Lets a rank that is connected know that it is waited for, once: it tells if that is in vain.
    pub(crate) fn tell_waiting(&self, state: &mut HubState, task: &Task, rank: u32) {
        let HubState { comms, peers, .. } = state;
        let member = comms.get_mut(&task.comm).and_then(|members| members.member(rank));
        if let Some(member) = member.filter(|member| !member.told)
            && let Some(link) = peers.sending(member.peer)
        {
            member.told = true;
            link.say(&CommMessage::Wait { comm: task.comm });
        }
    }

    /// Whether there is one.
    pub(crate) fn is_connected(&self, state: &HubState, task: &Task, other: u32) -> bool {
        let member = state.comms.get(&task.comm).and_then(|members| members.members.get(other as usize));
        other == task.rank || member.is_some_and(|member| state.peers.sending(member.peer).is_some())
    }

    /// Whether this rank is gone, or the call has no hope.
    pub(crate) fn is_hopeless(&self, state: &HubState, task: &Task, other: u32) -> bool {
        let members = state.comms.get(&task.comm);
        let is_gone = |members: &Members| {
            members.members.get(other as usize).is_some_and(|member| member.gone.is_some())
                || members.why_hopeless(task).is_some()
        };
        state.closed || members.is_some_and(is_gone)
    }

    /// Fails if so; in a collective the others are told.
    pub(crate) fn check(
        &self,
        state: &mut HubState,
        task: &Task,
        other: u32,
        tag: Option<u64>,
    ) -> Result<()> {
        state.check_open()?;
        let Some(members) = state.comms.get_mut(&task.comm) else { return Ok(()) };
        // What failed first: who failed may have gone since then.
        if let Some(why) = members.why_hopeless(task) {
            let mut why = why.clone();
            if task.is_collective() && members.are_there(&task.ranks) && other != task.rank {
                // Who has given up may not know for whom.
                why += &format!("; rank {} itself waits for rank {other}", task.rank);
            }
            let gone = members.member(other).and_then(|member| member.gone.as_ref());
            return Err(task.failed(gone.map_or(ErrorKind::Unreachable, |gone| gone.kind), tag, why));
        }
        if let Some(gone) = members.member(other).and_then(|member| member.gone.clone()) {
            let why = format!("{} {}", self.describe(state, task, other), gone.why);
            if task.is_collective() {
                self.spread_end(state, task.comm, other, &why);
            }
            return Err(task.failed(gone.kind, tag, why));
        }
        Ok(())
    }

    /// Fails if a collective begins that was revoked: it may have nothing to wait for.
    pub(crate) fn check_begin(&self, task: &Task) -> Result<()> {
        if !task.is_collective() || !self.has_revoked.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check(&mut self.state.lock(), task, task.rank, None)
    }

    /// A rank and its name.
    pub(crate) fn describe(&self, state: &HubState, task: &Task, rank: u32) -> String {
        let member = state.comms.get(&task.comm).and_then(|members| members.members.get(rank as usize));
        match member {
            Some(member) if rank != task.rank => {
                format!("rank {rank} ({})", state.peers.describe(member.peer))
            }
            _ => format!("rank {rank}"),
        }
    }
}
