//! Connections of other servers, over which they tell this one something.

use crate::forming::NOBODY;
use crate::node::Node;
use forebay_core::ids::ServerId;
use forebay_transport::asynchronous::{Outbox, Receiver};
use forebay_wire::frame::Header;
use forebay_wire::peer::{PeerMessage, cluster, replication};
use std::sync::Arc;

/// Takes messages of another server.
pub(super) async fn serve(node: &Arc<Node>, peer: ServerId, mut receiver: Receiver, outbox: &Arc<Outbox>) {
    if peer != NOBODY {
        crate::peers::outlast_outages(peer, outbox, node.silence);
    }
    let mut joining = None;
    let mut heard = node.hearing.open(peer, receiver.kind());
    loop {
        let (frame, mut files) = match heard.next(&mut receiver).await {
            Ok(Some(received)) => received,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("the connection of {peer} ends: {error}");
                break;
            }
        };
        use cluster::Message as Cluster;
        match PeerMessage::read(&frame) {
            Ok(PeerMessage::Cluster(Cluster::Join(candidate))) => {
                match node.wants_to_join(candidate.clone(), outbox.clone()) {
                    Ok(()) => joining = Some(candidate),
                    Err(error) => {
                        let _ = outbox.push(Header::default(), &Cluster::Admission(Err(error)));
                    }
                }
            }
            Ok(PeerMessage::Cluster(Cluster::QueryRoster)) => {
                let roster = node.standing().roster.clone();
                let _ = outbox.push(Header::default(), &Cluster::Admission(Ok(roster)));
            }
            Ok(PeerMessage::Cluster(Cluster::Agreement(message))) => {
                node.heard_of_members(peer, message, Some(outbox));
            }
            Ok(PeerMessage::Cluster(Cluster::Ping(number))) => {
                let _ = node.peers.send(peer, Cluster::Pong(number));
            }
            Ok(PeerMessage::Cluster(Cluster::Pong(number))) => node.checking.answered(peer, number),
            Ok(PeerMessage::Replication(replication::Message::OfferArena { arena, bytes })) => {
                node.guard(peer, arena, bytes, files.pop());
            }
            Ok(message) => {
                if node.goes_on().await {
                    node.dispatch(peer, message);
                }
            }
            // It costs that message. What it was about ends at its deadline; all that both servers hold does not.
            Err(error) => tracing::error!("a message of {peer} cannot be read and is passed over: {error}"),
        }
    }
    drop(heard);
    match joining {
        Some(candidate) => node.wants_no_more(&candidate),
        None => {
            if node.goes_on().await {
                node.lost(peer, false);
            }
        }
    }
}
