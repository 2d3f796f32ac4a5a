//! A connection of another server, over which it tells this one something.

use crate::cluster::Cluster;
use crate::failure::swim::SwimAction;
use crate::peers::dialling::NOBODY;
use crate::peers::outlast_outages;
use forebay_core::ids::ServerId;
use forebay_core::roster::Candidate;
use forebay_transport::asynchronous::{Outbox, Receiver};
use forebay_wire::frame::Header;
use forebay_wire::peer::PeerMessage;
use forebay_wire::peer::cluster::Message;
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// One connection.
struct Session<'a> {
    cluster: &'a Cluster,
    peer: ServerId,
    outbox: &'a Arc<Outbox>,
    /// Whom the peer wants to have as a member: itself.
    joining: Option<Candidate>,
}

impl Cluster {
    /// Takes messages of another server, until its connection ends.
    pub async fn serve(&self, peer: ServerId, mut receiver: Receiver, outbox: &Arc<Outbox>) {
        if peer != NOBODY {
            outlast_outages(peer, outbox, self.silence);
        }
        let mut session = Session { cluster: self, peer, outbox, joining: None };
        let mut inbound = self.inbound.open(peer, receiver.kind());
        loop {
            let (frame, files) = match inbound.next(&mut receiver).await {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("the connection of {peer} ends: {error}");
                    break;
                }
            };
            match PeerMessage::read(&frame) {
                Ok(message) => session.on_message(message, files).await,
                // It costs that message. What it was about ends at its deadline; all that both servers hold does not.
                Err(error) => {
                    tracing::error!("a message of {peer} cannot be read and is passed over: {error}");
                }
            }
        }
        drop(inbound);
        match session.joining {
            Some(candidate) => self.wants_no_more(&candidate),
            None => {
                if self.goes_on().await {
                    self.lost(peer, false);
                }
            }
        }
    }
}

impl Session<'_> {
    async fn on_message(&mut self, message: PeerMessage, mut files: Vec<OwnedFd>) {
        let (cluster, peer) = (self.cluster, self.peer);
        let other = match message {
            PeerMessage::Cluster(message) => self.on_cluster(message).map(PeerMessage::Cluster),
            message => cluster.take_at_once(peer, message, files.pop()),
        };
        let Some(message) = other else { return };
        if !cluster.goes_on().await {
            return;
        }
        match message {
            PeerMessage::Cluster(Message::GroupEnds) => cluster.group_ends(peer),
            PeerMessage::Cluster(Message::Swim(said)) if !cluster.has_left(peer) => {
                cluster.swim.put(SwimAction::Hear(peer, said));
            }
            message => cluster.tell(|application| application.on_message(peer, message)),
        }
    }

    /// Handles what is about members, whatever has become of this server meanwhile; gives back what it handles only once it
    /// knows that it is still a member.
    fn on_cluster(&mut self, message: Message) -> Option<Message> {
        let (cluster, peer) = (self.cluster, self.peer);
        match message {
            Message::Join(candidate) => match cluster.wants_to_join(candidate.clone(), self.outbox.clone()) {
                Ok(()) => self.joining = Some(candidate),
                Err(error) => self.answer(&Message::Admission(Err(error))),
            },
            Message::QueryRoster => {
                self.answer(&Message::Admission(Ok(cluster.standing().roster.clone())));
            }
            Message::Agreement(message) => cluster.heard_of_members(peer, message, Some(self.outbox)),
            Message::Ping(number) => drop(cluster.peers.send(peer, Message::Pong(number))),
            Message::Pong(number) => cluster.pings.on_answer(peer, number),
            other => return Some(other),
        }
        None
    }

    /// Answers on the peer's own connection: it may be no member yet.
    fn answer(&self, message: &Message) {
        let _ = self.outbox.push(Header::default(), message);
    }
}
