# SPDX-License-Identifier: Apache-2.0
"""What VTK asks of a communicator, done by one of Forebay's."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from vtkmodules.vtkCommonCore import vtkDataArray
from vtkmodules.vtkParallelCore import vtkCommunicator, vtkMultiProcessController, vtkSubCommunicator

from forebay import MPI
from forebay._errors import Error, Invalid
from forebay._mpi.communicator import Intracomm
from forebay.vtk.layout import Table

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_OPERATIONS: Final = {
    vtkCommunicator.MAX_OP: MPI.MAX,
    vtkCommunicator.MIN_OP: MPI.MIN,
    vtkCommunicator.SUM_OP: MPI.SUM,
    vtkCommunicator.PRODUCT_OP: MPI.PROD,
    vtkCommunicator.LOGICAL_AND_OP: MPI.LAND,
    vtkCommunicator.BITWISE_AND_OP: MPI.BAND,
    vtkCommunicator.LOGICAL_OR_OP: MPI.LOR,
    vtkCommunicator.BITWISE_OR_OP: MPI.BOR,
    vtkCommunicator.LOGICAL_XOR_OP: MPI.LXOR,
    vtkCommunicator.BITWISE_XOR_OP: MPI.BXOR,
}
_BIT: Final = 1
# VTK's numbers of types (vtkType.h), as NumPy has them. A char is signed where compilers make it so: not on ARM.
_KINDS: Final = {
    2: "i1" if platform.machine() in ("x86_64", "AMD64", "i686") else "u1",
    15: "i1", 3: "u1", 4: "i2", 5: "u2", 6: "i4", 7: "u4", 8: "i8", 9: "u8", 10: "f4", 11: "f8", 12: "i8", 16: "i8", 17: "u8",
}  # fmt: skip


class Link:
    """The virtual functions of a vtkCommunicator, as Python has them.

    VTK does not look at what they return. So the first error stays: what comes after it does nothing, the communicator is revoked, by
    which the others hear of it, and `error` says what it was.
    """

    def __init__(self, comm: Intracomm) -> None:
        self._comm = comm
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Nothing is sent from here on, on any rank."""
        if self.error is None:
            self.error = error
            self.leave(error)

    def leave(self, why: BaseException) -> None:
        """The other ranks do not wait for this one."""
        try:
            with suppress(Error):  # of a forked child
                self._comm.Revoke(_text_of(why))
        finally:
            self._comm.Free()

    def _send(self, data: int, length: int, kind: int, to: int, tag: int) -> None:
        self._comm.Send(_bytes_at(data, length, kind), to, tag)

    def _receive(self, data: int, length: int, kind: int, source: int, tag: int) -> None:
        wanted, status = _bytes_at(data, length, kind), MPI.Status()
        of = MPI.ANY_SOURCE if source == vtkMultiProcessController.ANY_SOURCE else source
        self._comm.Recv(wanted, of, tag, status)
        if status.Get_count(MPI.BYTE) != wanted.nbytes:
            raise Invalid(
                f"VTK waits for {wanted.nbytes} bytes of rank {source}, which sent {status.Get_count(MPI.BYTE)}:"
                " messages of unknown length are not supported"
            )

    def _barrier(self) -> None:
        self._comm.Barrier()

    def _broadcast(self, data: int, length: int, kind: int, root: int) -> None:
        self._comm.Bcast(_bytes_at(data, length, kind), root)

    def _gather(self, sent: int, received: int | None, length: int, kind: int, root: int) -> None:
        into = _bytes_at(received, length * self._comm.size, kind) if self._comm.rank == root else None
        self._comm.Gather(_bytes_at(sent, length, kind), into, root)

    def _allgather(self, sent: int, received: int, length: int, kind: int) -> None:
        self._comm.Allgather(
            _bytes_at(sent, length, kind), _bytes_at(received, length * self._comm.size, kind)
        )

    def _reduce(
        self, sent: int, received: int | None, length: int, kind: int, operation: int, root: int
    ) -> None:
        into = _array_at(received, length, kind) if self._comm.rank == root else None
        self._comm.Reduce(_array_at(sent, length, kind), into, _operation(operation), root)

    def _allreduce(self, sent: int, received: int, length: int, kind: int, operation: int) -> None:
        self._comm.Allreduce(
            _array_at(sent, length, kind), _array_at(received, length, kind), _operation(operation)
        )


