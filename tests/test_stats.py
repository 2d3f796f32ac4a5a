"""Statistics: computed where somebody asks for them, of whole fields and of blocks, exactly as NumPy has them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.sessions import consumer, open_ranks, producer

import forebay

SHAPE = (60, 50)
ALONE = forebay.every(1, stats="alone")
ALONG = forebay.every(1, stats=True)


def put_rows(ranks: list[forebay.Producer], number: int, whole: np.ndarray[Any, Any]) -> list[bool]:
    """Each rank puts its rows, with those of its neighbours as ghosts; whether something wanted them."""
    rows = len(whole) // len(ranks)
    wanted = []
    with contextlib.ExitStack() as stack:
        for rank, sim in enumerate(ranks):
            step = stack.enter_context(sim.step(number))
            low, high = int(rank > 0), int(rank < len(ranks) - 1)
            part = whole[rank * rows - low : (rank + 1) * rows + high]
            ghosts: dict[str, Any] = {"ghost_low": (low, 0), "ghost_high": (high, 0)}
            wanted.append(step.put("U", part, offset=(rank * rows, 0), **ghosts))
    return wanted


def check(stats: forebay.Stats | None, array: np.ndarray[Any, Any]) -> None:
    numbers = array[~np.isnan(array)] if array.dtype.kind == "f" else array
    assert stats is not None
    assert (stats.min, stats.max, stats.count) == (numbers.min(), numbers.max(), numbers.size)
    assert stats.nan == array.size - numbers.size
    wide = numbers.astype("f8")
    assert stats.sum == pytest.approx(wide.sum(), rel=1e-12)
    assert (stats.mean, stats.var) == (pytest.approx(wide.mean()), pytest.approx(wide.var(), rel=1e-9))
    assert stats.std == pytest.approx(wide.std(), rel=1e-9)


@pytest.mark.parametrize("size", [1, 3])
def test_alone_nothing_leaves_the_simulation(two: forebay.LocalGroup, transport: str, size: int) -> None:
    with (
        consumer(two, transport=transport, fields={"U": ALONE}) as reader,
        open_ranks(two, "s", size, transport=transport) as ranks,
    ):
        for sim in ranks:
            sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(3):
            whole = reference(SHAPE, "f8", number)
            whole[7, 9] = np.nan
            assert put_rows(ranks, number, whole) == [True] * size
            with reader.next() as step:
                assert (step.number, step.fields) == (number, ["U"])
                check(step["U"].stats, whole)
                for read in (lambda: step["U"][...], lambda: step["U"].blocks(), lambda: step["U"].covered()):
                    with pytest.raises(forebay.NotCovered, match="this reader needs its statistics alone"):
                        read()
        servers = forebay.Admin(group=two.path).status()["servers"]
        assert [server["peak_staged_bytes"] for server in servers] == [0, 0]


def test_beside_readers_of_parts_and_of_all(two: forebay.LocalGroup) -> None:
    """The whole field's are the same, whatever else leaves the simulation."""
    part = forebay.every(1, region=np.s_[15:30, 3:20], stats=True)
    whole = reference(SHAPE)
    with open_ranks(two, "s", 3) as ranks, consumer(two, fields={"U": ALONE}) as alone:
        for sim in ranks:
            sim.array("U", dtype="f8", shape=SHAPE)
        with consumer(two, fields={"U": part}) as parts:
            put_rows(ranks, 0, whole)
            with parts.next() as step:
                # Those of a part are the part's, and of the field there are none: it is not needed.
                assert step["U"].stats is None
                for block in step["U"].blocks():
                    assert block.offset is not None
                    row, column = block.offset
                    shown = whole[row : row + block.shape[0], column : column + block.shape[1]]
                    check(block.stats, shown)
            with alone.next() as step:
                check(step["U"].stats, whole)
            with consumer(two, fields={"U": ALONG}) as along, consumer(two) as plain:
                put_rows(ranks, 1, whole)
                with (
                    along.next() as step,
                    plain.next() as other,
                    alone.next() as third,
                    parts.next() as fourth,
                ):
                    check(step["U"].stats, whole)
                    assert third["U"].stats == step["U"].stats
                    assert (other["U"].stats, fourth["U"].stats) == (None, None)
                    for block in step["U"].blocks():
                        check(block.stats, block.interior)


