//! What backups are told of the runs of steps: they report it to a stream's coordinator in the place of this server, should it die.

use super::Primary;
use super::candidates::candidates;
use crate::context::Context;
use crate::replication::sources::{RunKnowledge, Sources};
use forebay_cluster::environment::HashMap;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::RankEnd;
use forebay_wire::peer::replication::{Message, ReplicaUnit};

impl Primary {
    /// Tells a backup what it does not know yet of a run.
    pub(super) fn tell_of_run(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        backup: ServerId,
        stream: &str,
        run: RunNumber,
    ) {
        let Some(version) = sources.run_version(stream, run) else { return };
        let known = self.runs.entry((stream.to_owned(), run)).or_default();
        let before = known.insert(backup, version);
        if before == Some(version) {
            return;
        }
        let Some(RunKnowledge { coordinator, known, gone }) = sources.run(stream, run) else { return };
        let name = || stream.to_owned();
        cx.tell(backup, Message::NoteRun { stream: name(), coordinator, known: Box::new(known) });
        let gone = gone.into_iter().filter(|_| before.is_none() || !seeded(Bug::TellsOnceWhoHasGone));
        for (rank, end) in gone {
            cx.tell(backup, Message::NoteRankGone { stream: name(), run, rank, end });
        }
    }

    /// Tells a server of a run, if none knows all of it.
    pub(crate) fn tell_any_of_run(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        stream: &str,
        run: RunNumber,
    ) {
        let able = candidates(cx.server, cx.members());
        let known = self.runs.get(&(stream.to_owned(), run));
        let knows = |id: &&ServerId| known.is_some_and(|known| known.contains_key(id));
        let backup = able.iter().find(knows).or(able.first()).copied();
        if let Some(backup) = backup {
            self.tell_of_run(cx, sources, backup, stream, run);
        }
    }

    /// The servers that were told of a run.
    pub(crate) fn told_of_run(&self, stream: &str, run: RunNumber) -> Vec<ServerId> {
        self.runs.get(&(stream.to_owned(), run)).into_iter().flat_map(HashMap::keys).copied().collect()
    }

    /// A backup knows nothing of the run of a step.
    pub(crate) fn on_run_forgotten(&mut self, unit: &ReplicaUnit, backup: ServerId) {
        let known = unit.step().and_then(|id| self.runs.get_mut(&(id.stream.clone(), id.run)));
        if let Some(known) = known {
            known.remove(&backup);
        }
    }

    /// A rank with its home here is gone: so it is for those that know of its run.
    pub(crate) fn on_rank_gone(
        &self,
        cx: &mut Context<'_>,
        stream: &str,
        (run, rank): (RunNumber, u32),
        end: RankEnd,
    ) {
        let told = self.runs.get(&(stream.to_owned(), run));
        for backup in told.into_iter().flat_map(HashMap::keys) {
            let stream = stream.to_owned();
            cx.tell(*backup, Message::NoteRankGone { stream, run, rank, end });
        }
    }
}
