//! Servers, ranks and readers, what happens to them, and when.

mod faults;
mod processes;
mod starts;
mod survival;

use super::book::Book;
use super::network::Network;
use super::plan::Plan;
use super::process::{Micros, Process};
use super::server::{Ended, leftovers};
use crate::node::Node;
use forebay_core::ids::ServerId;
use forebay_core::view::mix;
use processes::{Cut, Server};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// The stream.
const STREAM: &str = "s";
/// How often it is looked whether all that was acknowledged is there.
const LOOK_EVERY: Micros = 20_000;
/// How long a group may take until nothing of a stream is left that is over.
const SETTLES: Micros = 60_000_000;
/// How long everything may take.
const END: Micros = 600_000_000;

/// Something that must never happen has happened.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

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
        if self.plan.company {
            self.start_company();
        }
        for rank in 0..self.plan.ranks {
            self.start_rank(rank);
        }
        (0..self.plan.subscribers).for_each(|number| self.start_subscriber(number));
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

    fn note(&mut self, what: String) {
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
        self.notice_dead_processes();
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
        self.notice_ended_servers()?;
        if let Some(failure) = self.book.failure() {
            return Err(self.violation(failure));
        }
        self.all_are_sane()?;
        if self.now >= self.next_look {
            self.next_look = self.now + LOOK_EVERY;
            self.all_is_there()?;
            self.heal_in_time();
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
    fn notice_ended_servers(&mut self) -> Result<(), Violation> {
        for index in 0..self.servers.len() {
            let Some(ended) = self.servers[index].known.take_ended() else { continue };
            let (number, host) = (self.servers[index].number, self.servers[index].host);
            self.servers[index].process = None;
            self.network.close(number);
            match ended {
                Ended::Left => self.note(format!("process {number} has left")),
                Ended::Failed(error) => self.note(format!("process {number} could not join: {error}")),
                Ended::Evicted(held) => {
                    self.note(format!("process {number} was given up, and comes back"));
                    self.start_server(Some(host), Some(held));
                }
            }
        }
        Ok(())
    }

    /// On one host the kernel tells that a process has died.
    fn notice_dead_processes(&mut self) {
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
