# SPDX-License-Identifier: Apache-2.0
"""Collectives and messages under the names of mpi4py, for processes of a group that comes and goes, without MPI.

Programs that are written for mpi4py run when `from mpi4py import MPI` becomes `from forebay import MPI`, as far as they use
what is here: one group of processes, their messages and collectives. There are no windows, files or topologies.

`python -m forebay.MPI -n 4 program.py` starts a program four times on this host.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING

from forebay._errors import Error as Exception  # noqa: A004 - as in mpi4py
from forebay._mpi.communicator import Intracomm
from forebay._mpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    BOTTOM,
    CONGRUENT,
    ERR_ARG,
    ERR_BUFFER,
    ERR_COMM,
    ERR_COUNT,
    ERR_OP,
    ERR_OTHER,
    ERR_RANK,
    ERR_ROOT,
    ERR_TAG,
    ERR_TRUNCATE,
    ERR_TYPE,
    IDENT,
    IN_PLACE,
    PROC_NULL,
    ROOT,
    SIMILAR,
    SUCCESS,
    TAG_UB,
    THREAD_FUNNELED,
    THREAD_MULTIPLE,
    THREAD_SERIALIZED,
    THREAD_SINGLE,
    UNDEFINED,
    UNEQUAL,
    InPlace,
)
from forebay._mpi.datatypes import (
    BOOL,
    BYTE,
    C_BOOL,
    C_DOUBLE_COMPLEX,
    C_FLOAT_COMPLEX,
    C_LONG_DOUBLE_COMPLEX,
    CHAR,
    COMPLEX,
    DATATYPE_NULL,
    DOUBLE,
    DOUBLE_COMPLEX,
    DOUBLE_INT,
    FLOAT,
    FLOAT_INT,
    INT,
    INT8_T,
    INT16_T,
    INT32_T,
    INT64_T,
    INT_INT,
    LONG,
    LONG_DOUBLE,
    LONG_INT,
    LONG_LONG,
    SHORT,
    SHORT_INT,
    SIGNED_CHAR,
    TWOINT,
    UINT8_T,
    UINT16_T,
    UINT32_T,
    UINT64_T,
    UNSIGNED,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONG,
    UNSIGNED_LONG_LONG,
    UNSIGNED_SHORT,
    Datatype,
)
from forebay._mpi.named import alone as _alone
from forebay._mpi.named import world as _world
from forebay._mpi.objects import (
    Pickle,
    pickle,
)
from forebay._mpi.operations import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    NO_OP,
    OP_NULL,
    PROD,
    REPLACE,
    SUM,
    Op,
)
from forebay._mpi.requests import (
    REQUEST_NULL,
    Request,
)
from forebay._mpi.status import (
    Status,
)

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOOL",
    "BOR",
    "BOTTOM",
    "BXOR",
    "BYTE",
    "CHAR",
    "COMM_NULL",
    "COMM_SELF",
    "COMM_WORLD",
    "COMPLEX",
    "CONGRUENT",
    "C_BOOL",
    "C_DOUBLE_COMPLEX",
    "C_FLOAT_COMPLEX",
    "C_LONG_DOUBLE_COMPLEX",
    "DATATYPE_NULL",
    "DOUBLE",
    "DOUBLE_COMPLEX",
    "DOUBLE_INT",
    "ERR_ARG",
    "ERR_BUFFER",
    "ERR_COMM",
    "ERR_COUNT",
    "ERR_OP",
    "ERR_OTHER",
    "ERR_RANK",
    "ERR_ROOT",
    "ERR_TAG",
    "ERR_TRUNCATE",
    "ERR_TYPE",
    "FLOAT",
    "FLOAT_INT",
    "IDENT",
    "INT",
    "INT8_T",
    "INT16_T",
    "INT32_T",
    "INT64_T",
    "INT_INT",
    "IN_PLACE",
    "LAND",
    "LONG",
    "LONG_DOUBLE",
    "LONG_INT",
    "LONG_LONG",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "NO_OP",
    "OP_NULL",
    "PROC_NULL",
    "PROD",
    "REPLACE",
    "REQUEST_NULL",
    "ROOT",
    "SHORT",
    "SHORT_INT",
    "SIGNED_CHAR",
    "SIMILAR",
    "SUCCESS",
    "SUM",
    "TAG_UB",
    "THREAD_FUNNELED",
    "THREAD_MULTIPLE",
    "THREAD_SERIALIZED",
    "THREAD_SINGLE",
    "TWOINT",
    "UINT8_T",
    "UINT16_T",
    "UINT32_T",
    "UINT64_T",
    "UNDEFINED",
    "UNEQUAL",
    "UNSIGNED",
    "UNSIGNED_CHAR",
    "UNSIGNED_INT",
    "UNSIGNED_LONG",
    "UNSIGNED_LONG_LONG",
    "UNSIGNED_SHORT",
    "Alloc_mem",
    "Comm",
    "Datatype",
    "Exception",
    "Finalize",
    "Free_mem",
    "Get_library_version",
    "Get_processor_name",
    "Get_version",
    "InPlace",
    "Init",
    "Intracomm",
    "Is_finalized",
    "Is_initialized",
    "Is_thread_main",
    "Op",
    "Pickle",
    "Query_thread",
    "Request",
    "Status",
    "Wtick",
    "Wtime",
    "get_vendor",
    "pickle",
]

Comm = Intracomm
COMM_NULL = Intracomm()
"""No communicator."""

if TYPE_CHECKING:
    COMM_WORLD: Intracomm
    COMM_SELF: Intracomm


def __getattr__(name: str) -> Intracomm:
    if name == "COMM_WORLD":
        return _world()
    if name == "COMM_SELF":
        return _alone()
    raise AttributeError(
        f"forebay.MPI has no {name}: it has the messages and collectives of mpi4py, nothing else"
    )


def Get_processor_name() -> str:
    """The name of this host."""
    return socket.gethostname()


def Get_version() -> tuple[int, int]:
    """The version of the standard whose names are used. It is not implemented as a whole."""
    return 3, 1


def Get_library_version() -> str:
    """What this is."""
    from forebay import __version__

    return f"Forebay {__version__}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """What this is, and its version."""
    from forebay import __version__

    major, minor, patch = (int(part) for part in __version__.split("+")[0].split(".")[:3])
    return "Forebay", (major, minor, patch)


def Alloc_mem(size: int) -> memoryview:
    """Memory of so many bytes. Any other is as good for messages."""
    return memoryview(bytearray(size))


def Free_mem(mem: memoryview) -> None:
    """Gives memory back, which is of no use any more."""
    mem.release()


def Wtime() -> float:
    """Seconds since some moment, of this process."""
    return time.perf_counter()


def Wtick() -> float:
    """How fine `Wtime` is, in seconds."""
    return time.get_clock_info("perf_counter").resolution


def Is_initialized() -> bool:
    """True: nothing needs to be initialized."""
    return True


def Is_finalized() -> bool:
    """False: communicators end with their process."""
    return False


def Query_thread() -> int:
    """THREAD_MULTIPLE: any thread may call, with one thread at a time in the collectives of one communicator."""
    return THREAD_MULTIPLE


def Is_thread_main() -> bool:
    """True: no thread is special."""
    return True


def Init() -> None:
    """Does nothing: nothing needs to be initialized."""


def Finalize() -> None:
    """Does nothing: communicators end with their process."""


if __name__ == "__main__":
    from forebay._mpi.launch import main

    sys.exit(main())
