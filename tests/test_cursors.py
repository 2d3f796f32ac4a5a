"""A reader stops, and another one goes on where it was, as far as steps are still held."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.cohorts import cohort
from support.deaths import kill_servers
from support.groups import BUDGET, steps_lacking_copies, stream_coordinated_by, stream_status
from support.sessions import consumer, producer, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def put(sim: forebay.Producer, first: int, last: int) -> None:
    write_steps([sim], range(first, last), lambda number: reference(SHAPE, "f8", number))


def read(reader: forebay.Consumer, first: int, last: int) -> None:
    for number in range(first, last):
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False)
            np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


def keeping(group: Any, stream: str = "s", **options: Any) -> forebay.Producer:
    sim = producer(group, stream, keep=100, **options)
    sim.array("U", dtype="f8", shape=SHAPE)
    return sim


@pytest.mark.parametrize("policy", ["block", "drop-oldest", "latest"])
def test_a_reader_stops_and_another_goes_on(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str, policy: str
) -> None:
    """In other processes too, and whether or not anybody looks meanwhile."""
    with keeping(two, policy=policy) as sim, consumer(two, transport=transport) as reader:
        put(sim, 0, 1)
        read(reader, 0, 1)
        assert reader.cursor == (1, 1)
        # Somebody needs the field all the while.
        with consumer(two, window=100):
            reader.close()
            cursor = json.loads(json.dumps(reader.cursor))
            put(sim, 1, 5)
            other = child(
                """
                stream, transport, run, step = sys.argv[1:]
                with forebay.Consumer("s", group=stream, transport=transport, timeout=20, start=(int(run), int(step))) as reader:
                    assert reader.cursor == (int(run), int(step))
                    for step in (reader.next(), reader.next()):
                        assert step.missed == 0
                        print(step.number, float(step["U"][...].sum()))
                    print(*reader.cursor)
                """,
                two.path,
                transport,
                *cursor,
            )
            for number in range(1, 3):
                other.expect(f"{number} {float(reference(SHAPE, 'f8', number).sum())}")
            other.expect("1 3")
            other.ended()
            put(sim, 5, 7)
            with consumer(two, transport=transport, start=forebay.Cursor(1, 3)) as reader:
                read(reader, 3, 7)
                # One at a time: "latest" passes over what comes before a reader is known to be done.
                for number in (7, 8):
                    put(sim, number, number + 1)
                    read(reader, number, number + 1)


def test_what_nobody_wanted_meanwhile_is_not_there(two: forebay.LocalGroup) -> None:
    """It is told of nothing that was not staged; what begins after it has come is staged for it."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        put(sim, 0, 3)
        with consumer(two, start=(1, 1)) as reader:
            put(sim, 3, 5)
            read(reader, 3, 5)


@pytest.mark.parametrize("how", ["dies", "leaves"])
def test_the_coordinator_goes_in_between(own_place: Path, transport: str, how: str) -> None:
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with keeping(group, stream, replicas=2) as sim:
            with consumer(group, stream, transport=transport) as reader:
                put(sim, 0, 4)
                read(reader, 0, 2)
            wait_until(lambda: steps_lacking_copies(group) == 0)
            if how == "dies":
                kill_servers(group, 2)
            else:
                forebay.Admin(group=group.path, timeout=30).remove_server(2)
            with consumer(group, stream, transport=transport, start=reader.cursor) as again:
                read(again, 2, 4)
                put(sim, 4, 6)
                read(again, 4, 6)


