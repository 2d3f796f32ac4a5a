"""Readers whose coordinator died come back to another one: with what they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.deaths import kill_servers
from support.groups import BUDGET, is_given_back, stream_coordinated_by
from support.sessions import consumer
from support.single_rank import SINGLE_RANK, put_steps, read_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def attached(group: Any, stream: str) -> Any:
    """How many readers the stream has, those included that may come back."""
    streams = forebay.Admin(group=group.path).status()["streams"]
    return next((found["attached"] for found in streams if found["name"] == stream), None)


def held_blocks(group: Any, stream: str) -> Any:
    """How many blocks of the stream's steps are held."""
    streams = forebay.Admin(group=group.path).status()["streams"]
    return next((found["held"]["blocks"] for found in streams if found["name"] == stream), None)


def check(found: Any, number: int) -> None:
    np.testing.assert_array_equal(found, reference(SHAPE, "f8", number))


@pytest.mark.parametrize("holder", ["lives", "dies"])
def test_a_reader_comes_back_with_what_it_holds(
    own_place: Path, child: Callable[..., Child], transport: str, holder: str
) -> None:
    """A step that it has not finished with, and arrays of one that it has: long after others would have been given up.

    What it then lets go of is free at once, though it lives on and has the memory mapped.
    """
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 0 if holder == "dies" else 2)
        rank = child(SINGLE_RANK, group.path, transport, stream, 2 if holder == "dies" else 1)
        rank.expect("open")
        with consumer(group, stream, transport=transport, window=3) as reader:
            put_steps(rank, 0, 3)
            with reader.next() as first:
                data = first.blocks("U")[0].data
            second, third = reader.next(), reader.next()
            check(third["U"][...], 2)
            third.release()
            kill_servers(group, 0 if holder == "dies" else 2)
            put_steps(rank, 3, 4)
            with reader.next() as fourth:
                assert (fourth.number, fourth.missed) == (3, 0)
                check(fourth["U"][...], 3)
            # Until those are given up that have not come back.
            wait_until(lambda: attached(group, stream) == 1, timeout=30)
            check(second["U"][...], 1)
            check(data, 0)
            second.release()
            del data
            wait_until(lambda: is_given_back(group))
            put_steps(rank, 4, 5)
            with reader.next() as fifth:
                check(fifth["U"][...], 4)
            wait_until(lambda: is_given_back(group))
        rank.close_input()
        rank.ended()


def test_nothing_is_held_any_longer_than_until_all_readers_are_back(
    own_place: Path, child: Callable[..., Child]
) -> None:
    """One of two leaves after the coordinator's death without having come back: only then its steps are free."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        rank = child(SINGLE_RANK, group.path, "shm", stream, 1)
        rank.expect("open")
        with (
            consumer(group, stream, transport="shm", window=3) as reader,
            consumer(group, stream, transport="shm", window=3) as idle,
        ):
            put_steps(rank, 0, 2)
            read_steps(reader, 0, 2)
            kill_servers(group, 2)
            put_steps(rank, 2, 5)
            read_steps(reader, 2, 5)
            # In the place of the one that has not come back, all five are held.
            assert attached(group, stream) == 1
            assert held_blocks(group, stream) == 5
            read_steps(idle, 0, 5)
            # Long before those would be given up that do not come back.
            wait_until(lambda: is_given_back(group), timeout=5)
            put_steps(rank, 5, 6)
            for back in (reader, idle):
                read_steps(back, 5, 6)
        rank.close_input()
        rank.ended()


def test_a_reader_that_was_there_before_the_first_run_misses_nothing(
    own_place: Path, child: Callable[..., Child], transport: str
) -> None:
    """The coordinator dies, and the simulation begins before the reader has noticed."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with consumer(group, stream, transport=transport, window=3) as reader:
            kill_servers(group, 2)
            rank = child(SINGLE_RANK, group.path, transport, stream, 1)
            rank.expect("open")
            put_steps(rank, 0, 3)
            read_steps(reader, 0, 3)
        rank.close_input()
        rank.ended()


def test_arrays_outlive_their_holder_though_their_reader_does_not_come_back(
    own_place: Path, child: Callable[..., Child]
) -> None:
    """It computes. The steps are given up, and their memory with them; but nobody writes to what it looks at."""
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 0)
        rank = child(SINGLE_RANK, group.path, "shm", stream, 2)
        rank.expect("open")
        with consumer(group, stream, transport="shm", window=3) as reader:
            put_steps(rank, 0, 2)
            with reader.next() as first:
                data = first.blocks("U")[0].data
            second = reader.next()
            shown = second.blocks("U")[0].data
            kill_servers(group, 0)
            wait_until(lambda: is_given_back(group), timeout=30)
            put_steps(rank, 2, 3)
            check(data, 0)
            check(shown, 1)
            second.release()
            with reader.next() as third:
                check(third["U"][...], 2)
            check(data, 0)
            check(shown, 1)
            del data, shown
        rank.close_input()
        rank.ended()
