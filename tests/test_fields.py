"""Every dtype and every shape of a field, and what is told of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.sessions import consumer, open_ranks, producer, trouble, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (11, 7, 5)


# ---- types --------------------------------------------------------------------------------------

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("shape", [(3, 2), (37, 23)], ids=["small", "large"])
@pytest.mark.parametrize("order", ["=", ">"], ids=["native", "big-endian"])
def test_dtypes(two: forebay.LocalGroup, transport: str, order: str, shape: tuple[int, int]) -> None:
    """Every dtype, in either byte order, arrives as native values."""
    given = {name: reference(shape, name).astype(np.dtype(name).newbyteorder(order)) for name in DTYPES}
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        for name in DTYPES:
            sim.array("q" + name[0].replace("?", "b") + name[1:], dtype=name, shape=shape)
        with sim.step(0) as step:
            for name, array in given.items():
                assert step.put("q" + name[0].replace("?", "b") + name[1:], array)
        with reader.next() as found:
            for name in DTYPES:
                field = found["q" + name[0].replace("?", "b") + name[1:]]
                assert field.dtype == np.dtype(name)
                assert field.dtype.isnative
                np.testing.assert_array_equal(field[...], reference(shape, name), strict=True)
                np.testing.assert_array_equal(field[::2, ::-3], reference(shape, name)[::2, ::-3])


def test_special_values_keep_their_bits(two: forebay.LocalGroup, transport: str) -> None:
    bits = np.array([0x7FF0000000000000, 0xFFF8000000000001, 0x7FF4DEADBEEF0001, 1 << 63, 1], np.uint64)
    given = np.tile(bits, 60).reshape(20, 15).view("f8")
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(20, 15))
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...].view("u8"), given.view("u8"))


def test_bfloat16_is_shown_as_bits(two: forebay.LocalGroup, transport: str) -> None:
    given = reference((40, 30), "u2")
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="bfloat16", shape=(40, 30))
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...].view("u2"), given)


# ---- shapes -------------------------------------------------------------------------------------


def test_unplaced_fields(two: forebay.LocalGroup, transport: str) -> None:
    """Local arrays of different sizes, none of them in a global array; some are empty."""
    counts = {(0, 0): 5, (0, 1): 0, (1, 0): 700, (2, 4): 2}
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 3, transport=transport) as sim:
        for rank in sim:
            rank.array("x", dtype="f4", ndim=2)
        steps = [rank.step(0).__enter__() for rank in sim]
        for (rank, number), count in counts.items():
            assert steps[rank].put("x", reference((count, 3), "f4", rank), number=number)
        for step in steps:
            step.__exit__(None, None, None)
        with reader.next() as found:
            assert found["x"].shape is None
            blocks = {(block.rank, block.number): block for block in found["x"].blocks()}
            assert blocks.keys() == counts.keys()
            for (rank, number), count in counts.items():
                block = blocks[rank, number]
                assert block.offset is None
                np.testing.assert_array_equal(block.data, reference((count, 3), "f4", rank), strict=True)
            with pytest.raises(forebay.OutOfBounds, match="no global shape"):
                found["x"][...]


def test_zero_sized_blocks_and_fields(two: forebay.LocalGroup, transport: str) -> None:
    """A rank without elements, a field without elements, and empty regions."""
    whole = reference((6, 4))
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 3, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(6, 4))
            rank.array("none", dtype="i2", shape=(0, 9))
        for number in range(3):
            steps = [rank.step(number).__enter__() for rank in sim]
            steps[0].put("U", whole[:4], offset=(0, 0))
            steps[1].put("U", whole[4:4], offset=(4, 0))
            steps[2].put("U", whole[4:], offset=(4, 0))
            steps[0].put("none", np.zeros((0, 9), "i2"))
            for step in steps:
                step.__exit__(None, None, None)
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole)
                assert found["none"][...].shape == (0, 9)
                assert found["U"][3:3, ::2].shape == (0, 2)
                assert found["U"][6:, 1].shape == (0,)


def test_zero_sized_alloc(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader, producer(two) as sim:
        sim.array("x", dtype="f8", ndim=2)
        with sim.step(0) as step:
            view = step.alloc("x", (0, 5))
            assert view is not None
            assert view.shape == (0, 5)
        with reader.next() as found:
            (block,) = found["x"].blocks()
            assert block.data.shape == (0, 5)


def test_numbers_without_dimensions(two: forebay.LocalGroup, transport: str) -> None:
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("energy", dtype="f8", shape=())
        with sim.step(0) as step:
            step.put("energy", 2.5)
        with reader.next() as found:
            assert found["energy"].shape == ()
            assert float(found["energy"][...]) == 2.5
            assert float(found["energy"][()]) == 2.5


def test_layouts_change_with_a_step(two: forebay.LocalGroup, transport: str) -> None:
    """The global shape and the decomposition differ from step to step; each step is read as it was."""
    shapes = [(11, 6), (4, 30), (4, 30), (27, 2)]
    with consumer(two, transport=transport, window=8) as reader:
        with open_ranks(two, "s", 3, transport=transport) as sim:
            for number, shape in enumerate(shapes):
                for rank in sim:
                    rank.array("U", dtype="f8", shape=shape)
                write_steps(sim, [number], lambda n: reference(shapes[n], "f8", n))
        for number, shape in enumerate(shapes):
            found = reader.next()
            assert found["U"].shape == shape
            np.testing.assert_array_equal(found["U"][...], reference(shape, "f8", number))


def test_ranks_may_disagree_about_a_layout(two: forebay.LocalGroup) -> None:
    """All ranks of a step must give one shape: one of them is told, readers get no wrong bytes."""
    whole = reference((8, 6))
    with consumer(two) as reader, open_ranks(two, "s", 2) as sim:
        sim[0].array("U", dtype="f8", shape=(8, 6))
        sim[1].array("U", dtype="f8", shape=(8, 7))
        with sim[0].step(0) as a, sim[1].step(0) as b:
            a.put("U", whole[:4], offset=(0, 0))
            b.put("U", np.zeros((4, 7)), offset=(4, 0))
        with reader.next() as found, pytest.raises((forebay.NotCovered, forebay.OutOfBounds)):
            found["U"][...]
        assert "shape" in wait_until(lambda: trouble(sim))


def test_what_is_told_of_a_field(two: forebay.LocalGroup, transport: str) -> None:
    with (
        consumer(two, transport=transport, fields={"T": forebay.every(1, stats=True)}) as reader,
        producer(two, transport=transport) as sim,
    ):
        sim.array(
            "T",
            dtype="f4",
            shape=(4, 3, 2),
            dims=("z", "y", "x"),
            spacing=(0.5, 0.25, 2),
            origin=(-1, 0, 3.5),
            units="K · µm⁻¹",
            association="vertex",
        )
        array = reference((4, 3, 2), "f4")
        array[1, 1, 1] = np.nan
        with sim.step(7, time=-0.375) as step:
            step.put("T", array)
        with reader.next() as found:
            assert (found.number, found.time, found.run, found.torn, found.missed) == (7, -0.375, 1, False, 0)
            assert list(found) == found.keys() == found.fields
            field = found["T"]
            assert field.name == "T"
            assert field.dims == ("z", "y", "x")
            assert field.spacing == (0.5, 0.25, 2.0)
            assert field.origin == (-1.0, 0.0, 3.5)
            assert field.units == "K · µm⁻¹"
            assert field.association == "vertex"
            (block,) = field.blocks()
            assert block.stats is not None
            low, high, added, count, nan, var = block.stats
            assert (low, high, count, nan) == (np.nanmin(array), np.nanmax(array), 23, 1)
            assert var == pytest.approx(np.nanvar(array.astype("f8")))
            assert added == pytest.approx(np.nansum(array.astype("f8")))


@pytest.mark.parametrize("how", ["put", "small", "not waited for", "alloc"])
def test_statistics_are_of_the_interior(two: forebay.LocalGroup, transport: str, how: str) -> None:
    """Ghosts are their owner's elements, or hold nothing yet: they take no part."""
    if how == "alloc" and transport == "tcp":
        pytest.skip("memory is not allocated over TCP")
    shape = (3, 5) if how == "small" else (60, 50)
    array = reference(shape)
    padded = np.full((shape[0] + 3, shape[1] + 1), 1e30)
    padded[2:-1, :-1] = array
    padded[0, 0] = np.nan
    with (
        consumer(two, transport=transport, fields={"U": forebay.every(1, stats=True)}) as reader,
        producer(two, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=shape)
        with sim.step(0) as step:
            if how == "alloc":
                view = step.alloc("U", padded.shape, offset=(0, 0), ghost_low=(2, 0), ghost_high=(1, 1))
                assert view is not None
                view[...] = padded
            else:
                step.put(
                    "U",
                    padded,
                    offset=(0, 0),
                    ghost_low=(2, 0),
                    ghost_high=(1, 1),
                    wait=how != "not waited for",
                )
        with reader.next() as found:
            (block,) = found["U"].blocks()
            np.testing.assert_array_equal(block.data, padded)
            assert block.stats is not None
            assert block.stats[:5] == (array.min(), array.max(), array.sum(), array.size, 0)
            assert block.stats.var == pytest.approx(array.var())
            assert found["U"].stats == block.stats


@pytest.mark.parametrize("how", ["big-endian", "alloc", "strided"])
def test_statistics_come_with_every_way_to_put(two: forebay.LocalGroup, how: str) -> None:
    """Whoever asks for statistics gets them with each block, however it was put."""
    array = reference((60, 50))
    with consumer(two, fields={"U": forebay.every(1, stats=True)}) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(60, 50))
        with sim.step(0) as step:
            if how == "big-endian":
                step.put("U", array.astype(">f8"))
            elif how == "strided":
                step.put("U", np.asfortranarray(array))
            else:
                view = step.alloc("U", (60, 50))
                assert view is not None
                view[...] = array
        with reader.next() as found:
            (block,) = found["U"].blocks()
            assert block.stats is not None
            assert block.stats[:2] == (array.min(), array.max())
            assert block.stats[2] == pytest.approx(array.sum())
            assert block.stats[3:5] == (array.size, 0)


