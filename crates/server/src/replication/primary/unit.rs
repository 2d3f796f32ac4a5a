//! Something that is to have copies: of which parts it consists, and which backups hold each of them.

use forebay_core::ids::ServerId;
use forebay_core::steps::StepContribution;
use forebay_wire::peer::replication::BlockRange;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Something that is to have copies.
#[derive(Debug, Default)]
pub(super) struct ReplicatedUnit {
    /// How many.
    pub(super) copies: u32,
    pub(super) ranges: BTreeSet<BlockRange>,
    /// Servers that were asked to hold something of it.
    pub(super) asked: BTreeSet<ServerId>,
    /// Of these, members that leave, and were asked since nobody else could: nobody waits for them before they go.
    pub(super) leavers: BTreeSet<ServerId>,
    /// Backups that hold each part of it that has copies by now: what was put at once, or at a rank's end of it.
    pub(super) backups: Option<BTreeSet<ServerId>>,
    /// How many parts there were, and how many of them servers are still being asked to hold.
    pub(super) parts: u64,
    pub(super) pending: u64,
    /// The ranks whose end of the step backups were told of, or are being told.
    pub(super) reported: BTreeSet<u32>,
}

impl ReplicatedUnit {
    /// Backups that hold all of it.
    pub(super) fn full_backups(&self) -> BTreeSet<ServerId> {
        self.backups.clone().filter(|_| self.pending == 0).unwrap_or_default()
    }

    /// Whether what is held here of it is all that there is, these ranks having reported: what a rank ends in this moment is
    /// reported here only when backups hold it.
    pub(super) fn is_all(&self, ended: &[(u32, Arc<StepContribution>)]) -> bool {
        let has_reported = |rank: &u32| ended.iter().any(|(of, _)| of == rank);
        self.pending == 0 && self.reported.iter().all(has_reported)
    }

    /// Whether fewer backups hold all of it than should.
    pub(super) fn lacks_copies(&self) -> bool {
        self.full_backups().len() < self.copies as usize
    }

    /// Servers are asked to hold a part of it.
    pub(super) fn begin_part(&mut self) {
        self.parts += 1;
        self.pending += 1;
    }

    /// These backups hold a part of it.
    pub(super) fn end_part(&mut self, by: BTreeSet<ServerId>) {
        self.pending = self.pending.saturating_sub(1);
        self.backups = Some(self.backups.take().map_or(by.clone(), |known| &known & &by));
    }

    /// These servers are no members any more.
    pub(super) fn on_servers_left(&mut self, left: &[ServerId]) {
        self.asked.retain(|server| !left.contains(server));
        self.leavers.retain(|server| !left.contains(server));
        self.backups.iter_mut().for_each(|by| by.retain(|server| !left.contains(server)));
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> Result<(), String> {
        if self.pending > self.parts {
            return Err(format!("{} of {} parts are pending", self.pending, self.parts));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_holds_every_part_holds_it_all() {
        let by = |ids: &[u32]| ids.iter().map(|id| ServerId(*id)).collect::<BTreeSet<_>>();
        let mut unit = ReplicatedUnit { copies: 1, ..ReplicatedUnit::default() };
        unit.begin_part();
        unit.begin_part();
        unit.end_part(by(&[1, 2]));
        assert!(unit.full_backups().is_empty() && unit.lacks_copies(), "one part is still on its way");
        unit.end_part(by(&[2, 3]));
        assert_eq!((unit.full_backups(), unit.lacks_copies()), (by(&[2]), false));
        unit.begin_part();
        assert!(unit.lacks_copies());
        unit.end_part(by(&[3]));
        assert_eq!((unit.full_backups(), unit.lacks_copies()), (by(&[]), true));
        unit.sanity_check().unwrap();
    }
}
