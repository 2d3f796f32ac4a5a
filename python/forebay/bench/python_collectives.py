# SPDX-License-Identifier: Apache-2.0
"""One rank that measures collectives of buffers from Python: MODULE WHAT[,WHAT] BYTES[,BYTES] SECONDS. As native/collectives.c."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _calls(comm: Any, count: int) -> dict[str, tuple[Callable[[], None], float]]:
    """What can be measured, and how much of a call is told."""
    mine, theirs = np.ones(count // 8), np.empty(count // 8)

    def sendrecv() -> None:
        if comm.rank == 0:
            comm.Send(mine, 1)
            comm.Recv(theirs, 1)
        elif comm.rank == 1:
            comm.Recv(theirs, 0)
            comm.Send(mine, 0)

    return {
        "sendrecv": (sendrecv, 0.5),
        "bcast": (lambda: comm.Bcast(mine), 1.0),
        "allreduce": (lambda: comm.Allreduce(mine, theirs), 1.0),
        "wait": (lambda: None, 1.0),
    }


def _seconds(comm: Any, call: Callable[[], None], times: int) -> float:
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(times):
        call()
    comm.Barrier()
    return (time.perf_counter() - began) / times


def _waiting(comm: Any, seconds: float) -> float:
    """The share of a core that rank 1 takes while it waits for so long, after its first millisecond."""
    told = np.zeros(1)
    shares = []
    for _ in range(5):
        comm.Barrier()
        if comm.rank == 0:
            time.sleep(seconds)
            comm.Send(told, 1)
        elif comm.rank == 1:
            before, began = time.process_time(), time.perf_counter()
            comm.Recv(told, 0)
            passed = time.perf_counter() - began
            shares.append(max(time.process_time() - before - 0.001, 0.0) / passed)
    worst = np.array([max(shares, default=0.0)])
    comm.Bcast(worst, 1)
    return float(worst[0])


def main() -> None:
    """Prints a line for each: what, bytes, seconds of one call, how many calls."""
    module, whats, sizes, seconds = sys.argv[1:]
    comm = importlib.import_module(f"{module}.MPI").COMM_WORLD
    for what in whats.split(","):
        for count in map(int, sizes.split(",")):
            if what == "wait":
                told, times = _waiting(comm, 0.1), 5
            else:
                call, share = _calls(comm, count)[what]
                _seconds(comm, call, 3)
                estimate = np.array([_seconds(comm, call, 10)])
                comm.Bcast(estimate)
                times = int(min(max(float(seconds) / estimate[0], 5), 100_000))
                told = _seconds(comm, call, times) * share
            if comm.rank == 0:
                print(f"{what} {count} {told:.9f} {times}", flush=True)


if __name__ == "__main__":
    main()
