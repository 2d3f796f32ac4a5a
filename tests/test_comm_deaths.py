"""A rank that is killed or stopped before, within or after each collective: the others are told which, and none hangs."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.children import Child
from support.cohorts import at_once

import forebay
from forebay import MPI

# Long enough that it is read where it lies.
BEGIN = """
class Aside:
    # What nobody can put aside, in a thread.
    def __init__(self, work):
        self.pool = ThreadPoolExecutor(1)
        self.future = self.pool.submit(work)
        self.Test = lambda: self.future.done()
        self.Wait = lambda: self.future.result()
        self.pool.shutdown(wait=False)

def picture(comm):
    colors, depths = np.full((200_000, 4), comm.rank, "u1"), np.full(200_000, 0.5, "f4")
    return Aside(lambda: comm.Composite_nearest(colors, depths, 1))

def begin(name, comm):
    mine, one = np.full(40_000, float(comm.rank)), np.zeros(40_000)
    many, every = np.ones(40_000 * comm.size), np.zeros(40_000 * comm.size)
    return {
        "barrier": lambda: comm.Ibarrier(),
        "bcast": lambda: comm.Ibcast(mine, 1),
        "reduce": lambda: comm.Ireduce(mine, one),
        "allreduce": lambda: comm.Iallreduce(mine, one),
        "scan": lambda: comm.Iscan(mine, one),
        "exscan": lambda: comm.Iexscan(mine, one),
        "gather": lambda: comm.Igather(mine, every),
        "scatter": lambda: comm.Iscatter(many, one, 1),
        "allgather": lambda: comm.Iallgather(mine, every),
        "alltoall": lambda: comm.Ialltoall(many, every),
        "reduce_scatter": lambda: comm.Ireduce_scatter(many, one, [40_000] * comm.size),
        "composite": lambda: picture(comm),
    }[name]()
"""
NAMES = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "scan",
    "exscan",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce_scatter",
    "composite",
]
# What cannot end without a rank that has not come.
NEED_ALL = {"barrier", "allreduce", "allgather", "alltoall", "reduce_scatter", "composite"}

known: dict[str, Any] = {"np": np, "MPI": MPI, "ThreadPoolExecutor": ThreadPoolExecutor}
exec(BEGIN, known)
begin = known["begin"]

VICTIM = (
    """
        import numpy as np
        from concurrent.futures import ThreadPoolExecutor
"""
    + textwrap.indent(BEGIN, "        ")
    + """
        path, name, phase = sys.argv[1:]
        comm = forebay.Comm("c", rank=1, size=3, group=path)
        comm.barrier()
        if phase != "before":
            request = begin(name, comm)
            request.Test()
        print("there", flush=True)
        if phase == "after":
            request.Wait()
            print("over", flush=True)
        sys.stdin.read()
"""
)


def first(name: str, comm: forebay.Comm) -> forebay.Error | None:
    """Why the collective failed, if it did."""
    try:
        begin(name, comm).Wait()
    except forebay.Error as error:
        return error
    return None


def then(comm: forebay.Comm) -> forebay.Error:
    """Why the next one failed."""
    with pytest.raises(forebay.Error) as failed:
        comm.Barrier()
    return failed.value


def told_in(
    phase: str, name: str, opened: list[forebay.Comm], end: Callable[[], None], victim: Child
) -> list[Any]:
    """What the others are told while a rank ends in this phase of the collective, and in the next one."""
    calls = [lambda comm=comm: first(name, comm) for comm in opened]
    if phase == "before":
        end()
        told = at_once(calls)
        assert name not in NEED_ALL or None not in told
    elif phase == "within":
        # While the others come to it.
        *told, _ = at_once([*calls, end])
    else:
        told = at_once(calls)
        assert told == [None, None]
        victim.expect("over")
        end()
    return [*told, *at_once([lambda comm=comm: then(comm) for comm in opened])]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("phase", ["before", "within", "after"])
def test_others_are_told_of_a_rank_that_ends_or_stops(
    one: forebay.LocalGroup, child: Callable[..., Child], name: str, how: signal.Signals, phase: str
) -> None:
    victim = child(VICTIM, one.path, name, phase)
    opened = at_once(
        [lambda rank=rank: forebay.Comm("c", rank=rank, size=3, group=one.path) for rank in (0, 2)]
    )
    at_once([comm.barrier for comm in opened])
    victim.expect("there")
    for comm in opened:
        comm.set_timeout(30 if how == signal.SIGKILL else 1)
    told = told_in(phase, name, opened, lambda: victim.kill(how), victim)
    victim.kill(signal.SIGKILL)
    errors = [error for error in told if error is not None]
    if how == signal.SIGKILL:
        assert all(isinstance(error, forebay.Unreachable) and "rank 1" in str(error) for error in errors), (
            errors
        )
    else:
        # Who waits for one that waits for it is told of that one.
        assert any("rank 1" in str(error) for error in errors), errors
    at_once([comm.close for comm in opened])
