//! What the cluster tells this server: messages of the others, who is gone, and other rosters.

use crate::node::Node;
use forebay_cluster::Application;
use forebay_cluster::membership::RosterChange;
use forebay_core::ids::ServerId;
use forebay_wire::peer::{PeerMessage, replication};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;

impl Application for Node {
    fn on_message(&self, from: ServerId, message: PeerMessage) {
        self.dispatch(from, message);
    }

    fn take_at_once(
        &self,
        from: ServerId,
        message: PeerMessage,
        file: Option<OwnedFd>,
    ) -> Option<PeerMessage> {
        match message {
            PeerMessage::Replication(replication::Message::OfferArena { arena, bytes }) => {
                self.on_arena_offered(from, (arena, bytes), file);
                None
            }
            message => Some(message),
        }
    }

    fn on_peer_gone(&self, peer: ServerId) {
        self.peer_gone(peer);
    }

    fn on_former_peer_gone(&self, peer: ServerId) {
        self.forget_primary(peer);
    }

    fn on_roster(&self, change: &RosterChange<'_>) {
        let (before, after) = (&change.before, &change.after);
        let mut state = self.state.lock();
        let mut taken_over = BTreeSet::new();
        for server in &change.left {
            taken_over.extend(state.replication.backups.streams_of(*server));
            self.take_over_primary(&mut state, *server, &after.view);
        }
        if !state.common.members.gone().iter().any(|id| after.view.members.contains(id)) {
            self.space_gone_since(&mut state, after.roster.epoch);
        }
        state.replication.successors.on_servers_left(&change.left);
        state.common.members.keep_members(&after.view.members);
        let orphans = self.streams_coordinated_by(&state, &change.left);
        self.keep_places(&mut state, &after.view);
        state.locations.on_view(&change.left);
        change.put_in_force();
        for server in &change.came {
            state.coordination.on_server_joined(*server);
        }
        if before.roster.shards != after.roster.shards {
            self.register_again(&mut state, &before.roster.shards);
        }
        if !change.left.is_empty() {
            self.space_register_again(&mut state, &before.roster.shards);
        }
        orphans.iter().for_each(|stream| self.tell_again(&mut state, stream));
        taken_over.retain(|stream| !orphans.contains(stream));
        self.report_for_the_dead(&mut state, &taken_over);
        // This server hears itself before the others may have told all.
        self.drain(&mut state);
        self.tell_places(&mut state, &after.view);
        self.replicas_on_members(&mut state, &change.left);
        if !change.left.is_empty() {
            // What those knew that have left, this server may be the only one to know now.
            self.replicate_runs(&mut state);
        }
        for server in &change.came {
            self.tell_of_attachments(&mut state, *server);
        }
        self.pipelines_grow(&mut state, &change.came);
        self.subscriptions_members_changed(&mut state);
        self.drain(&mut state);
    }

    fn on_given_up(&self) {
        self.state.lock().common.members.note_given_up();
    }

    fn has_drained(&self) -> bool {
        self.state.lock().common.members.goes()
    }
}
