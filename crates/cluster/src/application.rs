//! What the group tells the server that is its member, and asks it. The cluster calls these without any lock of its own that
//! the server may need; [`Application::on_roster`] alone is called while the agreement's lock is held, so that rosters come into
//! force one after the other.

use crate::membership::RosterChange;
use forebay_core::ids::ServerId;
use forebay_wire::peer::PeerMessage;
use rustix::fd::OwnedFd;
use std::fmt;

/// The server, as its part in the group sees it.
pub trait Application: fmt::Debug + Send + Sync {
    /// Another server tells this one something. That server may be no member any more.
    fn on_message(&self, from: ServerId, message: PeerMessage);

    /// Takes a message that is handled whatever has become of this server meanwhile, since a descriptor comes with it, which
    /// must not be lost. Gives back any other message: this server handles it once it knows that it is still a member.
    fn take_at_once(
        &self,
        from: ServerId,
        message: PeerMessage,
        file: Option<OwnedFd>,
    ) -> Option<PeerMessage>;

    /// A member is gone for this server: its connection or its process has ended, or the group goes on without it. It may be
    /// told more than once.
    fn on_peer_gone(&self, peer: ServerId);

    /// The connection of a server has ended that the group had given up before.
    fn on_former_peer_gone(&self, peer: ServerId);

    /// Another roster comes into force: the server calls [`RosterChange::put_in_force`] once, under its own lock, so that it
    /// handles each message under one roster.
    fn on_roster(&self, change: &RosterChange<'_>);

    /// The group has given this server up.
    fn on_given_up(&self);

    /// Whether this server has given all that it had to the others, so that it is done when the group goes on without it.
    fn has_drained(&self) -> bool;
}
