//! What a comm does, put aside as a [`Request`]: the same functions with an `i` before their names.
//!
//! Memory is given as [`Memory`], whose owner keeps it until the request is over or dropped.

use crate::collectives::{blocks_of, check_operand, equal_blocks};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::receiving::Receive;
use crate::reduction::Reduction;
use crate::request::{Done, Request};
use crate::target::{Memory, Target};
use crate::task::Task;
use forebay_core::Result;
use std::future::Future;
use std::sync::Arc;

impl Comm {
    /// A collective that is put aside. Its number is taken now: all ranks begin theirs in one order.
    fn begin<F: Future<Output = Result<()>> + Send + 'static>(
        self: &Arc<Comm>,
        kind: Kind,
        operation: impl FnOnce(Arc<Comm>, Arc<Task>) -> F,
    ) -> Request {
        let task = Arc::new(self.collective(kind));
        let operation = operation(self.clone(), task.clone());
        let (hub, about) = (self.hub.clone(), task.clone());
        let operation = Box::pin(async move {
            let result = match hub.check_begin(&about) {
                Ok(()) => operation.await,
                Err(error) => Err(error),
            };
            hub.ended(&about, result).map(|()| Done::default())
        });
        Request::start(&self.hub, task, false, operation)
    }

    /// As [`Comm::send`].
    pub fn isend(self: &Arc<Comm>, dest: u32, tag: u64, bytes: Memory) -> Result<Request> {
        self.check_rank(dest)?;
        let (comm, task) = (self.clone(), Arc::new(self.single()));
        let about = task.clone();
        let operation = Box::pin(async move {
            comm.put(&about, dest, tag, bytes.slice()).put_aside().await?;
            Ok(Done::default())
        });
        Ok(Request::start(&self.hub, task, true, operation))
    }

    /// As [`Comm::recv_into`], or without memory as [`Comm::recv_any`].
    pub fn irecv(
        self: &Arc<Comm>,
        source: Option<u32>,
        tag: Option<u64>,
        into: Option<Memory>,
    ) -> Result<Request> {
        let source = self.source_of(source)?;
        let (comm, task) = (self.clone(), Arc::new(self.single()));
        let about = task.clone();
        let operation = Box::pin(async move {
            let target = into.map_or(Target::Made(Vec::new()), |into| Target::Place(into.place()));
            let (envelope, target) = Receive::new(&comm.hub, &about, (source, tag), target).await?;
            Ok(Done { status: Some(comm.status(envelope)), bytes: target.made() })
        });
        Ok(Request::start(&self.hub, task, false, operation))
    }

    /// As [`Comm::barrier`].
    pub fn ibarrier(self: &Arc<Comm>) -> Request {
        self.begin(Kind::of(What::Barrier), |comm, task| async move { comm.barrier_of(&task).await })
    }

    /// As [`Comm::bcast`].
    pub fn ibcast(self: &Arc<Comm>, root: u32, mut bytes: Memory) -> Result<Request> {
        self.check_rank(root)?;
        Ok(self.begin(Kind::of(What::Bcast).at(root), move |comm, task| async move {
            comm.bcast_of(&task, root, bytes.slice_mut()).await
        }))
    }

    /// As [`Comm::reduce`].
    pub fn ireduce(
        self: &Arc<Comm>,
        root: u32,
        from: Option<Memory>,
        mut into: Memory,
        reduction: &Reduction,
    ) -> Result<Request> {
        self.reduced(root, from.as_ref().map(Memory::slice), into.slice_mut(), reduction)?;
        let reduction = reduction.clone();
        let kind = Kind::of(What::Reduce).at(root).with(&reduction);
        Ok(self.begin(kind, move |comm, task| async move {
            let from = from.as_ref().map(Memory::slice);
            let operands = comm.reduced(root, from, into.slice_mut(), &reduction)?;
            comm.reduce_of(&task, root, operands, &reduction).await
        }))
    }

    /// As [`Comm::allreduce`].
    pub fn iallreduce(
        self: &Arc<Comm>,
        from: Option<Memory>,
        mut into: Memory,
        reduction: &Reduction,
    ) -> Result<Request> {
        check_operand(from.as_ref().map(Memory::slice), into.slice(), reduction)?;
        let reduction = reduction.clone();
        let kind = Kind::of(What::Allreduce).with(&reduction);
        Ok(self.begin(kind, move |comm, task| async move {
            let from = from.as_ref().map(Memory::slice);
            comm.allreduce_of(&task, from, into.slice_mut(), &reduction).await
        }))
    }

    /// As [`Comm::scan`], or [`Comm::exscan`] if it is `exclusive`.
    pub fn iscan(
        self: &Arc<Comm>,
        exclusive: bool,
        mut bytes: Memory,
        reduction: &Reduction,
    ) -> Result<Request> {
        reduction.check(bytes.len())?;
        let reduction = reduction.clone();
        let kind = Kind::of(if exclusive { What::Exscan } else { What::Scan }).with(&reduction);
        Ok(self.begin(kind, move |comm, task| async move {
            match exclusive {
                true => comm.exscan_of(&task, bytes.slice_mut(), &reduction).await,
                false => comm.scan_of(&task, bytes.slice_mut(), &reduction).await,
            }
        }))
    }

    /// As [`Comm::gather_into`].
    pub fn igather_into(
        self: &Arc<Comm>,
        root: u32,
        bytes: Memory,
        mut all: Memory,
        counts: &[usize],
    ) -> Result<Request> {
        let blocks = self.blocks_at(root, counts, all.len())?;
        Ok(self.begin(Kind::of(What::Gather).at(root), move |comm, task| async move {
            comm.gather_into_of(&task, root, bytes.slice(), (all.slice_mut(), blocks)).await
        }))
    }

    /// As [`Comm::allgather_into`].
    pub fn iallgather_into(
        self: &Arc<Comm>,
        bytes: Memory,
        mut all: Memory,
        counts: &[usize],
    ) -> Result<Request> {
        let blocks = blocks_of(self.size, counts, all.len())?;
        Ok(self.begin(Kind::of(What::Allgather), move |comm, task| async move {
            comm.allgather_into_of(&task, bytes.slice(), (all.slice_mut(), blocks)).await
        }))
    }

    /// As [`Comm::scatter`].
    pub fn iscatter(
        self: &Arc<Comm>,
        root: u32,
        all: Memory,
        counts: &[usize],
        mut into: Memory,
    ) -> Result<Request> {
        let blocks = self.blocks_at(root, counts, all.len())?;
        Ok(self.begin(Kind::of(What::Scatter).at(root), move |comm, task| async move {
            comm.scatter_of(&task, root, all.slice(), blocks, into.slice_mut()).await
        }))
    }

    /// As [`Comm::alltoall`].
    pub fn ialltoall(self: &Arc<Comm>, from: Memory, mut into: Memory) -> Result<Request> {
        let count = from.len() / self.size as usize;
        let sent = equal_blocks(self.size, count, from.len())?;
        let received = equal_blocks(self.size, count, into.len())?;
        Ok(self.begin(Kind::of(What::Alltoall), move |comm, task| async move {
            comm.alltoall_of(&task, (from.slice(), sent), (into.slice_mut(), received)).await
        }))
    }

    /// As [`Comm::alltoallv`].
    pub fn ialltoallv(
        self: &Arc<Comm>,
        (from, sent): (Memory, &[usize]),
        (mut into, received): (Memory, &[usize]),
    ) -> Result<Request> {
        let sent = blocks_of(self.size, sent, from.len())?;
        let received = blocks_of(self.size, received, into.len())?;
        Ok(self.begin(Kind::of(What::Alltoall), move |comm, task| async move {
            comm.alltoall_of(&task, (from.slice(), sent), (into.slice_mut(), received)).await
        }))
    }

    /// As [`Comm::reduce_scatter`].
    pub fn ireduce_scatter(
        self: &Arc<Comm>,
        bytes: Memory,
        counts: &[usize],
        mut into: Memory,
        reduction: &Reduction,
    ) -> Result<Request> {
        let blocks = self.reduce_scatter_blocks(bytes.len(), counts, into.len(), reduction)?;
        let reduction = reduction.clone();
        let kind = Kind::of(What::ReduceScatter).with(&reduction);
        Ok(self.begin(kind, move |comm, task| async move {
            comm.reduce_scatter_of(&task, (bytes.slice(), blocks), into.slice_mut(), &reduction).await
        }))
    }
}
