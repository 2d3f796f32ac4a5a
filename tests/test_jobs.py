"""Ranks of two jobs never make one run; ranks of one job open their handles together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.children import Child
from support.sessions import consumer, open_ranks, producer

import forebay

MPIEXEC = str(Path(sys.prefix, "bin", "mpiexec"))
LAUNCHERS = {
    "PMIx": [{"PMIX_NAMESPACE": "prterun-n1-7@1"}, {"PMIX_NAMESPACE": "prterun-n1-8@1"}],
    "Slurm": [{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}],
    "Open MPI": [{"OMPI_MCA_ess_base_jobid": "77"}, {"OMPI_MCA_ess_base_jobid": "78"}],
    "Flux": [{"FLUX_JOB_ID": "f1"}, {"FLUX_JOB_ID": "f2"}],
}
RANK = """
    try:
        sim = producer(sys.argv[1], "s", rank=int(sys.argv[2]), size=2)
    except forebay.Conflict as error:
        print(error)
    else:
        print("joined run", sim.run)
        sys.stdin.readline()
        sim.close()
"""


def assigned(launcher: dict[str, str]) -> list[str]:
    """Has a process believe that a launcher has started it."""
    return ["env", *(f"{name}={value}" for name, value in launcher.items())]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_that_two_launchers_have_started_do_not_mix(
    one: forebay.LocalGroup, child: Callable[..., Child], launcher: str
) -> None:
    """The error names both jobs and both processes; the right rank of the first job is taken."""
    mine, other = LAUNCHERS[launcher]
    first = child(RANK, one.path, 0, inside=assigned(mine))
    first.expect("joined run 1")
    stranger = child(RANK, one.path, 1, inside=assigned(other))
    text = stranger.line()
    for part in ("rank 1 of stream 's'", f"process {first.pid} ", f"process {stranger.pid} ", "`job`"):
        assert part in text
    for job in (mine, other):
        assert f"job '{launcher} {'.'.join(job.values())}'" in text
    by_hand = child(RANK, one.path, 1)
    assert "of no job that is known; rank 0" in by_hand.line()
    second = child(RANK, one.path, 1, inside=assigned(mine))
    second.expect("joined run 1")
    for rank in (first, second):
        rank.say()
        rank.ended()


def test_the_users_word_goes_before_the_launchers(
    one: forebay.LocalGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-n1-7@1")
    with open_ranks(one, "s", 2, job="mine"):
        pass
    with producer(one, "t", rank=0, size=2, job="mine") as first:
        with pytest.raises(forebay.Conflict, match=r"job 'PMIx prterun-n1-7@1'.*job 'mine'"):
            producer(one, "t", rank=1, size=2)
        with producer(one, "t", rank=1, size=2, job="mine") as second:
            assert first.run == second.run


def test_a_job_begins_anew_where_another_one_has_left(one: forebay.LocalGroup) -> None:
    """A rank of the first job had closed, and the other never came: those of the second job are not awaited by it."""
    producer(one, rank=0, size=2, job="A").close()
    with producer(one, rank=1, size=2, job="B") as second, producer(one, rank=0, size=2, job="B") as first:
        assert (first.run, second.run) == (2, 2)
    # Of one job it may just be late.
    producer(one, "t", rank=0, size=2, job="A").close()
    with producer(one, "t", rank=1, size=2, job="A") as late:
        assert late.run == 1


def test_who_has_the_rank_is_named(one: forebay.LocalGroup) -> None:
    with (
        producer(one, name="the first"),
        pytest.raises(forebay.Conflict, match=rf"by 'the first' \(process {os.getpid()} on "),
    ):
        producer(one)


def test_who_has_died_is_named(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """By its host and process, and by its name, if it has one."""
    code = """
        with producer(sys.argv[1], "s", name="the sim") as sim:
            sim.array("U", dtype="f8", shape=(3,))
            print("open")
            sys.stdin.readline()
            os._exit(1)
    """
    sim = child(code, one.path)
    with consumer(one) as reader:
        sim.expect("open")
        sim.say()
        with pytest.raises(
            forebay.Crashed, match=rf"rank 0 of 1 \('the sim', process {sim.pid} on .*\) ended"
        ):
            reader.next()


@pytest.mark.parametrize("job", ["x" * 256, "a\nb"])
def test_bad_names_of_jobs(one: forebay.LocalGroup, job: str) -> None:
    with pytest.raises(forebay.Invalid, match="job"):
        producer(one, job=job)


# ---- with MPI -----------------------------------------------------------------------------------

PROGRAM = r"""
import sys
import numpy as np
import forebay
from mpi4py import MPI

comm = MPI.COMM_WORLD
try:
    sim = forebay.Producer(sys.argv[1], comm=comm, timeout=20)