def test_a_reader_of_the_oldest_begins_there_also_when_the_coordinator_dies(own_place: Path) -> None:
    """It has been told of nothing by then, or of some."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with keeping(group, stream, replicas=2) as sim:
            with consumer(group, stream):
                put(sim, 0, 6)
            wait_until(lambda: steps_lacking_copies(group) == 0)
            with (
                consumer(group, stream, start="oldest", window=1) as first,
                consumer(group, stream, start="oldest", window=1) as second,
            ):
                assert first.cursor is None
                read(first, 0, 2)
                kill_servers(group, 2)
                read(first, 2, 6)
                read(second, 0, 6)


def test_a_run_that_is_over(two: forebay.LocalGroup) -> None:
    """What is left of it, and then the end; with `follow`, the next run."""
    with keeping(two) as sim, consumer(two) as reader:
        put(sim, 0, 4)
        read(reader, 0, 1)
    with consumer(two, start=reader.cursor) as again:
        read(again, 1, 4)
        with pytest.raises(forebay.Ended):
            again.next()
    assert again.cursor == (1, 4)
    with consumer(two, start=again.cursor) as ended, pytest.raises(forebay.Ended):
        ended.next()
    with consumer(two, start=(1, 2), follow=True) as follower, keeping(two) as sim:
        put(sim, 0, 2)
        numbers = [(step.run, step.number, step.rewound) for step in (follower.next() for _ in range(4))]
        assert numbers == [(1, 2, False), (1, 3, False), (2, 0, True), (2, 1, False)]


def test_what_is_gone_is_counted(two: forebay.LocalGroup) -> None:
    """Of the steps that the reader would have been told of: those of its period."""
    with producer(two, keep=2) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with consumer(two) as reader:
            put(sim, 0, 2)
            read(reader, 0, 2)
        put(sim, 2, 9)
        sim.flush()
        with consumer(two, start=reader.cursor) as again:
            told = [(step.number, step.missed) for step in (again.next() for _ in range(2))]
            assert told == [(7, 5), (8, 0)]
        with consumer(two, start=reader.cursor, fields={"U": forebay.every(3)}) as again:
            put(sim, 9, 10)
            step = again.next()
            assert (step.number, step.missed) == (9, 2)


def test_a_named_reader_goes_on(two: forebay.LocalGroup, transport: str) -> None:
    """Where the last one of its name has stopped, whether or not it still held a step."""
    named: Any = {"name": "viewer", "start": "resume", "transport": transport}
    with keeping(two, transport=transport) as sim:
        with consumer(two, **named) as reader:
            put(sim, 0, 4)
            read(reader, 0, 2)
        put(sim, 4, 6)
        with consumer(two, name="other", start="resume") as other:
            put(sim, 6, 7)
            read(other, 6, 7)
        with consumer(two, **named) as reader:
            read(reader, 2, 4)
            held = reader.next()
            assert held.number == 4
        with consumer(two, **named) as reader:
            read(reader, 5, 7)
            put(sim, 7, 8)
            read(reader, 7, 8)
        held.release()


KILLED = """
reader = consumer(sys.argv[1], name="viewer", start="resume", window=4)
print("here", flush=True)
for number in range(3):
    step = reader.next()
    assert step.number == number, step.number
    if number < 2:
        step.release()
