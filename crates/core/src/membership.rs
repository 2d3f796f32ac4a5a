//! One server's part in agreeing on who the members of its group are.
//!
//! Whoever notices that a server wants to join or leave **wishes** for a change, and whoever notices that a member seems to
//! be gone **suspects** it ([`suspicions`]). The first member that nobody suspects gathers wishes for a moment and proposes the next
//! [`Roster`], without those that enough members suspect; others propose themselves if it does not come about in time. The
//! members of the roster in force vote ([`crate::agreement`]), one instance for each epoch. A roster that leaves somebody out
//! who may still be running comes into force only when that member's [lease](crate::lease) has certainly run out.

mod message;
mod suspicions;

pub use message::Message;
pub use suspicions::Evidence;

use crate::agreement::{Acceptor, Answer, Progress, Proposer, Question, Voter, Voters};
use crate::error::{Error, Result};
use crate::ids::{Epoch, ServerId};
use crate::lease::{LEASE_OVER, Lease, STANDS_FOR, STOOD_FOR};
use crate::roster::{Change, Roster};
use crate::seeded::{Bug, seeded};
use crate::view::mix;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use suspicions::Suspicions;

/// How long wishes are gathered before a roster is proposed.
const GATHER: Duration = Duration::from_millis(2);
/// How much longer than the member before it each next one waits before it proposes.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long an attempt may take before another one is made.
const ATTEMPT: Duration = Duration::from_millis(250);
/// How often who is out tells of the roster without it.
const TELL_AGAIN: Duration = Duration::from_millis(300);
/// How often members that may not know the roster in force are told, while that keeps the next one from it.
const TELL_FORMER: Duration = Duration::from_millis(50);
/// How many wishes are remembered; beyond, those who wish must wish again.
const WISHES_MAX: usize = 4096;

/// What the host is to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell a server something. It may be lost.
    Send(ServerId, Message),
    /// Ask the witness about the roster of this epoch, and call [`Membership::on_witness_answer`].
    AskWitness(Epoch, Question<Arc<Roster>>),
    /// See whether a member answers this one: call [`Membership::suspect`] or [`Membership::on_reached`].
    Ping(ServerId),
    /// This roster is in force from now on.
    InForce(Arc<Roster>),
    /// A later roster leaves this server out: it acknowledges nothing any more. It is still needed, until
    /// [`Effect::Released`], to tell that roster's members; so it is when it learns of one that is later still.
    Out(Arc<Roster>),
    /// So many members know of the roster that leaves this server out that nobody needs it to tell them.
    Released,
}

/// A change that is wished for.
#[derive(Debug)]
struct Wish {
    change: Change,
    /// When this member proposes it itself.
    at: Duration,
}

/// What this member is about with the next roster.
#[derive(Debug)]
enum Work {
    Nothing,
    /// An attempt is made until then.
    Attempting(Proposer<Arc<Roster>>, Duration),
    /// A roster is chosen.
    Chosen {
        roster: Arc<Roster>,
        /// Since when nobody has a lease of the epoch before this one.
        former_left_at: Option<Duration>,
        /// When those who may not know of the roster before it are told again.
        tell_at: Duration,
    },
    /// This server is out, and tells the members until enough of them know; those do, and at that time it tells again.
    Out(BTreeSet<ServerId>, Duration),
    /// Nothing any more.
    Released,
}

/// One member. Times are durations since any moment, by a clock that never stands still or goes back.
#[derive(Debug)]
pub struct Membership {
    me: ServerId,
    roster: Arc<Roster>,
    acceptor: Acceptor<Arc<Roster>>,
    /// When this voter first accepted a next roster.
    accepted_at: Option<Duration>,
    /// When this member learned of the roster in force.
    since: Duration,
    work: Work,
    /// The round of the next attempt.
    round: u64,
    /// No attempt before then: somebody else has made one.
    quiet_until: Duration,
    wishes: Vec<Wish>,
    suspicions: Suspicions,
    /// Who wants to be told if this member takes another one for gone.
    checked_for: BTreeMap<ServerId, BTreeSet<ServerId>>,
    /// When it was last looked at what is due.
    ticked_at: Duration,
    /// Members whose processes have ended for certain.
    dead: BTreeSet<ServerId>,
    /// The latest epoch that each server is known to know.
    known: BTreeMap<ServerId, Epoch>,
    /// Members that have joined and told this one nothing yet: they may have died before anybody watched them.
    unheard: BTreeSet<ServerId>,
    lease: Lease,
    random: u64,
    effects: Vec<Effect>,
}

