//! Collectives on buffers, as operations that go on. Those that Python waits for at once are waited for.

use super::given::{check_apart, check_equal, check_same, part, part_if_any};
use super::layout::{Given, Layout};
use super::memory::{Access, Element, Part, own};
use super::request::Going;
use super::types::Op;
use crate::errors::raise;
use forebay_client::Error;
use forebay_client::comm::{Comm, Memory, Request};
use pyo3::prelude::*;
use std::sync::Arc;

/// A buffer, or nothing.
type Given1<'a, 'py> = &'a Bound<'py, PyAny>;

/// Memory in which the blocks of all ranks stand one behind the other: the caller's own, or a copy.
struct Blocks {
    memory: Memory,
    counts: Vec<usize>,
    copy: Option<(Vec<u8>, Layout)>,
}

/// They are sent.
fn sent_blocks(part: &Part, layout: Layout) -> Blocks {
    if layout.is_packed() {
        return Blocks { memory: part.memory_of_first(layout.total()), counts: layout.counts, copy: None };
    }
    let mut copy = layout.packed(part.slice());
    Blocks { memory: own(&mut copy), counts: layout.counts.clone(), copy: Some((copy, layout)) }
}

/// They are written to.
fn received_blocks(part: &Part, layout: Layout) -> Blocks {
    if layout.is_packed() {
        return Blocks { memory: part.memory_of_first(layout.total()), counts: layout.counts, copy: None };
    }
    let mut copy = vec![0; layout.total()];
    Blocks { memory: own(&mut copy), counts: layout.counts.clone(), copy: Some((copy, layout)) }
}

/// What is received goes from a copy to where it belongs, once it is there.
fn unpacked(request: Request, mine: Mine, copy: Option<(Vec<u8>, Layout)>, mut to: Part) -> Going {
    let Mine { mut parts, own, .. } = mine;
    match copy {
        None => {
            parts.push(to);
            Going::new(request, parts, own)
        }
        Some((copy, layout)) => {
            let going = Going::new(request, parts, own);
            going.then(Box::new(move || layout.unpack(&copy, to.slice_mut())))
        }
    }
}

pub(super) fn bcast(comm: &Arc<Comm>, root: u32, buffer: Given1<'_, '_>) -> PyResult<Going> {
    let access = if comm.rank() == root { Access::Reads } else { Access::Writes };
    let part = part(buffer, access)?;
    let request = comm.ibcast(root, part.memory()).map_err(raise)?;
    Ok(Going::new(request, vec![part], Vec::new()))
}

/// What a rank gives to a scan, in the memory in which that computes: its result, or a copy.
enum Computed {
    Result(Part),
    Copy(Vec<u8>, Element),
}

impl Computed {
    /// `sent` is `None` where what is sent stands in the memory of the result.
    fn of(sent: Given1<'_, '_>, received: Option<Given1<'_, '_>>) -> PyResult<Computed> {
        let sent = part_if_any(sent, Access::Reads)?;
        match (sent, received) {
            (Some(sent), None) => Ok(Computed::Copy(sent.slice().to_vec(), sent.element)),
            (sent, Some(received)) => {
                let mut received = part(received, Access::Writes)?;
                if let Some(sent) = sent {
                    check_equal(sent.element, received.element)?;
                    check_apart(Some(&sent), &received)?;
                    received.copy_from(&sent)?;
                }
                Ok(Computed::Result(received))
            }
            (None, None) => {
                Err(raise(Error::invalid("there is nothing to reduce: MPI.IN_PLACE is for the root")))
            }
        }
    }

    fn element(&self) -> Element {
        match self {
            Computed::Result(part) => part.element,
            Computed::Copy(_, element) => *element,
        }
    }

    fn memory(&mut self) -> Memory {
        match self {
            Computed::Result(part) => part.memory(),
            Computed::Copy(copy, _) => own(copy),
        }
    }

    fn going(self, request: Request) -> Going {
        match self {
            Computed::Result(part) => Going::new(request, vec![part], Vec::new()),
            Computed::Copy(copy, _) => Going::new(request, Vec::new(), vec![copy]),
        }
    }
}

/// What a rank gives to a reduction, and where its result goes, if it gets it.
pub(super) struct Operands {
    sent: Option<Part>,
    received: Option<Part>,
    element: Element,
}

impl Operands {
    /// `sent` is `None` where what is sent stands in the memory of the result.
    pub(super) fn of(sent: Given1<'_, '_>, received: Option<Given1<'_, '_>>) -> PyResult<Operands> {
        let sent = part_if_any(sent, Access::Reads)?;
        let received = received.map(|received| part(received, Access::Writes)).transpose()?;
        if let (Some(sent), Some(received)) = (&sent, &received) {
            check_equal(sent.element, received.element)?;
            check_apart(Some(sent), received)?;
            received.check_length(sent)?;
        }
        let Some(element) = received.as_ref().or(sent.as_ref()).map(|part| part.element) else {
            return Err(raise(Error::invalid("there is nothing to reduce: MPI.IN_PLACE is for the root")));
        };
        Ok(Operands { sent, received, element })
    }

