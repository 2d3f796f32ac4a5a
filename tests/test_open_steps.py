"""The home server dies while a rank is within a step: the step goes on at another server, with all that was put in it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.deaths import kill_servers
from support.groups import BUDGET, is_given_back, server_ids, stream_coordinated_by
from support.row_blocks import SHAPE, check_rows, declare_rows, put_rows
from support.sessions import consumer, producer
from support.spoiling import Proxy
from support.waiting import wait_until

import forebay

STEPS = 6
DIES_IN = 3


@pytest.mark.parametrize("at_once", [True, False], ids=["noticed in it", "noticed any time"])
@pytest.mark.parametrize("when", ["begun", "put", "allocated", "all put", "flushed"])
@pytest.mark.parametrize("coordinator", [0, 2], ids=["coordinates", "is a home"])
def test_an_open_step_goes_on(own_place: Path, when: str, coordinator: int, at_once: bool) -> None:
    """Through shared memory, where what was put lies in memory that outlives the server.

    A rank notices the death in that step, or with the next one that it begins.
    """

    def die() -> None:
        kill_servers(group, 0, wait=at_once)

    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        on_loss = "fail" if at_once else "skip"
        with consumer(group, stream) as reader, producer(group, stream, on_loss=on_loss) as sim:
            declare_rows(sim)
            read = 0
            for number in range(STEPS):
                dies = number == DIES_IN
                whole = reference(SHAPE, "f8", number)
                with sim.step(number) as step:
                    if dies and when == "begun":
                        die()
                    put_rows(step, number, range(2))
                    if dies and when == "put":
                        die()
                    room = step.alloc("U", shape=(20, 50), offset=(40, 0), number=2)
                    room[:10] = whole[40:50]
                    if dies and when == "allocated":
                        die()
                    room[10:] = whole[50:]
                    step.commit(room)
                    step.put("small", np.full(2, number + 2 / 8), offset=(4,), number=2)
                    if dies and when == "flushed":
                        sim.flush()
                    if dies and when in ("all put", "flushed"):
                        die()
                    if dies and at_once:
                        sim.flush()
                if at_once or number != DIES_IN:
                    assert not sim.lost
                    while read <= number:
                        with reader.next() as found:
                            check_rows(found, read)
                        read += 1
        wait_until(lambda: is_given_back(group))


def test_many_threads_put_while_the_home_dies(own_place: Path) -> None:
    """Each block is there once, whichever server was told of it first."""
    threads, blocks = 4, 40
    shape = (threads * blocks, 300)
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 1)
        with consumer(group, stream) as reader, producer(group, stream) as sim:
            sim.array("U", dtype="f8", shape=shape)
            for number in range(3):
                whole = reference(shape, "f8", number)
                begun = threading.Barrier(threads + 1)
                with sim.step(number) as step:

                    def work(thread: int, step: Any = step, whole: Any = whole, begun: Any = begun) -> None:
                        for row in range(thread, threads * blocks, threads):
                            if row // threads == 5:
                                begun.wait()
                            step.put("U", whole[row : row + 1], offset=(row, 0), number=row)

                    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
                    for worker in workers:
                        worker.start()
                    begun.wait()
                    if number == 1:
                        kill_servers(group, 0, wait=True)
                    for worker in workers:
                        worker.join()
                assert not sim.lost
                with reader.next() as found:
                    assert not found.torn
                    assert len(found.blocks("U")) == threads * blocks
                    np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("wait", [True, False], ids=["put", "put without waiting"])
def test_what_only_the_home_had_is_lost_with_it(own_place: Path, wait: bool) -> None:
    """Over the network, without copies: the step is torn, and the simulation goes on with the next one."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with (
            consumer(group, stream, transport="tcp") as reader,
            producer(group, stream, transport="tcp") as sim,
        ):
            declare_rows(sim)
            for number in range(STEPS):
                whole = reference(SHAPE, "f8", number)
                with sim.step(number) as step:
                    step.put("U", whole[:20], offset=(0, 0), number=0, wait=wait)
                    if number == DIES_IN:
                        kill_servers(group, 0, wait=True)
                    step.put("U", whole[20:], offset=(20, 0), number=1, wait=wait)
            assert not sim.lost
            last = -1
            while last < STEPS - 1:
                with reader.next() as found:
                    if found.number > DIES_IN:
                        assert found.number in (DIES_IN + 1, last + 1)
                        np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
                    last = found.number


