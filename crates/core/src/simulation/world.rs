//! Servers, the network between them, and time.

use super::checks::{History, Violation};
use super::faults::Plan;
use crate::agreement::{Acceptor, Answer, Question, Voter, Voters};
use crate::ids::{Epoch, Lineage, ServerId};
use crate::membership::{Effect, Evidence, Membership, Message};
use crate::roster::{Candidate, Change, Incarnation, Roster, Settings};
use crate::seeded::{Bug, seeded};
use crate::view::mix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// Microseconds since the simulation began, by a clock that nobody in it has.
type Micros = u64;

const RENEW_EVERY: Micros = 300_000;
/// So many processes acknowledge something, and need leases: in a large group not all.
const ACKNOWLEDGE: usize = 12;
const LOOK_EVERY: Micros = 200_000;
/// How long somebody is silent before it is taken for gone.
const SILENT: Micros = 700_000;
const JOIN_EVERY: Micros = 1_000_000;
const FIRST_TICK: Micros = 1_000;
/// So many messages are sent only where each causes more than one other.
const MESSAGES_MAX: u64 = 1_000_000;
/// Whoever looks after others looks after so many, its next ones in the roster.
const NEIGHBOURS: usize = 8;

/// A process.
#[derive(Debug)]
pub(super) struct Node {
    candidate: Candidate,
    host: usize,
    state: State,
    part: Part,
    /// Its clock: where it began, and its speed in thousandths.
    clock: (u64, u64),
    time: Micros,
    /// What came while it stood still.
    missed: Vec<Event>,
    /// Since when members were silent, as it sees it.
    silent: BTreeMap<ServerId, Micros>,
    ticking: Option<Micros>,
    /// It wants to leave for good.
    leaving: bool,
}

/// How one simulation ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All that ran at the end agree, and every wish was fulfilled.
    Agreed,
    /// Too many had died for those who were left to decide.
    NoQuorum,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    Running,
    Stopped,
    Dead,
}

#[derive(Debug)]
enum Part {
    Joining,
    Member(Box<Membership>),
    Left,
}

impl Node {
    pub(super) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    pub(super) fn member(&self) -> Option<&Membership> {
        match &self.part {
            Part::Member(member) => Some(member),
            _ => None,
        }
    }

    /// What its clock shows.
    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.clock.0 + self.time * self.clock.1 / 1000)
    }
}

#[derive(Debug, Clone)]
enum Event {
    Told { to: usize, from: ServerId, message: Box<Message> },
    Witness { node: usize, epoch: Epoch, question: Box<Question<Arc<Roster>>> },
    WitnessSaid { node: usize, epoch: Epoch, answer: Box<Answer<Arc<Roster>>> },
    Tick(usize),
    Renew(usize),
    Look(usize),
    Check(usize, ServerId),
    Join(usize),
    Fault,
}

impl Event {
    /// At which process it happens.
    fn node(&self) -> Option<usize> {
        match self {
            Event::Told { to: node, .. }
            | Event::WitnessSaid { node, .. }
            | Event::Tick(node)
            | Event::Renew(node)
            | Event::Look(node)
            | Event::Check(node, _)
            | Event::Join(node) => Some(*node),
            Event::Witness { .. } | Event::Fault => None,
        }
    }
}

/// What happens at a time: earlier first, and in the order in which it was planned.
#[derive(Debug)]
struct Planned(Micros, u64, Event);

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A group and what is around it.
#[derive(Debug)]
pub(super) struct World {
    random: u64,
    plan: Plan,
    now: Micros,
    planned: BinaryHeap<Reverse<Planned>>,
    count: u64,
    nodes: Vec<Node>,
    /// Which process has which id.
    processes: BTreeMap<ServerId, usize>,
    /// From whom to whom nothing comes through.
    cut: BTreeSet<(usize, usize)>,
    /// Who does not reach the witness.
    blind: BTreeSet<usize>,
    witness: (Epoch, Acceptor<Arc<Roster>>),
    faulty: bool,
    history: History,
    /// Messages between members that were sent.
    messages: u64,
    /// Whether leases are asked for.
    leases: bool,
}

/// Something that is done at a member.
type Act = Box<dyn FnOnce(&mut Membership, Duration)>;

