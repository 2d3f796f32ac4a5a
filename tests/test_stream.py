"""Streams, end to end: what producers put is what consumers read."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import (
    Child,
    cut,
    is_given_back,
    open_ranks,
    reference,
    stream_status,
    total,
    trouble,
    wait_until,
    write_steps,
)

import forebay

SHAPE = (11, 7, 5)


def consumer(group: forebay.LocalGroup, stream: str = "s", **options: object) -> forebay.Consumer:
    options.setdefault("timeout", 20)
    return forebay.Consumer(stream, group=group.path, **options)  # type: ignore[arg-type]


def producer(group: forebay.LocalGroup, stream: str = "s", **options: object) -> forebay.Producer:
    options.setdefault("timeout", 20)
    return forebay.Producer(stream, group=group.path, **options)  # type: ignore[arg-type]


# ---- placing ------------------------------------------------------------------------------------


def test_many_ranks_with_several_blocks(group: forebay.LocalGroup, transport: str) -> None:
    """Six ranks, each with unequal blocks in two dimensions: every region and stride is right."""
    shape = (19, 14, 9)
    with (
        consumer(group, transport=transport) as reader,
        open_ranks(group, "s", 6, transport=transport) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f4", shape=shape)
        for number in (3, 4):
            whole = reference(shape, "f4", number)
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(19, 6), strict=True):
                for block, (c, d) in enumerate(cut(14, 3)):
                    assert step.put("U", whole[a:b, c:d], offset=(a, c, 0), number=block)
            for step in steps:
                step.__exit__(None, None, None)
            found = reader.next()
            assert found.number == number
            field = found["U"]
            assert field.shape == shape
            assert field.dtype == np.float32
            for index in (
                np.s_[...],
                np.s_[2:17, 1:13, 1:8],
                np.s_[::3, 1::4, ::-2],
                np.s_[18, -1, -9],
                np.s_[-3:, ..., 2],
                np.s_[5],
                np.s_[4:4],
                np.s_[::-1, ::-1],
                np.s_[100:, :, :],
            ):
                np.testing.assert_array_equal(field[index], whole[index], strict=True)
            blocks = field.blocks()
            assert len(blocks) == 18
            for block in blocks:
                place = tuple(slice(o, o + n) for o, n in zip(block.offset or (), block.shape, strict=True))
                np.testing.assert_array_equal(block.data, whole[place], strict=True)
                assert not block.data.flags.writeable
            found.release()


@pytest.mark.parametrize("ghost", [1, (0, 2, 1), ((1, 0), (0, 2), (3, 1))])
def test_ghosts(two: forebay.LocalGroup, transport: str, ghost: object) -> None:
    """Ghost layers, also asymmetric ones, are stored with the block and never read as its interior."""
    widths = [(ghost, ghost)] * 3 if isinstance(ghost, int) else ghost
    pairs = [(w, w) if isinstance(w, int) else w for w in widths]  # type: ignore[attr-defined]
    whole = reference(SHAPE, "i4")
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 3, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="i4", shape=SHAPE)
        steps = [rank.step(0).__enter__() for rank in sim]
        for step, (a, b) in zip(steps, cut(11, 3), strict=True):
            padded = np.pad(whole[a:b], pairs, constant_values=-77)
            step.put("U", padded, offset=(a, 0, 0), ghost=ghost)  # type: ignore[arg-type]
        for step in steps:
            step.__exit__(None, None, None)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)
            np.testing.assert_array_equal(found["U"][1::2, ::-3, 1:4], whole[1::2, ::-3, 1:4])
            for block in found["U"].blocks():
                assert block.offset is not None
                at = block.offset[0]
                assert (block.ghost_low, block.ghost_high) == tuple(zip(*pairs, strict=True))
                np.testing.assert_array_equal(block.interior, whole[at : at + block.shape[0]])
                expected = np.pad(whole[at : at + block.shape[0]], pairs, constant_values=-77)
                np.testing.assert_array_equal(block.data, expected)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(np.repeat(a, 2, 0), 3, 2)[::2, :, ::3],
        lambda a: a[::-1].copy()[::-1],
        lambda a: a[:, ::-1, ::-1].copy()[:, ::-1, ::-1],
        lambda a: np.pad(a, ((1, 2), (3, 0), (0, 4)))[1:-2, 3:, :-4],
        lambda a: np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0),
        lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    ],
    ids=["fortran", "every other", "reversed", "reversed twice", "interior", "transposed", "unaligned"],
)
def test_any_strides(two: forebay.LocalGroup, transport: str, arrange: Callable[..., np.ndarray]) -> None:
    shape = (23, 17, 13)
    whole = reference(shape)
    given = arrange(whole)
    np.testing.assert_array_equal(given, whole)
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=shape)
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_zero_strides(two: forebay.LocalGroup, transport: str) -> None:
    """A broadcast array has strides of zero."""
    given = np.broadcast_to(np.arange(40, dtype=np.int64), (30, 40))
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="i8", shape=(30, 40))
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], given)


def test_into_an_array_of_the_readers(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE, "f4")
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 2, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f4", shape=SHAPE)
        write_steps(sim, [0], lambda _: whole)
        with reader.next() as found:
            field = found["U"]
            for index in (np.s_[...], np.s_[2:9:2, 3, ::-1], np.s_[:, 1:, 4], np.s_[::-1, ::-2, ::-1]):
                wanted = whole[index]
                for out in (
                    np.zeros(wanted.shape, "f4"),
                    np.zeros(wanted.shape, "f4", order="F"),
                    np.zeros([2 * n for n in wanted.shape], "f4")[
                        tuple(slice(1, None, 2) for _ in wanted.shape)
                    ],
                    np.zeros(wanted.shape, "f4")[..., ::-1],
                ):
                    assert field.read(index, out=out) is out
                    np.testing.assert_array_equal(out, wanted)
            frozen = np.zeros(SHAPE, "f4")
            frozen.flags.writeable = False
            for bad in (np.zeros((11, 7), "f4"), np.zeros(SHAPE, "f8"), np.zeros((5, 7, 11), "f4"), frozen):
                with pytest.raises(forebay.OutOfBounds):
                    field.read(..., out=bad)
            assert not frozen.any()


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
            steps[0].put("U", whole[:4])
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
            a.put("U", whole[:4])
            b.put("U", np.zeros((4, 7)), offset=(4, 0))
        with reader.next() as found, pytest.raises((forebay.NotCovered, forebay.OutOfBounds)):
            found["U"][...]
        assert "shape" in wait_until(lambda: trouble(sim))


def test_what_is_told_of_a_field(two: forebay.LocalGroup, transport: str) -> None:
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array(
            "T",
            dtype="f4",
            shape=(4, 3, 2),
            dims=("z", "y", "x"),
            spacing=(0.5, 0.25, 2),
            origin=(-1, 0, 3.5),
            units="K · µm⁻¹",
            association="vertex",
            stats=True,
        )
        array = reference((4, 3, 2), "f4")
        array[1, 1, 1] = np.nan
        with sim.step(7, time=-0.375) as step:
            step.put("T", array)
        with reader.next() as found:
            assert (found.number, found.time, found.run, found.torn, found.missed) == (7, -0.375, 1, False, 0)
            field = found["T"]
            assert field.name == "T"
            assert field.dims == ("z", "y", "x")
            assert field.spacing == (0.5, 0.25, 2.0)
            assert field.origin == (-1.0, 0.0, 3.5)
            assert field.units == "K · µm⁻¹"
            assert field.association == "vertex"
            (block,) = field.blocks()
            assert block.stats is not None
            low, high, added, count, non_finite = block.stats
            assert (low, high, count, non_finite) == (np.nanmin(array), np.nanmax(array), 23, 1)
            assert added == pytest.approx(np.nansum(array.astype("f8")))


@pytest.mark.parametrize("how", ["big-endian", "alloc", "strided"])
def test_statistics_come_with_every_way_to_put(two: forebay.LocalGroup, how: str) -> None:
    """A field that offers statistics carries them with each block, however it was put."""
    array = reference((60, 50))
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=(60, 50), stats=True)
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
            assert block.stats[3:] == (array.size, 0)


# ---- who wants what -----------------------------------------------------------------------------


def test_periods_multiply(two: forebay.LocalGroup) -> None:
    """A field offered every 3 steps and needed every 2 of those is staged at multiples of 6."""
    with (
        consumer(two, fields={"U": forebay.every(2), "V": 4}, window=64) as reader,
        consumer(two, fields={"U": forebay.every(1, dtype="f8")}, window=64) as all_of_it,
    ):
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=(3, 2), every=3)
            sim.array("V", dtype="f8", shape=(3, 2), every=1)
            for number in range(1, 26):
                with sim.step(number) as step:
                    assert step.put("U", reference((3, 2), "f8", number)) == (number % 3 == 0)
                    assert step.put("V", reference((3, 2), "f8", number)) == (number % 4 == 0)
        seen = {step.number: step.fields for step in reader}
        assert [n for n, fields in seen.items() if "U" in fields] == [6, 12, 18, 24]
        assert [n for n, fields in seen.items() if "V" in fields] == [4, 8, 12, 16, 20, 24]
        assert [step.number for step in all_of_it] == [3, 6, 9, 12, 15, 18, 21, 24]


def test_an_undemanded_field_is_not_staged(two: forebay.LocalGroup) -> None:
    with producer(two) as sim, consumer(two, "other"):
        sim.array("U", dtype="f8", shape=(1000, 300))
        for number in range(5):
            with sim.step(number) as step:
                assert not step.demanded("U")
                assert not step.put("U", np.zeros((1000, 300)))
                assert step.alloc("U", (1000, 300), number=1) is None
        assert total(two, "peak_staged_bytes") == 0
        sim.array("V", dtype="f8", shape=(2,))
        with consumer(two, fields=["V"]), consumer(two, fields={"U": 1000}):
            for number in range(5, 9):
                with sim.step(number) as step:
                    assert not step.put("U", np.zeros((1000, 300)))
        assert total(two, "peak_staged_bytes") == 0


def test_two_readers_with_different_fields(two: forebay.LocalGroup, transport: str) -> None:
    with (
        consumer(two, fields=["U"], transport=transport) as first,
        consumer(two, fields={"V": forebay.every(2)}, transport=transport, window=8) as second,
        open_ranks(two, "s", 2, transport=transport) as sim,
    ):
        for rank in sim:
            for name in "UVW":
                rank.array(name, dtype="i4", shape=(40, 30))
        for number in range(4):
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(40, 2), strict=True):
                for name in "UVW":
                    whole = reference((40, 30), "i4", 10 * number + ord(name))
                    staged = step.put(name, whole[a:b], offset=(a, 0))
                    assert staged == (name == "U" or (name == "V" and number % 2 == 0))
            for step in steps:
                step.__exit__(None, None, None)
            with first.next() as found:
                assert found.fields == ["U"]
                assert "V" not in found
                np.testing.assert_array_equal(
                    found["U"][...], reference((40, 30), "i4", 10 * number + ord("U"))
                )
                with pytest.raises(forebay.NotFound, match="'V'"):
                    found["V"]
        for number in (0, 2):
            with second.next() as found:
                assert (found.number, found.fields) == (number, ["V"])
                np.testing.assert_array_equal(
                    found["V"][...], reference((40, 30), "i4", 10 * number + ord("V"))
                )


def test_fields_that_only_some_ranks_offer(two: forebay.LocalGroup) -> None:
    """A number that rank 0 alone writes does not keep a step from closing."""
    with consumer(two, fields=["energy"], timeout=5) as reader, open_ranks(two, "s", 3) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(9, 4))
        sim[0].array("energy", dtype="f8", shape=(1,))
        for number in range(3):
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(9, 3), strict=True):
                step.put("U", np.zeros((b - a, 4)), offset=(a, 0))
            steps[0].put("energy", np.array([number + 0.5]))
            for step in steps:
                step.__exit__(None, None, None)
            with reader.next() as found:
                assert (found.number, found.torn) == (number, False)
                assert found["energy"][0] == number + 0.5


def test_attaching_in_the_middle(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """A reader that comes late sees whole steps only, from some step on, and no gap."""
    sim = child(
        """
        path, transport = sys.argv[1:]
        stop = []
        threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
        with open_ranks(path, "s", 5, transport=transport) as ranks:
            for rank in ranks:
                rank.array("U", dtype="f8", shape=(31, 12))
            number = 1000
            while not stop:
                write_steps(ranks, [number], lambda n: reference((31, 12), "f8", n))
                number += 1
                if number == 1010:
                    print("running")
        print(number)
        """,
        two.path,
        transport,
    )
    sim.expect("running")
    for _ in range(4):
        with consumer(two, transport=transport, window=8) as reader:
            numbers = []
            for step in itertools.islice(reader, 12):
                np.testing.assert_array_equal(step["U"][...], reference((31, 12), "f8", step.number))
                assert not step.torn
                assert len(step["U"].blocks()) == 5
                numbers.append(step.number)
            assert numbers == list(range(numbers[0], numbers[0] + 12))
            assert numbers[0] >= 1000
    sim.say()
    sim.ended()
    wait_until(lambda: is_given_back(two))


def test_all_ranks_agree_on_the_first_step(two: forebay.LocalGroup) -> None:
    """Readers come and go while ranks are in different steps: every rank stages the same steps."""
    with open_ranks(two, "s", 4) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(8, 3))
        whole = reference((8, 3))
        staged: dict[int, set[bool]] = {}
        readers: list[forebay.Consumer] = []
        # Rank r is r steps behind rank 0; readers attach and leave in between.
        for tick in range(40):
            if tick % 5 == 1:
                readers.append(consumer(two, window=64))
            if tick % 10 == 9:
                readers.pop(0).close()
            for index, rank in enumerate(sim):
                number = tick - index
                if number >= 0:
                    with rank.step(number) as step:
                        wanted = step.put("U", whole[2 * index : 2 * index + 2], offset=(2 * index, 0))
                    staged.setdefault(number, set()).add(wanted)
        assert all(len(answers) == 1 for answers in staged.values()), staged
        assert {True} in staged.values()
        for reader in readers:
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole)
                assert not found.torn
            reader.close()


def test_detaching_ends_the_demand(two: forebay.LocalGroup) -> None:
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        numbers = itertools.count()

        def staged() -> bool:
            with sim.step(next(numbers)) as step:
                return step.put("U", np.ones((100, 30)))

        assert not staged()
        reader = consumer(two)
        wait_until(staged)
        reader.close()
        wait_until(lambda: not staged())
        wait_until(lambda: is_given_back(two))
        with pytest.raises(forebay.Closed):
            reader.next()
        reader.close()


@pytest.mark.parametrize("keep", ["step", "array"])
def test_closing_a_reader_ends_its_demand(two: forebay.LocalGroup, keep: str) -> None:
    """What a closed reader may still hold is an array, not the stream; after a loop its last step is still there."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        numbers = itertools.count()

        def staged() -> bool:
            with sim.step(next(numbers)) as step:
                return step.put("U", np.full((100, 30), float(step.number)))

        array = np.empty(0)
        with consumer(two) as reader:
            wait_until(staged)
            for found in reader:
                array = found["U"].blocks()[0].data if keep == "array" else found["U"][...]
                value = float(found.number)
                break
        if keep == "array":
            del found
        wait_until(lambda: not staged(), 5, "the closed reader still demands the field")
        assert (array == value).all()


