"""Communicators of processes that meet by name: as mpi4py's, on objects and on buffers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import native
from support.children import Child
from support.cohorts import outcomes
from support.comms import comms, on_all, open_comms, outcomes_on_all
from support.waiting import wait_until

import forebay
from forebay import MPI

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture
def four(one: forebay.LocalGroup) -> Iterator[list[forebay.Comm]]:
    """A communicator of four ranks."""
    with comms(one, 4) as opened:
        yield opened


# ---- collectives ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 700, 30_000], ids=["one", "short", "long"])
def test_collectives_of_buffers(one: forebay.LocalGroup, size: int, count: int) -> None:
    """Each gives what plain NumPy does."""
    random = np.random.default_rng(size * count)
    given = random.integers(-9, 9, (size, size, count)).astype("f8")

    def work(comm: forebay.Comm) -> None:
        rank = comm.Get_rank()
        mine, root = given[rank], size - 1
        into = np.full_like(mine, np.nan)
        comm.Allreduce(mine, into)
        np.testing.assert_array_equal(into, given.sum(0))
        comm.Allreduce(MPI.IN_PLACE, into, MPI.MAX)
        np.testing.assert_array_equal(into, given.sum(0))
        into[:] = 7
        comm.Reduce(mine, into if rank == root else None, MPI.MIN, root)
        np.testing.assert_array_equal(into, given.min(0) if rank == root else 7)
        comm.Scan(mine, into)
        np.testing.assert_array_equal(into, given[: rank + 1].sum(0))
        into[:] = 7
        comm.Exscan(mine, into)
        np.testing.assert_array_equal(into, given[:rank].sum(0) if rank else 7)
        part = np.empty(count)
        comm.Reduce_scatter_block(mine, part)
        np.testing.assert_array_equal(part, given.sum(0)[rank])
        comm.Alltoall(mine, into)
        np.testing.assert_array_equal(into, given[:, rank])
        all_of = np.empty((size, count))
        comm.Allgather(mine[0], all_of)
        np.testing.assert_array_equal(all_of, given[:, 0])
        all_of[:] = 7
        comm.Gather(mine[0], all_of if rank == root else None, root)
        np.testing.assert_array_equal(all_of, given[:, 0] if rank == root else 7)
        comm.Scatter(mine if rank == root else None, part, root)
        np.testing.assert_array_equal(part, given[root, rank])
        part[:] = rank
        comm.Bcast(part, root)
        assert (part == root).all()
        comm.Barrier()

    with comms(one, size) as opened:
        on_all(opened, work)


@pytest.mark.parametrize("size", [1, 3])
def test_blocks_of_different_lengths_anywhere_in_a_buffer(one: forebay.LocalGroup, size: int) -> None:
    counts = [3 * rank + 1 for rank in range(size)]
    gaps = [sum(counts[:rank]) + 2 * rank for rank in range(size)]
    room = sum(counts) + 2 * size

    def work(comm: forebay.Comm) -> None:
        rank = comm.Get_rank()
        mine = np.full(counts[rank], rank, "i4")
        packed = np.concatenate([np.full(counts[other], other, "i4") for other in range(size)])
        spread = np.full(room, -1, "i4")
        for other in range(size):
            spread[gaps[other] : gaps[other] + counts[other]] = other
        into = np.full(room, -1, "i4")
        comm.Allgatherv(mine, [into, (counts, gaps), MPI.INT])
        np.testing.assert_array_equal(into, spread)
        into = np.empty(sum(counts), "i4")
        comm.Gatherv(mine, [into, counts] if rank == 0 else None)
        assert rank or (into == packed).all()
        back = np.empty(counts[rank], "i4")
        comm.Scatterv([spread, counts, gaps, "i"] if rank == 0 else None, back)
        np.testing.assert_array_equal(back, mine)
        into = np.full(counts[rank] * size, -1, "i4")
        comm.Alltoallv([spread, (counts, gaps), MPI.INT], [into, counts[rank]])
        np.testing.assert_array_equal(into, rank)
        sums = np.empty(counts[rank], "i4")
        comm.Reduce_scatter(packed, sums, counts)
        np.testing.assert_array_equal(sums, size * rank)

    with comms(one, size) as opened:
        on_all(opened, work)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_reduced(four: list[forebay.Comm], dtype: str) -> None:
    """As NumPy does it in the order of ranks, to the bit."""
    random = np.random.default_rng(1)
    given = [(random.random(40) * 50).astype(dtype) for _ in four]
    kind = np.dtype(dtype).kind
    operations: list[tuple[MPI.Op, Any]] = [(MPI.SUM, np.add), (MPI.PROD, np.multiply)]
    if kind != "c":
        operations += [(MPI.MIN, np.minimum), (MPI.MAX, np.maximum)]
    if kind in "iu":
        operations += [(MPI.BAND, np.bitwise_and), (MPI.BOR, np.bitwise_or), (MPI.BXOR, np.bitwise_xor)]
        operations += [(MPI.LAND, np.logical_and), (MPI.LOR, np.logical_or), (MPI.LXOR, np.logical_xor)]

    def work(comm: forebay.Comm) -> None:
        for op, ufunc in operations:
            into = np.empty(40, dtype)
            comm.Allreduce(given[comm.rank], into, op)
            # ((0 1) (2 3)): each pair first, whatever the timing.
            with np.errstate(all="ignore"):
                wanted = ufunc(ufunc(given[0], given[1]), ufunc(given[2], given[3])).astype(dtype)
            assert into.tobytes() == wanted.tobytes(), op

    on_all(four, work)


def test_places_of_extrema(four: list[forebay.Comm]) -> None:
    pair = np.dtype([("value", "f8"), ("place", "i4")], align=True)

    def work(comm: forebay.Comm) -> None:
        mine, into = np.zeros(2, pair), np.zeros(2, pair)
        mine["value"], mine["place"] = [(comm.rank - 1) ** 2, 5], comm.rank
        comm.Allreduce([mine, MPI.DOUBLE_INT], [into, MPI.DOUBLE_INT], MPI.MINLOC)
        assert into.tolist() == [(0.0, 1), (5.0, 0)]
        assert comm.allreduce((abs(comm.rank - 2), comm.rank), MPI.MINLOC) == (0, 2)
        assert comm.allreduce((abs(comm.rank - 2), comm.rank), MPI.MAXLOC) == (2, 0)

    on_all(four, work)


def test_collectives_of_objects(four: list[forebay.Comm]) -> None:
    """Whatever can be pickled, combined by any function, in the order of ranks."""

    def work(comm: forebay.Comm) -> None:
        rank, size = comm.rank, comm.size
        word = "abcd"[rank]
        assert comm.bcast({"from": rank, "much": np.arange(9000)}, 2)["from"] == 2
        assert comm.gather(word, 1) == (["a", "b", "c", "d"] if rank == 1 else None)
        assert comm.allgather([word] * rank) == [[], ["b"], ["c"] * 2, ["d"] * 3]
        assert comm.scatter([10 * n for n in range(size)] if rank == 3 else None, 3) == 10 * rank
        assert comm.alltoall([f"{rank}{other}" for other in range(size)]) == [
            f"{n}{rank}" for n in range(size)
        ]
        assert comm.reduce(word, root=2) == ("abcd" if rank == 2 else None)
        assert comm.allreduce(word, lambda a, b: f"({a}{b})") == "(((ab)c)d)"
        assert comm.allreduce(rank + 1, MPI.PROD) == 24
        assert comm.scan(word) == "abcd"[: rank + 1]
        assert comm.exscan(word) == ("abcd"[:rank] if rank else None)
        np.testing.assert_array_equal(comm.allreduce(np.array([rank, -rank]), MPI.MIN), [0, -3])
        comm.barrier()

    on_all(four, work)


def test_functions_on_buffers(four: list[forebay.Comm]) -> None:
    """In the order of ranks, though they do not commute."""

    def matrices(a: memoryview, b: memoryview, _: object) -> None:
        first, second = np.frombuffer(a).reshape(-1, 2, 2), np.frombuffer(b).reshape(-1, 2, 2)
        second[:] = first @ second

    op = MPI.Op.Create(matrices)
    given = np.random.default_rng(2).integers(-3, 4, (4, 5, 2, 2)).astype("f8")
    wanted = [reduce(np.matmul, given[: rank + 1]) for rank in range(4)]
    pair = MPI.Datatype(32, "", "MATRIX", "")

    def work(comm: forebay.Comm) -> None:
        into = np.zeros((5, 2, 2))
        comm.Allreduce([given[comm.rank], pair], [into, pair], op)
        np.testing.assert_array_equal(into, wanted[3])
        comm.Scan([given[comm.rank], pair], [into, pair], op)
        np.testing.assert_array_equal(into, wanted[comm.rank])

    on_all(four, work)


# ---- messages ---------------------------------------------------------------------------------------------


def test_messages_of_buffers(four: list[forebay.Comm]) -> None:
    """Short and long, of any rank, with any tag, waited for and put aside."""

    def work(comm: forebay.Comm) -> None:
        rank, size = comm.rank, comm.size
        up, down = (rank + 1) % size, (rank - 1) % size
        for count in (0, 1, 5000, 300_000):
            into, status = np.full(count + 1, -1.0), MPI.Status()
            comm.Sendrecv(np.full(count, float(rank)), up, 7, into, down, 7, status)
            assert (into[:count] == down).all()
            assert into[count] == -1
            assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (down, 7, count)
            requests = [comm.Irecv([into, count, MPI.DOUBLE], down, tag) for tag in (1, 2)]
            sends = [comm.Isend(np.full(count, tag + 10.0 * rank), up, tag) for tag in (2, 1)]
            assert sorted([MPI.Request.Waitany(requests), MPI.Request.Waitany(requests)]) == [0, 1]
            MPI.Request.Waitall(sends)
        value = np.array([float(rank)])
        comm.Sendrecv_replace(value, up, source=down)
        assert value == down

    on_all(four, work)


def test_messages_of_objects_and_probes(four: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        if comm.rank == 0:
            status = MPI.Status()
            assert not comm.iprobe(tag=99)
            got = {}
            for _ in range(3):
                comm.probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
                got[status.source] = comm.recv(source=status.source, tag=status.tag)
            assert got == {rank: {"rank": rank} for rank in (1, 2, 3)}
            comm.send("all", 0, 3)
            assert comm.recv(source=0) == "all"
        else:
            comm.send({"rank": comm.rank}, 0, tag=comm.rank)
        comm.barrier()
        comm.send("nothing", MPI.PROC_NULL)
        assert comm.recv(source=MPI.PROC_NULL) is None
        wanted = comm.irecv(source=(comm.rank - 1) % 4)
        comm.isend([comm.rank], (comm.rank + 1) % 4)
        assert wanted.wait() == [(comm.rank - 1) % 4]

    on_all(four, work)


def test_anything_with_a_buffer_is_sent(four: list[forebay.Comm]) -> None:
    """Arrays of Python and NumPy, bytes, parts of them, scalars, Fortran order."""

    def work(comm: forebay.Comm) -> None:
        for given, into in [
            (array("i", [1, 2, 3]), array("i", [0, 0, 0])),
            (b"abc", bytearray(3)),
            (memoryview(b"abc"), bytearray(3)),
            (np.float64(2.5), np.zeros(())),
            (np.asfortranarray(np.eye(3)), np.empty((3, 3), order="F")),
            ([np.arange(10), 4, 3, MPI.LONG], np.empty(4, "i8")),
            ([np.arange(10), (4, 3), "l"], np.empty(4, "i8")),
        ]:
            sent = given[0][3:7] if isinstance(given, list) else given
            comm.Sendrecv(given, (comm.rank + 1) % 4, 0, into, (comm.rank - 1) % 4)
            np.testing.assert_array_equal(
                np.asarray(into).ravel(),
                np.frombuffer(bytes(sent), np.asarray(into).dtype)
                if isinstance(sent, (bytes, memoryview))
                else np.asarray(sent).ravel(),
            )

    on_all(four, work)


def test_requests_that_nobody_keeps_go_on(four: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        rank = comm.rank
        into = np.zeros(100_000)
        for other in range(4):
            comm.Isend(np.full(100_000, float(rank)), other, 5)
        for other in range(4):
            comm.Recv(into, other, 5)
            assert (into == other).all()
        given_up = comm.Irecv(into, MPI.ANY_SOURCE, 77)
        assert not given_up.Test()
        given_up.Cancel()
        given_up.Wait()
        assert not given_up
        # They get on in calls of their process.
        comm.Barrier()

    on_all(four, work)


def test_parts(four: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        part = comm.Split(comm.rank % 2, -comm.rank)
        assert (part.size, part.rank) == (2, 1 - comm.rank // 2)
        assert part.allgather(comm.rank) == [2 + comm.rank % 2, comm.rank % 2]
        none = comm.Split(MPI.UNDEFINED if comm.rank else 1)
        assert bool(none) == (comm.rank == 0)
        assert (none == MPI.COMM_NULL) == (comm.rank > 0)
        copy = comm.Dup()
        comm.send("in the whole", (comm.rank + 1) % 4)
        assert not copy.iprobe()
        assert MPI.Comm.Compare(comm, copy) == MPI.CONGRUENT
        copy.Free()
        with pytest.raises(forebay.Closed, match="COMM_NULL"):
            copy.barrier()
        assert comm.recv() == "in the whole"

    on_all(four, work)


def test_a_rank_that_cannot_go_on_revokes_the_communicator(four: list[forebay.Comm]) -> None:
    def work(comm: forebay.Comm) -> None:
        copy = comm.Dup()
        if comm.rank == 3:
            copy.Revoke("its table is empty")
        waits: list[Callable[[], object]] = [
            lambda: copy.recv(source=3),
            copy.barrier,
            lambda: copy.send(1, 3),
        ]
        for wait in waits:
            text = "rank 3 has revoked communicator .*: its table is empty"
            with pytest.raises(forebay.Unreachable, match=text):
                wait()
        assert comm.allgather(comm.rank) == [0, 1, 2, 3]

    on_all(four, work)


# ---- meeting by name --------------------------------------------------------------------------------------


def meetings(group: forebay.LocalGroup) -> int:
    """How many processes wait for the other ranks of a communicator."""
    servers = forebay.Admin(group=group.path).status()["servers"]
    return sum(server.get("connections", {}).get("meetings", 0) for server in servers)


def test_who_comes_twice_with_another_size_or_never(two: forebay.LocalGroup) -> None:
    def opened(rank: int, size: int, timeout: float) -> Callable[[], forebay.Comm]:
        return lambda: forebay.Comm("meet", rank=rank, size=size, group=two.path, timeout=timeout)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(opened(1, 5, 3.0))
        wait_until(lambda: meetings(two) == 1)
        with pytest.raises(
            forebay.Conflict, match=f"rank 1 of communicator 'meet' is process {os.getpid()} "
        ):
            opened(1, 5, 3.0)()
        with pytest.raises(
            forebay.Conflict, match=f"with 2 ranks here, and with 5 by process {os.getpid()} "
        ):
            opened(0, 2, 3.0)()
        assert isinstance(first.exception(), forebay.Timeout)
    with pytest.raises(forebay.Timeout, match="ranks 0, 1, 3 of communicator 'meet' did not open it within"):
        opened(2, 4, 0.5)()
    for rank, size, text in (
        (2, 2, "ranks are 0 to 1"),
        (-1, 2, "rank=-1"),
        (0, 0, "size"),
        (0, 5000, "1 to 4096"),
    ):
        with pytest.raises(forebay.Invalid, match=text):
            opened(rank, size, 1.0)()
    with pytest.raises(forebay.Invalid, match="1 to 255 bytes"):
        forebay.Comm("", rank=0, size=1, group=two.path)
    # The name is as good as before.
    with comms(two, 3, "meet") as again:
        assert on_all(again, lambda comm: comm.allreduce(1)) == [3, 3, 3]


def test_they_meet_though_the_server_dies_at_which_they_wait(
    three: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """Ranks that wait come to the next one."""
    rank = """
        with forebay.Comm(sys.argv[2], rank=int(sys.argv[3]), size=3, group=sys.argv[1], timeout=60) as comm:
            print(comm.allreduce(comm.rank), flush=True)
    """
    early = [child(rank, three.path, f"name {name}", number) for name in range(3) for number in (0, 1)]

    wait_until(lambda: meetings(three) == 6)
    three.servers[0].process.kill()
    late = [child(rank, three.path, f"name {name}", 2) for name in range(3)]
    for process in early + late:
        process.expect("3", timeout=60)
        process.ended()


def test_a_rank_that_dies_is_named(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    code = """
        comm = forebay.Comm("c", rank=int(sys.argv[2]), size=3, group=sys.argv[1])
        comm.barrier()
        print(os.getpid(), flush=True)
        try:
            for _ in range(1_000_000):
                comm.allreduce(1)
        except forebay.Unreachable as error:
            print(error, flush=True)
    """
    ranks = [child(code, one.path, rank) for rank in range(3)]
    for rank in ranks:
        rank.line()
    ranks[1].kill(signal.SIGKILL)
    for rank in (ranks[0], ranks[2]):
        text = rank.line()
        assert "rank 1" in text
        assert f"process {ranks[1].pid}" in text
        rank.ended()


def test_a_forked_child_uses_none_of_its_parents(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    parent = child(
        """
        with forebay.Comm("c", rank=0, size=1, group=sys.argv[1]) as comm:
            assert MPI.COMM_SELF.allreduce(1) == 1
            pid = os.fork()
            if pid == 0:
                try:
                    comm.barrier()
                except forebay.Forked as error:
                    print(error, flush=True)
                assert MPI.COMM_SELF.allreduce(2) == 2
                del comm
                os._exit(0)
            print(os.waitpid(pid, 0)[1], comm.allreduce(5), flush=True)
        """.replace("\n        with", "\n        from forebay import MPI\n        with", 1),
        one.path,
    )
    assert "opened by process" in parent.line()
    parent.expect("0 5")
    parent.ended()


# ---- started together -------------------------------------------------------------------------------------

WORLD = """
from forebay import MPI
comm = MPI.COMM_WORLD
told = f"{comm.Get_rank()} {comm.Get_size()} {comm.allreduce(comm.Get_rank() + 1)}\\n"
print(told, end="", flush=True)
"""


def test_a_program_started_several_times_has_a_world(own_place: Path) -> None:
    program = own_place / "world.py"
    program.write_text(WORLD)
    run = [sys.executable, "-m", "forebay.MPI", "-n", "3", str(program)]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(ran.stdout.splitlines()) == ["0 3 6", "1 3 6", "2 3 6"]
    alone = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert alone.stdout == "0 1 1\n"


def test_a_launcher_of_mpi_starts_a_world(one: forebay.LocalGroup, own_place: Path) -> None:
    program = own_place / "world.py"
    program.write_text(WORLD)
    run = [str(Path(sys.prefix, "bin", "mpiexec")), "-n", "2", sys.executable, str(program)]
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    ran = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert sorted(ran.stdout.splitlines()) == ["0 2 3", "1 2 3"]


def test_the_first_rank_that_fails_ends_the_others(own_place: Path) -> None:
    program = own_place / "fails.py"
    program.write_text(
        "import sys\nfrom forebay import MPI\nMPI.COMM_WORLD.rank == 1 and sys.exit(3)\nMPI.COMM_WORLD.barrier()\n"
    )
    run = [sys.executable, "-m", "forebay.MPI", "-n", "3", str(program)]
    assert subprocess.run(run, capture_output=True, timeout=60, check=False).returncode == 3


def test_the_same_in_c(one: forebay.LocalGroup, own_place: Path) -> None:
    program = native.build("c", Path(__file__).parent / "comm.c", own_place)
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    ranks = [
        subprocess.Popen(
            [str(program), "c", str(rank), "3"], env=environment, stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    told = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert told == ["as it should\n"] * 3
    assert [rank.returncode for rank in ranks] == [0] * 3


# ---- bad input --------------------------------------------------------------------------------------------


def test_what_is_wrong_is_refused_before_anything_is_sent(four: list[forebay.Comm]) -> None:
    comm, good = four[0], np.zeros(4)
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    shared = np.zeros(8)
    bad: list[tuple[str, type[Exception], Callable[[], object]]] = [
        ("there is no rank 4", forebay.Invalid, lambda: comm.Send(good, 4)),
        ("there is no rank -7", forebay.Invalid, lambda: comm.Recv(good, -7)),
        ("there is no rank 4", forebay.Invalid, lambda: comm.Bcast(good, 4)),
        ("tags are 0 or more", forebay.Invalid, lambda: comm.Send(good, 1, -5)),
        ("count -1 is negative", forebay.Invalid, lambda: comm.Send([good, -1, MPI.DOUBLE], 1)),
        (
            "40 bytes from byte 0 on are asked for, the buffer has 32",
            forebay.Invalid,
            lambda: comm.Send([good, 5], 1),
        ),
        ("no datatype", TypeError, lambda: comm.Send([good, 1, 1.5], 1)),
        ("no datatype 'what'", forebay.Invalid, lambda: comm.Send([good, "what"], 1)),
        ("2 to 4 items", forebay.Invalid, lambda: comm.Send([good], 1)),
        ("contiguous", ValueError, lambda: comm.Send(np.zeros(8)[::2], 1)),
        ("big-endian", forebay.TypeMismatch, lambda: comm.Send(good.astype(">f8"), 1)),
        ("read-?only", (ValueError, BufferError), lambda: comm.Recv(fixed, 1)),  # type: ignore[list-item]
        ("bytes-like object is required", TypeError, lambda: comm.Send(object(), 1)),
        ("share memory", forebay.Invalid, lambda: comm.Allreduce(shared[:6], shared[2:])),
        ("there is room for 8 of", forebay.Invalid, lambda: comm.Allreduce(good, np.zeros(1))),
        ("not defined", forebay.Invalid, lambda: comm.Allreduce(good, np.zeros(4), MPI.BAND)),
        (
            "that are no number",
            forebay.TypeMismatch,
            lambda: comm.Allreduce(np.zeros(2, "S5"), np.zeros(2, "S5")),
        ),
        ("for each of 4 ranks", forebay.Invalid, lambda: comm.Allgather(good, np.zeros(7))),
        (
            "3 counts are given for 4 ranks",
            forebay.Invalid,
            lambda: comm.Allgatherv(good, [np.zeros(9), [3, 3, 3]]),
        ),
        (
            "blocks end beyond the buffer",
            forebay.Invalid,
            lambda: comm.Allgatherv(good, [np.zeros(9), [4, 4, 4, 4]]),
        ),
        ("IN_PLACE is for the root", forebay.Invalid, lambda: comm.Reduce(MPI.IN_PLACE, good, root=1)),
        ("timeout is -1", forebay.Invalid, lambda: comm.set_timeout(-1)),
        ("colors are 0 or more", forebay.Invalid, lambda: comm.Split(-3)),
    ]
    for text, kind, call in bad:
        with pytest.raises(kind, match=text):
            call()
    assert on_all(four, lambda comm: comm.allreduce(1)) == [4] * 4


def test_ranks_that_do_not_agree_are_told(one: forebay.LocalGroup) -> None:
    """In size, type, operation, root, or in what they call: none hangs, none takes the other's bytes."""
    cases: list[tuple[str, Callable[[forebay.Comm, bool], object]]] = [
        ("has", lambda comm, odd: comm.Allreduce(np.zeros(3 + odd), np.zeros(3 + odd))),
        (
            "Sum of Float32",
            lambda comm, odd: comm.Allreduce(
                np.zeros(2 + 2 * odd, "f4" if odd else "f8"), np.zeros(2 + 2 * odd, "f4" if odd else "f8")
            ),
        ),
        (
            "Product of Float64",
            lambda comm, odd: comm.Allreduce(np.zeros(3), np.zeros(3), MPI.PROD if odd else MPI.SUM),
        ),
        ("with root 1", lambda comm, odd: comm.Bcast(np.zeros(3), int(odd))),
        ("barrier", lambda comm, odd: comm.Barrier() if odd else comm.Allreduce(np.zeros(3), np.zeros(3))),
    ]
    for text, call in cases:
        with comms(one, 3) as opened:
            for comm in opened:
                comm.set_timeout(30)

            def work(comm: forebay.Comm, call: Callable[[forebay.Comm, bool], object] = call) -> None:
                call(comm, comm.rank == 1)
                # A rank whose own part was over may only be told in the next one, or while that ends.
                comm.Barrier()
                comm.Barrier()

            told = outcomes_on_all(opened, work)
            assert all(isinstance(error, forebay.Error) for error in told), told
            assert any(text in str(error) for error in told), told