# ---- holes --------------------------------------------------------------------------------------


def test_a_region_with_holes_is_filled(two: forebay.LocalGroup, transport: str) -> None:
    """What nobody has put gets the number that the reader gives; `covered` tells where that is."""
    whole = reference((6, 10))
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 2, transport=transport) as ranks:
        for rank, sim in enumerate(ranks):
            sim.array("U", dtype="f8", shape=(6, 10))
            sim.array("n", dtype="i4", shape=(4,))
            with sim.step(0) as step:
                step.put("U", whole[1:3, 5 * rank : 5 * rank + 4], offset=(1, 5 * rank))
                if rank == 1:
                    step.put("n", np.arange(2, dtype="i4"), offset=(1,))
        found = reader.next()
        there = np.zeros((6, 10), bool)
        there[1:3, :4] = there[1:3, 5:9] = True
        field = found["U"]
        with pytest.raises(forebay.NotCovered):
            field[...]
        np.testing.assert_array_equal(field.covered(), there)
        for region in (np.s_[...], np.s_[2, ::2], np.s_[::-1, 3:7], np.s_[0:0], np.s_[3:, :], np.s_[1, 2]):
            expected = np.where(there, whole, -1.0)[region]
            np.testing.assert_array_equal(field.covered(region), there[region])
            np.testing.assert_array_equal(field.read(region, fill=-1), expected)
            out = np.full(expected.shape, 7.0)
            assert field.read(region, out=out, fill=-1) is out
            np.testing.assert_array_equal(out, expected)
        assert np.isnan(field.read(fill=np.nan)).sum() == (~there).sum()
        assert found["n"].read(fill=-1).tolist() == [-1, 0, 1, -1]
        assert found["n"].read(fill=np.int32(5)).tolist() == [5, 0, 1, 5]
        assert found["n"].covered().tolist() == [False, True, True, False]
        for fill in (0.5, 2**31, "x", np.float32(1), [1, 2, 3]):
            with pytest.raises((forebay.TypeMismatch, forebay.OutOfBounds), match="field 'n'"):
                found["n"].read(fill=fill)
        with pytest.raises(forebay.OutOfBounds):
            field.covered(np.s_[7])
        found.release()
        with pytest.raises(forebay.Closed):
            field.covered()


