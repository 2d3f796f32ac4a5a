//! The blocks of a step that are this rank's, of a parallel reader.

use crate::reading::block_view::BlockView;
use crate::reading::seat::Seat;
use crate::reading::seen::{SeenBlock, needed, seen_of, seen_within};
use crate::reading::step::Step;
use forebay_core::assign::{Assign, ToAssign, slab};
use forebay_core::block::BlockRecord;
use forebay_core::ids::ServerId;
use forebay_core::selection::Selection;
use forebay_core::steps::FieldReport;
use forebay_core::{Error, Result};
use std::collections::HashMap;

impl Step {
    /// The ranks that read this step, with their hosts, and which of them this reader is. Of one that is not parallel: none, and 0.
    pub fn readers(&self) -> (Vec<(u32, String)>, u32) {
        let Some(seat) = &self.seat else { return (Vec::new(), 0) };
        let readers = seat.readers(&self.report().absent);
        (readers.iter().map(|reader| (reader.rank, reader.host.to_owned())).collect(), seat.rank)
    }

    /// The host of each of a field's blocks, in the order of [`Step::records`]; `None` where it is not known.
    pub fn hosts_of_blocks(&self, name: &str) -> Result<Vec<Option<String>>> {
        let Some(seat) = &self.seat else { return Ok(Vec::new()) };
        let records = self.records(name)?;
        let hosts = HostsOfServers::of_all(seat, records.iter());
        Ok(records.iter().map(|record| hosts.of(record).map(str::to_owned)).collect())
    }

    /// Views of those of a field's blocks that are this rank's, in the order of ranks and numbers, as the reader was opened to
    /// have them assigned (`assign`); of a reader that is not parallel all of them. Otherwise as [`Step::blocks`].
    pub fn mine(&self, name: &str) -> Result<Vec<BlockView>> {
        let (found, records) = self.found_records(name)?;
        let hold = self.hold_of(&found.field)?;
        self.mine_of(found, &records).iter().map(|block| self.view(&found.field, block, &hold)).collect()
    }

    /// The slab of a field that is this rank's, where slabs are assigned. `ErrorKind::Invalid` where something else is, or if the
    /// field has no global shape.
    pub fn mine_region(&self, name: &str) -> Result<Selection> {
        let found = self.find_data(name)?;
        let seat = self.seat.as_deref().filter(|seat| seat.assign == Assign::Slab);
        let slab = seat.and_then(|seat| self.slab_of(found, seat));
        slab.ok_or_else(|| {
            Error::invalid(format!(
                "field '{name}': a rank has a region of its own where the reader was opened with assign 'slab' and more than one \
                 rank, and the field has a global shape"
            ))
        })
    }

    fn slab_of(&self, found: &FieldReport, seat: &Seat) -> Option<Selection> {
        let shape = found.field.shape.as_ref()?;
        let all = || Selection {
            offset: shape.iter().map(|_| 0).collect(),
            shape: shape.clone(),
            step: shape.iter().map(|_| 1).collect(),
        };
        let readers = seat.readers(&self.report().absent);
        let index = readers.iter().position(|reader| reader.rank == seat.rank)?;
        Some(slab(&needed(found).unwrap_or_else(all), index as u32, readers.len() as u32))
    }

    /// Which of these blocks are this rank's, and what it sees of each.
    pub(super) fn mine_of<'a>(&self, found: &FieldReport, records: &'a [BlockRecord]) -> Vec<SeenBlock<'a>> {
        let Some(seat) = self.seat.as_deref().filter(|seat| seat.assign != Assign::All) else {
            return in_order(seen_of(found, records));
        };
        if !seat.assign.cuts() {
            return self.whole_of(found, seat, seat.assign, seen_of(found, records));
        }
        let Some(slab) = self.slab_of(found, seat) else {
            return self.whole_of(found, seat, Assign::Ranks, seen_of(found, records));
        };
        // What has no place in the slabs: blocks of finer levels.
        let (finer, mut mine): (Vec<_>, Vec<_>) =
            seen_within(&slab, records).into_iter().partition(|block| block.record.level > 0);
        mine.extend(self.whole_of(found, seat, Assign::Ranks, finer));
        in_order(mine)
    }

    fn whole_of<'a>(
        &self,
        found: &FieldReport,
        seat: &Seat,
        assign: Assign,
        seen: Vec<SeenBlock<'a>>,
    ) -> Vec<SeenBlock<'a>> {
        let seen = in_order(seen);
        let element = found.field.dtype.size() as u64;
        let hosts = HostsOfServers::of_all(seat, seen.iter().map(|block| block.record));
        let to_assign = |block: &SeenBlock<'_>| ToAssign {
            rank: block.record.key.rank,
            bytes: block.bytes(element),
            host: hosts.of(block.record),
        };
        let blocks: Vec<ToAssign<'_>> = seen.iter().map(to_assign).collect();
        let readers = seat.readers(&self.report().absent);
        let assigned = assign.readers_of(&blocks, self.report().ranks, &readers);
        let mine = seen.into_iter().zip(assigned).filter(|(_, reader)| *reader == seat.rank);
        mine.map(|(block, _)| block).collect()
    }
}

/// The hosts of servers, each looked up once.
struct HostsOfServers(HashMap<ServerId, Option<String>>);

impl HostsOfServers {
    fn of_all<'a>(seat: &Seat, records: impl Iterator<Item = &'a BlockRecord>) -> HostsOfServers {
        let mut hosts = HashMap::new();
        for record in records {
            let server = record.location.server;
            hosts.entry(server).or_insert_with(|| seat.host_of(server));
        }
        HostsOfServers(hosts)
    }

    fn of(&self, record: &BlockRecord) -> Option<&str> {
        self.0.get(&record.location.server)?.as_deref()
    }
}

/// Blocks in the order of the ranks that put them, and of their numbers there: the same for all who read.
fn in_order(mut seen: Vec<SeenBlock<'_>>) -> Vec<SeenBlock<'_>> {
    seen.sort_by_cached_key(|block| {
        let offset = block.cut.as_ref().unwrap_or(&block.record.extent).offset().map(<[u64]>::to_vec);
        (block.record.key, offset)
    });
    seen
}