def test_a_reader_that_is_dropped_with_steps_unread_holds_nothing(two: forebay.LocalGroup) -> None:
    """Not closed, only forgotten, while its process lives on."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        reader = consumer(two)
        for number in range(6):
            with sim.step(number) as step:
                step.put("U", np.ones((100, 30)))
        wait_until(lambda: (stream_status(two, "s") or {}).get("steps", [0])[0] > 0)
        del reader
        gc.collect()
        wait_until(lambda: (stream_status(two, "s") or {}).get("attached") == 0, 5, "it is still attached")
    wait_until(lambda: is_given_back(two), 5, "its steps are still held")


# ---- what happens when readers cannot keep up ---------------------------------------------------


def test_drop_oldest_counts_what_was_missed(two: forebay.LocalGroup, transport: str) -> None:
    """With room for few waiting steps the oldest go; the reader sees a gap and its size."""
    shape = (256, 128)
    size = 8 * 256 * 128
    with consumer(two, window=1, transport=transport) as reader:
        with producer(two, queue=3 * size, transport=transport) as sim:
            sim.array("U", dtype="f8", shape=shape)
            for number in range(20):
                with sim.step(number) as step:
                    step.put("U", reference(shape, "f8", number))
        last, missed = -1, 0
        for step in reader:
            assert step.missed == step.number - last - 1
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
            missed += step.missed
            last = step.number
        assert last == 19
        assert missed >= 14


def test_latest_skips_to_the_newest(two: forebay.LocalGroup) -> None:
    with consumer(two, window=1) as reader:
        with producer(two, policy="latest") as sim:
            sim.array("U", dtype="f8", shape=(50, 40))
            for number in range(30):
                with sim.step(number) as step:
                    step.put("U", reference((50, 40), "f8", number))
        seen = [(step.number, step.missed) for step in reader]
        assert [number for number, _ in seen] == [0, 29]
        assert seen[1][1] == 28


def test_block_waits_for_the_reader(own_place: Path, child: Callable[..., Child], transport: str) -> None:
    """With a budget of a few steps and policy block, the producer waits and nothing is dropped."""
    shape = (512, 256)
    with (
        forebay.local(servers=2, budget=6 << 20) as group,
        consumer(group, window=1, transport=transport) as reader,
    ):
        sim = child(
            """
            path, transport = sys.argv[1:]
            with open_ranks(path, "s", 2, transport=transport, policy="block") as ranks:
                for rank in ranks:
                    rank.array("U", dtype="f8", shape=(512, 256))
                print("open")
                write_steps(ranks, range(30), lambda n: reference((512, 256), "f8", n))
            print("done")
            """,
            group.path,
            transport,
        )
        sim.expect("open")
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
            assert step.missed == 0
            numbers.append(step.number)
        assert numbers == list(range(30))
        assert sim.ended() == ["done"]


def test_block_fails_at_its_deadline_and_names_why(own_place: Path, transport: str) -> None:
    with forebay.local(servers=1, budget=8 << 20) as group:
        with consumer(group, window=1, transport=transport) as reader:
            sim = producer(group, policy="block", timeout=1, transport=transport)
            sim.array("U", dtype="f8", shape=(512, 512))
            numbers = itertools.count()

            def fill() -> None:
                while True:
                    with sim.step(next(numbers)) as step:
                        step.put("U", np.ones((512, 512)))

            with pytest.raises((forebay.Full, forebay.Timeout), match=r"room|hold"):
                fill()
            with reader.next() as found:
                assert found.number == 0
                assert (found["U"][...] == 1).all()
        sim.close()


def test_the_budget_is_kept(own_place: Path, transport: str) -> None:
    """However many steps wait, no server holds more than its budget, and the simulation goes on."""
    budget = 8 << 20
    with (
        forebay.local(servers=2, budget=budget) as group,
        consumer(group, window=2, transport=transport) as reader,
    ):
        with open_ranks(group, "s", 3, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(300, 400))
            write_steps(sim, range(60), lambda n: reference((300, 400), "f8", n))
            with forebay.Admin(group=group.path) as admin:
                for server in admin.status()["servers"]:
                    assert server["peak_staged_bytes"] <= budget
        last, missed = -1, 0
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference((300, 400), "f8", step.number))
            assert step.missed == step.number - last - 1
            last, missed = step.number, missed + step.missed
        assert last + missed >= 58


def test_a_reader_that_stops_reading(own_place: Path, transport: str) -> None:
    """It costs its window and the queue; the simulation does not wait, and other readers get every step."""
    with forebay.local(servers=2, budget=64 << 20) as group:
        stuck = consumer(group, window=2, transport=transport)
        with (
            consumer(group, window=4, transport=transport) as reader,
            open_ranks(group, "s", 2, transport=transport) as sim,
        ):
            for rank in sim:
                rank.array("U", dtype="f8", shape=(256, 256))
            for number in range(300):
                write_steps(sim, [number], lambda n: np.full((256, 256), float(n)))
                with reader.next() as found:
                    assert found.number == number
                    assert (found["U"][::50, ::50] == number).all()
        assert stuck.next().number == 0
        stuck.close()
        wait_until(lambda: is_given_back(group))


# ---- keeping, starting, ending, restarting ------------------------------------------------------


def test_kept_steps_are_there_for_who_comes_late(two: forebay.LocalGroup, transport: str) -> None:
    with open_ranks(two, "s", 2, keep=3, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(60, 50))
        write_steps(sim, range(100, 110), lambda n: reference((60, 50), "f8", n))
        wait_until(lambda: (stream_status(two, "s") or {}).get("latest") == 109)
        with consumer(two, start="oldest", transport=transport) as reader:
            for number in (107, 108, 109):
                with reader.next() as found:
                    assert found.number == number
                    np.testing.assert_array_equal(found["U"][...], reference((60, 50), "f8", number))
            write_steps(sim, [110], lambda n: reference((60, 50), "f8", n))
            assert reader.next().number == 110


def test_kept_steps_outlive_the_simulation(two: forebay.LocalGroup) -> None:
    """A reader that comes after the end reads what was kept, and is then told that it has ended."""
    with open_ranks(two, "s", 2, keep=2) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(60, 50))
        write_steps(sim, range(5), lambda n: reference((60, 50), "f8", n))
    wait_until(lambda: (stream_status(two, "s") or {}).get("ranks") == [2, 0])
    with consumer(two, start="oldest", timeout=4) as reader:
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", step.number))
            numbers.append(step.number)
        assert numbers == [3, 4]


def test_a_reader_before_the_simulation_and_its_end(two: forebay.LocalGroup, transport: str) -> None:
    """Numbers are those the producer gave; iterating ends with the simulation, and stays ended."""
    numbers = [5, 6, 17, 400, 2**40, 2**63]
    with consumer(two, transport=transport, window=16) as reader:
        with pytest.raises(forebay.Timeout, match="'s'"):
            reader.next(timeout=0.05)
        with open_ranks(two, "s", 2, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
            write_steps(sim, numbers, lambda n: reference((4, 3), "f8", n % 1000))
        seen = []
        for step in reader:
            assert step.time == step.number / 8
            np.testing.assert_array_equal(step["U"][...], reference((4, 3), "f8", step.number % 1000))
            seen.append(step.number)
        assert seen == numbers
        assert list(reader) == []
        with pytest.raises(forebay.Ended):
            reader.next()


def test_the_largest_step_number(two: forebay.LocalGroup) -> None:
    largest = 2**64 - 1
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(4, 3))
        with sim.step(largest - 1) as step:
            step.put("U", np.ones((4, 3)))
        with consumer(two) as reader:
            with sim.step(largest) as step:
                step.put("U", np.ones((4, 3)))
            # No step can come any more: the next reader does not upset the servers.
            with consumer(two):
                pass
            with pytest.raises(forebay.StepOrder):
                sim.step(largest).__enter__()
            assert reader is not None
    assert "error" not in forebay.Admin(group=two.path).status()["servers"][0]


def test_ended_without_a_step(two: forebay.LocalGroup) -> None:
    with consumer(two) as reader:
        with open_ranks(two, "s", 3) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
        assert list(reader) == []


def test_a_restart(two: forebay.LocalGroup, transport: str) -> None:
    """A reader that follows goes on with the next run and is told that it went back."""
    with consumer(two, follow=True, window=32, transport=transport) as reader:
        with open_ranks(two, "s", 2, transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(4, 3))
            write_steps(sim, range(8), lambda n: reference((4, 3), "f8", n))
            first = sim[0].run
        with open_ranks(two, "s", 3, transport=transport, continues=(first, 4)) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(6, 3))
            write_steps(sim, range(5, 9), lambda n: reference((6, 3), "f8", n))
            assert {rank.run for rank in sim} == {first + 1}
        seen = []
        for _ in range(12):
            with reader.next() as step:
                shape = (4, 3) if step.run == first else (6, 3)
                np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
                seen.append((step.run, step.number, step.rewound))
        second = first + 1
        assert seen[:8] == [(first, n, False) for n in range(8)]
        assert seen[8:] == [(second, 5, True), (second, 6, False), (second, 7, False), (second, 8, False)]


def test_a_reader_that_does_not_follow_ends_with_its_run(two: forebay.LocalGroup) -> None:
    """Also when the next run begins before it has read all of its own."""
    with consumer(two, window=1) as reader:
        for run in (1, 2):
            with producer(two) as sim:
                assert sim.run == run
                sim.array("U", dtype="f8", shape=(4, 3))
                for number in range(3):
                    with sim.step(number) as step:
                        step.put("U", reference((4, 3), "f8", number + 10 * run))
        seen = [(step.run, step.number) for step in reader]
        assert seen == [(1, 0), (1, 1), (1, 2)]


def test_a_reader_whose_run_has_ended_holds_nothing_of_the_next(own_place: Path) -> None:
    """It was told the end; though not closed, it does not make a later run wait."""
    with forebay.local(servers=1, budget=8 << 20) as group, consumer(group) as reader:
        with producer(group) as sim:
            sim.array("U", dtype="f8", shape=(100, 100))
            with sim.step(0) as step:
                step.put("U", np.ones((100, 100)))
        assert [step.number for step in reader] == [0]
        with producer(group, policy="block", timeout=3) as sim:
            sim.array("U", dtype="f8", shape=(512, 256))
            for number in range(20):
                with sim.step(number) as step:
                    step.put("U", np.ones((512, 256)))
        assert is_given_back(group) or wait_until(
            lambda: is_given_back(group), 5, "a run that nobody reads is kept"
        )


def test_ranks_that_never_overlap(two: forebay.LocalGroup) -> None:
    """A fast rank may be done before a slow one has come: they are ranks of one run all the same."""
    whole = reference((6, 5))
    with consumer(two, window=8) as reader:
        for rank, (a, b) in enumerate(cut(6, 2)):
            with producer(two, rank=rank, size=2) as sim:
                sim.array("U", dtype="f8", shape=(6, 5))
                for number in range(2):
                    with sim.step(number) as step:
                        step.put("U", whole[a:b], offset=(a, 0))
        for number in range(2):
            with reader.next(timeout=5) as found:
                assert found.number == number
                assert not found.torn
                np.testing.assert_array_equal(found["U"][...], whole)


# ---- memory -------------------------------------------------------------------------------------


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
                late = step.alloc("U", (32, 34), offset=(10, 0), ghost=((1, 1), (2, 2)))
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
            return (stream_status(two, "s") or {}).get("steps", [0])[0] > 0

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
        forebay.local(servers=2, budget=32 << 20) as group,
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


def test_payload_may_be_encrypted(own_place: Path) -> None:
    with forebay.local(servers=2, budget=32 << 20, encrypt=True) as group:
        whole = reference((123, 217))
        with consumer(group, transport="tcp") as reader, open_ranks(group, "s", 2, transport="tcp") as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(123, 217))
            write_steps(sim, [0], lambda _: whole)
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole)
                np.testing.assert_array_equal(found["U"][::5, 3::7], whole[::5, 3::7])


def test_sixteen_ranks_in_sixteen_processes(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    shape = (50, 21, 6)
    ranks = [
        child(
            """
            rank, path = int(sys.argv[1]), sys.argv[2]
            begin, end = cut(50, 16)[rank]
            with forebay.Producer("s", rank=rank, size=16, group=path, policy="block") as sim:
                sim.array("U", dtype="f4", shape=(50, 21, 6))
                print("open")
                sys.stdin.readline()
                for number in range(20):
                    whole = reference((50, 21, 6), "f4", number)
                    with sim.step(number) as step:
                        step.put("U", whole[begin:end, :9], offset=(begin, 0, 0), number=0)
                        step.put("U", whole[begin:end, 9:], offset=(begin, 9, 0), number=1)
            """,
            rank,
            two.path,
        )
        for rank in range(16)
    ]
    with consumer(two, window=3, timeout=60) as reader:
        for rank in ranks:
            rank.expect("open", 60)
        for rank in ranks:
            rank.say()
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f4", step.number))
            assert len(step["U"].blocks()) == 32
            assert {block.server for block in step["U"].blocks()} == {0, 1}
            numbers.append(step.number)
        assert numbers == list(range(20))
    for rank in ranks:
        rank.ended()
    wait_until(lambda: is_given_back(two))
