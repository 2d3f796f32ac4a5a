"""Steps that are begun and ended by two calls, as codes do that cannot put their loop into a `with`."""

from __future__ import annotations

import numpy as np
import pytest
from support.sessions import consumer, producer

import forebay


def test_begin_and_end(two: forebay.LocalGroup, transport: str) -> None:
    with (
        consumer(two, transport=transport) as reader,
        producer(two, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=(4, 3))
        for number in (3, 5):
            step = sim.begin(number, time=0.5)
            assert (step.number, step.time) == (number, 0.5)
            assert step.demanded("U")
            assert step.put("U", np.full((2, 3), float(number)), offset=(0, 0), number=0)
            if transport == "shm":
                room = step.alloc("U", (2, 3), offset=(2, 0), number=1)
                assert room is not None
                room[...] = number
            else:
                assert step.put("U", np.full((2, 3), float(number)), offset=(2, 0), number=1, wait=False)
                assert step.wait()
            sim.end()
            with pytest.raises(forebay.StepOrder, match="not open"):
                step.put("U", np.zeros((2, 3)))
            if transport == "shm":
                assert not room.flags.writeable, "what was allocated is published at the end"
            with reader.next() as found:
                assert found.number == number
                np.testing.assert_array_equal(found["U"][...], np.full((4, 3), float(number)))


def test_calls_out_of_order(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(2,))
        with pytest.raises(forebay.StepOrder, match="begin one first"):
            sim.end()
        sim.begin(0)
        with pytest.raises(forebay.StepOrder, match="step 0"):
            sim.begin(1)
        sim.end()
        with pytest.raises(forebay.StepOrder):
            sim.end()
        with pytest.raises(forebay.StepOrder, match="must grow"):
            sim.begin(0)
        with sim.step(1) as step:
            step.put("U", np.ones(2))
        assert [reader.next().number for _ in range(2)] == [0, 1]


def test_a_period_for_all_fields(two: forebay.LocalGroup) -> None:
    """`every` is of what has no period of its own."""
    with (
        forebay.Consumer("s", group=two, every=3, timeout=20) as of_all,
        forebay.Consumer("s", group=two, fields=["U"], every=2, timeout=20) as of_one,
        forebay.Consumer("s", group=two, fields={"U": 4}, every=2, timeout=20) as own,
        producer(two, "s") as sim,
    ):
        sim.array("U", dtype="f8", shape=(2,))
        seen: dict[str, list[int]] = {"all": [], "one": [], "own": []}
        for number in range(9):
            with sim.step(number) as step:
                step.put("U", np.ones(2))
            for name, reader, every in (("all", of_all, 3), ("one", of_one, 2), ("own", own, 4)):
                if number % every == 0:
                    with reader.next() as found:
                        seen[name].append(found.number)
    assert seen == {"all": [0, 3, 6], "one": [0, 2, 4, 6, 8], "own": [0, 4, 8]}