impl Membership {
    /// A member of a roster, of which it learned `now`. `seed` settles whom chance prefers when several propose.
    pub fn new(me: ServerId, roster: Arc<Roster>, seed: u64, now: Duration) -> Membership {
        Membership {
            me,
            lease: Lease::new(me, roster.ids()),
            roster,
            acceptor: Acceptor::default(),
            accepted_at: None,
            since: now,
            work: Work::Nothing,
            round: 0,
            quiet_until: Duration::ZERO,
            wishes: Vec::new(),
            suspicions: Suspicions::default(),
            checked_for: BTreeMap::new(),
            ticked_at: now,
            dead: BTreeSet::new(),
            known: BTreeMap::new(),
            unheard: BTreeSet::new(),
            random: seed,
            effects: Vec::new(),
        }
    }

    /// Who this is.
    pub fn me(&self) -> ServerId {
        self.me
    }

    /// The roster in force, as far as this member knows.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// The next roster that this voter has accepted, if it has: it may be the next one.
    pub fn accepted(&self) -> Option<&Arc<Roster>> {
        self.acceptor.accepted()
    }

    /// Whether a later roster leaves this server out.
    pub fn is_out(&self) -> bool {
        matches!(self.work, Work::Out(..) | Work::Released)
    }

    /// What is to be done since this was last called.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether this member may acknowledge something now: no roster without it is in force anywhere. One that wishes to
    /// leave does not, so that nobody needs to wait for its lease to end.
    pub fn may_acknowledge(&self, now: Duration) -> bool {
        if self.wishes_to_leave(self.me) && !seeded(Bug::AcknowledgesWhileItLeaves) {
            return false;
        }
        let standing = self.stands_by(self.me, now) && self.lease.holds(now);
        !self.is_out() && (standing || seeded(Bug::AcknowledgesWithoutALease))
    }

    /// As [`Membership::may_acknowledge`], for a server that is about to; asks for the lease that it needs for that, or a
    /// longer one, if it is time.
    pub fn use_lease(&mut self, now: Duration) -> bool {
        if self.lease.is_due(now) {
            self.renew_lease(now);
        }
        self.may_acknowledge(now)
    }

    /// Asks the other members for a lease, or a longer one.
    pub fn renew_lease(&mut self, now: Duration) {
        if self.is_out() {
            return;
        }
        let number = self.lease.renew(now);
        let epoch = self.roster.epoch;
        self.tell_others(&Message::Renew(epoch, number));
    }

    /// Somebody wishes for a change: this server wants to leave, or one wants to join.
    pub fn wish(&mut self, change: Change, now: Duration) {
        let known = self.wishes.iter().any(|wish| wish.change == change);
        if known || self.is_out() || !self.roster.lacks(&change) || self.wishes.len() == WISHES_MAX {
            return;
        }
        let goes = match &change {
            Change::Leave(id, _) => Some(*id),
            _ => None,
        };
        let at = now + self.patience(goes);
        if let Some(first) = self.first_proposer(goes) {
            self.effects.push(Effect::Send(first, Message::Wish(change.clone())));
        }
        self.wishes.push(Wish { change, at });
    }

    /// A change is wished for no more: the server that wanted to join is gone. It may come about nevertheless.
    pub fn withdraw(&mut self, change: &Change) {
        let known = self.wishes.len();
        self.wishes.retain(|wish| wish.change != *change);
        if let Some(first) = self.first_proposer(None).filter(|_| self.wishes.len() < known) {
            self.effects.push(Effect::Send(first, Message::Withdraw(change.clone())));
        }
    }

