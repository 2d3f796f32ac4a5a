# SPDX-License-Identifier: Apache-2.0
"""Ranks that open their handles together, by a communicator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from forebay import _errors, _forebay
from forebay._errors import Error, Invalid


class Communicator(Protocol):
    """What is used of a communicator of mpi4py."""

    def Get_rank(self) -> int: ...  # noqa: N802

    def Get_size(self) -> int: ...  # noqa: N802

    def bcast(self, obj: Any, root: int = 0) -> Any: ...

    def allgather(self, sendobj: Any) -> list[Any]: ...


_Group = str | os.PathLike[str] | None


def joined(
    comm: Communicator | None, rank: int, size: int, group: _Group, job: str | None
) -> tuple[int, int, _Group, str | None]:
    """Rank, size, group and job: as given, or those of a communicator.

    Of a communicator, rank 0 reads the connection file, and tells the others its text and the job's name. All ranks call it,
    inside `together`.
    """
    if comm is None:
        return rank, size, group, job
    given = (rank, size)
    rank, size = comm.Get_rank(), comm.Get_size()
    told: tuple[str, str] | Exception | None = None
    if rank == 0:
        try:
            text = _forebay.group_text(None if group is None else os.fspath(group))
            told = text, job or _forebay.new_job_name()
        except Error as error:
            told = error
        except Exception as error:
            told = Invalid(f"group={group!r}: {error}")
    found = _unpacked(comm.bcast(_packed(told)))
    # Nothing fails on one rank before this: others would wait for it.
    if given != (0, 1):
        raise Invalid(f"rank={given[0]}, size={given[1]}: the communicator says both, leave them out")
    if isinstance(found, Error):
        raise found
    text, job = found
    return rank, size, text, job


@contextmanager
def together(comm: Communicator | None, undo: Callable[[], None]) -> Iterator[None]:
    """What all ranks of a communicator do: if it fails on one, it is undone on the others, and fails there too."""
    if comm is None:
        yield
        return
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    failures = comm.allgather(_packed(failure))
    first = next((rank for rank, packed in enumerate(failures) if packed is not None), None)
    if first is None:
        return
    if failure is None:
        undo()
    elif first == comm.Get_rank():
        raise failure
    found = _unpacked(failures[first])
    raise type(found)(f"rank {first}: {found}") from None


def _packed(told: Any) -> Any:
    """Errors as their names and texts: whoever gets them may have others."""
    return (type(told).__name__, str(told), None) if isinstance(told, Exception) else told


def _unpacked(told: Any) -> Any:
    if not isinstance(told, tuple) or len(told) != 3:
        return told
    name, text, _ = told
    kind = getattr(_errors, name, Error)
    return (kind if isinstance(kind, type) and issubclass(kind, Error) else Error)(text)
