"""What happens when readers cannot keep up or the budget is used up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay


def test_drop_oldest_counts_what_was_missed(two: forebay.LocalGroup, transport: str) -> None:
    """With room for few waiting steps the oldest go; the reader sees a gap and its size."""
    shape = (256, 128)
    size = 8 * 256 * 128
    with consumer(two, window=1, transport=transport) as reader:
        with producer(two, queue_bytes=3 * size, transport=transport) as sim:
            sim.array("U", dtype="f8", shape=shape)
            for number in range(20):
                with sim.step(number) as step:
                    step.put("U", reference(shape, "f8", number))
        last, missed = -1, 0
        for step in reader:
            assert step.missed == step.number - last - 1
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
            missed += step.missed
            last = step.number
        assert last == 19
        assert missed >= 14


def test_latest_skips_to_the_newest(two: forebay.LocalGroup) -> None:
    with consumer(two, window=1) as reader:
        with producer(two, policy="latest") as sim:
            sim.array("U", dtype="f8", shape=(50, 40))
            for number in range(30):
                with sim.step(number) as step:
                    step.put("U", reference((50, 40), "f8", number))
        seen = [(step.number, step.missed) for step in reader]
        assert [number for number, _ in seen] == [0, 29]
        assert seen[1][1] == 28


def test_block_waits_for_the_reader(own_place: Path, child: Callable[..., Child], transport: str) -> None:
    """With a budget of a few steps and policy block, the producer waits and nothing is dropped."""
    shape = (512, 256)
    with (
        forebay.local(servers=2, budget_bytes=6 << 20) as group,
        consumer(group, window=1, transport=transport) as reader,
    ):
        sim = child(
            """
            path, transport = sys.argv[1:]
            with open_ranks(path, "s", 2, transport=transport, policy="block") as ranks:
                for rank in ranks:
                    rank.array("U", dtype="f8", shape=(512, 256))
                print("open")
                write_steps(ranks, range(30), lambda n: reference((512, 256), "f8", n))
            print("done")
            """,
            group.path,
            transport,
        )
        sim.expect("open")
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
            assert step.missed == 0
            numbers.append(step.number)
        assert numbers == list(range(30))
        assert sim.ended() == ["done"]


def test_under_block_the_put_waits_for_room(own_place: Path, transport: str) -> None:
    """A step begins although there is no room for its blocks: whatever needs some waits for it, and says so."""
    whole = np.ones((512, 512))
    with (
        forebay.local(servers=1, budget_bytes=8 << 20) as group,
        consumer(group, window=1, transport=transport) as reader,
        producer(group, policy="block", timeout=1, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=whole.shape)
        number, full = 0, ""
        while not full:
            step = sim.begin(number)
            try:
                step.put("U", whole)
            except forebay.Full as error:
                full = str(error)
            sim.end()
            number += 1
        assert "found no room" in full
        step = sim.begin(number)
        ask = {"shm": lambda: step.alloc("U", whole.shape), "tcp": lambda: step.put("U", whole)}[transport]
        with pytest.raises(forebay.Full, match="found no room"):
            ask()
        sim.end()
        with reader.next() as found:
            assert found.number == 0


def test_block_fails_at_its_deadline_and_names_why(own_place: Path, transport: str) -> None:
    with forebay.local(servers=1, budget_bytes=8 << 20) as group:
        with consumer(group, window=1, transport=transport) as reader:
            sim = producer(group, policy="block", timeout=1, transport=transport)
            sim.array("U", dtype="f8", shape=(512, 512))
            numbers = itertools.count()

            def fill() -> None:
                while True:
                    with sim.step(next(numbers)) as step:
                        step.put("U", np.ones((512, 512)))

            with pytest.raises((forebay.Full, forebay.Timeout), match=r"room|hold"):
                fill()
            with reader.next() as found:
                assert found.number == 0
                assert (found["U"][...] == 1).all()
        sim.close()


def test_the_budget_is_kept(own_place: Path, transport: str) -> None:
    """However many steps wait, no server holds more than its budget, and the simulation goes on."""
    budget = 8 << 20
    with (
        forebay.local(servers=2, budget_bytes=budget) as group,
        consumer(group, window=2, transport=transport) as reader,
    ):
        with open_ranks(group, "s", 3, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(300, 400))
            write_steps(sim, range(60), lambda n: reference((300, 400), "f8", n))
            with forebay.Admin(group=group.path) as admin:
                for server in admin.status()["servers"]:
                    assert server["peak_staged_bytes"] <= budget
        last, missed = -1, 0
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference((300, 400), "f8", step.number))
            assert step.missed == step.number - last - 1
            last, missed = step.number, missed + step.missed
        assert last + missed >= 58


def test_a_reader_that_stops_reading(own_place: Path, transport: str) -> None:
    """It costs its window and the queue; the simulation does not wait, and other readers get every step."""
    with forebay.local(servers=2, budget_bytes=64 << 20) as group:
        stuck = consumer(group, window=2, transport=transport)
        with (
            consumer(group, window=4, transport=transport) as reader,
            open_ranks(group, "s", 2, transport=transport) as sim,
        ):
            for rank in sim:
                rank.array("U", dtype="f8", shape=(256, 256))
            for number in range(300):
                write_steps(sim, [number], lambda n: np.full((256, 256), float(n)))
                with reader.next() as found:
                    assert found.number == number
                    assert (found["U"][::50, ::50] == number).all()
        assert stuck.next().number == 0
        stuck.close()
        wait_until(lambda: is_given_back(group))


def test_block_says_that_memory_is_full(own_place: Path, transport: str) -> None:
    """At the producer's deadline, whichever way its bytes go; it is then as good as before."""
    array = reference((1 << 17,))
    with forebay.local(servers=1, budget_bytes=4 << 20) as group:
        with (
            consumer(group, window=1) as reader,
            producer(group, policy="block", timeout=2, transport=transport) as sim,
        ):
            sim.array("U", dtype="f8", shape=array.shape)
            full = ""
            for number in itertools.count():
                with sim.step(number) as step:
                    try:
                        step.put("U", array)
                    except forebay.Full as error:
                        full = str(error)
                if full:
                    break
            assert "found no room" in full
            assert number >= 3
            for staged in range(number):
                with reader.next() as found:
                    assert found.number == staged
                    np.testing.assert_array_equal(found["U"][...], array)
            with sim.step(number + 1) as step:
                assert step.put("U", array)
        wait_until(lambda: is_given_back(group))


def test_what_is_dropped_last_is_told_with_the_end(own_place: Path) -> None:
    size = 4 << 20
    with (
        forebay.local(servers=1, budget_bytes=8 * size) as group,
        forebay.Space(group=group.path) as space,
        consumer(group, window=1) as reader,
    ):
        with producer(group) as sim:
            sim.array("U", dtype="u1", shape=(size,))
            with sim.step(0) as step:
                assert step.put("U", np.ones(size, "u1"))
            held = reader.next()
            space.put("filler", np.zeros(7 * size, "u1"), step=0)
            with sim.step(1) as step:
                assert not step.put("U", np.ones(size, "u1"))
        with pytest.raises(forebay.Ended, match="dropped after the last one that was told: 1"):
            reader.next()
        assert (held["U"][...] == 1).all()
