"""What programs that were written for mpi4py rely on, and how they are started and ended."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.comms import comms, on_all
from support.waiting import wait_until

import forebay
from forebay import MPI


@pytest.fixture
def three_ranks(one: forebay.LocalGroup) -> Iterator[list[forebay.Comm]]:
    """A communicator of three ranks."""
    with comms(one, 3) as opened:
        yield opened


def test_functions_may_change_their_operands(three_ranks: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        mine = [comm.rank]
        assert comm.scan(mine, op=operator.iadd) == list(range(comm.rank + 1))
        assert comm.exscan(mine, op=operator.iadd) == (list(range(comm.rank)) if comm.rank else None)
        assert comm.allreduce(mine, op=operator.iadd) == [0, 1, 2]
        assert comm.reduce(mine, op=operator.iadd, root=1) == ([0, 1, 2] if comm.rank == 1 else None)
        assert mine == [comm.rank]

    on_all(three_ranks, work)


def test_a_request_is_given_up_or_over(three_ranks: list[forebay.Comm]) -> None:
    """Its status says which, and no message is lost."""

    def work(comm: forebay.Comm) -> None:
        if comm.rank == 1:
            comm.Send(np.array([42.0]), 0, 1)
            comm.Send(np.array([43.0]), 0, 2)
        if comm.rank != 0:
            comm.barrier()
            return
        into, status = np.zeros(1), MPI.Status()
        never = comm.Irecv(into, 2, 9)
        never.Cancel()
        never.Wait(status)
        assert (status.Is_cancelled(), into[0]) == (True, 0.0)
        comes = comm.Irecv(into, 1, 1)
        comm.Probe(1, 2)
        comes.Cancel()
        comes.Wait(status)
        assert (status.Is_cancelled(), status.source, status.Get_count(MPI.DOUBLE), into[0]) == (
            False,
            1,
            1,
            42,
        )
        comm.Recv(into, 1, 2, status)
        assert (status.Is_cancelled(), into[0]) == (False, 43)
        comm.barrier()

    on_all(three_ranks, work)


def test_others_are_waited_for_after_one_has_failed(three_ranks: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        if comm.rank == 1:
            comm.send("late", 0, 1)
        if comm.rank != 0:
            comm.barrier()
            return
        short = np.zeros(1)
        requests = [comm.Irecv(short, 2, 3), comm.irecv(source=1, tag=1)]
        comm.set_timeout(0.05)
        with pytest.raises(forebay.Timeout):
            comm.Irecv(short, 2, 4).Wait()
        comm.set_timeout(30)
        comm.Send(np.zeros(2), 0, 3)
        too_long = [comm.Irecv(short, 0, 3), *requests]
        with pytest.raises(forebay.Invalid):
            MPI.Request.Waitany(too_long)
        assert MPI.Request.waitany(too_long) == (2, "late")
        requests[0].Cancel()
        comm.barrier()

    on_all(three_ranks, work)


@pytest.mark.parametrize("name", ["Ssend", "Issend", "Create_cart", "Send_init", "Alltoallw"])
def test_what_is_missing_is_told(name: str) -> None:
    assert not hasattr(MPI.COMM_NULL, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': forebay\.MPI has the messages"):
        getattr(MPI.COMM_NULL, name)
    with pytest.raises(AttributeError, match=r"no attribute 'rnak'$"):
        getattr(MPI.COMM_NULL, "rnak")  # noqa: B009 - it is not there


def test_jobs_without_a_name_do_not_meet(one: forebay.LocalGroup) -> None:
    code = "from forebay import MPI; print(MPI.COMM_WORLD.allgather(MPI.COMM_WORLD.rank))"
    bare = {"PATH": os.environ["PATH"], "PMI_SIZE": "2", "FOREBAY_GROUP": one.path}

    def begin(rank: int, **named: str) -> subprocess.Popen[str]:
        environment = {**bare, "PMI_RANK": str(rank), **named}
        words = [sys.executable, "-c", code]
        return subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    with begin(0) as alone:
        _, told = alone.communicate(timeout=60)
    assert "set FOREBAY_COMM" in told
    with begin(0, FOREBAY_COMM="a") as first, begin(1, FOREBAY_COMM="a") as second:
        assert [rank.communicate(timeout=60)[0] for rank in (first, second)] == ["[0, 1]\n"] * 2


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ranks_end_with_their_launcher(
    number: signal.Signals, one: forebay.LocalGroup, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom forebay import MPI\nprint(f'{os.getpid()}\\n', end='', flush=True)\nMPI.COMM_WORLD.recv()\n"
    )
    words = [sys.executable, "-m", "forebay.MPI", "--group", one.path, "-n", "2", str(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as launcher:
        assert launcher.stdout is not None
        pids = [int(launcher.stdout.readline()) for _ in range(2)]
        launcher.send_signal(number)
        assert launcher.wait(30) != 0
    wait_until(lambda: not any(map(is_there, pids)))


def test_one_that_aborts_ends_all(one: forebay.LocalGroup, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from forebay import MPI\ncomm = MPI.COMM_WORLD\ncomm.barrier()\n"
        "if comm.rank == 1: comm.Abort(7)\ncomm.recv(source=1)\n"
    )
    words = [sys.executable, "-m", "forebay.MPI", "--group", one.path, "-n", "2", str(program)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "rank 1 of communicator COMM_WORLD aborts: 7" in ended.stderr