    /// The roster of a group that is healed: of those members that answer, where they are too few to agree by themselves.
    pub fn healed(&self, answering: &BTreeSet<ServerId>) -> Result<Roster> {
        let members = self.roster.members.len();
        let answer = self.roster.ids().filter(|id| answering.contains(id)).count();
        if 2 * answer > members {
            return Err(Error::conflict(format!(
                "{answer} of the group's {members} servers answer: they agree by themselves who the members are"
            )));
        }
        let nobody = || Error::conflict("none of the group's servers answers");
        self.roster.healed(answering).ok_or_else(nobody)
    }

    /// A roster is in force on which nobody agreed: its members are told, and those that it leaves out.
    pub fn enforce(&mut self, roster: Roster, now: Duration) {
        let (former, roster) = (self.roster.clone(), Arc::new(roster));
        self.adopt(roster.clone(), now);
        if self.roster.epoch == roster.epoch {
            self.announce(&former, &roster);
        }
    }

    /// This member takes another one for gone, until it trusts it again. To be repeated while it does: what it tells others may
    /// be lost.
    pub fn suspect(&mut self, id: ServerId, evidence: Evidence, now: Duration) {
        if evidence == Evidence::Dead {
            self.dead.insert(id);
        }
        if self.is_out() || id == self.me || !self.roster.contains(id) {
            return;
        }
        let before = self.first_proposer(None);
        let changes = self.suspicions.add(id, self.me, evidence, now);
        let evidence = self.suspicions.of(id, self.me).unwrap_or(evidence);
        let mut told = self.checked_for.remove(&id).unwrap_or_default();
        told.extend(self.first_proposer(Some(id)));
        self.effects.extend(told.into_iter().map(|to| Effect::Send(to, Message::Suspect(id, evidence))));
        // Who proposes now was not told of the others.
        if let Some(first) = self.first_proposer(None).filter(|_| before == Some(id)) {
            let others = self.suspicions.by(self.me).filter(|(about, _)| *about != id);
            self.effects.extend(others.map(|(id, why)| Effect::Send(first, Message::Suspect(id, why))));
        }
        if changes {
            self.tick(now);
        }
    }

    /// A member answers this one: it is not to go for its sake.
    pub fn on_reached(&mut self, id: ServerId, now: Duration) {
        let mut told = self.checked_for.remove(&id).unwrap_or_default();
        if self.suspicions.note_reached(id, self.me, now) {
            told.extend(self.first_proposer(Some(id)));
        }
        self.effects.extend(told.into_iter().map(|to| Effect::Send(to, Message::Trust(id))));
    }

