"""What callers pass: integers that are integers, times of any length, NumPy's own scalars."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from support.sessions import consumer, producer

import forebay

BIG = 2**64


@pytest.mark.parametrize("timeout", [float("inf"), float(sys.maxsize), 1e300, 3.0])
def test_time_outs_may_be_of_any_length(one: forebay.LocalGroup, timeout: float) -> None:
    with (
        consumer(one, timeout=timeout) as reader,
        producer(one, timeout=timeout) as sim,
        forebay.Space(group=one, timeout=timeout) as space,
    ):
        assert forebay.Admin(group=one, timeout=timeout).status()["servers"]
        sim.array("U", dtype="f8", shape=(3,))
        with sim.step(0) as step:
            step.put("U", np.ones(3))
        with reader.next(timeout=timeout) as found:
            assert found["U"][...].sum() == 3
        space.put("x", np.ones(2), step=0)
        assert space.get("x", step=0, timeout=timeout).sum() == 2


def test_time_outs_are_told_apart_from_nonsense(one: forebay.LocalGroup) -> None:
    for bad in (-1, float("nan"), float("-inf")):
        with pytest.raises(forebay.Invalid, match="timeout"):
            producer(one, timeout=bad)
        with consumer(one) as reader, pytest.raises(forebay.Invalid, match="timeout"):
            reader.next(timeout=bad)
    with pytest.raises(forebay.Invalid, match="timeout is 0"):
        forebay.Space(group=one, timeout=0)
    with consumer(one) as reader, pytest.raises(forebay.Timeout):
        reader.next(timeout=0)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((consumer, {"window": window}) for window in (0, -1, 1025, 2000, 1 << 40, 2.0)),
        *((consumer, {"pin_bytes": pin}) for pin in (-1, BIG, 1.5)),
        *((consumer, {"fields": {"U": every}}) for every in (0, -1, 1.5, 1 << 40)),
        *((consumer, {"every": every}) for every in (0, -1, 1.5, 1 << 40)),
        *((producer, {"rank": rank}) for rank in (-1, 0.0)),
        *((producer, {"keep": keep}) for keep in (-1, 1.5, BIG)),
        *((producer, {"queue_bytes": queue}) for queue in (-1, 1e9, BIG)),
        *((producer, {"continues": continues}) for continues in (5, (1, 2.0), (-1, 2), (1, 2, 3))),
    ],
)
def test_options_out_of_range_are_refused(one: forebay.LocalGroup, make: Any, options: Any) -> None:
    with pytest.raises(forebay.Invalid):
        make(one, **options)


def test_nothing_is_rounded_to_an_integer(one: forebay.LocalGroup) -> None:
    row = np.ones((1, 4))
    with consumer(one) as reader, producer(one) as sim:
        for options in ({"shape": (6.9, 4)}, {"shape": 4}, {"ndim": 1.5}, {"shape": (6, 4), "every": 2.5}):
            with pytest.raises(forebay.Invalid, match="integer"):
                sim.array("U", dtype="f8", **options)
        with pytest.raises(forebay.OutOfBounds):
            sim.array("U", dtype="f8", shape=(-1, 4))
        with pytest.raises(forebay.Invalid, match="integer"):
            sim.particles("e", {"x": ("f8", 3.5)})
        sim.array("U", dtype="f8", shape=np.array([6, 4]), every=np.int64(1))
        for number in (0.5, -1, BIG, "0"):
            with pytest.raises(forebay.Invalid, match="step"):
                sim.step(number)  # type: ignore[arg-type]
        with sim.step(np.int32(0)) as step:
            wrong: list[Any] = [
                {"offset": (2.9, 0)},
                {"offset": 2},
                {"ghost_low": 0.5},
                {"ghost_high": (0, 1.5)},
                {"number": 1.5},
                {"number": -1},
                {"number": BIG},
                {"level": -1},
                {"level": 1.0},
            ]
            for options in wrong:
                with pytest.raises(forebay.Invalid):
                    step.put("U", row, **options)
            for options in ({"offset": (-1, 0)}, {"offset": (BIG, 0)}, {"ghost_low": -1}):
                with pytest.raises(forebay.OutOfBounds):
                    step.put("U", row, **options)
            with pytest.raises(forebay.Invalid):
                step.alloc("U", (1.5, 4))  # type: ignore[arg-type]
            assert step.put("U", row, offset=np.array([2, 0]), number=np.int64(3), ghost_low=np.uint8(0))
        with reader.next() as found:
            assert [(block.offset, block.number) for block in found.blocks("U")] == [((2, 0), 3)]
    with forebay.Space(group=one, timeout=20) as space:
        for options in (
            {"step": 1.5},
            {"step": -1},
            {"step": 1, "offset": (2.7, 0)},
            {"step": 1, "shape": (9.5, 4)},
        ):
            with pytest.raises(forebay.Invalid):
                space.put("a", row, **options)
        for call in (space.get, space.remove):
            with pytest.raises(forebay.Invalid):
                call("a", step=1.5)


def test_a_scalar_field_is_an_array(one: forebay.LocalGroup, transport: str) -> None:
    with consumer(one, transport=transport) as reader, producer(one, transport=transport) as sim:
        sim.array("t", dtype="f8", shape=())
        with sim.step(0) as step:
            step.put("t", 3.5)
        with reader.next() as found:
            for array in (np.asarray(found["t"]), np.array(found["t"], dtype="f4")):
                assert (array.shape, array.tolist()) == ((), 3.5)
            assert float(found["t"][...]) == 3.5


def test_blocks_can_be_compared_and_kept_in_sets(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,), spacing=np.float32(0.5), origin=[np.float32(1)])
        with pytest.raises(forebay.Invalid, match="spacing"):
            sim.array("V", dtype="f8", shape=(4,), spacing=object())
        with sim.step(0) as step:
            for number in range(2):
                step.put("U", np.ones(2), offset=(2 * number,), number=number)
        with reader.next() as found:
            first, second = found.blocks("U")
            assert first == first
            assert first != second
            assert len({first, second, first}) == 2
            assert (found["U"].spacing, found["U"].origin) == ((0.5,), (1.0,))


def test_a_view_with_gaps_fits_a_buffer(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.buffer("log")
        with sim.step(0) as step:
            step.put("log", memoryview(bytes(range(20)))[::-3])
        with reader.next() as found:
            assert [bytes(block.data) for block in found.blocks("log")] == [bytes(range(20))[::-3]]


def test_a_closed_space_is_closed(one: forebay.LocalGroup) -> None:
    space = forebay.Space(group=one, timeout=20)
    space.put("a", np.ones(3), step=0)
    for _ in range(2):
        space.close()
    for call in (
        lambda: space.get("a", step=0),
        lambda: space.put("a", np.ones(3), step=1),
        lambda: space.remove("a", step=0),
    ):
        with pytest.raises(forebay.Closed):
            call()
    with forebay.Space(group=one, timeout=20) as other:
        assert other.get("a", step=0).sum() == 3


def test_arrays_that_cannot_hold_what_is_read(one: forebay.LocalGroup) -> None:
    """Elements that share memory, what is no array, and what cannot be written."""
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4, 5))
        with sim.step(0) as step:
            step.put("U", np.arange(20.0).reshape(4, 5))
        field = reader.next()["U"]
        memory = np.zeros(40)
        for strides in ((0, 8), (8, 8), (16, 8), (40, 4), (-8, 8)):
            shared = np.lib.stride_tricks.as_strided(memory[10:], (4, 5), strides)
            with pytest.raises(forebay.Invalid, match="share memory"):
                field.read(out=shared)
        for wrong in ([0.0] * 20, bytearray(160)):
            with pytest.raises(forebay.Invalid, match="NumPy array"):
                field.read(out=wrong)
        frozen = np.zeros((4, 5))
        frozen.flags.writeable = False
        with pytest.raises(forebay.OutOfBounds, match="writable"):
            field.read(out=frozen)
        for good in (np.zeros((4, 5)).T.reshape(5, 4).T, np.zeros((8, 10))[::2, ::-2], np.zeros((5, 4)).T):
            field.read(out=good)
            assert np.array_equal(good, np.arange(20.0).reshape(4, 5))
