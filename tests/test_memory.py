"""Memory: filled in place, seen without a copy, valid as long as it is held."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import cut, reference
from support.groups import is_given_back, stream_status, total
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay


def test_alloc_commit_abort(two: forebay.LocalGroup) -> None:
    whole = reference((40, 30))
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(40, 30))
        for number in range(6):
            with sim.step(number) as step:
                unused = step.alloc("U", (10, 30), offset=(0, 0), number=9)
                assert unused is not None
                unused[...] = -1
                step.abort(unused)
                assert not unused.flags.writeable
                early = step.alloc("U", (10, 30), offset=(0, 0), number=9)
                late = step.alloc("U", (32, 34), offset=(10, 0), ghost_low=(1, 2), ghost_high=(1, 2))
                assert early is not None
                assert late is not None
                early[...] = whole[:10] + number
                step.commit(early)
                assert not early.flags.writeable
                with pytest.raises(forebay.Invalid):
                    step.commit(early)
                late[...] = -5
                late[1:-1, 2:-2] = whole[10:] + number
            assert not late.flags.writeable
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole + number)
                assert len(found["U"].blocks()) == 2
    wait_until(lambda: is_given_back(two))


def test_alloc_over_tcp_says_what_to_do(two: forebay.LocalGroup) -> None:
    whole = reference((40, 30))
    with consumer(two) as reader, producer(two, transport="tcp") as sim:
        sim.array("U", dtype="f8", shape=(40, 30))
        with sim.step(0) as step:
            with pytest.raises(forebay.Unsupported, match="put"):
                step.alloc("U", (40, 30))
            assert step.put("U", whole)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_memory_is_touched_ahead_and_given_back(two: forebay.LocalGroup) -> None:
    """After a step that took fresh memory as much is ready for the next one, within a bound, and not for ever."""
    mib = 1 << 20
    whole = reference((8, mib // 4 // 8), step=1)
    big = reference((9, 1000, 1000))
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(8, mib // 4 // 8))
        # Declared before anybody wants it: nothing is touched for the first step, which takes fresh memory.
        write_steps([sim], [0], lambda _: whole)
        with consumer(two) as reader:
            write_steps([sim], [1], lambda _: whole)
            assert total(two, "staged_bytes") == 2 * mib
            wait_until(lambda: total(two, "arena_bytes") == 4 * mib, what="touched ahead")
            assert total(two, "peak_staged_bytes") == 2 * mib
            with reader.next() as step:
                np.testing.assert_array_equal(step["U"][...], whole)
        wait_until(
            lambda: total(two, "arena_bytes") == total(two, "staged_bytes"),
            what="given back as nobody used it",
        )
    with consumer(two, "big") as reader, producer(two, "big") as sim:
        sim.array("U", dtype="f8", shape=big.shape)
        write_steps([sim], [0], lambda _: big)
        wait_until(lambda: total(two, "arena_bytes") > total(two, "staged_bytes") + 31 * mib)
        assert total(two, "arena_bytes") <= total(two, "staged_bytes") + 32 * mib
        with reader.next() as step:
            np.testing.assert_array_equal(step["U"][...], big)


def test_as_many_large_blocks_fit_as_the_budget_says(own_place: Path) -> None:
    """Those that are copied begin a little into their ranges, which costs nothing of the budget."""
    shape = (1024, 1 << 12)
    parts = [reference(shape, step=number) for number in range(3)]
    with forebay.local(servers=1, budget_bytes=3 * parts[0].nbytes) as group, producer(group) as sim:
        with consumer(group) as reader, consumer(group, transport="tcp") as remote:
            sim.array("U", dtype="f8", shape=(3 * 1024, 1 << 12))
            for number in range(2):
                with sim.step(number) as step:
                    assert step.put("U", parts[0], offset=(0, 0), number=0)
                    filled = step.alloc("U", shape, offset=(1024, 0), number=1)
                    assert filled is not None
                    filled[...] = parts[1]
                    step.commit(filled)
                    del filled
                    assert step.put("U", parts[2], offset=(2048, 0), number=2)
                for who in (reader, remote):
                    with who.next() as found:
                        np.testing.assert_array_equal(found["U"][...], np.concatenate(parts))
                wait_until(lambda: is_given_back(group))
        with forebay.Space(group=group.path) as space:
            space.put("T", parts[2], step=3)
            np.testing.assert_array_equal(space.get("T", step=3), parts[2])


@pytest.mark.parametrize("size", [(16, 8), (257, 129)], ids=["inline", "mapped"])
def test_views_stay_valid(two: forebay.LocalGroup, transport: str, size: tuple[int, int]) -> None:
    """Views of released steps, of a closed reader, while many further steps pass: not a byte changes."""
    kept: list[tuple[int, list[forebay.Block]]] = []
    with open_ranks(two, "s", 3) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=size)
        reader = consumer(two, transport=transport)
        numbers = itertools.count()

        def whole(n: int) -> np.ndarray:
            return reference(size, "f8", n)

        def attached() -> bool:
            write_steps(sim, [next(numbers)], whole)
            status = stream_status(two, "s")
            return status is not None and status["steps"]["closed"] > 0

        wait_until(attached)
        for _ in range(30):
            write_steps(sim, [next(numbers)], whole)
            with reader.next() as found:
                if len(kept) < 5:
                    kept.append((found.number, found["U"].blocks()))
                else:
                    found["U"][...]

        def check() -> None:
            for number, blocks in kept:
                for block in blocks:
                    a, b = cut(size[0], 3)[block.rank]
                    np.testing.assert_array_equal(block.data, whole(number)[a:b])
                    with pytest.raises(ValueError, match="read-only"):
                        block.data[0] = 0

        check()
        reader.close()
        check()
        with consumer(two) as other:
            for _ in range(60):
                write_steps(sim, [next(numbers)], whole)
            other.next()
        check()
        del reader, found
        gc.collect()
        for _ in range(20):
            write_steps(sim, [next(numbers)], whole)
        check()
    check()
    kept.clear()
    gc.collect()
    wait_until(lambda: is_given_back(two))


def test_views_outlive_the_servers(own_place: Path) -> None:
    with (
        forebay.local(servers=2, budget_bytes=32 << 20) as group,
        consumer(group) as reader,
        producer(group) as sim,
    ):
        sim.array("U", dtype="f8", shape=(100, 70))
        with sim.step(0) as step:
            step.put("U", reference((100, 70)))
        view = reader.next()["U"].blocks()[0].data
    np.testing.assert_array_equal(view, reference((100, 70)))
    del view, reader, sim, step
    gc.collect()


def test_a_released_step_says_so(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(4, 3))
        with sim.step(0) as step:
            step.put("U", np.ones((4, 3)))
        found = reader.next()
        found.release()
        found.release()
        with pytest.raises(forebay.Closed, match="released"):
            found["U"][...]


def test_views_share_the_servers_memory(two: forebay.LocalGroup) -> None:
    """A view of a block on this host lies in a mapped arena: no copy was made."""
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(512, 256))
        with sim.step(0) as step:
            step.put("U", reference((512, 256)))
        with reader.next() as found:
            (block,) = found["U"].blocks()
            address = block.data.ctypes.data
            lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line]
            bounds = [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in lines]
            assert any(low <= address < high for low, high in bounds)


def keep_a_step(
    sim: forebay.Producer, reader: forebay.Consumer, number: int, whole: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Puts a step and reads it; the array that shows it outlives the step."""
    with sim.step(number) as step:
        step.put("U", whole + number, offset=(0, 0))
    with reader.next() as found:
        (block,) = found.blocks("U")
        return block.data


