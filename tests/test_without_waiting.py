"""Reading without waiting: what is there is taken, a future is given, or a coroutine waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back
from support.sessions import consumer, producer, write_steps
from support.waiting import wait_until

import forebay


def whole(step: int) -> np.ndarray[Any, Any]:
    return reference((6, 4), step=step)


def opened(group: forebay.LocalGroup, **options: Any) -> forebay.Producer:
    sim = producer(group, **options)
    sim.array("U", dtype="f8", shape=(6, 4))
    return sim


def polled(reader: forebay.Consumer) -> forebay.Step:
    found: list[forebay.Step] = []

    def is_there() -> bool:
        step = reader.poll()
        if step is not None:
            found.append(step)
        return bool(found)

    wait_until(is_there)
    return found[0]


@pytest.mark.parametrize("take", ["all", "latest"])
def test_polling(two: forebay.LocalGroup, transport: str, take: Any) -> None:
    with consumer(two, transport=transport, window=2, take=take) as reader:
        assert reader.poll() is None
        with opened(two) as sim:
            assert reader.poll() is None
            write_steps([sim], range(2), whole)
            first = polled(reader)
            np.testing.assert_array_equal(first["U"][...], whole(first.number))
            if take == "all":
                second = polled(reader)
                assert (first.number, second.number) == (0, 1)
                with pytest.raises(forebay.Timeout, match="holds 2 of 2 steps"):
                    reader.poll()
                second.release()
                assert reader.poll() is None
            first.release()
            write_steps([sim], range(2, 3), whole)
            wait_until(lambda: polled(reader).number == 2)

        def has_ended() -> bool:
            try:
                return reader.poll() is not None
            except forebay.Ended:
                return True

        wait_until(has_ended)
        with pytest.raises(forebay.Ended):
            reader.poll()
    with pytest.raises(forebay.Closed):
        reader.poll()


def test_futures_are_given_steps_in_their_order(two: forebay.LocalGroup) -> None:
    with consumer(two, window=8) as reader:
        futures = [reader.next_async() for _ in range(4)]
        assert not any(future.done() for future in futures)
        with opened(two) as sim:
            write_steps([sim], range(3), whole)
            steps = [future.result(20) for future in futures[:3]]
            assert [step.number for step in steps] == [0, 1, 2]
            np.testing.assert_array_equal(steps[1]["U"][...], whole(1))
            del steps
        assert isinstance(futures[3].exception(20), forebay.Ended)
        late = reader.next_async()
        assert isinstance(late.exception(20), forebay.Ended)
    del futures, late
    wait_until(lambda: is_given_back(two))


def test_a_future_has_a_deadline_and_may_be_given_up_before_its_wait(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader, opened(two) as sim:
        first, second = reader.next_async(timeout=0.3), reader.next_async()
        assert second.cancel()
        assert isinstance(first.exception(20), forebay.Timeout)
        write_steps([sim], [0], whole)
        assert reader.next_async().result(20).number == 0


def test_closing_ends_the_wait(two: forebay.LocalGroup) -> None:
    with opened(two), consumer(two, timeout=60) as reader:
        future = reader.next_async()
        wait_until(future.running)
    assert isinstance(future.exception(20), forebay.Closed)


def test_a_coroutine_waits_for_steps(two: forebay.LocalGroup) -> None:
    """Beside others that go on meanwhile; each step is released when the next one is asked for."""

    async def both() -> tuple[list[int], int]:
        ticks, over = 0, asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not over.is_set():
                ticks += 1
                await asyncio.sleep(0.001)

        async def read() -> list[int]:
            found = []
            async for step in reader:
                np.testing.assert_array_equal(step["U"][...], whole(step.number))
                found.append(step.number)
                wrote.set()
            over.set()
            return found

        return (await asyncio.gather(read(), tick()))[0], ticks

    wrote = threading.Event()
    with consumer(two, window=1) as reader:

        def write() -> None:
            with opened(two) as sim:
                for number in range(5):
                    wrote.clear()
                    write_steps([sim], [number], whole)
                    assert wrote.wait(20)

        writer = threading.Thread(target=write)
        writer.start()
        numbers, ticks = asyncio.run(both())
        writer.join()
    assert numbers == [0, 1, 2, 3, 4]
    assert ticks > 2


@pytest.mark.parametrize("how", ["next", "poll", "for", "async for"])
def test_a_step_of_a_cancelled_wait_is_not_lost(two: forebay.LocalGroup, how: str) -> None:
    async def one() -> int:
        async for step in reader:
            return step.number
        raise AssertionError

    with consumer(two) as reader, opened(two) as sim:

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(one(), 0.1)

        asyncio.run(give_up())
        assert reader.poll() is None
        with pytest.raises(forebay.Timeout):
            reader.next(timeout=0.01)
        write_steps([sim], range(2), whole)
        if how == "async for":
            assert asyncio.run(one()) == 0
        elif how == "for":
            assert next(iter(reader)).number == 0
        else:
            step = polled(reader) if how == "poll" else reader.next()
            assert step.number == 0
        assert reader.next().number == 1


WAITS = """
with_one = forebay.Consumer("never", group=sys.argv[1], timeout=float("inf"))
future = with_one.next_async()
wait_until(future.running)
print("waits", flush=True)
"""


def test_a_wait_does_not_keep_the_interpreter(two: forebay.LocalGroup) -> None:
    """However long it may take: the process ends at once, and the reader is gone."""
    with contextlib.closing(Child(WAITS, two.path)) as child:
        child.expect("waits")
        assert child.ended() == []
        assert child.errors == ""
    wait_until(lambda: not forebay.streams(group=two.path))


def test_threads_end_with_their_readers(two: forebay.LocalGroup) -> None:
    def waiting() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "forebay waits"]

    def use() -> Future[forebay.Step]:
        with consumer(two) as reader, opened(two) as sim:
            future = reader.next_async()
            write_steps([sim], [0], whole)
            assert future.result(20).number == 0
            assert waiting()
            return future

    before = len(waiting())
    use()
    wait_until(lambda: len(waiting()) == before)