/// A member wishes to leave after this epoch.
fn wish_to_leave(me: ServerId, epoch: Epoch) -> Act {
    Box::new(move |member, now| member.wish(Change::Leave(me, epoch), now))
}

impl World {
    pub(super) fn new(seed: u64, plan: &Plan) -> World {
        let mut world = World {
            random: mix(seed + 1),
            plan: plan.clone(),
            now: 0,
            planned: BinaryHeap::new(),
            count: 0,
            nodes: Vec::new(),
            processes: BTreeMap::new(),
            cut: BTreeSet::new(),
            blind: BTreeSet::new(),
            witness: (0, Acceptor::default()),
            faulty: false,
            history: History::default(),
            messages: 0,
            leases: true,
        };
        for _ in 0..plan.servers {
            world.start();
        }
        let founder =
            Roster::founded(Lineage([7; 16]), world.nodes[0].candidate.clone(), 1, Settings::default());
        world.become_member(0, ServerId(0), Arc::new(founder));
        world
    }

    /// A hash of all that has happened: of time, chance, and how many events and messages there were, which each event
    /// changes, and of the rosters that are in force. No name of anything goes into it.
    pub(super) fn trace(&self) -> u64 {
        let members = self.nodes.iter().filter_map(Node::member);
        let rosters =
            members.flat_map(|member| [member.roster().epoch, member.roster().members.len() as u64]);
        let seen = [self.now, self.random, self.count, self.messages].into_iter().chain(rosters);
        seen.fold(0, |trace, seen| mix(trace ^ seen))
    }

    /// Lets things go wrong for as long as the plan says.
    pub(super) fn run_with_faults(&mut self, plan: &Plan) -> Result<(), Violation> {
        self.run_until(1_500_000, |_| false)?;
        self.faulty = true;
        self.plan_at(self.now, Event::Fault);
        self.run_until(self.now + plan.millis * 1000, |_| false)
    }

    /// One more server joins: how many messages that took, and how long, in units of the longest that a message takes.
    pub(super) fn messages_and_rounds_of_a_join(&mut self) -> Result<(u64, f64), Violation> {
        self.run_until(self.now + 2_000_000, |_| false)?;
        let candidate =
            Candidate { incarnation: Incarnation(1), pid: 0, addresses: Vec::new(), formerly: None };
        let (messages, began) = (self.messages, self.now);
        let size = self.history.latest().map_or(0, |roster| roster.members.len());
        self.leases = false;
        self.with_member(0, |member, now| member.wish(Change::Join(candidate), now))?;
        let knows = |world: &World| {
            let running = world.running().filter_map(|(_, node)| node.member());
            running.filter(|member| member.roster().members.len() > size).count() >= size
        };
        while !knows(self) {
            self.run_until(self.now + 50, |_| false)?;
        }
        Ok((self.messages - messages, (self.now - began) as f64 / (self.plan.slowest as f64)))
    }

    /// Nothing goes wrong any more; what stood still wakes.
    pub(super) fn heal_everything(&mut self) {
        self.faulty = false;
        self.cut.clear();
        self.blind.clear();
        for node in 0..self.nodes.len() {
            self.wake(node);
        }
    }

    /// Until all that run agree.
    pub(super) fn settle(&mut self, plan: &Plan) -> Result<Ending, Violation> {
        let end = self.now + plan.patience * 1000;
        self.run_until(end, World::agrees)?;
        if self.agrees() {
            return Ok(Ending::Agreed);
        }
        if self.has_quorum() {
            return Err(Violation(format!(
                "{} ms after all is well, those who run do not agree: {}",
                plan.patience,
                self.describe()
            )));
        }
        Ok(Ending::NoQuorum)
    }