def test_what_a_reader_pins_is_bounded(two: forebay.LocalGroup) -> None:
    """A reader that keeps arrays of many steps gets copies from a point on: their memory is free again."""
    whole = reference((64, 1024))
    with (
        forebay.Consumer("s", group=two, timeout=20, pin_bytes=3 * whole.nbytes) as reader,
        forebay.Producer("s", group=two, timeout=20) as sim,
    ):
        sim.array("U", dtype="f8", shape=whole.shape)
        kept = [keep_a_step(sim, reader, number, whole) for number in range(12)]
        wait_until(lambda: total(two, "staged_bytes") <= 4 * whole.nbytes)
        assert all(np.array_equal(array, whole + number) for number, array in enumerate(kept))
        # What was pinned is let go: later steps are seen where they lie again.
        del kept[:6]
        kept.extend(keep_a_step(sim, reader, number, whole) for number in range(12, 14))
        wait_until(lambda: total(two, "staged_bytes") == 2 * whole.nbytes)
        assert np.array_equal(kept[-1], whole + 13)
        del kept
    wait_until(lambda: is_given_back(two))


def test_one_step_may_be_pinned_whatever_its_size(two: forebay.LocalGroup) -> None:
    whole = reference((64, 1024))
    with (
        forebay.Consumer("s", group=two, timeout=20, pin_bytes=1) as reader,
        forebay.Producer("s", group=two, timeout=20) as sim,
    ):
        sim.array("U", dtype="f8", shape=whole.shape)
        kept = [keep_a_step(sim, reader, number, whole) for number in range(3)]
        wait_until(lambda: total(two, "staged_bytes") == whole.nbytes)
        assert all(np.array_equal(array, whole + number) for number, array in enumerate(kept))
        with pytest.raises(forebay.Invalid, match="pin_bytes=-1"):
            forebay.Consumer("s", group=two, pin_bytes=-1)