except forebay.Conflict as error:
    sys.stdout.write(f"conflict: {error}\n")
    sys.exit()
with sim:
    assert (sim.rank, sim.size) == (comm.rank, comm.size)
    sim.array("U", dtype="f8", shape=(comm.size,))
    comm.barrier()
    if comm.rank == 0:
        print("joined", flush=True)
    if sys.argv[2:]:
        comm.bcast(sys.stdin.readline() if comm.rank == 0 else None)
    with sim.step(0) as step:
        step.put("U", [comm.rank], offset=(comm.rank,))
"""


def mpi(count: int, *command: str) -> list[str]:
    return [MPIEXEC, "-n", str(count), sys.executable, "-W", "error", "-c", *command]


def test_a_communicator_says_rank_size_and_job(one: forebay.LocalGroup) -> None:
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    with consumer(one) as reader:
        done = subprocess.run(
            mpi(3, PROGRAM, "s"), env=environment, timeout=60, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert reader.next()["U"][...].tolist() == [0, 1, 2]


def test_ranks_of_two_communicators_do_not_mix(one: forebay.LocalGroup) -> None:
    """Of two programs at once on one stream, all ranks of one fail, and name the other one."""
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(mpi(2, PROGRAM, "s", "waits"), env=environment, **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "joined\n"
        other = subprocess.run(
            mpi(2, PROGRAM, "s"), env=environment, timeout=60, capture_output=True, text=True
        )
        told = other.stdout.splitlines()
        assert len(told) == 2
        assert all(re.match(r"conflict: .*rank \d of stream 's' is process", line) for line in told)
        first.communicate("\n", timeout=60)
        assert first.returncode == 0


def test_opening_fails_on_all_ranks_or_on_none(one: forebay.LocalGroup) -> None:
    """The group that rank 0 cannot find, and what one rank alone asks for wrongly."""
    program = r"""
import sys
import forebay
from mpi4py import MPI

comm = MPI.COMM_WORLD
for group, names in (("/nowhere", ["a", "a"]), (None, ["a", ""]), (None, ["", "a"])):
    try:
        forebay.Producer(names[comm.rank], comm=comm, group=group, timeout=20)
    except forebay.Error as error:
        told = comm.gather((type(error).__name__, str(error)))
        if comm.rank == 0:
            same = told[0][1].removeprefix("rank 1: ") == told[1][1].removeprefix("rank 0: ")
            sys.stdout.write(f"{told[0][0]} {told[1][0]} {same}\n")
try:
    forebay.Producer("a", comm=comm, keep=-comm.rank, timeout=20)
except forebay.Invalid as error:
    sys.stdout.write(f"{'keep' in str(error)}\n")
try:
    forebay.Producer("a", comm=comm, group=5 if comm.rank == 0 else None, timeout=20)
except forebay.Invalid as error:
    sys.stdout.write(f"{'group=5' in str(error)}\n")
try:
    forebay.Producer("a", comm=comm, rank=comm.rank, timeout=20)
except forebay.Invalid as error:
    sys.stdout.write(f"{'leave them out' in str(error)}\n")
try:
    forebay.Producer("a", comm=comm, rank=1)
except forebay.Invalid as error:
    sys.stdout.write(f"{'leave them out' in str(error)}\n")
"""
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    done = subprocess.run(mpi(2, program), env=environment, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    expected = [
        "ConnectionFile ConnectionFile True",
        "Invalid Invalid True",
        "Invalid Invalid True",
        *["True"] * 8,
    ]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_ranks_without_a_communicator_belong_to_their_mpiexec(one: forebay.LocalGroup) -> None:
    """MPICH's launcher names no job: where all its ranks are on one host, the process that started them does."""
    program = r"""
import os
import sys
import forebay

rank, only = int(os.environ["PMI_RANK"]), sys.argv[1]
if only not in ("all", str(rank)):
    sys.exit()
try:
    sim = forebay.Producer("s", rank=rank, size=2, timeout=20)
except forebay.Conflict as error:
    sys.stdout.write(f"{error}\n")
else:
    sys.stdout.write("joined\n")
    sys.stdout.flush()
    if only == "0":
        sys.stdin.readline()
    sim.close()
"""
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(mpi(2, program, "0"), env=environment, **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "joined\n"
        other = subprocess.run(
            mpi(2, program, "1"), env=environment, timeout=60, capture_output=True, text=True
        )
        assert other.stdout.count("job 'Hydra process") == 2
        first.communicate("\n", timeout=60)
    whole = subprocess.run(
        mpi(2, program, "all"), env=environment, timeout=60, capture_output=True, text=True
    )
    assert whole.stdout == "joined\njoined\n"
