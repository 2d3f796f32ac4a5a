"""Handles that many threads use at once: nobody waits for what another one waits for."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back
from support.processes import is_asleep
from support.sessions import consumer, producer
from support.waiting import wait_until

import forebay

ROWS, COLUMNS = 24, 5000


def put_rows(sim: forebay.Producer, number: int) -> np.ndarray[Any, Any]:
    """A step whose blocks are single rows, too large to travel in a message."""
    whole = reference((ROWS, COLUMNS), "f8", number)
    with sim.step(number) as step:
        for row in range(ROWS):
            step.put("U", whole[row : row + 1], offset=(row, 0), number=row)
    return whole


@pytest.mark.parametrize("encrypt", [False, True])
def test_many_threads_read_one_step(transport: str, encrypt: bool) -> None:
    with (
        forebay.local(budget_bytes=1 << 26, encrypt=encrypt) as group,
        consumer(group, transport=transport) as reader,
        producer(group, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        whole = put_rows(sim, 0)
        with reader.next() as step, ThreadPoolExecutor(4) as threads:

            def read(seed: int) -> None:
                rng = np.random.default_rng(seed)
                for _ in range(150):
                    row, column = rng.integers(ROWS), rng.integers(COLUMNS - 700)
                    found = step["U"][row : row + 2, column : column + 700]
                    np.testing.assert_array_equal(found, whole[row : row + 2, column : column + 700])

            list(threads.map(read, range(4)))


def test_threads_wait_for_what_others_put_with_the_same_space(
    one: forebay.LocalGroup, transport: str
) -> None:
    whole = reference((ROWS, COLUMNS))
    with (
        forebay.Space(group=one.path, transport=transport, timeout=60) as space,
        ThreadPoolExecutor(ROWS + 1) as threads,
    ):
        rows = [threads.submit(space.get, "T", step=0, region=np.s_[row]) for row in range(ROWS)]
        other = threads.submit(space.get, "other", step=0)
        for row in range(ROWS):
            assert not any(one.done() for one in rows[row:])
            space.put("T", whole[row : row + 1], step=0, offset=(row, 0), shape=whole.shape)
            np.testing.assert_array_equal(rows[row].result(), whole[row])
        space.put("other", whole, step=0)
        np.testing.assert_array_equal(other.result(), whole)
        for name in ("T", "other"):
            space.remove(name, step=0)
    wait_until(lambda: is_given_back(one))


def test_a_read_does_not_wait_for_the_next_step(one: forebay.LocalGroup, transport: str) -> None:
    """One thread waits for a step that comes only when another one has read the last."""
    told: queue.Queue[int] = queue.Queue()
    with consumer(one, transport=transport) as reader, producer(one, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        whole = put_rows(sim, 0)
        with reader.next() as step:
            waiter = threading.Thread(target=lambda: told.put(reader.next(timeout=60).number))
            waiter.start()
            wait_until(lambda: is_asleep(waiter.native_id))
            np.testing.assert_array_equal(step["U"][...], whole)
            with pytest.raises(forebay.Timeout):
                reader.next(timeout=0.01)
            assert waiter.is_alive()
            assert told.empty()
            put_rows(sim, 1)
            assert told.get(timeout=20) == 1
            waiter.join()


def test_many_threads_wait_for_steps(one: forebay.LocalGroup, transport: str) -> None:
    """Each step goes to one of them."""
    with (
        consumer(one, transport=transport, window=8) as reader,
        producer(one, transport=transport) as sim,
        ThreadPoolExecutor(4) as threads,
    ):
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))

        def read(_: int) -> int:
            with reader.next() as step:
                np.testing.assert_array_equal(step["U"][...], reference((ROWS, COLUMNS), "f8", step.number))
                return step.number

        found = threads.map(read, range(20))
        for number in range(20):
            put_rows(sim, number)
            sim.flush()
        numbers = list(found)
        assert len(set(numbers)) == len(numbers)


def test_who_looks_does_not_wait_for_who_begins(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """One thread asks whether staging was lost while another waits for a server that stands still: it is told
    at once, and Ctrl-C still ends the wait.
    """
    simulation = child(
        """
        group, server = sys.argv[1], int(sys.argv[2])
        sim = producer(group, timeout=60)
        reader = consumer(group)
        sim.array("U", dtype="f8", shape=(300,))
        with sim.step(0) as step:
            step.put("U", np.ones(300))
        stand_still(server)
        main = threading.get_native_id()

        def look():
            wait_until(lambda: is_asleep(main))
            print(sim.lost, flush=True)

        threading.Thread(target=look).start()
        try:
            sim.step(1).__enter__()
        except KeyboardInterrupt:
            print("interrupted")
        os.kill(server, signal.SIGCONT)
        """,
        one.path,
        one.servers[0].pid,
    )
    try:
        simulation.expect("None", timeout=20)
        simulation.kill(signal.SIGINT)
        simulation.expect("interrupted", timeout=20)
        simulation.ended()
    finally:
        os.kill(one.servers[0].pid, signal.SIGCONT)
