# SPDX-License-Identifier: Apache-2.0
"""Communicators: messages and collectives, of objects (lower case) and of buffers (upper case), as in mpi4py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce as _folded
from itertools import accumulate
from typing import Any, NoReturn, Self

from forebay import _forebay
from forebay._errors import Closed, Invalid
from forebay._mpi.compositing import Compositing
from forebay._mpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    CONGRUENT,
    IDENT,
    IN_PLACE,
    PROC_NULL,
    SIMILAR,
    UNDEFINED,
    UNEQUAL,
)
from forebay._mpi.messages import simple, vector
from forebay._mpi.objects import failure, packed, pickle, unpacked
from forebay._mpi.operations import SUM, Op
from forebay._mpi.requests import Request
from forebay._mpi.status import NOBODY, Status, tell

_Operation = Op | Callable[[Any, Any], Any]

# Some of what mpi4py's communicators have and these have not, in small letters and without the i of requests.
_OTHERS = frozenset(
    {
        "alltoallw",
        "bsend",
        "bsend_init",
        "create",
        "mprobe",
        "mrecv",
        "recv_init",
        "rsend",
        "rsend_init",
        "send_init",
    }
    | {"spawn", "split_type", "ssend", "ssend_init"}
)


def _sent(message: Any) -> Any:
    """What is sent; None where it stands in the place of the result."""
    return None if message is IN_PLACE or message is None else simple(message)


def _sent_blocks(message: Any, size: int) -> tuple[Any, Any]:
    return (None, None) if message is IN_PLACE or message is None else vector(message, size)


class Intracomm(Compositing):
    """Some ranks that talk to each other. Every operation has a deadline, by default 60 seconds.

    An operation that involves a rank that died raises `Unreachable` and names it. After a collective has failed on one rank, so do
    the others of that communicator, on all. Buffers are anything contiguous that has Python's buffer protocol.
    """

    def __init__(self, comm: Intracomm | None = None) -> None:
        self._given: _forebay.Comm | None = None if comm is None else comm._given
        self._name = ""
        self._errors: list[BaseException] = [] if comm is None else comm._errors

    @classmethod
    def _of(cls, core: _forebay.Comm, whole: Intracomm | None = None) -> Self:
        made = cls.__new__(cls)
        made._given, made._name = core, ""
        made._errors = [] if whole is None else whole._errors
        return made

    def _stick(self, error: BaseException) -> None:
        """Keeps an error that its cause could not raise: an execution with this communicator, or a part of it, has failed by it."""
        self._errors.append(error)

    @property
    def _core(self) -> _forebay.Comm:
        if self._given is None:
            raise Closed("this communicator is MPI.COMM_NULL: it was freed, or this rank is in no part of it")
        return self._given

    # ---- ranks ---------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of this process among all."""
        return self._core.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._core.size

    def Get_rank(self) -> int:
        """The number of this process among all."""
        return self._core.rank

    def Get_size(self) -> int:
        """How many ranks there are."""
        return self._core.size

    @property
    def name(self) -> str:
        """What it is called, for people."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    def Get_name(self) -> str:
        """What it is called, for people."""
        return self._name

    def Set_name(self, name: str) -> None:
        """Says what it is called."""
        self._name = name

    def Is_inter(self) -> bool:
        """False: there are no communicators of two groups here."""
        return False

    def Is_intra(self) -> bool:
        """True."""
        return True

    @property
    def is_inter(self) -> bool:
        """False."""
        return False

    @property
    def is_intra(self) -> bool:
        """True."""
        return True

    def set_timeout(self, timeout: float) -> None:
        """How long, in seconds, one operation may wait in all, from the next one on."""
        self._core.set_timeout(timeout)

    def __bool__(self) -> bool:
        return self._given is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intracomm):
            return NotImplemented
        return self._given is other._given

    def __hash__(self) -> int:
        return hash(id(self._given))

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """Ends this process at once, as one that has failed. Launchers end the others; without one they are told that it has died."""
        sys.stdout.flush()
        sys.stderr.write(
            f"rank {self.rank} of communicator {self.name or 'without a name'} aborts: {errorcode}\n"
        )
        sys.stderr.flush()
        os._exit(errorcode & 255 or 1)

    def __getattr__(self, name: str) -> NoReturn:
        text = f"'{type(self).__name__}' object has no attribute '{name}'"
        if name.lower().lstrip("i") in _OTHERS or name.startswith("Create_"):
            text += ": forebay.MPI has the messages and collectives of mpi4py, nothing else (docs/comm.md)"
        raise AttributeError(text, name=name, obj=self)

    # ---- parts ---------------------------------------------------------------------------------------------

    def Dup(self) -> Intracomm:
        """The same ranks once more, with messages of their own. All ranks call it."""
        return Intracomm._of(self._core.dup(), self)

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Intracomm:
        """Those with the same color together, in the order of `key`. All ranks call it.

        COMM_NULL for those whose color is UNDEFINED.
        """
        if color != UNDEFINED and not 0 <= color < 2**32:
            raise Invalid(f"color={color}: colors are 0 or more, or MPI.UNDEFINED")
        part = self._core.split(None if color == UNDEFINED else color, key)
        return Intracomm() if part is None else Intracomm._of(part, self)

    @classmethod
    def Compare(cls, comm1: Intracomm, comm2: Intracomm) -> int:
        """IDENT if both are one, UNEQUAL if they have different numbers of ranks.

        Otherwise CONGRUENT if this process has the same rank in both, else SIMILAR: which processes the others are is not compared.
        """
        if comm1 == comm2:
            return IDENT
        if comm1.size != comm2.size:
            return UNEQUAL
        return CONGRUENT if comm1.rank == comm2.rank else SIMILAR

    def Revoke(self, why: str = "it cannot go on") -> None:
        """Ends it on all ranks, for one that cannot go on, so that nobody waits for it in vain. Waits for nobody.

        What they have begun in it and what they begin raises `Unreachable`, which tells this rank and `why`, on this rank, too. They
        hear of it at once if they have talked to this rank, wait for it, or for one that knows; else as soon as they do. What has arrived
        may still be received. Parts of it, and what it is a part of, go on. As in mpi4py, whose own has no reason.
        """
        # Names of files may have bytes that are no text.
        self._core.revoke(why.encode("utf-8", "backslashreplace").decode())

    def Free(self) -> None:
        """Closes it. Who waits for this rank fails at once when it has closed all parts of one communicator, and that one; until then by
        its deadline.
        """
        self._given = None

    def Disconnect(self) -> None:
        """Closes it, as `Free`."""
        self._given = None

    # ---- messages of objects -------------------------------------------------------------------------------

    def send(self, obj: object, dest: int, tag: int = 0) -> None:
        """Sends an object that can be pickled. Waits while more than 16 KiB of it are not received."""
        if dest != PROC_NULL:
            self._core.send(dest, tag, pickle.dumps(obj))

    def recv(
        self,
        buf: object = None,  # noqa: ARG002 - as in mpi4py
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """The object that a rank sends with this tag. Waits for it. `buf` is not used."""
        if source == PROC_NULL:
            tell(status, NOBODY)
            return None
        which, data = self._core.recv_bytes(source, tag)
        tell(status, which)
        return unpacked(data, which[0])

    def isend(self, obj: object, dest: int, tag: int = 0) -> Request:
        """As `send`, put aside."""
        if dest == PROC_NULL:
            return Request._over(None)
        return Request._of(self._core.isend(dest, tag, pickle.dumps(obj)))

    def irecv(
        self,
        buf: object = None,  # noqa: ARG002 - as in mpi4py
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
    ) -> Request:
        """As `recv`, put aside: the request's `wait` gives the object."""
        if source == PROC_NULL:
            return Request._over(NOBODY)
        return Request._of(self._core.irecv_bytes(source, tag), lambda rank, data: unpacked(data, rank))

    def sendrecv(
        self,
        sendobj: object,
        dest: int,
        sendtag: int = 0,
        recvbuf: object = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Sends an object and receives one, both at once."""
        sent = self.isend(sendobj, dest, sendtag)
        received = self.recv(recvbuf, source, recvtag, status)
        sent.wait()
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Waits until there is a message that `recv` would take, and leaves it there."""
        tell(status, NOBODY if source == PROC_NULL else self._core.probe(source, tag))
        return True

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Whether there is one. Does not wait."""
        found = NOBODY if source == PROC_NULL else self._core.iprobe(source, tag)
        if found is not None:
            tell(status, found)
        return found is not None

    # ---- messages of buffers -------------------------------------------------------------------------------

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Sends a buffer. Up to 16 KiB are copied; more is read where it lies, and this waits until it is received."""
        if dest != PROC_NULL:
            self._core.send(dest, tag, simple(buf))

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Receives into a buffer, which may be longer than the message. Waits for it."""
        tell(status, NOBODY if source == PROC_NULL else self._core.recv(source, tag, simple(buf)))

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """As `Send`, put aside: the buffer must stay as it is until the request is over."""
        if dest == PROC_NULL:
            return Request._over(None)
        return Request._of(self._core.isend(dest, tag, simple(buf)))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """As `Recv`, put aside."""
        if source == PROC_NULL:
            return Request._over(NOBODY)
        return Request._of(self._core.irecv(source, tag, simple(buf)))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Sends a buffer and receives into another one, both at once."""
        received = self.Irecv(recvbuf, source, recvtag)
        try:
            self.Send(sendbuf, dest, sendtag)
        except BaseException:
            # Or it would take what is sent for another receive.
            received.Cancel()
            raise
        received.Wait(status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Sends a buffer, a copy of which is made, and receives into it."""
        made = simple(buf)
        if isinstance(made, tuple):
            buffer, offset, nbytes, datatype = made
            copy: Any = bytes(memoryview(buffer).cast("B")[offset : offset + nbytes]), 0, nbytes, datatype
        else:
            copy = bytes(memoryview(made))
        sent = (
            Request._over(None) if dest == PROC_NULL else Request._of(self._core.isend(dest, sendtag, copy))
        )
        self.Recv(buf, source, recvtag, status)
        sent.Wait()

    Probe = probe
    Iprobe = iprobe

    # ---- collectives of objects ----------------------------------------------------------------------------

    def barrier(self) -> None:
        """Waits until every rank has come here."""
        self._core.barrier()

    Barrier = barrier

    def Ibarrier(self) -> Request:
        """As `Barrier`, put aside."""
        return Request._of(self._core.ibarrier())

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """What the root gives, on every rank."""
        is_root = self._core.rank == root
        mine, failed = packed(obj) if is_root else (b"", None)
        data = self._core.broadcast(root, mine)
        if failed is not None:
            raise failed
        return obj if is_root else unpacked(data, root)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """What every rank gives, in the order of ranks, on the root; None elsewhere."""
        mine, failed = packed(sendobj)
        every = self._core.gather_bytes(root, mine)
        if failed is not None:
            raise failed
        return None if every is None else [unpacked(data, rank) for rank, data in enumerate(every)]

    def allgather(self, sendobj: Any) -> list[Any]:
        """What every rank gives, in the order of ranks, on every rank."""
        mine, failed = packed(sendobj)
        every = self._core.allgather_bytes(mine)
        if failed is not None:
            raise failed
        return [unpacked(data, rank) for rank, data in enumerate(every)]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Gives each rank its item of the root's sequence."""
        mine: list[bytes] | None = None
        failed: Exception | None = None
        if self._core.rank == root:
            mine, failed = self._packed_each(sendobj)
        data = self._core.scatter_bytes(root, mine)
        if failed is not None:
            raise failed
        return unpacked(data, root)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Gives each rank its item of every rank's sequence, in the order of ranks."""
        mine, failed = self._packed_each(sendobj)
        every = self._core.alltoall_bytes(mine)
        if failed is not None:
            raise failed
        return [unpacked(data, rank) for rank, data in enumerate(every)]

    def _packed_each(self, items: Sequence[Any] | None) -> tuple[list[bytes], Exception | None]:
        """An item for each rank; what tells them if there is none."""
        given = [] if items is None else list(items)
        if len(given) != self._core.size:
            error = Invalid(f"{len(given)} items are given for {self._core.size} ranks")
            return [failure(error)] * self._core.size, error
        made = [packed(item) for item in given]
        failed = next((error for _, error in made if error is not None), None)
        return ([data for data, _ in made] if failed is None else [failure(failed)] * len(made)), failed

    def reduce(self, sendobj: Any, op: _Operation = SUM, root: int = 0) -> Any:
        """The objects of all ranks put together in the order of ranks, on the root; None elsewhere.

        `op` is an operation of `forebay.MPI`, or any function of two objects; it is called on the root alone.
        """
        every = self.gather(sendobj, root)
        return None if every is None else _folded(op, every)

    def allreduce(self, sendobj: Any, op: _Operation = SUM) -> Any:
        """The objects of all ranks put together in the order of ranks, on every rank.

        It is done on rank 0, so that all have the same; what it raises there fails everywhere.
        """

        def last(results: Iterator[Any]) -> list[bytes]:
            result = None
            for result in results:  # noqa: B007 - the last one is used
                pass
            return [pickle.dumps(result)] * self._core.size

        return self._upto(sendobj, op, last)

    def scan(self, sendobj: Any, op: _Operation = SUM) -> Any:
        """The objects of all ranks up to this one put together in the order of ranks."""
        return self._upto(sendobj, op, lambda results: [pickle.dumps(result) for result in results])

    def exscan(self, sendobj: Any, op: _Operation = SUM) -> Any:
        """The same of all ranks below this one; None on rank 0."""

        def before(results: Iterator[Any]) -> list[bytes]:
            return [pickle.dumps(None), *[pickle.dumps(result) for result in results][:-1]]

        return self._upto(sendobj, op, before)

    def _upto(self, sendobj: Any, op: _Operation, given: Callable[[Iterator[Any]], list[bytes]]) -> Any:
        """Rank 0 puts together what all give, and gives each something of that.

        Functions may change their operands: each result is packed before the next one is made, and what is given stays as it is.
        """
        mine, failed = packed(sendobj)
        every = self._core.gather_bytes(0, mine)
        told: list[bytes] | None = None
        if every is not None:
            try:
                told = given(accumulate((unpacked(data, rank) for rank, data in enumerate(every)), op))
            except Exception as error:
                failed = failed or error
                told = [failure(error)] * len(every)
        data = self._core.scatter_bytes(0, told)
        if failed is not None:
            raise failed
        return unpacked(data, 0)

    # ---- collectives of buffers ----------------------------------------------------------------------------

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Fills every rank's buffer with the root's."""
        self._core.bcast(root, simple(buf))

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        """As `Bcast`, put aside."""
        return Request._of(self._core.ibcast(root, simple(buf)))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gives the root every rank's buffer, one behind the other; IN_PLACE at the root."""
        self.Igather(sendbuf, recvbuf, root).Wait()

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """As `Gather`, put aside."""
        into = simple(recvbuf, self._core.size) if self._core.rank == root else None
        return Request._of(self._core.igather(root, _sent(sendbuf), into, None))

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """The same, of buffers of different lengths: the root says which, and where each goes."""
        self.Igatherv(sendbuf, recvbuf, root).Wait()

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """As `Gatherv`, put aside."""
        core = self._core
        into, blocks = vector(recvbuf, core.size) if core.rank == root else (None, None)
        return Request._of(core.igather(root, _sent(sendbuf), into, blocks))

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gives every rank every rank's buffer, one behind the other."""
        self.Iallgather(sendbuf, recvbuf).Wait()

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """As `Allgather`, put aside."""
        core = self._core
        return Request._of(core.iallgather(_sent(sendbuf), simple(recvbuf, core.size), None))

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """The same, of buffers of different lengths: all say which, and where each goes."""
        self.Iallgatherv(sendbuf, recvbuf).Wait()

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """As `Allgatherv`, put aside."""
        core = self._core
        return Request._of(core.iallgather(_sent(sendbuf), *vector(recvbuf, core.size)))

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gives each rank its part of the root's buffer; IN_PLACE for what the root receives."""
        self.Iscatter(sendbuf, recvbuf, root).Wait()

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """As `Scatter`, put aside."""
        core = self._core
        given = simple(sendbuf, core.size) if core.rank == root else None
        return Request._of(core.iscatter(root, given, _sent(recvbuf), None))

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """The same, of parts of different lengths: the root says which, and where each begins."""
        self.Iscatterv(sendbuf, recvbuf, root).Wait()

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """As `Scatterv`, put aside."""
        core = self._core
        given, blocks = vector(sendbuf, core.size) if core.rank == root else (None, None)
        return Request._of(core.iscatter(root, given, _sent(recvbuf), blocks))

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gives each rank its part of every rank's buffer."""
        self.Ialltoall(sendbuf, recvbuf).Wait()

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """As `Alltoall`, put aside."""
        core = self._core
        given = None if sendbuf is IN_PLACE or sendbuf is None else simple(sendbuf, core.size)
        return Request._of(core.ialltoall(given, simple(recvbuf, core.size), None, None))

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """The same, of parts of different lengths."""
        self.Ialltoallv(sendbuf, recvbuf).Wait()

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """As `Alltoallv`, put aside."""
        core = self._core
        given, parts = _sent_blocks(sendbuf, core.size)
        into, blocks = vector(recvbuf, core.size)
        return Request._of(core.ialltoall(given, into, parts, blocks))

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """Combines the elements of all ranks one by one, for the root; IN_PLACE there for what is sent."""
        core = self._core
        core.reduce(root, _sent(sendbuf), simple(recvbuf) if core.rank == root else None, op)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Request:
        """As `Reduce`, put aside."""
        core = self._core
        into = simple(recvbuf) if core.rank == root else None
        return Request._of(core.ireduce(root, _sent(sendbuf), into, op))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """The same for every rank: all have the same bits, whatever the timing."""
        self._core.allreduce(_sent(sendbuf), simple(recvbuf), op)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """As `Allreduce`, put aside."""
        return Request._of(self._core.iallreduce(_sent(sendbuf), simple(recvbuf), op))

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines the elements of all ranks, and gives each rank its part of the result."""
        self.Ireduce_scatter_block(sendbuf, recvbuf, op).Wait()

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """As `Reduce_scatter_block`, put aside."""
        return Request._of(self._core.ireduce_scatter(_sent(sendbuf), simple(recvbuf), None, op))

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> None:
        """The same, of parts of so many elements; without `recvcounts` what each rank has room for."""
        self.Ireduce_scatter(sendbuf, recvbuf, recvcounts, op).Wait()

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> Request:
        """As `Reduce_scatter`, put aside; without `recvcounts` it waits until all have said what they have room for."""
        core, into = self._core, simple(recvbuf)
        element, room = _forebay.Comm.measured(into)
        counts = self.allgather(room // element) if recvcounts is None else list(recvcounts)
        return Request._of(
            core.ireduce_scatter(_sent(sendbuf), into, [count * element for count in counts], op)
        )

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines the elements of all ranks up to this one."""
        self.Iscan(sendbuf, recvbuf, op).Wait()

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """As `Scan`, put aside."""
        return Request._of(self._core.iscan(False, _sent(sendbuf), simple(recvbuf), op))

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines the elements of all ranks below this one. Rank 0's buffer stays as it is."""
        self.Iexscan(sendbuf, recvbuf, op).Wait()

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """As `Exscan`, put aside."""
        return Request._of(self._core.iscan(True, _sent(sendbuf), simple(recvbuf), op))
