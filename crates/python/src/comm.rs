//! A communicator: bytes, which the package makes of objects, and buffers, which stay where they are.

mod collectives;
pub(crate) mod compositing;
mod given;
mod layout;
mod memory;
mod objects;
mod request;
mod types;

pub(crate) use request::Request;
pub(crate) use types::{Datatype, Op};

use crate::errors::{Freed, raise, waiting};
use crate::given::group as given_group;
use crate::timeout::Timeout;
use collectives::Operands;
use forebay_client::{Error, comm};
use given::part;
use layout::Given;
use memory::{Access, Part};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use request::{Going, Left, run, tidy};
use std::sync::Arc;

/// Source, tag and length of a message.
type Status = (u32, u64, u64);
type Any<'a, 'py> = &'a Bound<'py, PyAny>;

#[pyclass(frozen)]
pub(crate) struct Comm {
    comm: Freed<Arc<comm::Comm>>,
    /// Operations that nobody waits for any more. They end with it.
    left: Left,
}

impl Comm {
    pub(crate) fn new(comm: comm::Comm) -> Comm {
        Comm { comm: Freed::new(Arc::new(comm)), left: Left::default() }
    }

    fn request(&self, py: Python<'_>, going: Going) -> Request {
        py.detach(|| tidy(&self.left));
        Request::new(self.comm.clone(), self.left.clone(), going)
    }

    fn run(&self, py: Python<'_>, going: Going) -> PyResult<()> {
        run(py, &self.comm, going).map(drop)
    }

    fn sending(&self, dest: i64, tag: i64, part: Part) -> PyResult<Going> {
        let request = self.comm.isend(self.rank_of(dest)?, tag_of(tag)?, part.memory()).map_err(raise)?;
        Ok(Going::new(request, vec![part], Vec::new()))
    }

    fn receiving(&self, source: i64, tag: i64, part: Option<Part>) -> PyResult<Going> {
        let (source, tag) = self.wanted(source, tag)?;
        let request = self.comm.irecv(source, tag, part.as_ref().map(Part::memory)).map_err(raise)?;
        Ok(Going::new(request, part.into_iter().collect(), Vec::new()))
    }

    fn rank_of(&self, rank: i64) -> PyResult<u32> {
        u32::try_from(rank).ok().filter(|rank| *rank < self.comm.size()).ok_or_else(|| {
            let last = self.comm.size() - 1;
            raise(Error::invalid(format!("there is no rank {rank} in this communicator: it has 0 to {last}")))
        })
    }

    /// Of which rank, and with which tag: -1 is any.
    fn wanted(&self, source: i64, tag: i64) -> PyResult<(Option<u32>, Option<u64>)> {
        let source = (source != ANY).then(|| self.rank_of(source)).transpose()?;
        Ok((source, (tag != ANY).then(|| tag_of(tag)).transpose()?))
    }
}

/// Any source, any tag.
const ANY: i64 = -1;

fn tag_of(tag: i64) -> PyResult<u64> {
    u64::try_from(tag).map_err(|_| raise(Error::invalid(format!("tag {tag}: tags are 0 or more"))))
}

fn status(status: comm::Status) -> Status {
    (status.source, status.tag, status.bytes)
}