    /// When [`Membership::tick`] is to be called next.
    pub fn wake_at(&self) -> Option<Duration> {
        match &self.work {
            Work::Attempting(_, until) | Work::Out(_, until) => Some(*until),
            Work::Chosen { roster, former_left_at, tell_at } => Some(match former_left_at {
                Some(at) => *at + self.leases_last(roster),
                None => (*tell_at).min(self.since + STOOD_FOR),
            }),
            Work::Released => None,
            Work::Nothing => {
                let wishes = self.wishes.iter().map(|wish| wish.at.max(self.quiet_until));
                let unfinished = self.finishes_at().map(|at| at.max(self.quiet_until));
                wishes.chain(self.looks_at_suspicions()).chain(unfinished).min()
            }
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.ticked_at = now;
        match &mut self.work {
            Work::Out(_, at) if now >= *at => {
                *at = now + TELL_AGAIN;
                let roster = self.roster.clone();
                return self.tell_others(&Message::InForce(roster));
            }
            Work::Attempting(_, until) if now >= *until => self.back_off(now),
            Work::Chosen { .. } => self.bring_into_force(now),
            _ => {}
        }
        if matches!(self.work, Work::Nothing)
            && now >= self.quiet_until
            && (self.wishes.iter().any(|wish| now >= wish.at)
                || self.some_are_to_go(now)
                || self.finishes_at().is_some_and(|at| now >= at))
        {
            self.attempt(now);
        }
        if matches!(self.work, Work::Nothing) {
            self.ask_about_suspects(now);
        }
    }

    /// A server has told something.
    pub fn receive(&mut self, from: ServerId, message: Message, now: Duration) {
        let known = self.known.entry(from).or_default();
        *known = (*known).max(message.epoch_known());
        if self.unheard.remove(&from) {
            // Others may join now.
            self.quiet_until = self.quiet_until.min(now);
        }
        match message {
            Message::Ask(epoch, question) => self.on_question(from, epoch, question, now),
            Message::Answer(epoch, answer) if epoch == self.roster.epoch + 1 => {
                self.on_answer(Voter::Member(from), answer, now);
            }
            Message::Answer(..) => {}
            Message::InForce(roster) => {
                let (epoch, lineage) = (roster.epoch, roster.lineage);
                self.adopt(roster, now);
                match epoch.cmp(&self.roster.epoch) {
                    Ordering::Equal => self.effects.push(Effect::Send(from, Message::Know(epoch))),
                    // One that is out tells it until others know it: these know a later one.
                    Ordering::Less if lineage == self.roster.lineage => self.on_epoch(from, epoch),
                    _ => {}
                }
            }
            // It was cut off, or stood still, when it wished.
            Message::Wish(_) if self.roster.has_left(from) => {}
            Message::Wish(change) => self.wish(change, now),
            Message::Withdraw(change) => self.wishes.retain(|wish| wish.change != change),
            Message::Suspect(about, evidence) => self.on_suspicion(from, about, evidence, now),
            Message::Trust(about) if self.roster.contains(from) && self.roster.contains(about) => {
                self.suspicions.note_reached(about, from, now);
            }
            Message::Trust(_) => {}
            Message::Ping(about) => self.on_check(from, about),
            Message::Know(epoch) => self.on_epoch(from, epoch),
            Message::Renew(epoch, number) => {
                self.on_epoch(from, epoch);
                let keeps = self.stands_by(from, now) || seeded(Bug::GrantsToTheEvicted);
                let grants = epoch == self.roster.epoch && self.roster.contains(from) && keeps;
                if grants && !self.is_out() {
                    self.effects.push(Effect::Send(from, Message::Granted(epoch, number)));
                }
            }
            Message::Granted(epoch, number) if epoch == self.roster.epoch => {
                self.lease.granted(from, number, now)
            }
            Message::Granted(..) => {}
        }
    }

    /// A server has told, with whatever, which epoch it knows.
    pub fn on_epoch(&mut self, from: ServerId, epoch: Epoch) {
        let message = match epoch.cmp(&self.roster.epoch) {
            Ordering::Less => Message::InForce(self.roster.clone()),
            Ordering::Equal => return self.note_knows_too(from),
            Ordering::Greater => Message::Know(self.roster.epoch),
        };
        self.effects.push(Effect::Send(from, message));
    }

    /// The witness has answered a question about this epoch.
    pub fn on_witness_answer(&mut self, epoch: Epoch, answer: Answer<Arc<Roster>>, now: Duration) {
        if epoch == self.roster.epoch + 1 {
            self.on_answer(Voter::Witness, answer, now);
        }
    }

    /// Another server knows the same roster.
    fn note_knows_too(&mut self, id: ServerId) {
        let Work::Out(knowing, _) = &mut self.work else { return };
        if self.roster.contains(id) {
            knowing.insert(id);
        }
        if 2 * knowing.len() > self.roster.members.len() {
            self.work = Work::Released;
            self.effects.push(Effect::Released);
        }
    }

    /// Whether what its parts say of one another agrees: checked after each event in simulations. The error says what
    /// does not.
    pub fn sanity_check(&self) -> std::result::Result<(), String> {
        let fail = |text: String| Err(format!("{} in epoch {}: {text}", self.me, self.roster.epoch));
        match &self.work {
            Work::Out(..) | Work::Released if self.roster.contains(self.me) => {
                return fail("it is out, but a member".into());
            }
            Work::Attempting(..) | Work::Chosen { .. } | Work::Nothing if !self.roster.contains(self.me) => {
                return fail("it is no member, but not out".into());
            }
            Work::Chosen { roster, .. } if roster.epoch <= self.roster.epoch => {
                return fail(format!("it waits for epoch {}", roster.epoch));
            }
            _ => {}
        }
        if self.wishes.len() > WISHES_MAX {
            return fail(format!("{} wishes are remembered", self.wishes.len()));
        }
        if let Some(wish) = self.wishes.iter().find(|wish| !self.roster.lacks(&wish.change)) {
            return fail(format!("what is wished for has come about: {:?}", wish.change));
        }
        if let Some((id, _)) = self.suspicions.iter().find(|(id, _)| !self.roster.contains(*id)) {
            return fail(format!("{id} is taken for gone, and no member"));
        }
        Ok(())
    }

    fn voters(&self) -> Voters {
        Voters::of(self.roster.ids())
    }

    /// Who proposes, in order: members that this one does not take for gone, without the one that is to go.
    fn proposers(&self, goes: Option<ServerId>) -> impl Iterator<Item = ServerId> + '_ {
        let me = self.me;
        self.roster.ids().filter(move |id| *id == me || !(self.is_suspected(*id) || Some(*id) == goes))
    }