    pub(super) fn element(&self) -> Element {
        self.element
    }

    pub(super) fn slices(&mut self) -> (Option<&[u8]>, &mut [u8]) {
        let received = self.received.as_mut().map(Part::slice_mut).unwrap_or_default();
        (self.sent.as_ref().map(Part::slice), received)
    }

    fn memories(&self) -> (Option<Memory>, Memory) {
        let received = self.received.as_ref().map_or_else(|| own(&mut Vec::new()), Part::memory);
        (self.sent.as_ref().map(Part::memory), received)
    }

    fn going(self, request: Request) -> Going {
        Going::new(request, self.sent.into_iter().chain(self.received).collect(), Vec::new())
    }
}

pub(super) fn reduce(
    py: Python<'_>,
    comm: &Arc<Comm>,
    root: u32,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    op: &Op,
) -> PyResult<Going> {
    let operands = Operands::of(sent, (comm.rank() == root).then_some(received))?;
    let reduction = op.of(py, operands.element())?;
    let (from, into) = operands.memories();
    let request = comm.ireduce(root, from, into, &reduction).map_err(raise)?;
    Ok(operands.going(request))
}

pub(super) fn allreduce(
    py: Python<'_>,
    comm: &Arc<Comm>,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    op: &Op,
) -> PyResult<Going> {
    let operands = Operands::of(sent, Some(received))?;
    let reduction = op.of(py, operands.element())?;
    let (from, into) = operands.memories();
    let request = comm.iallreduce(from, into, &reduction).map_err(raise)?;
    Ok(operands.going(request))
}

/// Of all ranks up to this one, or below it if it is `exclusive`.
pub(super) fn scan(
    py: Python<'_>,
    comm: &Arc<Comm>,
    exclusive: bool,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    op: &Op,
) -> PyResult<Going> {
    // Rank 0 has nothing below it: what it receives to stays as it is.
    let keeps = exclusive && comm.rank() == 0 && !sent.is_none();
    let mut computed = Computed::of(sent, (!keeps).then_some(received))?;
    let reduction = op.of(py, computed.element())?;
    let request = comm.iscan(exclusive, computed.memory(), &reduction).map_err(raise)?;
    Ok(computed.going(request))
}

pub(super) fn gather(
    comm: &Arc<Comm>,
    root: u32,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    layout: Given,
) -> PyResult<Going> {
    let sent = part_if_any(sent, Access::Reads)?;
    if comm.rank() != root {
        let sent = sent.ok_or_else(|| raise(Error::invalid("MPI.IN_PLACE is for the root")))?;
        let nothing = own(&mut Vec::new());
        let request = comm.igather_into(root, sent.memory(), nothing, &[]).map_err(raise)?;
        return Ok(Going::new(request, vec![sent], Vec::new()));
    }
    let received = part(received, Access::Writes)?;
    let layout = Layout::of(layout, comm.size(), &received)?;
    let mut mine = Mine::of(sent, &received, &layout, root)?;
    let Blocks { memory, counts, copy } = received_blocks(&received, layout);
    let request = comm.igather_into(root, mine.memory(), memory, &counts).map_err(raise)?;
    Ok(unpacked(request, mine, copy, received))
}

/// What a rank sends, or a copy of what stands in the place of what it receives from itself.
struct Mine {
    parts: Vec<Part>,
    own: Vec<Vec<u8>>,
}

impl Mine {
    fn of(sent: Option<Part>, received: &Part, layout: &Layout, rank: u32) -> PyResult<Mine> {
        match sent {
            Some(sent) => {
                check_same(sent.element, received.element)?;
                check_apart(Some(&sent), received)?;
                Ok(Mine { parts: vec![sent], own: Vec::new() })
            }
            None => Ok(Mine { parts: Vec::new(), own: vec![layout.block(received.slice(), rank).to_vec()] }),
        }
    }

    /// For the operation that keeps all of this.
    fn memory(&mut self) -> Memory {
        match (self.parts.first(), self.own.first_mut()) {
            (Some(part), _) => part.memory(),
            (None, Some(copy)) => own(copy),
            (None, None) => own(&mut Vec::new()),
        }
    }
}

