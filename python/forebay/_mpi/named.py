# SPDX-License-Identifier: Apache-2.0
"""Communicators of processes that meet by name, of one process alone, and of all that were started together."""

from __future__ import annotations

import os
import threading

from forebay import _forebay
from forebay._errors import Invalid
from forebay._mpi.communicator import Intracomm

# What launchers tell a process: its rank, and how many there are.
_LAUNCHERS = (
    ("FOREBAY_RANK", "FOREBAY_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PALS_RANKID", "PALS_NRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class Comm(Intracomm):
    """A communicator of processes that meet by its name, through a server of the group. Each opens it once, as another rank.

    This waits until all have come, `timeout` seconds at most: then `Timeout` names those that have not. The servers only tell the
    ranks where they are; what is sent goes from process to process. In a pipeline the workers of an execution have one already.

    Parameters
    ----------
    name
        The same for all.
    rank, size
        Which of the ranks this process is, and how many there are: 1 to 4096.
    group
        The group's connection file, as of a `Producer`.
    timeout
        How long to wait for the others, in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        rank: int,
        size: int,
        group: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        if rank < 0 or size < 1:
            raise Invalid(f"rank={rank}, size={size}: ranks are 0 to size - 1")
        path = None if group is None else os.fspath(group)
        self._given = _forebay.Comm.open(name, rank, size, path, timeout)
        self._name = name

    def close(self) -> None:
        """Closes it: once all parts of it are closed, too, who waits for this rank in it fails at once."""
        self.Free()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_lock = threading.Lock()
_made: dict[str, Intracomm] = {}


def world() -> Intracomm:
    """The communicator of all processes that a launcher has started together, opened when it is first asked for.

    `mpiexec`, `srun` and `python -m forebay.MPI` tell each process its rank; they meet by the name of their job, or the one that
    FOREBAY_COMM says. A process that was started alone is a world of its own, without any group.
    """
    with _lock:
        if "world" not in _made:
            _made["world"] = _opened_world()
        return _made["world"]


def alone() -> Intracomm:
    """The communicator of this process alone. No group is needed."""
    with _lock:
        if "self" not in _made:
            _made["self"] = Intracomm._of(_forebay.Comm.alone())
            _made["self"].name = "COMM_SELF"
        return _made["self"]


def _opened_world() -> Intracomm:
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ and int(os.environ[size]) > 1:
            made: Intracomm = Comm(_world_name(), rank=int(os.environ[rank]), size=int(os.environ[size]))
            break
    else:
        made = Intracomm._of(_forebay.Comm.alone())
    made.name = "COMM_WORLD"
    return made


def _world_name() -> str:
    name, job = os.environ.get("FOREBAY_COMM"), _forebay.job_name()
    if not name and not job:
        raise Invalid(
            "the launcher of these processes gives its job no name by which they would meet no others:"
            " set FOREBAY_COMM, to another name for each job"
        )
    return name or f"world of {job}"


def forget_after_fork() -> None:
    """A forked child has no communicators: those of its parent are not its own."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


os.register_at_fork(after_in_child=forget_after_fork)
