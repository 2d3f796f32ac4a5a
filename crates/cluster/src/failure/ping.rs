//! Whether a member answers this one. What is said of a member that fell silent ([`crate::failure::swim`]) is what one server found
//! out, and it may be the one that is cut off; before this one takes it for gone too, it asks it. So it does when another
//! member asks it to. It asks over the connection that it has, and between hosts by a datagram, too: where the network was away
//! a connection comes back only when TCP tries again.
//!
//! Where packets between two members alone are lost, nobody falls silent: others ask in their place. So each member asks the
//! others in turn, too, whether they are there ([`ask_in_turn`]). They may take as long as a server may
//! be silent, since one that is slow is not gone.

use crate::cluster::Cluster;
use crate::environment::HashMap;
use crate::failure::swim::SwimAction;
use forebay_core::ids::ServerId;
use forebay_core::membership::Evidence;
use forebay_core::roster::Roster;
use forebay_wire::peer::cluster;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How often the next member is asked.
const NEXT: Duration = Duration::from_secs(1);

/// Why a member is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PingReason {
    /// Somebody takes it for gone.
    Suspected,
    /// It is its turn.
    Turn,
}

/// The members that are being asked, by the numbers of the questions.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    asked: Mutex<PingedMember>,
}

#[derive(Debug, Default)]
struct PingedMember {
    next: u64,
    /// At most one of a kind for each member.
    waiting: HashMap<(ServerId, PingReason), (u64, oneshot::Sender<()>)>,
    /// Those that did not answer last.
    silent: BTreeSet<ServerId>,
}

impl Pings {
    /// A member is asked: the question's number, and what tells of its answer. `None` while it is being asked already.
    fn ask(&self, member: ServerId, why: PingReason) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut asked = self.asked.lock();
        if asked.waiting.contains_key(&(member, why)) {
            return None;
        }
        asked.next += 1;
        let (number, (answered, answer)) = (asked.next, oneshot::channel());
        asked.waiting.insert((member, why), (number, answered));
        Some((number, answer))
    }

    /// A member has answered.
    pub(crate) fn on_answer(&self, member: ServerId, number: u64) {
        if let Some(answered) = self.forget(member, number) {
            let _ = answered.send(());
        }
    }

    /// A member answers, or does not. Returns whether that was otherwise before.
    fn notes(&self, member: ServerId, answers: bool) -> bool {
        let silent = &mut self.asked.lock().silent;
        if answers { silent.remove(&member) } else { silent.insert(member) }
    }

    /// Who is a member no more is not asked again.
    pub(crate) fn keep_members(&self, roster: &Roster) {
        self.asked.lock().silent.retain(|id| roster.contains(*id));
    }

    /// Nobody waits any more for the answer to this question, if it is one that is asked.
    fn forget(&self, member: ServerId, number: u64) -> Option<oneshot::Sender<()>> {
        let mut asked = self.asked.lock();
        let is_this =
            |why: &PingReason| asked.waiting.get(&(member, *why)).is_some_and(|(asked, _)| *asked == number);
        let why = [PingReason::Suspected, PingReason::Turn].into_iter().find(is_this)?;
        asked.waiting.remove(&(member, why)).map(|(_, answered)| answered)
    }
}

/// Asks the other members whether they are there, one after the other, until this server ends.
pub(crate) async fn ask_in_turn(cluster: Arc<Cluster>) {
    let mut last = cluster.id;
    while !cluster.driver.out.get() {
        tokio::time::sleep(NEXT).await;
        let standing = cluster.standing();
        let others = || standing.roster.ids().filter(|id| *id != cluster.id);
        let Some(next) = others().find(|id| *id > last).or_else(|| others().next()) else { continue };
        last = next;
        cluster.ask_whether_there(next, PingReason::Turn, cluster.silence);
    }
}

impl Cluster {
    /// Asks a member whether it is there, in the background, unless it is being asked already. One that does not say so
    /// within the time in which members are asked now and then is suspected, one that does is trusted.
    pub(crate) fn check(&self, member: ServerId) {
        self.ask_whether_there(member, PingReason::Suspected, crate::failure::swim::period(self.silence));
    }

    fn ask_whether_there(&self, member: ServerId, why: PingReason, patience: Duration) {
        let Some(cluster) = self.me.upgrade() else { return };
        if self.is_gone(member) {
            return self.suspect(member, Evidence::Lost);
        }
        let Some((number, answer)) = self.pings.ask(member, why) else { return };
        self.peers.send(member, cluster::Message::Ping(number));
        self.swim.put(SwimAction::Ask(member, number));
        tokio::spawn(async move { cluster.hear_whether_there((member, number), answer, patience).await });
    }

    async fn hear_whether_there(
        self: Arc<Cluster>,
        (member, number): (ServerId, u64),
        answer: oneshot::Receiver<()>,
        patience: Duration,
    ) {
        let answers = matches!(timeout(patience, answer).await, Ok(Ok(())));
        self.pings.forget(member, number);
        if !self.goes_on().await {
            return;
        }
        let changed = self.pings.notes(member, answers);
        match (answers, changed) {
            (true, true) => tracing::info!("{member} answers again"),
            (false, true) => tracing::warn!("{member} does not answer"),
            _ => {}
        }
        if answers {
            self.at_membership(None, |membership, now| membership.on_reached(member, now));
        } else {
            self.suspect(member, Evidence::Silent);
        }
    }

    /// This server takes a member for gone.
    pub(crate) fn suspect(&self, member: ServerId, evidence: Evidence) {
        self.at_membership(None, |membership, now| membership.suspect(member, evidence, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_to_the_question_that_was_asked_last() {
        let (pings, member) = (Pings::default(), ServerId(3));
        let (first, answer) = pings.ask(member, PingReason::Suspected).unwrap();
        assert!(pings.ask(member, PingReason::Suspected).is_none(), "it is being asked");
        drop(pings.forget(member, first));
        assert!(answer.await.is_err());
        let (second, answer) = pings.ask(member, PingReason::Suspected).unwrap();
        pings.on_answer(ServerId(4), second);
        pings.on_answer(member, second);
        assert!(answer.await.is_ok());
        let (third, answer) = pings.ask(member, PingReason::Suspected).unwrap();
        pings.on_answer(member, first);
        assert!(pings.forget(member, second).is_none(), "an answer that comes late says nothing");
        let (turn, in_turn) = pings.ask(member, PingReason::Turn).unwrap();
        pings.on_answer(member, third);
        assert!(third > second && answer.await.is_ok());
        pings.on_answer(member, turn);
        assert!(in_turn.await.is_ok());
        let notes = [false, false, true, true].map(|answers| pings.notes(member, answers));
        assert_eq!(notes, [true, false, true, false], "it is said once");
    }
}