pub(super) fn allgather(
    comm: &Arc<Comm>,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    layout: Given,
) -> PyResult<Going> {
    let sent = part_if_any(sent, Access::Reads)?;
    let received = part(received, Access::Writes)?;
    let layout = Layout::of(layout, comm.size(), &received)?;
    let mut mine = Mine::of(sent, &received, &layout, comm.rank())?;
    let Blocks { memory, counts, copy } = received_blocks(&received, layout);
    let request = comm.iallgather_into(mine.memory(), memory, &counts).map_err(raise)?;
    Ok(unpacked(request, mine, copy, received))
}

pub(super) fn scatter(
    comm: &Arc<Comm>,
    root: u32,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    layout: Given,
) -> PyResult<Going> {
    if comm.rank() != root {
        let received = part(received, Access::Writes)?;
        let nothing = own(&mut Vec::new());
        let request = comm.iscatter(root, nothing, &[], received.memory()).map_err(raise)?;
        return Ok(Going::new(request, vec![received], Vec::new()));
    }
    let sent = part(sent, Access::Reads)?;
    let layout = Layout::of(layout, comm.size(), &sent)?;
    let received = part_if_any(received, Access::Writes)?;
    if let Some(received) = &received {
        check_same(sent.element, received.element)?;
        check_apart(Some(&sent), received)?;
    }
    // In its place: what the root gives itself stays where it is.
    let mut unused: Vec<u8> = vec![0; layout.counts[root as usize]];
    let into = received.as_ref().map_or_else(|| own(&mut unused), Part::memory);
    let blocks = sent_blocks(&sent, layout);
    let request = comm.iscatter(root, blocks.memory, &blocks.counts, into).map_err(raise)?;
    let kept = blocks.copy.map(|(copy, _)| copy).into_iter().chain([unused]).collect();
    Ok(Going::new(request, [sent].into_iter().chain(received).collect(), kept))
}

pub(super) fn alltoall(
    comm: &Arc<Comm>,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    (from, to): (Given, Given),
) -> PyResult<Going> {
    let sent = part_if_any(sent, Access::Reads)?;
    let received = part(received, Access::Writes)?;
    let to = Layout::of(to, comm.size(), &received)?;
    let (memory, counts, mine) = match sent {
        Some(sent) => {
            check_same(sent.element, received.element)?;
            check_apart(Some(&sent), &received)?;
            let from = Layout::of(from, comm.size(), &sent)?;
            let blocks = sent_blocks(&sent, from);
            let kept: Vec<_> = blocks.copy.map(|(copy, _)| copy).into_iter().collect();
            (blocks.memory, blocks.counts, Mine { parts: vec![sent], own: kept })
        }
        None => {
            let mut copy = to.packed(received.slice());
            (own(&mut copy), to.counts.clone(), Mine { parts: Vec::new(), own: vec![copy] })
        }
    };
    let Blocks { memory: into, counts: expected, copy } = received_blocks(&received, to);
    let request = comm.ialltoallv((memory, &counts), (into, &expected)).map_err(raise)?;
    Ok(unpacked(request, mine, copy, received))
}

/// `counts` are the lengths of the blocks of the result, in bytes; none: all are equal.
pub(super) fn reduce_scatter(
    py: Python<'_>,
    comm: &Arc<Comm>,
    (sent, received): (Given1<'_, '_>, Given1<'_, '_>),
    counts: Option<Vec<usize>>,
    op: &Op,
) -> PyResult<Going> {
    let sent = part_if_any(sent, Access::Reads)?;
    let received = part(received, Access::Writes)?;
    let from = sent.as_ref().unwrap_or(&received);
    let (element, bytes) = (from.element, from.bytes());
    let counts = match counts {
        Some(counts) => counts,
        None => Layout::of(None, comm.size(), from)?.counts,
    };
    if let Some(sent) = &sent {
        check_equal(sent.element, received.element)?;
        check_apart(Some(sent), &received)?;
    }
    let (memory, parts, kept) = match sent {
        Some(sent) => (sent.memory(), vec![sent], Vec::new()),
        // Its own block of the result begins where what it gives begins.
        None => {
            let mut copy = received.slice().to_vec();
            (own(&mut copy), Vec::new(), vec![copy])
        }
    };
    let mine = counts.get(comm.rank() as usize).copied().unwrap_or_default();
    let fits = if parts.is_empty() { mine <= received.bytes() } else { mine == received.bytes() };
    if !fits || counts.iter().sum::<usize>() != bytes {
        return Err(raise(Error::invalid(format!(
            "message: blocks of {} bytes in all are to be received, of {bytes} that are given; this rank's has {mine} bytes, and there \
             is room for {}",
            counts.iter().sum::<usize>(),
            received.bytes()
        ))));
    }
    let reduction = op.of(py, element)?;
    let into = received.memory_of_first(mine);
    let request = comm.ireduce_scatter(memory, &counts, into, &reduction).map_err(raise)?;
    Ok(Going::new(request, parts.into_iter().chain([received]).collect(), kept))
}
