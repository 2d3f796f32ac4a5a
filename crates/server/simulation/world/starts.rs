//! Starting servers, ranks and readers.

use super::processes::Server;
use super::{STREAM, World};
use crate::options::ServerOptions;
use crate::replication::rejoin::HeldBefore;
use crate::simulation::caller::Client;
use crate::simulation::network::{Network, Place};
use crate::simulation::process::Process;
use crate::simulation::rank::{self, RankPlan};
use crate::simulation::reader::{self, Company, ReaderPlan};
use crate::simulation::server::{self, Known, Start};
use crate::simulation::subscriber::{self, SubscriberPlan};
use forebay_cluster::ClusterOptions;
use forebay_core::ids::Lineage;
use forebay_core::steps::{Policy, RunOptions, Sharing};
use std::path::PathBuf;

impl World {
    pub(super) fn start_server(&mut self, host: Option<usize>, held: Option<Box<HeldBefore>>) {
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

    pub(super) fn start_rank(&mut self, rank: u32) {
        let (network, host, group, random) = self.client();
        let options = RunOptions {
            size: self.plan.ranks,
            policy: Policy::Block,
            keep: 0,
            queue_bytes: 1 << 20,
            continues: None,
            replicas: self.plan.replicas,
            durability: self.plan.durability,
            wait_for_readers: 0,
            job: String::new(),
        };
        let plan = RankPlan {
            stream: STREAM.into(),
            rank,
            options,
            steps: self.plan.steps,
            blocks: self.plan.blocks,
            statics: self.plan.statics,
            computes: self.plan.computes,
        };
        let book = self.book.clone();
        let main = async move {
            let place = Place::new(&network, host);
            rank::run(Client { place, group, random }, plan, book).await;
        };
        self.clients.push(Process::start(self.now, 1000, &format!("rank {rank}"), main));
    }

    /// Readers that are not alone, if any: the ranks of one that is parallel, or some that share steps.
    pub(super) fn start_company(&mut self) {
        let size = 2 + self.chance(2) as u32;
        let company: Vec<Company> = match self.chance(4) {
            0 => (0..size).map(|rank| Company::Ranks { rank, size }).collect(),
            1 => (0..size).map(|_| Company::Sharers(Sharing::OnDemand)).collect(),
            2 => (0..size).map(|_| Company::Sharers(Sharing::RoundRobin)).collect(),
            _ => Vec::new(),
        };
        let window = 1 + self.chance(4) as u32;
        for company in company {
            self.start_reader_in(company, window, 1, None);
        }
    }

    pub(super) fn start_reader(&mut self, every: u32, until: Option<u64>) {
        let window = 1 + self.chance(4) as u32;
        self.start_reader_in(Company::Alone, window, every, until);
    }

    /// One that watches for something until the stream is over.
    pub(super) fn start_subscriber(&mut self, number: usize) {
        let (network, host, group, random) = self.client();
        let plan = SubscriberPlan {
            stream: STREAM.into(),
            name: format!("watch {number}"),
            ranks: self.plan.ranks,
            blocks: self.plan.blocks,
            steps: self.plan.steps,
            looks: self.plan.computes,
        };
        let book = self.book.clone();
        let main = async move {
            let place = Place::new(&network, host);
            subscriber::run(Client { place, group, random }, plan, book).await;
        };
        self.readers += 1;
        self.clients.push(Process::start(self.now, 1000, &format!("subscriber {number}"), main));
    }

    fn start_reader_in(&mut self, company: Company, window: u32, every: u32, until: Option<u64>) {
        let (network, host, group, random) = self.client();
        let plan = ReaderPlan {
            stream: STREAM.into(),
            every,
            changes: until.is_some() && self.plan.changes,
            company,
            window,
            ranks: self.plan.ranks,
            blocks: self.plan.blocks,
            statics: self.plan.statics,
            steps: self.plan.steps,
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
}
