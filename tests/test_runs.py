"""Runs: what is kept for latecomers, how they begin, end and begin again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from support.arrays import cut, reference
from support.groups import is_given_back, stream_status
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay


def test_kept_steps_are_there_for_who_comes_late(two: forebay.LocalGroup, transport: str) -> None:
    with open_ranks(two, "s", 2, keep=3, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(60, 50))
        write_steps(sim, range(100, 110), lambda n: reference((60, 50), "f8", n))
        wait_until(lambda: (stream_status(two, "s") or {}).get("latest") == 109)
        with consumer(two, start="oldest", transport=transport) as reader:
            for number in (107, 108, 109):
                with reader.next() as found:
                    assert found.number == number
                    np.testing.assert_array_equal(found["U"][...], reference((60, 50), "f8", number))
            write_steps(sim, [110], lambda n: reference((60, 50), "f8", n))
            assert reader.next().number == 110


def test_kept_steps_outlive_the_simulation(two: forebay.LocalGroup) -> None:
    """A reader that comes after the end reads what was kept, and is then told that it has ended."""
    with open_ranks(two, "s", 2, keep=2) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(60, 50))
        write_steps(sim, range(5), lambda n: reference((60, 50), "f8", n))
    wait_until(lambda: (stream_status(two, "s") or {}).get("ranks") == {"size": 2, "open": 0})
    with consumer(two, start="oldest", timeout=4) as reader:
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", step.number))
            numbers.append(step.number)
        assert numbers == [3, 4]


def test_a_reader_before_the_simulation_and_its_end(two: forebay.LocalGroup, transport: str) -> None:
    """Numbers are those the producer gave; iterating ends with the simulation, and stays ended."""
    numbers = [5, 6, 17, 400, 2**40, 2**63]
    with consumer(two, transport=transport, window=16) as reader:
        with pytest.raises(forebay.Timeout, match="none that this reader wants has since it attached"):
            reader.next(timeout=0.05)
        with open_ranks(two, "s", 2, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
            write_steps(sim, numbers, lambda n: reference((4, 3), "f8", n % 1000))
        seen = []
        for step in reader:
            assert step.time == step.number / 8
            np.testing.assert_array_equal(step["U"][...], reference((4, 3), "f8", step.number % 1000))
            seen.append(step.number)
        assert seen == numbers
        assert list(reader) == []
        with pytest.raises(forebay.Ended):
            reader.next()


def test_the_largest_step_number(two: forebay.LocalGroup) -> None:
    largest = 2**64 - 2  # the one after it stands for what belongs to no step
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(4, 3))
        with sim.step(largest - 1) as step:
            step.put("U", np.ones((4, 3)))
        with consumer(two) as reader:
            with sim.step(largest) as step:
                step.put("U", np.ones((4, 3)))
            # No step can come any more: the next reader does not upset the servers.
            with consumer(two):
                pass
            with pytest.raises(forebay.StepOrder):
                sim.step(largest).__enter__()
            with pytest.raises(forebay.Invalid, match="the highest is"):
                sim.step(largest + 1).__enter__()
            assert reader is not None
    assert "error" not in forebay.Admin(group=two.path).status()["servers"][0]


def test_ended_without_a_step(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader:
        with open_ranks(two, "s", 3) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
        assert list(reader) == []


def test_a_restart(two: forebay.LocalGroup, transport: str) -> None:
    """A reader that follows goes on with the next run and is told that it went back."""
    with consumer(two, follow=True, window=32, transport=transport) as reader:
        with open_ranks(two, "s", 2, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
            write_steps(sim, range(8), lambda n: reference((4, 3), "f8", n))
            first = sim[0].run
        with open_ranks(two, "s", 3, transport=transport, continues=(first, 4)) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(6, 3))
            write_steps(sim, range(5, 9), lambda n: reference((6, 3), "f8", n))
            assert {rank.run for rank in sim} == {first + 1}
        seen = []
        for _ in range(12):
            with reader.next() as step:
                shape = (4, 3) if step.run == first else (6, 3)
                np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
                seen.append((step.run, step.number, step.rewound))
        second = first + 1
        assert seen[:8] == [(first, n, False) for n in range(8)]
        assert seen[8:] == [(second, 5, True), (second, 6, False), (second, 7, False), (second, 8, False)]


def test_a_reader_that_does_not_follow_ends_with_its_run(two: forebay.LocalGroup) -> None:
    """Also when the next run begins before it has read all of its own."""
    with consumer(two, window=1) as reader:
        for run in (1, 2):
            with producer(two) as sim:
                assert sim.run == run
                sim.array("U", dtype="f8", shape=(4, 3))
                for number in range(3):
                    with sim.step(number) as step:
                        step.put("U", reference((4, 3), "f8", number + 10 * run))
        seen = [(step.run, step.number) for step in reader]
        assert seen == [(1, 0), (1, 1), (1, 2)]


def test_a_reader_whose_run_has_ended_holds_nothing_of_the_next(own_place: Path) -> None:
    """It was told the end; though not closed, it does not make a later run wait."""
    with forebay.local(servers=1, budget_bytes=8 << 20) as group, consumer(group) as reader:
        with producer(group) as sim:
            sim.array("U", dtype="f8", shape=(100, 100))
            with sim.step(0) as step:
                step.put("U", np.ones((100, 100)))
        assert [step.number for step in reader] == [0]
        with producer(group, policy="block", timeout=3) as sim:
            sim.array("U", dtype="f8", shape=(512, 256))
            for number in range(20):
                with sim.step(number) as step:
                    step.put("U", np.ones((512, 256)))
        assert is_given_back(group) or wait_until(
            lambda: is_given_back(group), 5, "a run that nobody reads is kept"
        )


def test_ranks_that_never_overlap(two: forebay.LocalGroup) -> None:
    """A fast rank may be done before a slow one has come: they are ranks of one run all the same."""
    whole = reference((6, 5))
    with consumer(two, window=8) as reader:
        for rank, (a, b) in enumerate(cut(6, 2)):
            with producer(two, rank=rank, size=2) as sim:
                sim.array("U", dtype="f8", shape=(6, 5))
                for number in range(2):
                    with sim.step(number) as step:
                        step.put("U", whole[a:b], offset=(a, 0))
        for number in range(2):
            with reader.next(timeout=5) as found:
                assert found.number == number
                assert not found.torn
                np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("follow", [False, True])
def test_a_restart_with_other_fields_takes_nothing_away(two: forebay.LocalGroup, follow: bool) -> None:
    """What a reader holds of the last run stays as it is, whether the next run is its business or not."""
    shape = (300, 200)
    with consumer(two, fields=["U"], window=2, follow=follow) as reader:
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=shape)
            write_steps([sim], range(4), lambda n: reference(shape, "f8", n))
        held = reader.next()
        view = held["U"].blocks()[0].data
        with consumer(two, fields=["W"], follow=True) as other, producer(two) as sim:
            sim.array("W", dtype="f8", shape=shape)
            for number in range(4):
                with sim.step(number) as step:
                    assert step.put("W", np.full(shape, -1.0))
                other.next().release()
        np.testing.assert_array_equal(view, reference(shape, "f8", 0))
        np.testing.assert_array_equal(held["U"][...], reference(shape, "f8", 0))
        held.release()
        told = []

        def read() -> None:
            for found in reader:
                np.testing.assert_array_equal(found["U"][...], reference(shape, "f8", found.number))
                told.append(found.number)

        with pytest.raises(forebay.NotFound) if follow else contextlib.nullcontext():
            read()
        # A contract that cannot be met ends it, with what it was told of before.
        assert told == ([1] if follow else [1, 2, 3])


def test_the_end_is_told_while_steps_are_held(two: forebay.LocalGroup, transport: str) -> None:
    with consumer(two, transport=transport) as reader:
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=(60, 50))
            write_steps([sim], range(3), lambda n: reference((60, 50), "f8", n))
        held = [reader.next() for _ in range(3)]
        for _ in range(2):
            with pytest.raises(forebay.Ended):
                reader.next()
        for step in held:
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", step.number))
            step.release()
    wait_until(lambda: is_given_back(two))


def test_the_oldest_and_all_that_follow(two: forebay.LocalGroup) -> None:
    """A step that runs while the reader comes is no gap, if it is staged."""
    with producer(two, keep=20) as sim:
        sim.array("U", dtype="f8", shape=(60, 50))
        write_steps([sim], range(3), lambda n: reference((60, 50), "f8", n))
        with sim.step(3) as step:
            step.put("U", reference((60, 50), "f8", 3))
            reader = consumer(two, start="oldest", window=100)
        write_steps([sim], range(4, 6), lambda n: reference((60, 50), "f8", n))
    with reader:
        seen = []
        for found in reader:
            np.testing.assert_array_equal(found["U"][...], reference((60, 50), "f8", found.number))
            seen.append((found.number, found.missed))
    assert seen == [(number, 0) for number in range(6)]
