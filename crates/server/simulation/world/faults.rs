//! What goes wrong, and right again.

use super::World;
use super::processes::Cut;
use crate::simulation::plan::Odds;
use crate::simulation::process::Micros;
use std::time::Duration;

/// The longest that a host is cut off: a new coordinator waits ten seconds for the readers of the one before.
const CUT_MAX: Micros = 9_000_000;

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

impl World {
    pub(super) fn something_goes_wrong(&mut self) {
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
                self.note(format!("process {} is started on host {host}", self.processes));
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
                    self.note(format!("process {} stands still", self.servers[index].number));
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
                    self.note(format!("process {} goes on", self.servers[index].number));
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
        self.cut = Cut { host, lasts: true, since: self.now, until: 0 };
        self.note(format!(
            "host {host} is cut off, {}",
            ["both ways", "from others", "to others"][ways as usize]
        ));
    }

    /// A host that is cut off is there again where nothing would be promised otherwise: if something was acknowledged meanwhile
    /// of which it has all copies, since it may be given up; and before a reader there is waited for no longer.
    pub(super) fn heal_in_time(&mut self) {
        let there: Vec<usize> =
            (0..self.servers.len()).filter(|index| self.servers[*index].host == self.cut.host).collect();
        let holds_all = || self.survivors(&there).is_none_or(|others| self.lacking(&others).is_some());
        if self.cut.lasts && (self.now > self.cut.since + CUT_MAX || holds_all()) {
            self.heal();
        }
    }

    pub(super) fn heal(&mut self) {
        self.network.heal();
        if std::mem::take(&mut self.cut.lasts) {
            self.cut.until = self.now;
            self.note(format!("host {} is there again", self.cut.host));
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
        self.note(format!("process {number}, {id}, is told to leave in {patience:?}"));
    }

    fn kill(&mut self, index: usize) {
        let (number, host) = (self.servers[index].number, self.servers[index].host);
        let id = self.servers[index].known.node().map(|node| node.id);
        self.servers[index].process = None;
        self.servers[index].stands_still = false;
        self.network.close(number);
        self.note(format!("process {number}, {id:?}, on host {host}, is killed"));
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
}