    /// Who is to propose, if it is not this member.
    fn first_proposer(&self, goes: Option<ServerId>) -> Option<ServerId> {
        self.proposers(goes).next().filter(|first| *first != self.me)
    }

    /// How long this member waits before it proposes itself.
    fn patience(&self, goes: Option<ServerId>) -> Duration {
        let before = self.proposers(goes).take_while(|id| *id != self.me).take(8).count();
        if before == 0 { GATHER } else { PATIENCE * before as u32 }
    }

    /// Whether this member takes another one for gone.
    fn is_suspected(&self, id: ServerId) -> bool {
        self.suspicions.of(id, self.me).is_some()
    }

    /// Another member takes a third for gone.
    fn on_suspicion(&mut self, from: ServerId, about: ServerId, evidence: Evidence, now: Duration) {
        if self.is_out() || about == self.me || !(self.roster.contains(from) && self.roster.contains(about)) {
            return;
        }
        if evidence == Evidence::Dead {
            self.dead.insert(about);
        }
        if self.suspicions.add(about, from, evidence, now) {
            self.tick(now);
        }
    }

    /// Another member wants to know whether this one takes a third for gone.
    fn on_check(&mut self, from: ServerId, about: ServerId) {
        if self.is_out() || about == self.me || !(self.roster.contains(from) && self.roster.contains(about)) {
            return;
        }
        match self.suspicions.of(about, self.me) {
            Some(evidence) if evidence > Evidence::Silent => {
                self.effects.push(Effect::Send(from, Message::Suspect(about, evidence)));
            }
            _ => {
                self.checked_for.entry(about).or_default().insert(from);
                self.effects.push(Effect::Ping(about));
            }
        }
    }

    /// Who is to go.
    fn to_go(&self, now: Duration) -> BTreeSet<ServerId> {
        // Nearly always, and asked after each message.
        if self.suspicions.is_empty() {
            return BTreeSet::new();
        }
        self.suspicions.to_go(&self.voters(), self.me, now)
    }

    /// Whether it is up to this member to propose that somebody goes.
    fn some_are_to_go(&self, now: Duration) -> bool {
        let to_go = self.to_go(now);
        let due = |(about, since): (ServerId, Duration)| now >= since + self.patience(Some(about));
        !to_go.is_empty() && self.suspicions.iter().any(due)
    }

    /// When it is to be looked again who is to go.
    fn looks_at_suspicions(&self) -> Option<Duration> {
        let waits = self.some_are_to_go(self.ticked_at).then_some(self.quiet_until);
        let looks = self.suspicions.iter().flat_map(|(about, since)| {
            let due = since + self.patience(Some(about));
            let later = self.suspicions.looks_at(about).map(move |at| at.max(due));
            later.chain([due]).filter(|at| *at > self.ticked_at)
        });
        looks.chain(waits).min()
    }