@pytest.mark.parametrize(
    "options, told",
    [
        ({"dtype": "f4"}, "dtype float32, not float64"),
        ({"dims": ("a", "b")}, r"dims \[\"a\", \"b\"\], not \[\]"),
        ({"association": "vertex"}, "association vertex, not cell"),
        ({"every": 2, "periodic": True}, r"every 2, not 1; periodic \[true, true\], not \[\]"),
        ({"refinement": (2, 4)}, r"refinement \[2, 4\], not \[\]"),
    ],
)
def test_what_ranks_declare_differently_is_told(
    one: forebay.LocalGroup, options: dict[str, object], told: str
) -> None:
    with open_ranks(one, "s", 2) as (first, second):
        given: dict[str, object] = {"dtype": "f8", "shape": (4, 4), "units": "m"}
        first.array("U", **given)  # type: ignore[arg-type]
        with pytest.raises(
            forebay.Conflict, match=f"rank 1 offers field 'U' of stream 's' with {told}, as it was"
        ):
            second.array("U", **{**given, **options})  # type: ignore[arg-type]
        second.array("U", **given)  # type: ignore[arg-type]


def test_a_window_moves(one: forebay.LocalGroup) -> None:
    """Origin, spacing and units belong to the step, as the shape does."""
    with consumer(one, window=8) as reader, producer(one) as sim:
        for number in range(4):
            sim.array(
                "U",
                dtype="f8",
                shape=(3 + number,),
                origin=0.5 * number,
                spacing=1 / (1 + number),
                units="m" if number < 2 else "km",
            )
            with sim.step(number) as step:
                step.put("U", np.zeros(3 + number))
        for number in range(4):
            with reader.next() as found:
                field = found["U"]
                assert (field.shape, field.origin) == ((3 + number,), (0.5 * number,))
                assert (field.spacing, field.units) == ((1 / (1 + number),), "m" if number < 2 else "km")


