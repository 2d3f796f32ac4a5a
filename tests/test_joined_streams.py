"""Subscriptions that watch several streams at once."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.deaths import kill_servers
from support.groups import stream_coordinated_by
from support.sessions import producer
from support.subscriptions import (
    events,
    nothing_comes,
    of_name,
    subscribe,
)
from support.waiting import wait_until

import forebay


@contextlib.contextmanager
def plates(group: forebay.LocalGroup, *names: str, **options: Any) -> Iterator[list[forebay.Producer]]:
    """Simulations of one rank, each with a field T."""
    with contextlib.ExitStack() as stack:
        sims = [stack.enter_context(producer(group, name, **options)) for name in names]
        for sim in sims:
            sim.array("T", dtype="f8", shape=(6, 4), dims=("x", "y"))
        yield sims


def plate(number: int, seed: int) -> NDArray[Any]:
    return np.random.default_rng(100 * seed + number).normal(size=(6, 4)) * (1 + number)


def give(sim: forebay.Producer, number: int, seed: int) -> NDArray[Any]:
    array = plate(number, seed)
    with sim.step(number, time=number / 2) as step:
        step.put("T", array)
    return array


def test_several_streams_meet_at_steps_of_one_number(three: forebay.LocalGroup) -> None:
    """Whoever coordinates them, and whichever comes first; a step that one of them leaves out is not known."""
    text = "gap = abs(mean(fluid.T[x=0]) - mean(solid.T[x=-1])); gap > 1 and max(wall.T) > 0"
    with (
        subscribe(three, text, name="gap") as watch,
        plates(three, "fluid", "solid", "wall") as (fluid, solid, wall),
    ):
        assert watch.wait_active() == (1, 0)
        expected: dict[int, float] = {}
        for number in range(12):
            order = [(fluid, 1), (solid, 2), (wall, 3)]
            arrays = {}
            for sim, seed in order if number % 2 else order[::-1]:
                if (seed, number) != (2, 5):
                    arrays[seed] = give(sim, number, seed)
            if len(arrays) == 3:
                gap = abs(arrays[1][0].mean() - arrays[2][-1].mean())
                if gap > 1 and arrays[3].max() > 0:
                    expected[number] = gap
        assert len(expected) > 3
        with warnings.catch_warnings(record=True) as told_of:
            warnings.simplefilter("always")
            for number, gap in expected.items():
                with watch.next(timeout=20) as event:
                    assert (event.step, event.stream) == (number, "fluid")
                    assert event.values["gap"] == pytest.approx(gap, rel=1e-14)
            assert nothing_comes(watch)
        assert ["stream 'solid' has no step 5" in str(one.message) for one in told_of] == [True]
        wait_until(lambda: of_name(three, "gap")["evaluated"] == 12)
        assert of_name(three, "gap")["unknown"] == {"no partner": 1}


def test_a_stream_that_stops_keeps_nobody_waiting(two: forebay.LocalGroup) -> None:
    """What it had is joined; then nothing is known, and the other one goes on."""
    with subscribe(two, "max(a.T) + max(b.T) > -1e9", name="both") as watch:
        with plates(two, "a", "b") as (a, b):
            watch.wait_active()
            for number in range(4):
                give(a, number, 1)
            for number in range(2):
                give(b, number, 2)
            assert events(watch, 2) == [(0, "rose"), (1, "holds")]
            assert nothing_comes(watch)
            assert of_name(two, "both")["evaluated"] == 2
            b.close()
            wait_until(lambda: of_name(two, "both")["evaluated"] == 4)
            give(a, 4, 1)
            wait_until(lambda: of_name(two, "both")["evaluated"] == 5)
            assert of_name(two, "both")["unknown"] == {"no partner": 3}
        with plates(two, "a", "b") as (a, b):
            # Both begin again.
            give(b, 0, 2)
            give(a, 0, 1)
            with pytest.warns(forebay.UnknownWarning, match="stream 'b' has no step 2"):
                assert events(watch, 1) == [(0, "rose")]


def test_no_more_than_sixteen_steps_wait_for_another_stream(two: forebay.LocalGroup) -> None:
    with subscribe(two, "max(a.T) + max(b.T) > -1e9", name="both") as watch, plates(two, "a", "b") as (a, b):
        watch.wait_active()
        for number in range(20):
            give(a, number, 1)
        wait_until(lambda: of_name(two, "both")["evaluated"] == 4)
        for number in range(20):
            give(b, number, 2)
        with pytest.warns(forebay.UnknownWarning, match="16 steps wait already"):
            assert [number for number, _ in events(watch, 16)] == list(range(4, 20))


@pytest.mark.parametrize("of", ["first", "second"])
def test_joined_streams_survive_the_server_that_coordinates_one(of: str) -> None:
    """Those of the other stream that are held are joined; what is not known any more is told as such, and no step is left out."""
    with forebay.local(servers=4) as group:
        first, second = stream_coordinated_by(group, 0), stream_coordinated_by(group, 1)
        text = f"gap = sum({first}.T) - sum({second}.T); gap > -1e9"
        with (
            subscribe(group, text, name="j", timeout=60) as watch,
            plates(group, first, second, replicas=2, keep=16, timeout=60) as (a, b),
        ):
            watch.wait_active()
            gaps = {number: give(a, number, 1).sum() - give(b, number, 2).sum() for number in range(4)}
            assert events(watch, 2) == [(0, "rose"), (1, "holds")]
            # These wait for the other stream, whose server may die with them.
            for number in range(4, 7):
                give(a, number, 1)
            kill_servers(group, 0 if of == "first" else 1)
            for number in range(4, 7):
                gaps[number] = plate(number, 1).sum() - give(b, number, 2).sum()
            for number in range(7, 10):
                gaps[number] = give(a, number, 1).sum() - give(b, number, 2).sum()
            seen = 1
            while seen < 9:
                with watch.next(timeout=60) as event:
                    assert event.step == seen + 1
                    assert event.values["gap"] == pytest.approx(gaps[event.step], rel=1e-12)
                    seen = event.step
            assert of_name(group, "j")["unknown"] == {}
            assert of_name(group, "j")["evaluated"] == 10


@pytest.mark.parametrize("how", ["dies", "leaves"])
@pytest.mark.parametrize(("of", "ahead"), [("first", 0), ("first", 4), ("second", 0), ("second", 4)])
def test_joined_streams_wait_for_each_other_while_a_server_is_replaced(of: str, ahead: int, how: str) -> None:
    """Far more steps come than wait otherwise; and nothing but subscriptions keeps them."""
    with forebay.local(servers=4) as group:
        first, second = stream_coordinated_by(group, 0), stream_coordinated_by(group, 1)
        options = {"replicas": 2, "policy": "block", "durability": "replicated", "timeout": 60}
        with (
            subscribe(group, f"max({first}.T) + max({second}.T) > -1e9", timeout=60) as watch,
            plates(group, first, second, **options) as (a, b),
        ):
            watch.wait_active()
            for number in range(2):
                give(a, number, 1)
                give(b, number, 1)
            assert [step for step, _ in events(watch, 2)] == [0, 1]
            for number in range(2, 2 + ahead):
                give(b, number, 1)
            if how == "dies":
                kill_servers(group, 0 if of == "first" else 1)
            else:
                forebay.Admin(group=group.path, timeout=60).remove_server(0 if of == "first" else 1)

            def go_on() -> None:
                for number in range(2, 40):
                    give(a, number, 1)
                    if number >= 2 + ahead:
                        give(b, number, 1)

            running = threading.Thread(target=go_on)
            running.start()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert [step for step, _ in events(watch, 38)] == list(range(2, 40))
            running.join(60)