def test_where_nobody_asks_nothing_is_computed(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", reference(SHAPE))
        with reader.next() as found:
            (block,) = found["U"].blocks()
            assert (block.stats, block.tile_bounds, found["U"].stats) == (None, None, None)


EXTREMES: dict[str, list[Any]] = {
    "i8": [-(2**63), 2**63 - 1, 2**53 + 1],
    "u8": [0, 2**64 - 1, 2**64 - 3],
    "i1": [-128, 127, 5],
    "u2": [0, 65535, 7],
    "?": [False, True, True],
    "f4": [np.float32(1.1), -np.inf, np.inf],
    "f2": [np.float16(-2.5), np.float16(65504), np.float16(0)],
    "f8": [1e300, -1e300, 5e-324],
}


@pytest.mark.parametrize("dtype", EXTREMES)
def test_each_type_has_its_own(one: forebay.LocalGroup, dtype: str) -> None:
    """Bounds are exact; so are the sums of integers."""
    array = np.array(EXTREMES[dtype], dtype)
    with consumer(one, fields={"U": ALONE}) as reader, producer(one) as sim:
        sim.array("U", dtype=dtype, shape=array.shape)
        with sim.step(0) as step:
            step.put("U", array)
        with reader.next() as found:
            stats = found["U"].stats
            assert stats is not None
            assert (stats.min, stats.max, stats.count, stats.nan) == (array.min(), array.max(), 3, 0)
            if array.dtype.kind != "f":
                assert isinstance(stats.min, int)
                assert stats.sum == sum(int(value) for value in array)
            elif np.isinf(array).any():
                assert np.isnan(stats.sum)
            else:
                assert stats.sum == sum(float(value) for value in array)


def test_nothing_but_nan_has_none(one: forebay.LocalGroup) -> None:
    with consumer(one, fields={"U": ALONE, "empty": ALONE}) as reader, producer(one) as sim:
        sim.array("U", dtype="f4", shape=(3,))
        sim.array("empty", dtype="i4", ndim=1)
        with sim.step(0) as step:
            step.put("U", np.full(3, np.nan, "f4"))
            step.put("empty", np.empty(0, "i4"))
        with reader.next() as found:
            for name, nan in (("U", 3), ("empty", 0)):
                stats = found[name].stats
                assert stats is not None
                assert (stats.count, stats.nan) == (0, nan)
                assert np.isnan([stats.min, stats.max, stats.mean, stats.var, stats.std]).all()


@pytest.mark.parametrize("ghosts", [0, 2])
def test_tiles_bound_what_lies_in_them(one: forebay.LocalGroup, transport: str, ghosts: int) -> None:
    """Each has 64 KiB of consecutive elements of the interior."""
    shape = (130, 300)
    array = reference(shape, "f4")
    padded = np.pad(array, ghosts, constant_values=np.float32(-9e9))
    with (
        consumer(one, fields={"U": ALONG}, transport=transport) as reader,
        producer(one, transport=transport) as sim,
    ):
        sim.array("U", dtype="f4", shape=shape)
        with sim.step(0) as step:
            step.put("U", padded, offset=(0, 0), ghost_low=(ghosts,) * 2, ghost_high=(ghosts,) * 2)
        with reader.next() as found:
            (block,) = found["U"].blocks()
            check(block.stats, array)
            tiles = np.split(array.ravel(), range(16384, array.size, 16384))
            assert block.tile_bounds is not None
            assert block.tile_bounds.dtype == np.float32
            np.testing.assert_array_equal(block.tile_bounds, [(tile.min(), tile.max()) for tile in tiles])


def test_refined_levels_are_not_counted_twice(one: forebay.LocalGroup) -> None:
    with consumer(one, fields={"U": ALONG}) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4, 4))
        with sim.step(0) as step:
            step.put("U", np.ones((4, 4)))
            step.put("U", np.full((4, 4), 7.0), offset=(0, 0), number=1, level=1)
        with reader.next() as found:
            check(found["U"].stats, np.ones((4, 4)))
            assert {block.level: block.stats.max for block in found["U"].blocks() if block.stats} == {
                0: 1,
                1: 7,
            }


def test_computed_in_place(one: forebay.LocalGroup) -> None:
    with consumer(one, fields={"U": ALONE}) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            assert step.demanded("U")
            view = step.alloc("U", SHAPE)
            assert view is not None
            view[...] = reference(SHAPE)
        with reader.next() as found:
            check(found["U"].stats, reference(SHAPE))


def test_what_cannot_be_asked_for(one: forebay.LocalGroup) -> None:
    with pytest.raises(forebay.Invalid, match="leave the region out"):
        consumer(one, fields={"U": forebay.every(1, region=np.s_[3], stats="alone")})
    with pytest.raises(forebay.Invalid, match='use True, False or "alone"'):
        forebay.every(1, stats="only")  # type: ignore[arg-type]
    with consumer(one, fields={"U": ALONG, "V": ALONE}) as reader, producer(one) as sim:
        sim.array("U", dtype="c16", shape=(3,))
        sim.array("V", dtype="c8", shape=(3,))
        with sim.step(0) as step:
            assert step.put("U", np.ones(3, "c16"))
            assert not step.put("V", np.ones(3, "c8"))
        with reader.next() as found:
            assert found["U"].stats is None
            assert found["U"].blocks()[0].stats is None


def test_alone_in_runs_of_many_ranks(two: forebay.LocalGroup) -> None:
    """Blocks are registered elsewhere there; the statistics of the field travel with the step."""
    whole = np.arange(66 * 4.0).reshape(66, 4)
    with (
        consumer(two, fields={"U": ALONE}) as reader,
        consumer(two, fields={"U": ALONG}) as along,
        open_ranks(two, "s", 66) as ranks,
    ):
        for sim in ranks:
            sim.array("U", dtype="f8", shape=whole.shape)
        put_rows(ranks, 0, whole)
        with reader.next() as step, along.next() as other:
            check(step["U"].stats, whole)
            assert other["U"].stats == step["U"].stats
            np.testing.assert_array_equal(other["U"][...], whole)