#[pymethods]
impl Comm {
    /// Meets the other ranks by the communicator's name.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        name: &str,
        rank: u32,
        size: u32,
        group: Option<String>,
        timeout: Option<Timeout>,
    ) -> PyResult<Comm> {
        let options = given_group(group, "auto", timeout, None)?;
        waiting(py, || forebay_client::open_comm(&options, name, rank, size)).map(Comm::new)
    }

    /// A communicator of this process alone.
    #[staticmethod]
    fn alone(py: Python<'_>) -> PyResult<Comm> {
        waiting(py, forebay_client::comm_alone).map(Comm::new)
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.comm.rank()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn set_timeout(&self, timeout: Timeout) -> PyResult<()> {
        self.comm.set_timeout(timeout.wait()?);
        Ok(())
    }

    fn revoke(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        waiting(py, || self.comm.revoke(why))
    }

    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Comm>> {
        Ok(waiting(py, || self.comm.split(color, key))?.map(Comm::new))
    }

    fn dup(&self, py: Python<'_>) -> PyResult<Comm> {
        waiting(py, || self.comm.dup()).map(Comm::new)
    }

    fn probe(&self, py: Python<'_>, source: i64, tag: i64) -> PyResult<Status> {
        let (source, tag) = self.wanted(source, tag)?;
        waiting(py, || self.comm.probe(source, tag)).map(status)
    }

    fn iprobe(&self, py: Python<'_>, source: i64, tag: i64) -> PyResult<Option<Status>> {
        let (source, tag) = self.wanted(source, tag)?;
        Ok(waiting(py, || self.comm.iprobe(source, tag))?.map(status))
    }

    // ---- bytes ----------------------------------------------------------------------------------------------

    fn recv_bytes<'py>(
        &self,
        py: Python<'py>,
        source: i64,
        tag: i64,
    ) -> PyResult<(Status, Bound<'py, PyBytes>)> {
        let (source, tag) = self.wanted(source, tag)?;
        let (found, bytes) = waiting(py, || self.comm.recv_any(source, tag))?;
        Ok((status(found), PyBytes::new(py, &bytes)))
    }

    fn irecv_bytes(&self, py: Python<'_>, source: i64, tag: i64) -> PyResult<Request> {
        self.receiving(source, tag, None).map(|going| self.request(py, going))
    }

    fn broadcast<'py>(&self, py: Python<'py>, root: i64, bytes: Vec<u8>) -> PyResult<Bound<'py, PyBytes>> {
        let root = self.rank_of(root)?;
        let bytes = waiting(py, || self.comm.broadcast(root, bytes))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn gather_bytes<'py>(
        &self,
        py: Python<'py>,
        root: i64,
        bytes: &[u8],
    ) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let root = self.rank_of(root)?;
        let gathered = waiting(py, || self.comm.gather(root, bytes))?;
        Ok(gathered.map(|all| all.iter().map(|bytes| PyBytes::new(py, bytes)).collect()))
    }

    fn allgather_bytes<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let gathered = waiting(py, || self.comm.allgather(bytes))?;
        Ok(gathered.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Gives each rank its item of the root's.
    fn scatter_bytes<'py>(
        &self,
        py: Python<'py>,
        root: i64,
        items: Option<Vec<PyBackedBytes>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let root = self.rank_of(root)?;
        let bytes = waiting(py, || objects::scatter(&self.comm, root, items.as_deref()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Gives each rank its item of every rank's.
    fn alltoall_bytes<'py>(
        &self,
        py: Python<'py>,
        items: Vec<PyBackedBytes>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let given = waiting(py, || objects::alltoall(&self.comm, &items))?;
        Ok(given.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Bytes of an element of a buffer, and of all.
    #[staticmethod]
    fn measured(buffer: Any<'_, '_>) -> PyResult<(usize, usize)> {
        let part = part(buffer, Access::Reads)?;
        Ok((part.element.bytes, part.bytes()))
    }

    // ---- messages of buffers --------------------------------------------------------------------------------

    fn send(&self, py: Python<'_>, dest: i64, tag: i64, buffer: Any<'_, '_>) -> PyResult<()> {
        let (dest, tag, part) = (self.rank_of(dest)?, tag_of(tag)?, part(buffer, Access::Reads)?);
        waiting(py, || self.comm.send(dest, tag, part.slice()))
    }

    fn recv(&self, py: Python<'_>, source: i64, tag: i64, buffer: Any<'_, '_>) -> PyResult<Status> {
        let (source, tag) = self.wanted(source, tag)?;
        let mut part = part(buffer, Access::Writes)?;
        waiting(py, || self.comm.recv_into(source, tag, part.slice_mut())).map(status)
    }

    fn isend(&self, py: Python<'_>, dest: i64, tag: i64, buffer: Any<'_, '_>) -> PyResult<Request> {
        let going = self.sending(dest, tag, part(buffer, Access::Reads)?)?;
        Ok(self.request(py, going))
    }

    fn irecv(&self, py: Python<'_>, source: i64, tag: i64, buffer: Any<'_, '_>) -> PyResult<Request> {
        let going = self.receiving(source, tag, Some(part(buffer, Access::Writes)?))?;
        Ok(self.request(py, going))
    }

    // ---- collectives of buffers, which may be put aside -----------------------------------------------------

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.comm.barrier())
    }

    fn ibarrier(&self, py: Python<'_>) -> Request {
        let going = Going::new(self.comm.ibarrier(), Vec::new(), Vec::new());
        self.request(py, going)
    }

    fn bcast(&self, py: Python<'_>, root: i64, buffer: Any<'_, '_>) -> PyResult<()> {
        self.run(py, collectives::bcast(&self.comm, self.rank_of(root)?, buffer)?)
    }

    fn ibcast(&self, py: Python<'_>, root: i64, buffer: Any<'_, '_>) -> PyResult<Request> {
        collectives::bcast(&self.comm, self.rank_of(root)?, buffer).map(|going| self.request(py, going))
    }

    fn reduce(
        &self,
        py: Python<'_>,
        root: i64,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        op: &Op,
    ) -> PyResult<()> {
        self.run(py, collectives::reduce(py, &self.comm, self.rank_of(root)?, (sent, received), op)?)
    }

    fn ireduce(
        &self,
        py: Python<'_>,
        root: i64,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        op: &Op,
    ) -> PyResult<Request> {
        let going = collectives::reduce(py, &self.comm, self.rank_of(root)?, (sent, received), op)?;
        Ok(self.request(py, going))
    }

    fn allreduce(&self, py: Python<'_>, sent: Any<'_, '_>, received: Any<'_, '_>, op: &Op) -> PyResult<()> {
        let mut operands = Operands::of(sent, Some(received))?;
        let reduction = op.of(py, operands.element())?;
        waiting(py, || {
            let (from, into) = operands.slices();
            self.comm.allreduce(from, into, &reduction)
        })
    }

    fn iallreduce(
        &self,
        py: Python<'_>,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        op: &Op,
    ) -> PyResult<Request> {
        let going = collectives::allreduce(py, &self.comm, (sent, received), op)?;
        Ok(self.request(py, going))
    }

    fn iscan(
        &self,
        py: Python<'_>,
        exclusive: bool,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        op: &Op,
    ) -> PyResult<Request> {
        let going = collectives::scan(py, &self.comm, exclusive, (sent, received), op)?;
        Ok(self.request(py, going))
    }

    fn igather(
        &self,
        py: Python<'_>,
        root: i64,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        blocks: Given,
    ) -> PyResult<Request> {
        let going = collectives::gather(&self.comm, self.rank_of(root)?, (sent, received), blocks)?;
        Ok(self.request(py, going))
    }

    fn iallgather(
        &self,
        py: Python<'_>,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        blocks: Given,
    ) -> PyResult<Request> {
        let going = collectives::allgather(&self.comm, (sent, received), blocks)?;
        Ok(self.request(py, going))
    }

    fn iscatter(
        &self,
        py: Python<'_>,
        root: i64,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        blocks: Given,
    ) -> PyResult<Request> {
        let going = collectives::scatter(&self.comm, self.rank_of(root)?, (sent, received), blocks)?;
        Ok(self.request(py, going))
    }

    fn ialltoall(
        &self,
        py: Python<'_>,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        from: Given,
        to: Given,
    ) -> PyResult<Request> {
        let going = collectives::alltoall(&self.comm, (sent, received), (from, to))?;
        Ok(self.request(py, going))
    }

    fn ireduce_scatter(
        &self,
        py: Python<'_>,
        sent: Any<'_, '_>,
        received: Any<'_, '_>,
        counts: Option<Vec<usize>>,
        op: &Op,
    ) -> PyResult<Request> {
        let going = collectives::reduce_scatter(py, &self.comm, (sent, received), counts, op)?;
        Ok(self.request(py, going))
    }

    // ---- pictures -------------------------------------------------------------------------------------------

    fn composite_nearest(
        &self,
        py: Python<'_>,
        root: Option<i64>,
        colors: Any<'_, '_>,
        depths: Any<'_, '_>,
        far: f32,
        with_depths: bool,
    ) -> PyResult<()> {
        let root = root.map(|root| self.rank_of(root)).transpose()?;
        compositing::nearest(py, &self.comm, root, (colors, depths), (far, with_depths))
    }

    fn composite_over(
        &self,
        py: Python<'_>,
        root: Option<i64>,
        layers: Vec<(u32, Bound<'_, PyAny>)>,
        into: Option<Any<'_, '_>>,
    ) -> PyResult<()> {
        let root = root.map(|root| self.rank_of(root)).transpose()?;
        compositing::over(py, &self.comm, root, layers, into)
    }
}
