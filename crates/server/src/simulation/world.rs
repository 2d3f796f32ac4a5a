//! Servers, ranks and readers, what happens to them, and when.

use super::book::Book;
use super::caller::Client;
use super::network::{Network, Place};
use super::plan::{Odds, Plan};
use super::process::{Micros, Process};
use super::rank::{self, RankPlan};
use super::reader::{self, ReaderPlan};
use super::server::{self, Ended, Known, Start, has, holds_open, leftovers, told_by};
use crate::node::Node;
use crate::options::ServerOptions;
use crate::replication::rejoin::HeldBefore;
use forebay_cluster::ClusterOptions;
use forebay_core::ids::{Lineage, ServerId, StepId};
use forebay_core::steps::{Policy, RunOptions};
use forebay_core::view::mix;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The stream.
const STREAM: &str = "s";
/// How often it is looked whether all that was acknowledged is there.
const LOOK_EVERY: Micros = 20_000;
/// How long a group may take until nothing of a stream is left that is over.
const SETTLES: Micros = 60_000_000;
/// How long others may take to agree to go on without a server that stood still.
const DOUBTED: Micros = 3_000_000;
/// How long everything may take.
const END: Micros = 600_000_000;

/// Something that must never happen has happened.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

/// A server, as the simulation sees it.
struct Server {
    number: u32,
    host: usize,
    process: Option<Process>,
    known: Known,
    stands_still: bool,
    /// Since when it runs again after it stood still: the others may just have agreed to go on without it.
    runs_since: Micros,
    /// Whether it was given up before, and came back with what it held.
    came_back: bool,
}

impl Server {
    fn runs(&self) -> bool {
        self.process.is_some() && !self.stands_still
    }

    /// Whether others can count on it.
    fn is_reliable(&self, now: Micros, cut: &Cut) -> bool {
        let doubted = |since: Micros| since > 0 && now <= since + DOUBTED;
        let was_cut = cut.host == self.host && (cut.lasts || doubted(cut.until));
        self.runs() && !doubted(self.runs_since) && !was_cut
    }

    /// Whether it was given up, and is going to offer what it holds as a new member.
    fn comes_back(&self) -> bool {
        let was_out = |node: Arc<Node>| node.driver.out.get() && !node.state.lock().common.members.goes();
        self.process.is_some() && self.known.node().map_or(self.came_back, was_out)
    }

    /// Its state, if it is a member as far as it knows.
    fn member(&self) -> Option<Arc<Node>> {
        self.process.as_ref()?;
        self.known.node().filter(|node| !node.driver.out.get())
    }
}

/// What may go wrong, or right again.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Starts,
    Leaves,
    Dies,
    StandsStill,
    IsCutOff,
    IsHealed,
    GoesOn,
    Reads,
}

/// The host that was cut off last.
#[derive(Debug, Default)]
struct Cut {
    host: usize,
    lasts: bool,
    until: Micros,
}

/// A group, those who use it, and what is around them.
pub(super) struct World {
    plan: Plan,
    random: u64,
    now: Micros,
    network: Network,
    directory: TempDir,
    servers: Vec<Server>,
    clients: Vec<Process>,
    /// How many processes there have been.
    processes: u32,
    readers: usize,
    book: Book,
    cut: Cut,
    faulty: bool,
    next_fault: Micros,
    next_look: Micros,
    /// Who is going to see that a server has died, and when.
    deaths: Vec<(Micros, u32, ServerId)>,
    /// What has happened, for whoever looks into a violation.
    history: Vec<String>,
    /// A hash of all that could be seen from outside, moment by moment.
    trace: u64,
}

impl World {
    pub(super) fn new(seed: u64, plan: &Plan) -> World {
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let mut world = World {
            plan: plan.clone(),
            random: mix(seed + 1),
            now: 0,
            network: Network::new(seed, plan.slowest),
            directory: directory.expect("a directory can be made"),
            servers: Vec::new(),
            clients: Vec::new(),
            processes: 0,
            readers: 0,
            book: Book::default(),
            cut: Cut::default(),
            faulty: false,
            next_fault: 0,
            next_look: 0,
            deaths: Vec::new(),
            history: Vec::new(),
            trace: 0,
        };
        for _ in 0..plan.servers {
            world.start_server(None, None);
        }
        world
    }

