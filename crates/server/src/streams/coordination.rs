//! The streams that this server coordinates.

use crate::context::Context;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::steps::{HandedCounts, StreamCoordinator};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many streams that nobody uses any more are remembered, for `forebay ls`.
const IDLE_MAX: usize = 256;

/// The streams that this server coordinates.
#[derive(Debug, Default)]
pub(crate) struct Coordination {
    coordinators: BTreeMap<String, StreamCoordinator>,
    /// Those of them that were idle when they were last looked at, the longest ago first.
    idle: VecDeque<String>,
    /// The streams of which this server was told late, and who is still to tell of each.
    collecting: BTreeMap<String, BTreeSet<ServerId>>,
    /// What servers that leave have counted of streams, for whoever takes their place.
    counted: BTreeMap<String, (ServerId, HandedCounts)>,
    /// What was told of that here, if this one leaves.
    counts_told: BTreeMap<String, HandedCounts>,
    /// No forgotten stream had a run of a higher number.
    forgotten_run: RunNumber,
}

impl Coordination {
    /// The coordinator of a stream, made at first use.
    pub(crate) fn at(&mut self, cx: &Context<'_>, stream: &str) -> &mut StreamCoordinator {
        if !self.coordinators.contains_key(stream) {
            let members = cx.server.standing();
            let members = members.view.members.iter().copied().filter(|id| !cx.members().is_gone(*id));
            // What other servers still know of a forgotten stream of this name must not be taken for the new one's.
            let made = StreamCoordinator::new(stream, members.collect())
                .with_runs_after(self.forgotten_run)
                .with_versions_after(cx.server.unique());
            self.coordinators.insert(stream.to_owned(), made);
            tracing::info!("this server coordinates stream '{stream}' from now on");
        }
        let new = || StreamCoordinator::new(stream, Vec::new());
        let found = self.coordinators.entry(stream.to_owned()).or_insert_with(new);
        found.note_time(cx.server.environment.wall_clock());
        found
    }

    /// The coordinator of a stream, if this server coordinates it.
    pub(crate) fn get(&self, stream: &str) -> Option<&StreamCoordinator> {
        self.coordinators.get(stream)
    }

    /// The same, to be told something.
    pub(crate) fn get_mut(&mut self, stream: &str) -> Option<&mut StreamCoordinator> {
        self.coordinators.get_mut(stream)
    }

    /// Whether this server coordinates a stream.
    pub(crate) fn has(&self, stream: &str) -> bool {
        self.coordinators.contains_key(stream)
    }

    /// Whether others are still telling of a stream that this server coordinates in the place of one that has died.
    pub(crate) fn is_taking_over(&self, stream: &str) -> bool {
        self.get(stream).is_some_and(StreamCoordinator::is_taking_over)
    }

    /// All coordinators, by the names of their streams.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &StreamCoordinator)> {
        self.coordinators.iter()
    }

    /// The names of the streams.
    pub(crate) fn streams(&self) -> Vec<String> {
        self.coordinators.keys().cloned().collect()
    }

    /// A server is a member from now on.
    pub(crate) fn on_server_joined(&mut self, server: ServerId) {
        self.coordinators.values_mut().for_each(|stream| stream.on_server_joined(server));
    }

    /// These servers are still to tell what they know of a stream.
    pub(crate) fn collect(&mut self, stream: &str, from: impl IntoIterator<Item = ServerId>) {
        let awaited: BTreeSet<ServerId> = from.into_iter().collect();
        // Where there is nobody else, nothing is awaited.
        if !awaited.is_empty() {
            self.collecting.insert(stream.to_owned(), awaited);
        }
    }

    /// Whether some are still to tell of a stream.
    pub(crate) fn collects(&self, stream: &str) -> bool {
        self.collecting.contains_key(stream)
    }

    /// A server has told all that it knows of a stream.
    pub(crate) fn note_told_by(&mut self, stream: &str, server: ServerId) {
        if let Some(awaited) = self.collecting.get_mut(stream) {
            awaited.remove(&server);
            if awaited.is_empty() {
                self.collecting.remove(stream);
            }
        }
    }

    /// A server is gone: nothing is awaited from it.
    pub(crate) fn on_server_gone(&mut self, server: ServerId) {
        for stream in self.collecting.keys().cloned().collect::<Vec<_>>() {
            self.note_told_by(&stream, server);
        }
    }

    /// A server that leaves tells what it has counted; of those that have gone before, nobody needs that any more.
    pub(crate) fn note_counts(
        &mut self,
        from: ServerId,
        stream: String,
        counts: HandedCounts,
        is_member: impl Fn(ServerId) -> bool,
    ) {
        self.counted.retain(|_, (server, _)| *server == from || is_member(*server));
        self.counted.insert(stream, (from, counts));
    }

    /// A server stays after all: what it has counted it goes on counting.
    pub(crate) fn forget_counts_of(&mut self, server: ServerId) {
        self.counted.retain(|_, (from, _)| *from != server);
    }

    /// Homes tell of this run of a stream, whose coordinator may have left: what that one had counted goes on.
    pub(crate) fn inherit_counts(&mut self, stream: &str, run: RunNumber) {
        let is_of_it = self.counted.get(stream).is_some_and(|(_, counts)| counts.run == run);
        if is_of_it
            && let Some((_, counts)) = self.counted.remove(stream)
            && let Some(coordinator) = self.coordinators.get_mut(stream)
        {
            coordinator.inherit_counts(&counts);
        }
    }

    /// What this server, which leaves, has counted of a stream and has not told yet.
    pub(crate) fn counts_to_tell(&mut self, stream: &str) -> Option<HandedCounts> {
        let counts = self.coordinators.get(stream)?.counts_to_hand_over()?;
        let is_new = self.counts_told.insert(stream.to_owned(), counts.clone()).as_ref() != Some(&counts);
        is_new.then_some(counts)
    }

    /// This server begins to leave, or stays: nobody has been told what it has counted.
    pub(crate) fn forget_counts_told(&mut self) {
        self.counts_told.clear();
    }

    /// This server coordinates a stream no more.
    pub(crate) fn remove(&mut self, stream: &str) {
        self.coordinators.remove(stream);
        self.collecting.remove(stream);
    }

    /// A stream may be idle: the streams that are to be forgotten, since they never ran or too many others were used since.
    pub(crate) fn note_idle(&mut self, stream: &str) -> Vec<String> {
        let Some(idle) = self.get(stream).filter(|found| found.is_idle()) else { return Vec::new() };
        if idle.last_run().is_none() {
            return vec![stream.to_owned()];
        }
        self.idle.retain(|known| known != stream);
        self.idle.push_back(stream.to_owned());
        let mut forgotten = Vec::new();
        while self.idle.len() > IDLE_MAX {
            let Some(oldest) = self.idle.pop_front() else { break };
            let last_run = self.get(&oldest).filter(|found| found.is_idle());
            if let Some(run) = last_run.and_then(StreamCoordinator::last_run) {
                self.forgotten_run = self.forgotten_run.max(run);
                forgotten.push(oldest);
            }
        }
        forgotten
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        for (stream, coordinator) in &self.coordinators {
            coordinator.sanity_check().map_err(|error| format!("stream '{stream}': {error}"))?;
        }
        let distinct: BTreeSet<&String> = self.idle.iter().collect();
        if distinct.len() < self.idle.len() || self.idle.len() > IDLE_MAX {
            return Err(format!(
                "{} idle streams are remembered, {} of them once",
                self.idle.len(),
                distinct.len()
            ));
        }
        Ok(())
    }
}
