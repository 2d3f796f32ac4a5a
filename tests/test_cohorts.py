"""Parallel readers: they have one position in a stream."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.cohorts import at_once, cohort, next_of_all, outcomes, rank_of
from support.deaths import kill_servers
from support.groups import BUDGET, is_given_back, stream_coordinated_by, stream_status
from support.sessions import open_ranks, producer, write_steps
from support.single_rank import SINGLE_RANK, put_steps
from support.waiting import wait_until

import forebay

RANK = """
    rank, size, *more = sys.argv[2:]
    on_loss = more[0] if more else "fail"
    reader = consumer(sys.argv[1], "s", name="render", rank=int(rank), size=int(size), on_loss=on_loss, timeout=10)
    print("open")
    for line in sys.stdin:
        try:
            if line == "close\\n":
                reader.close()
                break
            if line == "fail\\n":
                try:
                    with reader:
                        raise ArithmeticError
                except ArithmeticError:
                    continue
            step = reader.next()
            print(step.number)
            if line == "next\\n":
                step.release()
        except forebay.Error as error:
            print(type(error).__name__, error)
"""


def whole(step: int) -> np.ndarray[Any, Any]:
    return reference((8, 6), step=step)


def told_readers(group: forebay.LocalGroup) -> list[dict[str, Any]]:
    """What the coordinator says of the readers of the stream."""
    found = stream_status(group, "s")
    assert found is not None
    readers: list[dict[str, Any]] = found["readers"]
    return readers


def all_closed(group: forebay.LocalGroup, step: int) -> bool:
    """Whether the coordinator has heard of all until this step."""
    found = stream_status(group, "s")
    return found is not None and found["latest"] == step


def test_all_ranks_see_the_same_steps(two: forebay.LocalGroup, transport: str) -> None:
    """One of them releases late: the step is held for all as long. The coordinator knows one reader."""
    with cohort(two, 3, window=2, transport=transport) as ranks, producer(two, policy="block") as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], range(2), whole)
        for number in range(2):
            steps = next_of_all(ranks)
            for step in steps:
                assert (step.number, step.missed) == (number, 0)
                np.testing.assert_array_equal(step["U"][...], whole(number))
            for step in steps[1:]:
                step.release()
            if number == 0:
                late = steps[0]
        write_steps([sim], [2], whole)
        with pytest.raises(forebay.Timeout, match=r"rank 0 \(process .* has not finished with step 0"):
            ranks[1].next(timeout=0.6)
        np.testing.assert_array_equal(late["U"][...], whole(0))
        [reader] = told_readers(two)
        assert (reader["name"], reader["ranks"], reader["held"]) == ("render", 3, 2)
        late.release()
        assert [step.number for step in next_of_all(ranks)] == [2, 2, 2]
        steps[0].release()


def test_it_begins_once_all_have_come(one: forebay.LocalGroup) -> None:
    """Nothing is demanded before; and it is told who does not come."""
    with producer(one) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        [error] = outcomes([lambda: rank_of(one, 0, 2, timeout=0.7)])
        assert isinstance(error, forebay.Timeout)
        assert (
            "the readers 'render' of stream 's' begin once all have come: rank 1 of the 2 did not come"
            in str(error)
        )
        with sim.step(0) as step:
            assert not step.put("U", whole(0))
        with cohort(one, 2) as ranks:
            write_steps([sim], [1], whole)
            assert [step.number for step in next_of_all(ranks)] == [1, 1]
            with pytest.raises(forebay.Conflict, match="all readers 'render' of stream 's' have come"):
                rank_of(one, 1, 2)
        # Its name is free again, and another size may have it.
        with cohort(one, 3) as ranks:
            write_steps([sim], [2], whole)
            assert [step.number for step in next_of_all(ranks)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 3}, "there are 3 ranks, and not 2|there are 2 ranks, and not 3"),
        ({"fields": ["V"]}, "the same fields"),
        ({"window": 7}, "the same window, follow or take"),
        ({"start": "oldest"}, "the same start"),
        ({"on_loss": "go-on"}, "the same on_loss"),
    ],
    ids=str,
)
def test_ranks_that_do_not_agree_are_told_so(
    one: forebay.LocalGroup, options: dict[str, Any], text: str
) -> None:
    """The second one to come, of both that there are."""
    mine = {"rank": 1, "size": 2, **options}
    found = outcomes(
        [
            lambda: rank_of(one, 0, 2, timeout=1.5),
            lambda: rank_of(one, mine.pop("rank"), mine.pop("size"), timeout=1.5, **mine),
        ]
    )
    kinds = sorted(type(error).__name__ for error in found)
    assert kinds == ["Conflict", "Timeout"]
    refused = next(str(error) for error in found if isinstance(error, forebay.Conflict))
    assert re.search(text, refused), refused
    assert "rank " in refused
    assert "give all ranks the same" in refused


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rank": 2, "size": 2}, "rank is 2 of 2"),
        ({"rank": -1, "size": 2}, "rank"),
        ({"size": 0}, "size"),
        ({"size": 1 << 17}, "size"),
        ({"size": 2, "name": None}, "no name"),
        ({"size": 2, "assign": "nearest"}, "assign 'nearest' is not known: use all, ranks, "),
        ({"size": 2, "on_loss": "skip"}, "on_rank_loss 'skip' is not known"),
    ],
    ids=str,
)
def test_what_cannot_be_a_rank(one: forebay.LocalGroup, options: dict[str, Any], text: str) -> None:
    """A number of a rank, or of ranks."""
    given = {"rank": 0, **options}
    with pytest.raises((forebay.Invalid, forebay.OutOfBounds), match=text):
        rank_of(one, given.pop("rank"), given.pop("size"), **given)


@pytest.mark.parametrize("how", ["killed", "failed", "closed"])
def test_the_end_of_a_rank_is_told_to_the_others(
    one: forebay.LocalGroup, child: Callable[..., Child], how: str
) -> None:
    """At once, with its name; what they were told of they may go on reading."""
    with producer(one, policy="block", timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        ranks = [child(RANK, one.path, rank, 3) for rank in range(3)]
        for rank in ranks:
            rank.expect("open")
        write_steps([sim], [0], whole)
        for rank in ranks:
            rank.say("hold")
            rank.expect("0")
        if how == "killed":
            ranks[1].kill()
        else:
            ranks[1].say("close" if how == "closed" else "fail")
        for rank in (ranks[0], ranks[2]):
            rank.say()
            told = rank.line()
            assert told.startswith("Closed " if how == "closed" else "Lost "), told
            assert f"rank 1 (process {ranks[1].pid} on " in told
        # Nobody reads any more, and those that are left close.
        with sim.step(1) as step:
            assert not step.put("U", whole(1))
        for rank in (ranks[0], ranks[2]):
            rank.say("close")
            rank.ended()
        wait_until(lambda: is_given_back(one))


def test_the_others_go_on_if_they_are_to(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """A rank is killed while it holds a step: that is released, and its blocks go to the others."""
    with producer(one, policy="block", timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        ranks = [child(RANK, one.path, rank, 3, "go-on") for rank in range(3)]
        for rank in ranks:
            rank.expect("open")
        for number in range(4):
            write_steps([sim], [number], whole)
            for rank in ranks[1:] if number > 1 else ranks:
                rank.say("next" if rank is not ranks[0] or number == 0 else "hold")
                rank.expect(str(number))
            if number == 1:
                ranks[0].kill()
                wait_until(lambda: is_given_back(one))
        for rank in ranks[1:]:
            rank.say("close")
            rank.ended()


def test_a_rank_that_stands_still_holds_the_others_up(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """Only until it goes on; who waits with a time of its own is told which rank it is."""
    with producer(one, policy="block", timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        slow = child(RANK, one.path, 0, 2)
        with rank_of(one, 1, 2, window=4) as reader:
            slow.expect("open")
            slow.kill(signal.SIGSTOP)
            write_steps([sim], range(5), whole)
            for number in range(4):
                with reader.next() as step:
                    assert step.number == number
            with pytest.raises(forebay.Timeout, match=rf"rank 0 \(process {slow.pid} on .* step 0"):
                reader.next(timeout=0.6)
            slow.kill(signal.SIGCONT)
            for number in range(5):
                slow.say("next")
                slow.expect(str(number))
            assert reader.next().number == 4
            slow.say("close")
            slow.ended()


def test_the_newest_step_is_chosen_once(two: forebay.LocalGroup) -> None:
    """Whoever asks first has it chosen for all, however late the others ask."""
    with cohort(two, 3, take="latest") as ranks, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], range(5), whole)
        wait_until(lambda: all_closed(two, 4))
        with ranks[0].next() as step:
            assert (step.number, step.missed) == (4, 4)
        write_steps([sim], range(5, 8), whole)
        wait_until(lambda: all_closed(two, 7))
        with ranks[0].next() as step:
            assert (step.number, step.missed) == (7, 2)
        write_steps([sim], [8], whole)
        for rank in ranks[1:]:
            for number, missed in [(4, 4), (7, 2)]:
                with rank.next() as step:
                    assert (step.number, step.missed) == (number, missed)
        assert {step.number for step in next_of_all(ranks)} == {8}


def test_the_contract_of_all_changes(two: forebay.LocalGroup) -> None:
    """One rank changes it, from one step on for all."""
    with cohort(two, 2) as ranks, producer(two, policy="block") as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        sim.array("V", dtype="f8", shape=(8, 6))

        def write(number: int) -> None:
            with sim.step(number) as step:
                step.put("U", whole(number))
                step.put("V", whole(number))

        write(0)
        assert [step.fields for step in next_of_all(ranks)] == [["U", "V"]] * 2
        assert ranks[1].need(["V"]) == 1
        write(1)
        assert [step.fields for step in next_of_all(ranks)] == [["V"]] * 2


def test_the_end_of_a_run_is_the_end_for_all(two: forebay.LocalGroup) -> None:
    """Also for those that come to it late."""
    with cohort(two, 3) as ranks:
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=(8, 6))
            write_steps([sim], [0], whole)
        assert [[step.number for step in rank] for rank in ranks] == [[0]] * 3


def test_ranks_come_and_go_again(two: forebay.LocalGroup) -> None:
    """A whole cohort detaches, and another one of its name goes on where it stopped."""
    seen = []
    with producer(two, policy="block", keep=20) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], range(9), whole)
        start: Any = "oldest"
        for size in (2, 3, 1):
            with cohort(two, size, start=start) as ranks:
                for _ in range(3):
                    steps = next_of_all(ranks)
                    seen.append({step.number for step in steps})
                    for step in steps:
                        step.release()
                start = ranks[0].cursor
    assert seen == [{number} for number in range(9)]


@pytest.mark.parametrize("dies", ["coordinator", "home"])
def test_it_outlives_a_server(
    own_place: Path, child: Callable[..., Child], transport: str, dies: str
) -> None:
    """Of its ranks one has had more steps than the others by then: in the end all have had the same."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        rank = child(SINGLE_RANK, group.path, transport, stream, 2)
        rank.expect("open")
        with cohort(group, 3, stream, transport=transport, window=6) as ranks:
            put_steps(rank, 0, 4)
            seen: list[list[int]] = [[], [], []]

            def read(which: int, count: int) -> None:
                for _ in range(count):
                    with ranks[which].next() as step:
                        np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", step.number))
                        assert step.missed == 0
                        seen[which].append(step.number)

            read(0, 4)
            read(1, 1)
            kill_servers(group, 2 if dies == "coordinator" else 0)
            put_steps(rank, 4, 8)
            at_once([lambda: read(0, 4), lambda: read(1, 7), lambda: read(2, 8)])
            assert seen == [list(range(8))] * 3


