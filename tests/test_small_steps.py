"""Steps that bring blocks of a few bytes: a rank that shares memory begins them without asking its home."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from support.groups import stream_status
from support.processes import stand_still
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

SMALL, LARGE = 4, 4000  # elements: 32 bytes travel in a message, 32,000 need memory


@contextlib.contextmanager
def stopped(group: forebay.LocalGroup) -> Iterator[None]:
    """The group's servers stand still meanwhile."""
    for server in group.servers.values():
        stand_still(server.pid)
    try:
        yield
    finally:
        for server in group.servers.values():
            os.kill(server.pid, signal.SIGCONT)


def put(sim: forebay.Producer, number: int, size: int = SMALL) -> None:
    with sim.step(number) as step:
        step.put("U", np.full(size, float(number)))


def test_they_need_no_answer(one: forebay.LocalGroup) -> None:
    """As long as the one before was taken; what needs memory asks."""
    with producer(one, timeout=0.5) as sim, consumer(one) as reader:
        sim.array("U", dtype="f8", ndim=1)
        for number in range(2):
            put(sim, number)
            assert reader.next().number == number
        sim.flush()
        with stopped(one):
            put(sim, 2)
            # That one was not taken yet.
            with pytest.raises(forebay.Timeout):
                sim.step(3).__enter__()
        step = reader.next()
        assert step.number == 2
        assert (step.blocks("U")[0].data == 2).all()
        put(sim, 4, LARGE)
        assert reader.next().number == 4
        sim.flush()
        with stopped(one), pytest.raises(forebay.Timeout):
            sim.step(5).__enter__()


def test_small_and_large_in_turn(two: forebay.LocalGroup, transport: str) -> None:
    """All arrives as it was put, whichever rank brings little and whichever much; also for who comes later."""
    sizes = [
        [SMALL, SMALL, LARGE, SMALL, 0, LARGE, SMALL][(number * (rank + 1)) % 7]
        for number in range(60)
        for rank in range(2)
    ]
    with open_ranks(two, "s", 2, transport=transport, policy="block") as sim:
        for rank in sim:
            rank.array("U", dtype="f8", ndim=1)
        readers = [consumer(two, window=100)]
        for number in range(60):
            if number == 20:
                readers.append(consumer(two, window=100))
            for rank, each in enumerate(sim):
                put(each, number, sizes[2 * number + rank])
        for reader in readers:
            first = None
            for number in range(60):
                if reader is readers[1] and number < 20:
                    continue
                step = reader.next()
                first = step.number if first is None else first
                assert step.number == (number if reader is readers[0] else first + number - 20)
                assert not step.torn
                assert step.missed == 0
                blocks = {block.rank: block.data for block in step.blocks("U")}
                for rank in range(2):
                    assert np.array_equal(
                        blocks[rank], np.full(sizes[2 * step.number + rank], float(step.number))
                    )
                if step.number == 59:
                    break
            else:
                raise AssertionError("the last step did not come")
            reader.close()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_overlaps_is_told_at_the_latest_when_they_close(two: forebay.LocalGroup, size: int) -> None:
    """Whichever server coordinates the stream: some of these names belong to the one that is no rank's home."""
    for name in ("a", "b", "c", "d", "e", "f"):
        with consumer(two, name):
            ranks = [
                forebay.Producer(name, group=two.path, rank=rank, size=2, timeout=20) for rank in range(2)
            ]
            for rank in ranks:
                rank.array("U", dtype="f8", shape=(2 * size,))
            for number in range(3):
                for rank, sim in enumerate(ranks):
                    with sim.step(number) as step:
                        step.put("U", np.ones(size), offset=(rank * size - (number == 2) * rank,))
            told = [error for sim in ranks if (error := conflict_at_close(sim)) is not None]
            assert len(told) == 1
            assert "step 2" in str(told[0])


def conflict_at_close(sim: forebay.Producer) -> forebay.Conflict | None:
    try:
        sim.close()
    except forebay.Conflict as error:
        return error
    return None


def test_steps_that_are_left_out_are_told_when_the_next_begins(two: forebay.LocalGroup) -> None:
    """Not only when it ends: the other ranks' steps close meanwhile."""
    with open_ranks(two, "s", 2) as sim, consumer(two, window=100) as reader:
        for rank in sim:
            rank.array("U", dtype="f8", ndim=1)
            put(rank, 0)
        assert reader.next().number == 0
        for number in range(1, 10):
            put(sim[0], number)
        with sim[1].step(10) as step:
            for number in range(1, 10):
                assert reader.next(timeout=20).number == number
            step.put("U", np.ones(SMALL))
        put(sim[0], 10)
        assert reader.next().number == 10
    wait_until(lambda: (status := stream_status(two, "s")) is not None and status["phase"] == "finished")
