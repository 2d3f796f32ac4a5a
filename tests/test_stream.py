"""Streams that are looked at without becoming a reader."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.groups import is_given_back, stream_status
from support.sessions import consumer, producer, write_steps
from support.waiting import wait_until

import forebay


def whole(step: int) -> np.ndarray[Any, Any]:
    return reference((8, 6), step=step)


def look(group: Any, name: str = "s", **options: Any) -> forebay.Stream:
    return forebay.Stream(name, group=group.path, timeout=20, **options)


def test_what_is_held_is_seen(two: forebay.LocalGroup, transport: str) -> None:
    """Steps by number, the latest, all of them: nothing is demanded, and nobody is attached."""
    stream = look(two, transport=transport)
    assert (stream.steps, stream.runs, stream.fields, stream.status) == ([], [], [], None)
    with pytest.raises(forebay.NotFound, match="no step of stream 's' is held"):
        _ = stream.latest
    with pytest.raises(forebay.NotFound, match="nobody has opened stream 's' yet"):
        stream[0]
    with producer(two, keep=3) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], range(5), whole)
        infos = [forebay.StepInfo(1, n, n / 8, ["U"], 8 * 6 * 8, 1, False) for n in (2, 3, 4)]
        wait_until(lambda: stream.steps == infos)
        assert (stream.runs, stream.fields) == ([1], ["U"])
        with stream.latest as step:
            assert step.number == 4
        with stream[3] as step:
            np.testing.assert_array_equal(step["U"][...], whole(3))
        with stream.at(run=1, number=2) as step:
            np.testing.assert_array_equal(step["U"][...], whole(2))
        assert [step.number for step in stream] == [2, 3, 4]
        assert 3 in stream
        assert 1 not in stream
        with pytest.raises(
            forebay.Dropped, match=r"step 1 of run 1 of stream 's' is not held.*the next that is held is 2"
        ):
            stream[1]
        with pytest.raises(
            forebay.NotFound, match="step 5 of run 1 of stream 's' is not closed yet: the last is 4"
        ):
            stream[5]
        with pytest.raises(forebay.NotFound, match="has had no run 2: its latest is 1"):
            stream.at(run=2, number=0)
        told = stream_status(two, "s")
        assert told is not None
        assert told["attached"] == 0
        assert forebay.streams(group=two.path) == ["s"]
    with pytest.raises(
        forebay.NotFound,
        match="step 5 of run 1 of stream 's' was closed by nobody: the run is over; the last is 4",
    ):
        stream[5]


def test_a_step_that_is_looked_at_stays(two: forebay.LocalGroup) -> None:
    """Until it is released, whatever the simulation does meanwhile."""
    with producer(two, keep=1) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], [0], whole)
        stream = look(two)
        wait_until(lambda: len(stream.steps) == 1)
        step = stream.latest
        write_steps([sim], range(1, 4), whole)
        wait_until(lambda: stream.steps[-1].number == 3)
        np.testing.assert_array_equal(step["U"][...], whole(0))
        assert [info.number for info in stream.steps] == [0, 3]
        step.release()
        wait_until(lambda: [info.number for info in stream.steps] == [3])


def test_nothing_is_demanded(two: forebay.LocalGroup) -> None:
    """A put beside one that looks is not staged; what a reader has staged is seen."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        stream = look(two)
        with sim.step(0) as step:
            assert stream.steps == []
            assert not step.put("U", whole(0))
        with consumer(two, window=2) as reader:
            write_steps([sim], [1], whole)
            with reader.next(), stream[1] as step:
                np.testing.assert_array_equal(step["U"][...], whole(1))
        with pytest.raises(forebay.Dropped, match="none after it is held"):
            stream[1]
    wait_until(lambda: is_given_back(two))


def test_it_is_pickled_and_followed(two: forebay.LocalGroup) -> None:
    stream = pickle.loads(pickle.dumps(look(two)))
    assert repr(stream) == "<forebay.Stream 's'>"
    with stream.follow(fields=["U"]) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(8, 6))
        write_steps([sim], [0], whole)
        assert reader.next().number == 0


@pytest.mark.parametrize("number", [-1, 1 << 64, "3", 1.5])
def test_what_is_no_number_of_a_step(one: forebay.LocalGroup, number: Any) -> None:
    with pytest.raises((forebay.Invalid, forebay.OutOfBounds, TypeError)):
        look(one)[number]
    with pytest.raises(forebay.Invalid):
        look(one, "")