def test_a_rank_that_does_not_come_back_is_named(own_place: Path, child: Callable[..., Child]) -> None:
    """It dies with the coordinator, so that nobody has seen its end: the others are told in bounded time."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        rank = child(SINGLE_RANK, group.path, "auto", stream, 2)
        rank.expect("open")
        code = f"""
            reader = consumer(sys.argv[1], {stream!r}, name="render", rank=1, size=2)
            print("open")
            sys.stdin.readline()
        """
        other = child(code, group.path)
        with rank_of(group, 0, 2, stream) as reader:
            other.expect("open")
            put_steps(rank, 0, 1)
            reader.next().release()
            other.kill(signal.SIGSTOP)
            kill_servers(group, 2)
            other.kill()
            put_steps(rank, 1, 2)
            with pytest.raises(forebay.Timeout, match="rank 1 of the 2 did not come"):
                reader.next(timeout=4)


def test_what_a_cohort_of_a_stream_of_many_ranks_sees(two: forebay.LocalGroup) -> None:
    """Of 65 ranks and more the records of blocks travel otherwise."""
    array = reference((70, 3), step=1)
    with cohort(two, 3, assign="ranks") as ranks, open_ranks(two, "s", 70) as writers:
        for writer in writers:
            writer.array("U", dtype="f8", shape=(70, 3))
        write_steps(writers, [1], lambda _: array)
        steps = next_of_all(ranks)
        mine = [{block.rank for block in step.mine("U")} for step in steps]
        assert mine == [set(range(24)), set(range(24, 47)), set(range(47, 70))]
        for step in steps:
            np.testing.assert_array_equal(step["U"][...], array)


MPI = r"""
import sys
import numpy as np
import forebay
from mpi4py import MPI