    /// Has the others see whether they reach those that are suspected, but not by so many that they go.
    fn ask_about_suspects(&mut self, now: Duration) {
        let to_go = self.to_go(now);
        let suspected: Vec<(ServerId, Duration)> =
            self.suspicions.iter().filter(|(id, _)| !to_go.contains(id)).collect();
        let mut asked = BTreeSet::new();
        for (about, since) in suspected {
            if now < since + self.patience(Some(about)) {
                continue;
            }
            asked.extend(self.suspicions.members_to_ask(about, now));
        }
        for about in asked {
            let others = self.roster.ids().filter(|id| *id != self.me && *id != about);
            self.effects.extend(others.map(|id| Effect::Send(id, Message::Ping(about))));
            let asks = self.suspicions.of(about, self.me).is_none_or(|evidence| evidence == Evidence::Silent);
            if asks && about != self.me {
                self.effects.push(Effect::Ping(about));
            }
        }
    }

    /// Whether this voter lets a member go on in this epoch: not one that a roster leaves out which it accepted, and
    /// nobody for long when it has accepted one.
    fn stands_by(&self, id: ServerId, now: Duration) -> bool {
        let keeps = self.acceptor.accepted().is_none_or(|roster| roster.contains(id));
        let for_long = self.accepted_at.is_some_and(|at| now >= at + STANDS_FOR);
        keeps && (!for_long || seeded(Bug::StandsByForEver))
    }

    /// Answers a question about the next roster.
    fn vote(&mut self, question: Question<Arc<Roster>>, now: Duration) -> Answer<Arc<Roster>> {
        let answer = self.acceptor.answer(question);
        if matches!(answer, Answer::Accepted(_)) {
            self.accepted_at.get_or_insert(now);
        }
        answer
    }

    /// When this voter finishes what another one, or itself, has begun: it has accepted a next roster, and so stands by nobody
    /// any more, but whoever proposed that may have given it up since, as nobody wishes for a change any longer.
    fn finishes_at(&self) -> Option<Duration> {
        // One that stands by all for ever has no reason to.
        let leaves_it = seeded(Bug::LeavesRostersUnfinished) || seeded(Bug::StandsByForEver);
        let accepted = self.accepted_at.filter(|_| !leaves_it);
        accepted.map(|at| at + STANDS_FOR + self.patience(None))
    }

    fn attempt(&mut self, now: Duration) {
        let unfinished = self.acceptor.accepted().filter(|_| self.finishes_at().is_some_and(|at| now >= at));
        // What was accepted is what it comes to, if most have; else it is as good as any.
        let unfinished = unfinished.map(|roster| (**roster).clone());
        let Some(next) = self.next_roster(now).or(unfinished) else {
            self.ask_the_unheard();
            return self.back_off(now);
        };
        let first = self.roster.members.first().map_or(self.me, |member| member.id);
        let (proposer, question) =
            Proposer::attempt(self.voters(), self.me, first, self.round, Arc::new(next));
        self.round = proposer.ballot().round + 1;
        self.work = Work::Attempting(proposer, now + ATTEMPT);
        self.ask(&question, now);
    }