_of_objects: dict[int, Link] = {}
"""By the addresses of the objects of VTK."""
_table: Table | None = None


def connect(communicator: vtkSubCommunicator, link: Link) -> None:
    """Has a communicator of VTK's talk by a link, until `disconnect`. `Unsupported` if this VTK is built in an unknown way."""
    global _table
    if _table is None:
        _table = Table(communicator, _functions())
    _of_objects[_table.put(communicator)] = link


def disconnect(communicator: vtkSubCommunicator) -> None:
    """It talks to nobody from here on."""
    assert _table is not None
    del _of_objects[_table.restore(communicator)]


def _functions() -> dict[str, Any]:
    """By the names that the linker has for them."""
    return {
        "_ZN18vtkSubCommunicator13SendVoidArrayEPKvxiii": _function(Link._send, _P, _L, _I, _I, _I),
        "_ZN18vtkSubCommunicator16ReceiveVoidArrayEPvxiii": _function(Link._receive, _P, _L, _I, _I, _I),
        "_ZN15vtkCommunicator7BarrierEv": _function(Link._barrier),
        "_ZN15vtkCommunicator18BroadcastVoidArrayEPvxii": _function(Link._broadcast, _P, _L, _I, _I),
        "_ZN15vtkCommunicator15GatherVoidArrayEPKvPvxii": _function(Link._gather, _P, _P, _L, _I, _I),
        "_ZN15vtkCommunicator18AllGatherVoidArrayEPKvPvxi": _function(Link._allgather, _P, _P, _L, _I),
        "_ZN15vtkCommunicator15ReduceVoidArrayEPKvPvxiii": _function(Link._reduce, _P, _P, _L, _I, _I, _I),
        "_ZN15vtkCommunicator18AllReduceVoidArrayEPKvPvxii": _function(Link._allreduce, _P, _P, _L, _I, _I),
    }


def _function(call: Callable[..., None], *arguments: Any) -> Any:
    """A function of C: of the object of VTK and what else it is given. It returns 1, or 0 after an error."""

    def called(this: int, *given: Any) -> int:
        link = _of_objects[this]
        if link.error is not None:
            return 0
        try:
            call(link, *given)
        except BaseException as error:  # it may not pass through C++
            link.fail(error)
            return 0
        return 1

    return ctypes.CFUNCTYPE(_I, _P, *arguments)(called)


def _text_of(error: BaseException) -> str:
    """What an error says, whatever its class does."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


def _operation(number: int) -> Any:
    if number not in _OPERATIONS:
        raise Invalid(f"VTK has no operation {number} of reductions that Forebay knows")
    return _OPERATIONS[number]


def _bytes_at(address: int | None, length: int, kind: int) -> NDArray[Any]:
    """VTK's memory, as it lies there."""
    size = vtkDataArray.GetDataTypeSize(kind)
    if length < 0 or size < 1 or (address is None and length):
        raise Invalid(f"VTK gives {length} elements of type {kind} at {address}: they cannot be sent")
    if not length:
        return np.empty(0, "u1")
    count = (length + 7) // 8 if kind == _BIT else length * size
    return np.ctypeslib.as_array((ctypes.c_ubyte * count).from_address(address or 0))


def _array_at(address: int | None, length: int, kind: int) -> NDArray[Any]:
    if kind not in _KINDS:
        raise Invalid(f"VTK gives elements of type {kind}, which cannot be reduced")
    return np.asarray(_bytes_at(address, length, kind).view(_KINDS[kind]))