    /// Runs everything until it is over.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let wanted = self.plan.servers as usize;
        self.run_until("the group to form", |world| world.members().len() == wanted)?;
        self.start_reader(1, None);
        let attached = |world: &World| {
            let attached = |node: &Arc<Node>| node.state.lock().attachments.are_told_of_steps();
            world.members().iter().any(attached)
        };
        self.run_until("the reader to attach", attached)?;
        for rank in 0..self.plan.ranks {
            self.start_rank(rank);
        }
        for _ in 1..self.plan.readers {
            let (every, until) = (1 + self.chance(3) as u32, 1 + self.chance(30));
            self.start_reader(every, Some(until));
        }
        self.faulty = true;
        let ranks = self.plan.ranks as usize;
        self.run_until("the ranks to end", |world| world.book.all_ended().0 == ranks)?;
        self.faulty = false;
        self.heal();
        (0..self.servers.len()).for_each(|index| self.servers[index].stands_still = false);
        self.run_until("the readers to end", |world| world.book.all_ended().1 == world.readers)?;
        let end = self.now + SETTLES;
        self.run_until("all memory to be free", |world| {
            world.now > end || world.members().iter().all(|node| leftovers(node).is_none())
        })?;
        let left: Vec<String> = self.members().iter().filter_map(|node| leftovers(node)).collect();
        if !left.is_empty() {
            return Err(self.violation(format!("memory that is nobody's: {}", left.join("; "))));
        }
        Ok(())
    }

    /// How many steps and blocks were read and compared.
    pub(super) fn read(&self) -> (u64, u64) {
        self.book.read()
    }

    /// What has happened.
    pub(super) fn history(&self) -> &[String] {
        &self.history
    }

    /// A hash of all that could be seen from outside: no name of anything goes into it.
    pub(super) fn trace(&self) -> u64 {
        self.trace
    }

    /// Takes this moment into the trace: the time, chance, what was read, and what each server knows and holds.
    fn note_moment(&mut self) {
        let ((steps, blocks), (ranks, readers)) = (self.book.read(), self.book.all_ended());
        let mut seen =
            vec![self.now, self.random, self.network.random(), steps, blocks, ranks as u64, readers as u64];
        for node in self.members() {
            seen.extend([u64::from(node.id.0), node.epoch(), node.store.lock().usage().staged]);
        }
        self.trace = seen.into_iter().fold(self.trace, |trace, seen| mix(trace ^ seen));
    }

    fn violation(&self, what: String) -> Violation {
        Violation(format!("after {} ms: {what}", self.now / 1000))
    }

    fn happens(&mut self, what: String) {
        self.history.push(format!("{:>8} ms: {what}", self.now / 1000));
        tracing::info!("---- {} ms: {what}", self.now / 1000);
    }

    fn chance(&mut self, below: u64) -> u64 {
        self.random = mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.random % below.max(1)
    }

    fn pick(&mut self, of: &[usize]) -> Option<usize> {
        let index = self.chance(of.len() as u64) as usize;
        of.get(index).copied()
    }

    fn group(&self) -> PathBuf {
        self.directory.path().join("group.json")
    }

    fn next_process(&mut self) -> u32 {
        self.processes += 1;
        self.processes
    }

    fn start_server(&mut self, host: Option<usize>, held: Option<Box<HeldBefore>>) {
        let hosts = self.plan.hosts as u64;
        let host = host.unwrap_or_else(|| self.chance(hosts) as usize);
        let (number, seed) = (self.next_process(), self.chance(u64::MAX));
        let options = ServerOptions {
            cluster: ClusterOptions {
                group: self.group(),
                servers: self.plan.servers,
                lineage: None,
                bind: Vec::new(),
                advertise: None,
                ports: None,
                seal_payload: false,
                silence: Some(self.plan.silence),
            },
            budget: Some(self.plan.budget),
            watch_parent: None,
            private_place: None,
            leash: None,
        };
        let came_back = held.is_some();
        let start = Start {
            network: self.network.clone(),
            process: number,
            host,
            options,
            lineage: Lineage([7; 16]),
            incarnation: seed,
            held,
            door: self.network.open(number),
        };
        let known = Known::default();
        let speed = 990 + self.chance(21);
        let process = Process::start(self.now, speed, &number.to_string(), server::run(start, known.clone()));
        let (process, stands_still, runs_since) = (Some(process), false, 0);
        self.servers.push(Server { number, host, process, known, stands_still, runs_since, came_back });
    }

    fn client(&mut self) -> (Network, usize, PathBuf, u64) {
        let hosts = self.plan.hosts as u64;
        (self.network.clone(), self.chance(hosts) as usize, self.group(), self.chance(u64::MAX))
    }

    fn start_rank(&mut self, rank: u32) {
        let (network, host, group, random) = self.client();
        let options = RunOptions {
            size: self.plan.ranks,
            policy: Policy::Block,
            keep: 0,
            queue_bytes: 1 << 20,
            continues: None,
            replicas: self.plan.replicas,
            durability: self.plan.durability,
        };
        let plan = RankPlan {
            stream: STREAM.into(),
            rank,
            options,
            steps: self.plan.steps,
            blocks: self.plan.blocks,
            computes: self.plan.computes,
        };
        let book = self.book.clone();
        let main = async move {
            let place = Place::new(&network, host);
            rank::run(Client { place, group, random }, plan, book).await;
        };
        self.clients.push(Process::start(self.now, 1000, &format!("rank {rank}"), main));
    }

    fn start_reader(&mut self, every: u32, until: Option<u64>) {
        let (network, host, group, random) = self.client();
        let plan = ReaderPlan {
            stream: STREAM.into(),
            every,
            window: 1 + self.chance(4) as u32,
            ranks: self.plan.ranks,
            blocks: self.plan.blocks,
            until,
            looks: self.plan.computes,
        };
        let book = self.book.clone();
        let main = async move {
            let place = Place::new(&network, host);
            reader::run(Client { place, group, random }, plan, book).await;
        };
        self.readers += 1;
        self.clients.push(Process::start(self.now, 1000, &format!("reader {}", self.readers), main));
    }

    /// The servers that are members, as far as they know, and run or stand still.
    fn members(&self) -> Vec<Arc<Node>> {
        self.servers.iter().filter_map(Server::member).collect()
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&World) -> bool) -> Result<(), Violation> {
        while !done(self) {
            if self.now > END {
                return Err(self.violation(format!("still waiting for {what}: {}", self.describe())));
            }
            self.advance()?;
        }
        Ok(())
    }

    /// A moment passes.
    fn advance(&mut self) -> Result<(), Violation> {
        self.now += 200 + self.chance(self.plan.moment);
        self.see_deaths();
        let count = self.servers.len() + self.clients.len();
        // In another order each time; not everybody runs in each moment.
        let (first, step) =
            (self.chance(count as u64) as usize, if self.chance(2) == 0 { 1 } else { count - 1 });
        for turn in 0..count {
            let (skips, rounds) = (self.chance(4) == 0, 2 + self.chance(8));
            let index = (first + turn * step) % count;
            let now = self.now;
            let process = match index.checked_sub(self.servers.len()) {
                None => {
                    let server = &mut self.servers[index];
                    server.process.as_mut().filter(|_| !server.stands_still)
                }
                Some(index) => self.clients.get_mut(index),
            };
            if let Some(process) = process.filter(|_| !skips) {
                process.run(now, rounds);
            }
        }
        self.network.carry(self.now);
        self.note_moment();
        self.see_ends()?;
        if let Some(failure) = self.book.failure() {
            return Err(self.violation(failure));
        }
        self.all_are_sane()?;
        if self.now >= self.next_look {
            self.next_look = self.now + LOOK_EVERY;
            self.all_is_there()?;
            self.heal_what_holds_all();
        }
        if self.faulty && self.now >= self.next_fault {
            self.next_fault = self.now + self.chance(2 * self.plan.faults_apart);
            self.something_goes_wrong();
        }
        Ok(())
    }

    /// What always holds of the components of each server.
    fn all_are_sane(&self) -> Result<(), Violation> {
        for node in self.servers.iter().filter_map(|server| server.known.node()) {
            let found = node.state.lock().sanity_check();
            found.map_err(|error| self.violation(format!("{}: {error}", node.id)))?;
        }
        Ok(())
    }

    /// Servers that have ended by themselves.
    fn see_ends(&mut self) -> Result<(), Violation> {
        for index in 0..self.servers.len() {
            let Some(ended) = self.servers[index].known.take_ended() else { continue };
            let (number, host) = (self.servers[index].number, self.servers[index].host);
            self.servers[index].process = None;
            self.network.close(number);
            match ended {
                Ended::Left => self.happens(format!("process {number} has left")),
                Ended::Failed(error) => self.happens(format!("process {number} could not join: {error}")),
                Ended::Evicted(held) => {
                    self.happens(format!("process {number} was given up, and comes back"));
                    self.start_server(Some(host), Some(held));
                }
            }
        }
        Ok(())
    }

    /// On one host the kernel tells that a process has died.
    fn see_deaths(&mut self) {
        let now = self.now;
        let due: Vec<(Micros, u32, ServerId)> = self.deaths.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, number, dead) in due {
            let Some(server) = self.servers.iter().find(|server| server.number == number) else { continue };
            let (Some(process), Some(node)) = (&server.process, server.known.node()) else { continue };
            process.within(|| {
                tokio::spawn(async move {
                    if node.goes_on().await {
                        node.lost(dead, true);
                    }
                });
            });
        }
    }

    fn something_goes_wrong(&mut self) {
        let there: Vec<usize> =
            (0..self.servers.len()).filter(|index| self.servers[*index].member().is_some()).collect();
        let run: Vec<usize> = there.iter().copied().filter(|index| self.servers[*index].runs()).collect();
        let processes = self.servers.iter().filter(|server| server.process.is_some()).count();
        let Odds { starts, leaves, dies, stands_still, is_cut_off, is_healed, goes_on, reads } =
            self.plan.odds.clone();
        let all = [
            (Fault::Starts, starts),
            (Fault::Leaves, leaves),
            (Fault::Dies, dies),
            (Fault::StandsStill, stands_still),
            (Fault::IsCutOff, is_cut_off),
            (Fault::IsHealed, is_healed),
            (Fault::GoesOn, goes_on),
            (Fault::Reads, reads),
        ];
        let mut drawn = self.chance(all.iter().map(|(_, odds)| odds).sum());
        let fault = all.into_iter().find_map(|(fault, odds)| match drawn.checked_sub(odds) {
            None => Some(fault),
            Some(rest) => {
                drawn = rest;
                None
            }
        });
        match fault.unwrap_or(Fault::GoesOn) {
            Fault::Starts if processes < self.plan.servers_max => {
                self.start_server(None, None);
                let host = self.servers.last().map_or(0, |server| server.host);
                self.happens(format!("process {} is started on host {host}", self.processes));
            }
            Fault::Leaves => {
                // The last one would end with the group.
                if let Some(index) = self.pick(&run).filter(|index| self.survivors(&[*index]).is_some()) {
                    self.leave(index);
                }
            }
            Fault::Dies if self.plan.harms => {
                if let Some(index) = self.pick(&run).filter(|index| self.may_go(&[*index])) {
                    self.kill(index);
                }
            }
            Fault::StandsStill if self.plan.harms => {
                if let Some(index) = self.pick(&run).filter(|index| self.may_go(&[*index])) {
                    self.servers[index].stands_still = true;
                    self.happens(format!("process {} stands still", self.servers[index].number));
                }
            }
            Fault::IsCutOff if self.plan.hosts > 1 && self.plan.harms && !self.cut.lasts => self.cut_off(),
            Fault::IsHealed if self.cut.lasts => self.heal(),
            Fault::Reads => {
                let (every, until) = (1 + self.chance(3) as u32, 1 + self.chance(4));
                self.start_reader(every, Some(until));
            }
            _ => {
                let still: Vec<usize> =
                    (0..self.servers.len()).filter(|index| self.servers[*index].stands_still).collect();
                if let Some(index) = self.pick(&still) {
                    self.servers[index].stands_still = false;
                    self.servers[index].runs_since = self.now;
                    self.happens(format!("process {} goes on", self.servers[index].number));
                }
            }
        }
    }

    /// Cuts a host off, one way or both.
    fn cut_off(&mut self) {
        let host = self.chance(self.plan.hosts as u64) as usize;
        let there: Vec<usize> =
            (0..self.servers.len()).filter(|index| self.servers[*index].host == host).collect();
        if !self.may_go(&there) {
            return;
        }
        let ways = self.chance(3);
        for other in (0..self.plan.hosts).filter(|other| *other != host) {
            if ways != 1 {
                self.network.cut(host, other);
            }
            if ways != 2 {
                self.network.cut(other, host);
            }
        }
        self.cut = Cut { host, lasts: true, until: 0 };
        self.happens(format!(
            "host {host} is cut off, {}",
            ["both ways", "from others", "to others"][ways as usize]
        ));
    }

    /// A host that is cut off is there again if something was acknowledged meanwhile of which it has all copies: it may be
    /// given up, and nothing is promised then.
    fn heal_what_holds_all(&mut self) {
        let there: Vec<usize> =
            (0..self.servers.len()).filter(|index| self.servers[*index].host == self.cut.host).collect();
        if self.cut.lasts && self.survivors(&there).is_none_or(|others| self.lacking(&others).is_some()) {
            self.heal();
        }
    }

    fn heal(&mut self) {
        self.network.heal();
        if std::mem::take(&mut self.cut.lasts) {
            self.cut.until = self.now;
            self.happens(format!("host {} is there again", self.cut.host));
        }
    }

    fn leave(&mut self, index: usize) {
        // Some who want it to leave do not wait until it has.
        let patience = match self.chance(3) {
            0 => Duration::from_millis(20 + self.chance(400)),
            _ => Duration::from_secs(30),
        };
        let server = &mut self.servers[index];
        let (Some(process), Some(node)) = (&server.process, server.known.node()) else { return };
        let (id, number) = (node.id, server.number);
        process.within(|| {
            tokio::spawn(async move {
                let left = node.leave(false, patience, std::future::pending()).await;
                if let Err(error) = left {
                    tracing::info!("{id} does not leave: {error}");
                }
            });
        });
        self.happens(format!("process {number}, {id}, is told to leave in {patience:?}"));
    }

    fn kill(&mut self, index: usize) {
        let (number, host) = (self.servers[index].number, self.servers[index].host);
        let id = self.servers[index].known.node().map(|node| node.id);
        self.servers[index].process = None;
        self.servers[index].stands_still = false;
        self.network.close(number);
        self.happens(format!("process {number}, {id:?}, on host {host}, is killed"));
        let Some(dead) = id else { return };
        let beside: Vec<u32> = self
            .servers
            .iter()
            .filter(|server| server.host == host && server.process.is_some())
            .map(|server| server.number)
            .collect();
        for number in beside {
            let at = self.now + self.chance(5_000);
            self.deaths.push((at, number, dead));
        }
    }

    /// Whether the group is to survive it if these servers die now, stand still, or cannot be reached: the others can decide,
    /// and hold all that was acknowledged, and what is just being.
    fn may_go(&self, goes: &[usize]) -> bool {
        let Some(others) = self.survivors(goes).filter(|others| self.lacking(others).is_none()) else {
            return false;
        };
        let told =
            goes.iter().filter_map(|index| self.servers[*index].member()).flat_map(|node| told_by(&node));
        told.into_iter().all(|(id, rank, blocks)| has(&others, &id, rank, &blocks).is_ok())
    }

    /// The others on which one can count, if they can decide without these.
    fn survivors(&self, goes: &[usize]) -> Option<Vec<Arc<Node>>> {
        let others = self.servers.iter().enumerate();
        let others: Vec<Arc<Node>> = others
            .filter(|(other, server)| !goes.contains(other) && server.is_reliable(self.now, &self.cut))
            .filter_map(|(_, server)| server.member())
            .collect();
        let latest = others.iter().max_by_key(|node| node.epoch()).map(|node| node.standing())?;
        let living = latest.roster.ids().filter(|id| others.iter().any(|node| node.id == *id)).count();
        let stay = others.into_iter().filter(|node| !self.is_being_given_up(node.id)).collect();
        (2 * living > latest.roster.members.len()).then_some(stay)
    }

    /// Whether some have agreed, or may have, to go on without a server, whether or not others can know that by now.
    fn is_being_given_up(&self, id: ServerId) -> bool {
        self.servers.iter().filter_map(Server::member).any(|node| {
            let membership = node.driver.membership.lock();
            let rosters = [Some(membership.roster()), membership.accepted()];
            rosters.into_iter().flatten().any(|roster| roster.has_left(id))
        })
    }

    /// Something acknowledged that none of these servers has.
    fn lacking(&self, servers: &[Arc<Node>]) -> Option<String> {
        for ((run, step, rank), blocks) in self.book.to_be_kept() {
            let id = StepId { stream: STREAM.into(), run, step };
            if let Err(what) = has(servers, &id, rank, &blocks) {
                return Some(what);
            }
        }
        for (run, step, blocks) in self.book.open() {
            let id = StepId { stream: STREAM.into(), run, step };
            let lost = blocks.iter().find(|block| !servers.iter().any(|node| holds_open(node, &id, block)));
            if let Some(block) = lost {
                return Some(format!("a block of {id}, which is not ended yet, put at {block:?}"));
            }
        }
        None
    }

    /// All that was acknowledged is held by a server that is a member, or stands still; or by one that was given up, and is
    /// just coming back with it.
    fn all_is_there(&self) -> Result<(), Violation> {
        match self.lacking(&self.members()) {
            Some(what) if !self.servers.iter().any(Server::comes_back) => {
                Err(self.violation(format!("no server has {what}")))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self) -> String {
        let told = self.servers.iter().filter(|server| server.process.is_some()).map(|server| {
            let node = server.known.node();
            let of = node.map(|node| format!("{} in epoch {}", node.id, node.epoch()));
            format!("process {} is {of:?}, stands still: {}", server.number, server.stands_still)
        });
        told.collect::<Vec<_>>().join("; ")
    }
}