def test_what_fails_on_one_rank_fails_on_all(one: forebay.LocalGroup) -> None:
    """An object that cannot be pickled, a function that raises: the others are told, and not by a deadline."""
    with comms(one, 3) as opened:
        lock = lambda comm: (lambda: 1) if comm.rank == 1 else 1  # noqa: E731
        for call in (
            lambda comm: comm.allgather(lock(comm)),
            lambda comm: comm.allreduce(lock(comm)),
            lambda comm: comm.bcast(lock(comm), 1),
            lambda comm: comm.alltoall([lock(comm)] * 3),
            lambda comm: comm.scatter([lock(comm)] * 3, 1),
            lambda comm: comm.scan(1, lambda _a, _b: 1 / 0),
        ):
            told = outcomes([lambda comm=comm, call=call: _caught(call, comm) for comm in opened])
            assert all(isinstance(error, Exception) for error in told), told
            assert sum("gives no object" in str(error) for error in told) >= 2, told
        assert on_all(opened, lambda comm: comm.allreduce(1)) == [3] * 3

        def raises(a: memoryview, b: memoryview, _: object) -> None:
            raise ValueError("negative")

        told = outcomes_on_all(
            opened,
            lambda comm: (comm.Allreduce(np.zeros(3), np.zeros(3), MPI.Op.Create(raises)), comm.Barrier()),
        )
        assert all("negative" in str(error) for error in told), told


def _caught(call: Callable[[Any], Any], comm: Any) -> Any:
    try:
        return call(comm)
    except Exception as error:
        return error


def test_closed_ranks_fail_the_others(one: forebay.LocalGroup) -> None:
    first, second = open_comms(one, 2)
    second.close()
    with pytest.raises(
        forebay.Unreachable, match=r"rank 1 .*endpoint has ended|rank 1 .* has closed this communicator"
    ):
        first.Recv(np.zeros(1), 1)
    first.close()
    with pytest.raises(forebay.Closed):
        first.barrier()