    fn describe(&self) -> String {
        let told = self.nodes.iter().enumerate().filter(|(_, node)| node.state == State::Running);
        let told = told.map(|(index, node)| match &node.part {
            Part::Joining => format!("{index} joins"),
            Part::Left => format!("{index} has left"),
            Part::Member(member) => {
                let ids: Vec<u32> = member.roster().ids().map(|id| id.0).collect();
                format!("{index} is {} in epoch {} of {ids:?}", member.me(), member.roster().epoch)
            }
        });
        told.collect::<Vec<_>>().join("; ")
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.state == State::Running)
    }

    /// Whether all that run and have not left are members of one roster, and nobody else is.
    fn agrees(&self) -> bool {
        let wanted: BTreeSet<usize> = self
            .running()
            .filter(|(_, node)| !matches!(node.part, Part::Left))
            .map(|(index, _)| index)
            .collect();
        let Some(latest) = self.history.latest() else { return false };
        let members: BTreeSet<usize> =
            latest.ids().filter_map(|id| self.processes.get(&id).copied()).collect();
        let all_know = self.running().all(|(_, node)| match &node.part {
            Part::Member(member) => member.roster().epoch == latest.epoch,
            Part::Joining => false,
            Part::Left => true,
        });
        members == wanted && all_know && members.len() == latest.members.len()
    }

    /// Whether those who live could decide on the one after the latest roster that any of them knows. A later one that
    /// only the dead knew helps nobody.
    fn has_quorum(&self) -> bool {
        let rosters = self.running().filter_map(|(_, node)| node.member().map(Membership::roster));
        let Some(latest) = rosters.max_by_key(|roster| roster.epoch) else { return false };
        if self.witness.0 > latest.epoch + 1 {
            return false;
        }
        let living = latest.ids().filter(|id| {
            self.processes.get(id).is_some_and(|index| {
                let node = &self.nodes[*index];
                !node.is_dead() && node.member().is_some_and(|member| member.me() == *id)
            })
        });
        let voting = living.map(Voter::Member).chain([Voter::Witness]).collect();
        Voters::of(latest.ids()).are_enough(&voting)
    }

    fn run_until(&mut self, end: Micros, enough: impl Fn(&World) -> bool) -> Result<(), Violation> {
        let mut next_look = self.now;
        while let Some(Reverse(Planned(at, _, event))) = self.planned.pop() {
            if at > end {
                self.plan_at(at, event);
                self.now = end;
                break;
            }
            self.now = self.now.max(at);
            for node in &mut self.nodes {
                node.time = self.now;
            }
            self.happen(event)?;
            if self.messages > MESSAGES_MAX {
                return Err(Violation(format!(
                    "messages without end: {MESSAGES_MAX} after {} ms",
                    self.now / 1000
                )));
            }
            let living = self.nodes.iter().filter(|node| !node.is_dead());
            let members = living.filter_map(|node| node.member().map(|member| (member, node.now())));
            self.history.nobody_evicted_acknowledges(members)?;
            if self.now >= next_look {
                next_look = self.now + 100_000;
                if enough(self) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn chance(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random) % below.max(1)
    }

    fn pick(&mut self, from: Vec<usize>) -> Option<usize> {
        let chosen = self.chance(from.len() as u64) as usize;
        from.get(chosen).copied()
    }

    fn plan_at(&mut self, at: Micros, event: Event) {
        self.count += 1;
        self.planned.push(Reverse(Planned(at, self.count, event)));
    }

    fn plan_in(&mut self, wait: Micros, event: Event) {
        self.plan_at(self.now + wait, event);
    }

    /// Starts a process that wants to join.
    fn start(&mut self) -> usize {
        let index = self.nodes.len();
        let incarnation = Incarnation(self.chance(u64::MAX));
        let candidate = Candidate {
            incarnation,
            pid: index as u32,
            addresses: vec![format!("node{index}")],
            formerly: None,
        };
        let clock = (self.chance(1 << 40), 960 + self.chance(80));
        let (part, state) = (Part::Joining, State::Running);
        let (missed, silent) = (Vec::new(), BTreeMap::new());
        let host = index % self.plan.hosts;
        let (time, ticking, leaving) = (self.now, None, false);
        self.nodes.push(Node { candidate, host, state, part, clock, time, missed, silent, ticking, leaving });
        let wait = self.chance(50_000);
        self.plan_in(wait, Event::Join(index));
        index
    }

    fn become_member(&mut self, index: usize, id: ServerId, roster: Arc<Roster>) {
        let seed = self.chance(u64::MAX);
        self.processes.insert(id, index);
        let now = self.nodes[index].now();
        self.nodes[index].part = Part::Member(Box::new(Membership::new(id, roster, seed, now)));
        self.nodes[index].silent.clear();
        self.plan_in(0, Event::Renew(index));
        let wait = self.chance(LOOK_EVERY);
        self.plan_in(wait, Event::Look(index));
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        if let Some(index) = event.node() {
            match self.nodes[index].state {
                State::Running => {}
                State::Stopped => {
                    self.nodes[index].missed.push(event);
                    return Ok(());
                }
                State::Dead => return Ok(()),
            }
        }
        match event {
            Event::Told { to, from, message } => self.told(to, from, *message),
            Event::Witness { node, epoch, question } => {
                self.ask_witness(node, epoch, *question);
                Ok(())
            }
            Event::WitnessSaid { node, epoch, answer } => {
                self.with_member(node, |member, now| member.on_witness_answer(epoch, *answer, now))
            }
            Event::Tick(node) => {
                self.nodes[node].ticking = None;
                self.with_member(node, Membership::tick)
            }
            Event::Renew(node) => {
                self.plan_in(RENEW_EVERY, Event::Renew(node));
                self.renew(node)
            }
            Event::Look(node) => {
                self.plan_in(LOOK_EVERY, Event::Look(node));
                self.look(node)
            }
            Event::Check(node, about) => {
                let answers = self.answers(node, about);
                self.with_member(node, |member, now| match answers {
                    true => member.on_reached(about, now),
                    false => member.suspect(about, Evidence::Silent, now),
                })
            }
            Event::Join(node) => self.join(node),
            Event::Fault => {
                if self.faulty {
                    let wait = (2e6 / self.plan.faults_per_second) as u64;
                    let wait = self.chance(wait);
                    self.plan_in(wait, Event::Fault);
                    self.something_goes_wrong()?;
                }
                Ok(())
            }
        }
    }

    /// Does something at a member, then what it wants done.
    fn with_member(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Membership, Duration),
    ) -> Result<(), Violation> {
        let node = &mut self.nodes[index];
        let now = node.now();
        let Part::Member(member) = &mut node.part else { return Ok(()) };
        act(member, now);
        member.sanity_check().map_err(Violation)?;
        let (me, effects) = (member.me(), member.effects());
        let (mut renew, mut epoch) = (false, None);
        for effect in effects {
            match effect {
                Effect::Send(to, message) => self.send(index, me, to, message),
                Effect::AskWitness(epoch, question) => {
                    let wait = 50 + self.chance(2000);
                    self.plan_in(wait, Event::Witness { node: index, epoch, question: Box::new(question) });
                }
                Effect::Ping(about) => {
                    let wait = 50 + self.chance(self.plan.slowest);
                    self.plan_in(wait, Event::Check(index, about));
                }
                Effect::InForce(roster) => {
                    for member in &roster.members {
                        let found = self.nodes.iter().position(|n| n.candidate == member.server);
                        if let Some(found) = found {
                            self.processes.entry(member.id).or_insert(found);
                        }
                    }
                    self.history.in_force(&roster)?;
                    (renew, epoch) = (true, Some(roster.epoch));
                }
                Effect::Out(roster) => {
                    self.history.in_force(&roster)?;
                    self.plan_in(JOIN_EVERY, Event::Join(index));
                }
                Effect::Released => {
                    self.released(index);
                    return Ok(());
                }
            }
        }
        if let Some(epoch) = epoch.filter(|_| self.nodes[index].leaving) {
            self.with_member(index, wish_to_leave(me, epoch))?;
        }
        self.plan_tick(index);
        if renew { self.renew(index) } else { Ok(()) }
    }

    /// A process that is out comes back as another server, unless it wanted to leave.
    fn released(&mut self, index: usize) {
        if self.nodes[index].leaving {
            self.nodes[index].part = Part::Left;
            return;
        }
        self.nodes[index].part = Part::Joining;
        self.nodes[index].candidate.incarnation = Incarnation(self.chance(u64::MAX));
        self.plan_in(1000, Event::Join(index));
    }

    fn plan_tick(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Part::Member(member) = &node.part else { return };
        let Some(wake) = member.wake_at() else { return };
        let wait = wake.saturating_sub(node.now()).as_micros() as u64 * 1000 / node.clock.1 + 1;
        let at = self.now + wait;
        if node.ticking.is_none_or(|planned| planned > at) {
            self.nodes[index].ticking = Some(at);
            self.plan_at(at, Event::Tick(index));
        }
    }

    fn send(&mut self, from: usize, me: ServerId, to: ServerId, message: Message) {
        self.messages += 1;
        let Some(to) = self.processes.get(&to).copied() else { return };
        let copies = if self.faulty && self.chance(1000) < self.plan.twice { 2 } else { 1 };
        for _ in 0..copies {
            let lost = self.faulty && self.chance(1000) < self.plan.lost;
            if lost || self.cut.contains(&(from, to)) {
                continue;
            }
            let slowest = if self.faulty { self.plan.slowest } else { 500 };
            let wait = 20 + self.chance(slowest);
            let message = Box::new(message.clone());
            self.plan_in(wait, Event::Told { to, from: me, message });
        }
    }

    fn told(&mut self, to: usize, from: ServerId, message: Message) -> Result<(), Violation> {
        if let (Part::Joining, Message::InForce(roster)) = (&self.nodes[to].part, &message) {
            let found = roster.find(self.nodes[to].candidate.incarnation).map(|member| member.id);
            if let Some(id) = found {
                self.history.in_force(roster)?;
                self.become_member(to, id, roster.clone());
            }
            return Ok(());
        }
        self.with_member(to, |member, now| member.receive(from, message, now))
    }

    fn ask_witness(&mut self, node: usize, epoch: Epoch, question: Question<Arc<Roster>>) {
        if self.nodes[node].state != State::Running || self.blind.contains(&node) {
            return;
        }
        if epoch > self.witness.0 || seeded(Bug::WitnessForgets) {
            self.witness = (epoch, Acceptor::default());
        }
        if epoch == self.witness.0 {
            let answer = Box::new(self.witness.1.answer(question));
            self.plan_in(100, Event::WitnessSaid { node, epoch, answer });
        }
    }

    /// A member renews its lease. One that gets none asks those whom the connection file names.
    fn renew(&mut self, index: usize) -> Result<(), Violation> {
        let node = &self.nodes[index];
        let alone = index >= ACKNOWLEDGE || node.member().is_some_and(|m| !m.may_acknowledge(node.now()));
        if alone
            && self.chance(8) == 0
            && let Some(other) = self.pick(self.members_reachable(index))
        {
            self.ask_for_the_roster(index, other)?;
        }
        if self.leases && index < ACKNOWLEDGE {
            self.with_member(index, Membership::renew_lease)?;
        }
        Ok(())
    }

    /// Members to which this process can connect, as the connection file would name them.
    fn members_reachable(&self, index: usize) -> Vec<usize> {
        let cut = |other: usize| self.cut.contains(&(index, other)) || self.cut.contains(&(other, index));
        self.members_running().into_iter().filter(|other| *other != index && !cut(*other)).collect()
    }

    fn ask_for_the_roster(&mut self, index: usize, other: usize) -> Result<(), Violation> {
        let known = self.nodes[other].member().map(|member| (member.me(), member.roster().clone()));
        let Some((from, roster)) = known else { return Ok(()) };
        self.with_member(index, |member, now| member.receive(from, Message::InForce(roster), now))
    }

    fn join(&mut self, index: usize) -> Result<(), Violation> {
        let is_out = self.nodes[index].member().is_some_and(Membership::is_out);
        if !is_out && !matches!(self.nodes[index].part, Part::Joining) {
            return Ok(());
        }
        self.plan_in(JOIN_EVERY, Event::Join(index));
        let Some(member) = self.pick(self.members_reachable(index)) else { return Ok(()) };
        if is_out {
            return self.ask_for_the_roster(index, member);
        }
        let candidate = self.nodes[index].candidate.clone();
        // A member that admitted it already tells it again.
        let known = self.nodes[member].member().map(Membership::roster);
        let admitted = known.filter(|roster| roster.find(candidate.incarnation).is_some()).cloned();
        if let Some(roster) = admitted {
            let (me, message) = (ServerId(u32::MAX), Box::new(Message::InForce(roster)));
            self.plan_in(100, Event::Told { to: index, from: me, message });
            return Ok(());
        }
        self.with_member(member, |member, now| member.wish(Change::Join(candidate), now))
    }

    /// A member looks after its next ones: who has been silent for long is to be evicted.
    fn look(&mut self, index: usize) -> Result<(), Violation> {
        let Some(member) = self.nodes[index].member() else { return Ok(()) };
        let (me, ids) = (member.me(), member.roster().ids().collect::<Vec<_>>());
        let place = ids.iter().position(|id| *id == me).unwrap_or(0);
        let others = ids.iter().cycle().skip(place + 1).take(ids.len() - 1).take(NEIGHBOURS);
        for id in others.copied().collect::<Vec<_>>() {
            let answers = self.answers(index, id);
            let (host, other) = (self.nodes[index].host, self.processes.get(&id));
            let proven =
                other.map(|other| &self.nodes[*other]).is_some_and(|n| n.is_dead() && n.host == host);
            let wrong = self.faulty && self.chance(2000) == 0;
            let now = self.now;
            let silent = &mut self.nodes[index].silent;
            if answers && !wrong {
                if silent.remove(&id).is_some() {
                    self.with_member(index, |member, now| member.on_reached(id, now))?;
                }
                continue;
            }
            let since = *silent.entry(id).or_insert(now);
            if proven || wrong || now - since >= SILENT {
                self.with_member(index, |member, now| {
                    let evidence = if proven { Evidence::Dead } else { Evidence::Silent };
                    member.suspect(id, evidence, now);
                })?;
            }
        }
        Ok(())
    }

    /// Whether a member answers this one. One that asked to join, was admitted late, and had asked again under another name,
    /// is nobody.
    fn answers(&self, index: usize, id: ServerId) -> bool {
        self.processes.get(&id).is_some_and(|other| {
            let node = &self.nodes[*other];
            let is_it = node.member().is_some_and(|member| member.me() == id);
            let cut = self.cut.contains(&(index, *other)) || self.cut.contains(&(*other, index));
            node.state == State::Running && is_it && !cut
        })
    }

    fn wake(&mut self, index: usize) {
        if self.nodes[index].state == State::Stopped {
            self.nodes[index].state = State::Running;
            for event in std::mem::take(&mut self.nodes[index].missed) {
                self.plan_in(1, event);
            }
            self.plan_in(FIRST_TICK, Event::Tick(index));
        }
    }

    fn members_running(&self) -> Vec<usize> {
        self.running().filter(|(_, node)| node.member().is_some()).map(|(index, _)| index).collect()
    }

    fn something_goes_wrong(&mut self) -> Result<(), Violation> {
        let living = self.nodes.iter().filter(|node| !node.is_dead()).count();
        let running = self.members_running();
        match self.chance(12) {
            0 | 1 if living < self.plan.servers * 2 => {
                self.start();
            }
            2 if running.len() > 2 => {
                let Some(index) = self.pick(running) else { return Ok(()) };
                self.nodes[index].leaving = true;
                if let Some((me, epoch)) = self.nodes[index].member().map(|m| (m.me(), m.roster().epoch)) {
                    self.with_member(index, wish_to_leave(me, epoch))?;
                }
            }
            3 if self.survives_a_death() => {
                if let Some(index) = self.pick(running) {
                    self.nodes[index].state = State::Dead;
                }
            }
            4 | 5 => {
                if let Some(index) = self.pick(running) {
                    self.nodes[index].state = State::Stopped;
                }
            }
            6 | 7 => {
                let stopped = self.nodes.iter().enumerate().filter(|(_, node)| node.state == State::Stopped);
                if let Some(index) = self.pick(stopped.map(|(index, _)| index).collect()) {
                    self.wake(index);
                }
            }
            8 | 9 => {
                let side: BTreeSet<usize> = (0..self.nodes.len()).filter(|_| self.chance(2) == 0).collect();
                let both_ways = self.chance(2) == 0;
                for from in 0..self.nodes.len() {
                    for to in 0..self.nodes.len() {
                        let crosses = side.contains(&from) && !side.contains(&to);
                        let back = side.contains(&to) && !side.contains(&from);
                        if crosses || (both_ways && back) {
                            self.cut.insert((from, to));
                        }
                    }
                }
                if self.chance(3) == 0 {
                    self.blind = side;
                }
            }
            _ => {
                self.cut.clear();
                self.blind.clear();
            }
        }
        Ok(())
    }

    /// Whether those who are left could still decide if one more died, as far as can be seen from outside.
    fn survives_a_death(&self) -> bool {
        let Some(latest) = self.history.latest() else { return false };
        let dead =
            latest.ids().filter(|id| self.processes.get(id).is_none_or(|node| self.nodes[*node].is_dead()));
        2 * (dead.count() + 1) <= latest.members.len()
    }
}
