//! Whether a member answers this one. What is said of a member that fell silent ([`crate::silence`]) is what one server found
//! out, and it may be the one that is cut off; before this one takes it for gone too, it asks it, over the connection that
//! it has. So it does when another member asks it to.

use crate::node::Node;
use crate::surroundings::HashMap;
use forebay_core::ids::ServerId;
use forebay_core::membership::Evidence;
use forebay_wire::peer::PeerMessage;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The members that are being asked, by the numbers of the questions.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    next: u64,
    /// At most one for each member.
    waiting: HashMap<ServerId, (u64, oneshot::Sender<()>)>,
}

impl Checking {
    /// A member is asked: the question's number, and what tells of its answer. `None` while it is being asked already.
    fn ask(&self, member: ServerId) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut asked = self.asked.lock();
        if asked.waiting.contains_key(&member) {
            return None;
        }
        asked.next += 1;
        let (number, (answered, answer)) = (asked.next, oneshot::channel());
        asked.waiting.insert(member, (number, answered));
        Some((number, answer))
    }

    /// A member has answered.
    pub(crate) fn answered(&self, member: ServerId, number: u64) {
        if let Some(answered) = self.forget(member, number) {
            let _ = answered.send(());
        }
    }

    /// Nobody waits any more for the answer to this question, if it is the one that is asked.
    fn forget(&self, member: ServerId, number: u64) -> Option<oneshot::Sender<()>> {
        let mut asked = self.asked.lock();
        asked.waiting.get(&member).filter(|(asked, _)| *asked == number)?;
        asked.waiting.remove(&member).map(|(_, answered)| answered)
    }
}

impl Node {
    /// Asks a member whether it is there, in the background, unless it is being asked already. One that does not say so
    /// within the time in which members are asked now and then is doubted, one that does is trusted.
    pub(crate) fn check(&self, member: ServerId) {
        let Some(node) = self.me.upgrade() else { return };
        if self.state.lock().gone.contains(&member) {
            return self.doubts(member, Evidence::Lost);
        }
        let Some((number, answer)) = self.checking.ask(member) else { return };
        self.peers.send(member, PeerMessage::AreYouThere(number));
        let patience = crate::silence::period(self.silence);
        tokio::spawn(async move { node.hear_whether_there((member, number), answer, patience).await });
    }

    async fn hear_whether_there(
        self: Arc<Node>,
        (member, number): (ServerId, u64),
        answer: oneshot::Receiver<()>,
        patience: Duration,
    ) {
        let answers = matches!(timeout(patience, answer).await, Ok(Ok(())));
        self.checking.forget(member, number);
        if !self.goes_on().await {
            return;
        }
        if answers {
            self.at_membership(None, |membership, now| membership.trust(member, now));
        } else {
            tracing::warn!("{member} does not answer");
            self.doubts(member, Evidence::Silent);
        }
    }

    /// This server takes a member for gone.
    pub(crate) fn doubts(&self, member: ServerId, evidence: Evidence) {
        self.at_membership(None, |membership, now| membership.doubt(member, evidence, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_to_the_question_that_was_asked_last() {
        let (checking, member) = (Checking::default(), ServerId(3));
        let (first, answer) = checking.ask(member).unwrap();
        assert!(checking.ask(member).is_none(), "it is being asked");
        drop(checking.forget(member, first));
        assert!(answer.await.is_err());
        let (second, answer) = checking.ask(member).unwrap();
        checking.answered(ServerId(4), second);
        checking.answered(member, second);
        assert!(answer.await.is_ok());
        let (third, answer) = checking.ask(member).unwrap();
        checking.answered(member, first);
        assert!(checking.forget(member, second).is_none(), "an answer that comes late says nothing");
        checking.answered(member, third);
        assert!(third > second && answer.await.is_ok());
    }
}