print("holds 2", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("coordinator_dies", [False, True])
def test_what_a_killed_reader_held_is_read_again(own_place: Path, coordinator_dies: bool) -> None:
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with keeping(group, stream, replicas=2) as sim:
            with contextlib.closing(
                Child(KILLED.replace("sys.argv[1]", f"sys.argv[1], {stream!r}"), group.path)
            ) as child:
                child.expect("here")
                put(sim, 0, 5)
                child.expect("holds 2")
                child.kill()
                child.process.wait(20)
            wait_until(lambda: not readers_of(group, stream))
            if coordinator_dies:
                wait_until(lambda: steps_lacking_copies(group) == 0)
                kill_servers(group, 2)
            with consumer(group, stream, name="viewer", start="resume") as reader:
                read(reader, 2, 5)
                put(sim, 5, 6)
                read(reader, 5, 6)


QUIET = """
reader = consumer(sys.argv[1], sys.argv[2], name="viewer", start="oldest")
for number in range(4):
    step = reader.next()
    assert step.number == number, step.number
    if number < 3:
        step.release()
print("holds 3", flush=True)
if sys.argv[3] == "raises":
    raise ArithmeticError
sys.stdin.readline()
"""


@pytest.mark.parametrize("coordinator", ["leaves", "dies"])
def test_a_reader_that_dies_after_its_coordinator_is_gone(own_place: Path, coordinator: str) -> None:
    """It has not noticed that: the others know where it was, or where it had begun."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with keeping(group, stream, replicas=2) as sim:
            put(sim, 0, 8)
            sim.flush()
            wait_until(lambda: steps_lacking_copies(group) == 0)
            with contextlib.closing(Child(QUIET, group.path, stream, "waits")) as child:
                child.expect("holds 3")
                if coordinator == "leaves":
                    forebay.Admin(group=group.path).remove_server(2)
                else:
                    kill_servers(group, 2)
                child.kill()
                child.process.wait(20)
            with consumer(group, stream, name="viewer", start="resume") as reader:
                first = 3 if coordinator == "leaves" else 0
                read(reader, first, 8)


def test_a_program_that_fails_without_closing_has_not_finished_with_its_step(two: forebay.LocalGroup) -> None:
    with keeping(two) as sim:
        put(sim, 0, 6)
        sim.flush()
        with contextlib.closing(Child(QUIET, two.path, "s", "raises")) as child:
            child.expect("holds 3")
            assert child.process.wait(20) != 0
        with consumer(two, name="viewer", start="resume") as reader:
            read(reader, 3, 6)


@pytest.mark.parametrize("coordinator_dies", [False, True])
def test_what_a_reader_gave_back_is_read_again(own_place: Path, coordinator_dies: bool) -> None:
    """All from the first of them on: the reader has finished with no later step, though it held one, and static fields."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with keeping(group, stream, replicas=2) as sim:
            sim.array("mesh", dtype="f8", shape=(60,), static=True)
            with consumer(group, stream, name="viewer", window=4) as reader:
                with sim.step(0) as step:
                    step.put("U", reference(SHAPE, "f8", 0))
                    step.put("mesh", np.arange(60.0))
                put(sim, 1, 5)
                read(reader, 0, 1)
                for number in (1, 2):
                    step_read = reader.next()
                    assert step_read.number == number
                    step_read.give_back()
                held = reader.next()
                assert held.number == 3
                if coordinator_dies:
                    wait_until(lambda: steps_lacking_copies(group) == 0)
                    kill_servers(group, 2)
                    put(sim, 5, 6)
                    with contextlib.suppress(ArithmeticError), reader.next() as step_read:
                        raise ArithmeticError
                    assert step_read.number == 4
            with consumer(group, stream, name="viewer", start="resume") as reader:
                read(reader, 1, 6 if coordinator_dies else 5)
            held.release()


def readers_of(group: Any, stream: str) -> int:
    told = stream_status(group, stream)
    return 0 if told is None else told["attached"]


def test_a_run_that_was_read_is_followed_by_the_next(two: forebay.LocalGroup) -> None:
    named: Any = {"name": "viewer", "start": "resume"}
    with keeping(two) as sim, consumer(two, **named) as reader:
        put(sim, 0, 3)
        read(reader, 0, 1)
    with consumer(two, **named) as reader:
        read(reader, 1, 3)
        with pytest.raises(forebay.Ended):
            reader.next()
    with keeping(two) as sim:
        put(sim, 0, 2)
        with consumer(two, **named) as reader:
            read(reader, 0, 2)
            put(sim, 2, 3)
            read(reader, 2, 3)


def test_who_goes_on_has_a_name(two: forebay.LocalGroup) -> None:
    with pytest.raises(forebay.Invalid, match="give it a `name`"):
        consumer(two, start="resume")


def test_a_parallel_reader_goes_on(two: forebay.LocalGroup) -> None:
    with keeping(two) as sim:
        for first in (0, 2):
            with cohort(two, 2, name="pair", start="resume") as ranks:
                put(sim, first, first + 2)
                for rank in ranks:
                    read(rank, first, first + 2)
        put(sim, 4, 6)
        with cohort(two, 2, name="pair", start="resume") as ranks:
            for rank in ranks:
                read(rank, 4, 6)


def test_cursors_that_are_wrong(two: forebay.LocalGroup) -> None:
    with keeping(two), consumer(two) as reader:
        assert reader.cursor == (1, 0)
        with pytest.raises(forebay.NotFound, match=r"stream 's' has had no run 2, .* its latest is 1"):
            consumer(two, start=(2, 0))
        with pytest.raises(forebay.NotFound, match="stream 'other' has had no run 1"):
            consumer(two, "other", start=(1, 0))
        for wrong in (None, 7, (1,), (1, 2, 3), (0, 1), (1, -1), (1, 1.5), (1 << 64, 0), "later"):
            with pytest.raises(forebay.Invalid, match="start"):
                consumer(two, start=wrong)
        with consumer(two, start=(1, (1 << 64) - 1)) as far, pytest.raises(forebay.Timeout):
            far.next(timeout=0.1)
    with consumer(two, "never") as reader:
        assert reader.cursor is None


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_error_in_a_step_leaves_it_to_the_next(one: forebay.LocalGroup, ranks: int) -> None:
    with keeping(one, policy="block") as sim:

        def readers() -> contextlib.AbstractContextManager[list[forebay.Consumer]]:
            return cohort(one, ranks, name="v", start="resume")

        with readers() as failing:
            put(sim, 0, 3)
            for reader in failing:
                read(reader, 0, 1)
            for reader in failing[1:]:
                read(reader, 1, 3)
            with pytest.raises(ArithmeticError), failing[0].next():
                raise ArithmeticError
        with readers() as others:
            for reader in others:
                read(reader, 1, 3)
            # Who goes on after an error has decided that.
            put(sim, 3, 5)
            for reader in others:
                reader.next().give_back()
                read(reader, 4, 5)
            put(sim, 5, 6)
        with readers() as last:
            for reader in last:
                read(reader, 5, 6)
