//! What a component of the server may use besides its own state: who this server is, the members, what is told to others, and
//! questions to them.

use crate::members::Members;
use crate::questions::{Answer, QuestionSubject, Questions};
use crate::shared::Shared;
use forebay_cluster::peers::SendOutcome;
use forebay_core::ids::ServerId;
use forebay_wire::peer::PeerMessage;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// What all components share, under the lock of the server's state.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) members: Members,
    pub(crate) questions: Questions,
    /// Messages to be handled, this server's own to itself among them.
    queue: VecDeque<(ServerId, PeerMessage)>,
}

impl Common {
    /// A message is to be handled after those that are queued.
    pub(crate) fn queue(&mut self, from: ServerId, message: PeerMessage) {
        self.queue.push_back((from, message));
    }

    /// Messages are to be handled after those that are queued.
    pub(crate) fn queue_all(&mut self, messages: impl IntoIterator<Item = (ServerId, PeerMessage)>) {
        self.queue.extend(messages);
    }

    /// The next message to be handled.
    pub(crate) fn next(&mut self) -> Option<(ServerId, PeerMessage)> {
        self.queue.pop_front()
    }
}

/// What a component is given with each event.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// This server: identity, view, clock, memory, and the way to others.
    pub(crate) server: &'a Shared,
    pub(crate) common: &'a mut Common,
}

impl Context<'_> {
    /// This server's id.
    pub(crate) fn me(&self) -> ServerId {
        self.server.id
    }

    /// The members that are there or gone, and who leaves.
    pub(crate) fn members(&self) -> &Members {
        &self.common.members
    }

    /// Whether a server is a member that is not known to have gone.
    pub(crate) fn is_member(&self, server: ServerId) -> bool {
        self.server.standing().view.members.contains(&server) && !self.members().is_gone(server)
    }

    /// Tells a server something, maybe this one itself. `false` if it is gone.
    pub(crate) fn tell(&mut self, to: ServerId, message: impl Into<PeerMessage>) -> bool {
        if to == self.me() {
            self.common.queue(to, message.into());
            return true;
        }
        self.send(to, message) != SendOutcome::Gone
    }

    /// Tells another server something.
    pub(crate) fn send(&self, to: ServerId, message: impl Into<PeerMessage>) -> SendOutcome {
        if self.members().is_gone(to) { SendOutcome::Gone } else { self.server.peers.send(to, message) }
    }

    /// Asks a server something: the question's token, and where its answer will come; that ends without one if the server dies.
    /// `None` if it is gone.
    pub(crate) fn ask<M: Into<PeerMessage>>(
        &mut self,
        server: ServerId,
        question: impl FnOnce(u64) -> M,
    ) -> Option<(u64, oneshot::Receiver<Answer>)> {
        let token = self.server.unique();
        if !self.tell(server, question(token)) {
            return None;
        }
        Some((token, self.common.questions.ask(token, server, None)))
    }

    /// As `ask`, of a question about a rank of a stream.
    pub(crate) fn ask_about<M: Into<PeerMessage>>(
        &mut self,
        server: ServerId,
        about: QuestionSubject,
        question: impl FnOnce(u64) -> M,
    ) -> Option<(u64, oneshot::Receiver<Answer>)> {
        let token = self.server.unique();
        let answer = self.common.questions.ask(token, server, Some(about));
        if self.tell(server, question(token)) {
            return Some((token, answer));
        }
        self.common.questions.take(token);
        None
    }
}