@pytest.mark.parametrize(
    "options, told",
    [
        ({"origin": 2.0}, r"origin \[2.0\], not \[1.0\]"),
        ({"units": "km"}, "units 'km', not 'm'"),
        ({"spacing": 3.0, "origin": 0.0}, r"spacing \[3.0\], not \[\]; origin \[0.0\], not \[1.0\]"),
    ],
)
def test_ranks_of_a_step_agree_on_it(one: forebay.LocalGroup, options: dict[str, Any], told: str) -> None:
    with consumer(one) as reader, open_ranks(one, "s", 2) as (first, second):
        given: dict[str, Any] = {"dtype": "f8", "shape": (4,), "units": "m", "origin": 1.0}
        first.array("U", **given)
        second.array("U", **{**given, **options})
        for rank, sim in enumerate((first, second)):
            with sim.step(0) as step:
                step.put("U", np.zeros(2), offset=(2 * rank,))
        reader.next().release()
        problem = wait_until(lambda: trouble([first, second]))
        assert re.search(f"rank 1 gives field 'U' at step 0 another way than another rank: {told};", problem)


def test_domains_and_levels(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4, 6), periodic=(True, False), refinement=2)
        sim.array("V", dtype="f8", shape=(4, 6), periodic=True, refinement=(2, 4))
        sim.array("W", dtype="f8", shape=(4, 6))
        with sim.step(0) as step:
            for name in "UVW":
                step.put(name, np.zeros((4, 6)))
        with reader.next() as found:
            assert (found["U"].periodic, found["U"].refinement) == ((True, False), (2, 2))
            assert (found["V"].periodic, found["V"].refinement) == ((True, True), (2, 4))
            assert (found["W"].periodic, found["W"].refinement) == ((), ())
        bad: list[tuple[dict[str, Any], str]] = [
            ({"periodic": (True,)}, "periodic has 1 entries for 2 dimensions"),
            ({"periodic": 1}, "give True or False"),
            ({"refinement": 0}, "refinement"),
            ({"refinement": (2, 2, 2)}, "refinement has 3 entries for 2 dimensions"),
        ]
        for options, text in bad:
            with pytest.raises(forebay.Invalid, match=text):
                sim.array("X", dtype="f8", shape=(4, 6), **options)