    /// The next roster, with what is wished for. Only so many join at once that those who are known to live decide without
    /// them, should they all die before they have done anything; who joined before them and is not heard yet may have died,
    /// too. Nobody leaves while others are given up, which may be all that hold what it had; and the last ones leave only
    /// when others have come. No more are given up than the others can decide without: who takes so many for gone is the one
    /// that is cut off, and may be heard by them all.
    fn next_roster(&self, now: Duration) -> Option<Roster> {
        let to_go = self.to_go(now);
        let is_kept = |id: &ServerId| !to_go.contains(id);
        let kept = self.roster.ids().filter(is_kept);
        let voters = self.voters();
        let votes = |voter: &Voter| match voter {
            Voter::Member(id) => is_kept(id),
            Voter::Witness => true,
        };
        let rest: BTreeSet<Voter> = voters.iter().filter(votes).collect();
        let may_give_up = voters.are_enough(&rest) || seeded(Bug::GivesUpTooMany);
        let (leaving, stay): (Vec<ServerId>, Vec<ServerId>) = kept.partition(|id| self.wishes_to_leave(*id));
        let none_given_up = leaving.len() + stay.len() == self.roster.members.len();
        let may_leave = (none_given_up || seeded(Bug::LeavesAmidEvictions))
            && stay.iter().any(|id| !self.is_suspected(*id));
        let stay = if may_leave { stay } else { [stay, leaving].concat() };
        let silent = |id: &ServerId| self.unheard.contains(id) && !seeded(Bug::CountsTheUnheard);
        let living = stay.iter().filter(|id| !self.is_suspected(**id) && !silent(id)).count();
        let mut room = (2 * living).saturating_sub(stay.len());
        let changes = self.wishes.iter().map(|wish| &wish.change).filter(|change| match change {
            Change::Join(_) => {
                let admitted = room > 0;
                room = room.saturating_sub(1);
                admitted
            }
            Change::Leave(..) => may_leave,
            Change::Evict(_) => false,
        });
        let given_up: Vec<Change> =
            to_go.iter().filter(|_| may_give_up).map(|id| Change::Evict(*id)).collect();
        self.roster.next(given_up.iter().chain(changes))
    }

    /// Tells those who have joined and are not heard that they have: they answer.
    fn ask_the_unheard(&mut self) {
        let unheard = self.unheard.iter().map(|id| Effect::Send(*id, Message::InForce(self.roster.clone())));
        self.effects.extend(unheard);
    }

    fn ask(&mut self, question: &Question<Arc<Roster>>, now: Duration) {
        let epoch = self.roster.epoch + 1;
        for voter in self.voters().iter() {
            match voter {
                Voter::Member(id) if id != self.me => {
                    self.effects.push(Effect::Send(id, Message::Ask(epoch, question.clone())));
                }
                Voter::Member(_) => {}
                Voter::Witness => self.effects.push(Effect::AskWitness(epoch, question.clone())),
            }
        }
        let own = self.vote(question.clone(), now);
        self.on_answer(Voter::Member(self.me), own, now);
    }

    fn on_question(&mut self, from: ServerId, epoch: Epoch, question: Question<Arc<Roster>>, now: Duration) {
        if epoch != self.roster.epoch + 1 && !seeded(Bug::AnswersAboutAnyEpoch) {
            return self.on_epoch(from, epoch.saturating_sub(1));
        }
        if self.is_out() || !self.roster.contains(from) {
            return;
        }
        let answer = self.vote(question, now);
        if let Some(accepted) = self.acceptor.accepted().filter(|_| seeded(Bug::TakesAcceptedForDecided)) {
            let accepted = accepted.clone();
            self.adopt(accepted, now);
        }
        self.effects.push(Effect::Send(from, Message::Answer(epoch, answer)));
    }

    fn on_answer(&mut self, voter: Voter, answer: Answer<Arc<Roster>>, now: Duration) {
        let Work::Attempting(proposer, _) = &mut self.work else { return };
        match proposer.on_answer(voter, answer) {
            Progress::Waiting => {}
            Progress::Ask(question) => self.ask(&question, now),
            Progress::Outbid(round) => {
                self.round = self.round.max(round + 1);
                self.back_off(now);
            }
            Progress::Chosen(roster) => {
                self.work = Work::Chosen { roster, former_left_at: None, tell_at: now };
                self.tick(now);
            }
        }
    }

    /// Brings the roster that is chosen into force, if it is time.
    fn bring_into_force(&mut self, now: Duration) {
        let former_left = self.former_left() || now >= self.since + STOOD_FOR;
        let Work::Chosen { roster, former_left_at, tell_at } = &mut self.work else { return };
        if former_left {
            let (roster, left_at) = (roster.clone(), *former_left_at.get_or_insert(now));
            if now >= left_at + self.leases_last(&roster) {
                let former = self.roster.clone();
                self.adopt(roster.clone(), now);
                self.announce(&former, &roster);
            }
            return;
        }
        if now >= *tell_at {
            *tell_at = now + TELL_FORMER;
            let current = self.roster.clone();
            let behind =
                current.former.iter().filter(|id| self.known.get(id).is_none_or(|e| *e < current.epoch));
            let told = behind.map(|id| Effect::Send(*id, Message::InForce(current.clone())));
            self.effects.extend(told.collect::<Vec<_>>());
        }
    }