@pytest.mark.parametrize("wait", [True, False], ids=["put", "put without waiting"])
def test_what_has_copies_is_not_put_again(own_place: Path, transport: str, wait: bool) -> None:
    """Every put that has returned was safe; small blocks too."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with (
            consumer(group, stream, transport=transport) as reader,
            producer(group, stream, transport=transport, replicas=2, durability="replicated") as sim,
        ):
            declare_rows(sim)
            for number in range(STEPS):
                whole = reference(SHAPE, "f8", number)
                with sim.step(number) as step:
                    for row in range(3):
                        if number == DIES_IN and row == 2:
                            step.wait()
                            kill_servers(group, 0, wait=True)
                            # What is sent to a server before its end is known may be gone with it.
                            wait_until(lambda: 0 not in server_ids(group))
                        step.put(
                            "U", whole[row * 20 : row * 20 + 20], offset=(row * 20, 0), number=row, wait=wait
                        )
                        step.put("small", np.full(2, number + row / 8), offset=(row * 2,), number=row)
                assert not sim.lost
                with reader.next() as found:
                    check_rows(found, number)
        wait_until(lambda: is_given_back(group))


@pytest.mark.parametrize("durability", ["local", "replicated"])
def test_a_home_dies_as_it_answers_the_end(own_place: Path, durability: str) -> None:
    """The step is ended, read, and freed; the rank, which was not answered, must not take it for lost."""
    hold, pass_on = threading.Event(), threading.Event()

    def answers_wait(data: bytes, _position: int, direction: str) -> bytes | None:
        if direction == "down" and hold.is_set():
            assert pass_on.wait(20)
            return None
        return data

    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        proxy = Proxy(group, own_place / "proxy.json", "tcp")
        proxy.spoil = answers_wait

        def read_and_kill() -> None:
            with reader.next() as found:
                check_rows(found, 1)
            wait_until(lambda: is_given_back(group))
            kill_servers(group, 0, wait=True)
            hold.clear()
            pass_on.set()

        with (
            contextlib.closing(proxy),
            consumer(group, stream, transport="tcp") as reader,
            producer(
                proxy.path, stream, transport="tcp", replicas=2, durability=durability, on_loss="fail"
            ) as sim,
        ):
            declare_rows(sim)
            for number in range(3):
                with sim.step(number) as step:
                    put_rows(step, number, range(3))
                    step.wait()
                    if number == 1:
                        hold.set()
                        killer = threading.Thread(target=read_and_kill)
                        killer.start()
                assert not sim.lost
                if number == 1:
                    killer.join()
                else:
                    with reader.next() as found:
                        check_rows(found, number)
        wait_until(lambda: is_given_back(group))


def test_homes_die_one_after_the_other_in_one_step(own_place: Path) -> None:
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with consumer(group, stream) as reader, producer(group, stream) as sim:
            declare_rows(sim)
            with sim.step(0) as step:
                put_rows(step, 0, range(1))
                kill_servers(group, 0, wait=True)
                put_rows(step, 0, range(1, 2))
                kill_servers(group, 1, wait=True)
                put_rows(step, 0, range(2, 3))
            assert not sim.lost
            with reader.next() as found:
                check_rows(found, 0)


def test_a_server_that_was_to_hold_an_allocation_dies(own_place: Path) -> None:
    """It is not the home: what was written to its memory goes to the home."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 1)
        with (
            consumer(group, stream) as reader,
            producer(group, stream, placement=lambda block: block.number + 2) as sim,
        ):
            sim.array("U", dtype="f8", shape=SHAPE)
            for number in range(2):
                whole = reference(SHAPE, "f8", number)
                with sim.step(number) as step:
                    room = step.alloc("U", shape=SHAPE, offset=(0, 0))
                    room[:30] = whole[:30]
                    if number == 1:
                        kill_servers(group, 2, wait=True)
                    room[30:] = whole[30:]
                    step.commit(room)
                assert not sim.lost
                with reader.next() as found:
                    np.testing.assert_array_equal(found["U"][...], whole)