comm = MPI.COMM_WORLD
with forebay.Consumer("s", group=sys.argv[1], comm=comm, assign="slab", start="oldest") as reader:
    for step in reader:
        mine = step["U"][step["U"].mine_region]
        counts, _ = np.histogram(mine, bins=8, range=(0, 96))
        total = comm.reduce(counts)
        if comm.rank == 0:
            print(step.number, *total, flush=True)
"""


def test_a_histogram_of_three_ranks(one: forebay.LocalGroup) -> None:
    """A stream that runs, read by a program with MPI in ten lines."""
    mpiexec = str(Path(sys.prefix, "bin", "mpiexec"))
    data = np.arange(96.0).reshape(12, 8)
    with producer(one, keep=3) as sim:
        sim.array("U", dtype="f8", shape=data.shape)
        write_steps([sim], range(3), lambda number: np.minimum(data + number, 95.5))
    command = [mpiexec, "-n", "3", sys.executable, "-W", "error", "-c", MPI, one.path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    expected = [
        f"{number} " + " ".join(map(str, np.histogram(np.minimum(data + number, 95.5), 8, (0, 96))[0]))
        for number in range(3)
    ]
    assert done.stdout.splitlines() == expected


def test_readers_wait_for_a_cohort_as_for_one(one: forebay.LocalGroup) -> None:
    """`wait_for_readers` counts it once all of it are there."""
    with producer(one, wait_for_readers=1, timeout=0.5) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        with pytest.raises(forebay.Timeout):
            sim.step(0).__enter__()
        with cohort(one, 2) as ranks:
            write_steps([sim], [1], whole)
            assert {step.number for step in next_of_all(ranks)} == {1}


def test_many_cohorts_end_as_they_begin(two: forebay.LocalGroup) -> None:
    """One after another, while steps are written: none loses a step after its first, none is left behind."""
    with producer(two, policy="block") as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        number = 0
        for size in (2, 4, 2, 3):
            with cohort(two, size) as ranks:
                for _ in range(3):
                    write_steps([sim], [number], whole)
                    steps = next_of_all(ranks)
                    assert {step.number for step in steps} == {number}
                    for step in steps:
                        step.release()
                    number += 1
        assert not told_readers(two)