    /// Whether so many of the members before these have left their epoch that nobody gets a lease in it any more.
    /// Without that, some who have missed two rosters could go on granting leases to one another.
    fn former_left(&self) -> bool {
        let former = &self.roster.former;
        let left = former.iter().filter(|id| {
            let knows = self.known.get(id).is_some_and(|epoch| *epoch >= self.roster.epoch);
            **id == self.me || knows || self.dead.contains(id)
        });
        2 * left.count() >= former.len() || seeded(Bug::DoesNotWaitForTheFormer)
    }

    /// How long somebody whom this roster leaves out may still be running under a lease that was granted by now: not at
    /// all where the death of all of them is certain.
    fn leases_last(&self, roster: &Roster) -> Duration {
        let ends = |id: &ServerId| self.dead.contains(id) || self.wishes_to_leave(*id);
        let may_run = |id: &ServerId| *id != self.me && !roster.contains(*id) && !ends(id);
        let wait = self.roster.ids().any(|id| may_run(&id)) && !seeded(Bug::DoesNotWaitForLeases);
        if wait { LEASE_OVER } else { Duration::ZERO }
    }

    /// Whether a server has wished to leave.
    fn wishes_to_leave(&self, id: ServerId) -> bool {
        let leaves = Change::Leave(id, self.roster.epoch);
        self.wishes.iter().any(|wish| wish.change == leaves)
    }

    /// Another attempt in a while, if it is still needed.
    fn back_off(&mut self, now: Duration) {
        self.work = Work::Nothing;
        self.random = mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.quiet_until = now + ATTEMPT.mul_f64((self.random % 1024) as f64 / 1024.0);
    }

    /// Tells all old and new members of a roster that is in force. This server knows it already, and with it where the
    /// new ones are.
    fn announce(&mut self, former: &Roster, roster: &Arc<Roster>) {
        let everybody: BTreeSet<ServerId> = former.ids().chain(roster.ids()).collect();
        let others = everybody.into_iter().filter(|id| *id != self.me);
        self.effects.extend(others.map(|id| Effect::Send(id, Message::InForce(roster.clone()))));
    }

    fn tell_others(&mut self, message: &Message) {
        let me = self.me;
        let others = self.roster.ids().filter(|id| *id != me);
        self.effects.extend(others.map(|id| Effect::Send(id, message.clone())));
    }

    fn adopt(&mut self, roster: Arc<Roster>, now: Duration) {
        if roster.lineage != self.roster.lineage || roster.epoch <= self.roster.epoch {
            return;
        }
        let was_out = self.is_out();
        self.acceptor = Acceptor::default();
        self.accepted_at = None;
        self.since = now;
        self.round = 0;
        self.quiet_until = now;
        self.suspicions.follow(|id| roster.contains(id), now);
        self.checked_for.clear();
        let is_near = |id: &ServerId| roster.contains(*id) || roster.former.contains(id);
        self.dead.retain(is_near);
        self.known.retain(|id, _| is_near(id));
        self.unheard.retain(|id| roster.contains(*id));
        let joined = roster.ids().filter(|id| *id != self.me && !self.roster.contains(*id));
        self.unheard.extend(joined.filter(|id| !self.known.contains_key(id)));
        self.wishes.retain(|wish| roster.lacks(&wish.change));
        self.lease = Lease::new(self.me, roster.ids());
        self.roster = roster.clone();
        if roster.contains(self.me) {
            self.work = Work::Nothing;
            self.effects.push(Effect::InForce(roster));
            return;
        }
        self.wishes.clear();
        if !matches!(self.work, Work::Released) {
            self.work = Work::Out(BTreeSet::new(), now);
        }
        if !(was_out && seeded(Bug::TellsOnlyTheFirstWithoutIt)) {
            self.effects.push(Effect::Out(roster));
        }
    }
}

#[cfg(test)]
mod tests;
