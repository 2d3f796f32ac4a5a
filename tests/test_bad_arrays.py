"""Arrays, fields, regions and blocks that cannot be: a clear error, and the step goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.groups import stream_status
from support.sessions import check_it_works, consumer, open_ranks, producer, trouble
from support.waiting import wait_until

import forebay

SHAPE = (8, 6)


# ---- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array, offset, error",
    [
        (np.zeros(SHAPE, "f4"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "i8"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "c16"), (0, 0), forebay.TypeMismatch),
        (np.full(SHAPE, None), (0, 0), forebay.TypeMismatch),
        (np.full(SHAPE, "x"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, "M8[s]"), (0, 0), forebay.TypeMismatch),
        (np.zeros(SHAPE, [("a", "f8")]), (0, 0), forebay.TypeMismatch),
        (np.zeros(8), (0, 0), forebay.OutOfBounds),
        (np.zeros((8, 6, 1)), (0, 0), forebay.OutOfBounds),
        (np.zeros((8, 6, 1)), None, forebay.OutOfBounds),
        (np.zeros(SHAPE), (0,), forebay.OutOfBounds),
        (np.zeros(SHAPE), (0, 0, 0), forebay.OutOfBounds),
        (np.zeros((6, 8)), (0, 0), forebay.OutOfBounds),
        (np.zeros(SHAPE), (1, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (7, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (0, -1), forebay.OutOfBounds),
        (np.zeros((2, 2)), (2**64 - 1, 0), forebay.OutOfBounds),
        (np.zeros((2, 2)), (2**64, 0), forebay.OutOfBounds),
        (np.zeros((0, 2)), (9, 0), forebay.OutOfBounds),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else str(value),
)
def test_arrays_that_do_not_fit(
    two: forebay.LocalGroup, array: np.ndarray, offset: tuple[int, ...] | None, error: type[forebay.Error]
) -> None:
    """The error names the field; the step goes on, and the next put of the same block is right."""
    whole = reference(SHAPE)
    with consumer(two) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            with pytest.raises(error, match="'U'"):
                step.put("U", array, offset=offset)
            assert step.put("U", whole)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("ghost", [-1, 4, (1,), (1, 2, 3), (0, -1), (5, 0)])
def test_ghosts_that_do_not_fit(two: forebay.LocalGroup, ghost: object) -> None:
    with consumer(two), producer(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step, pytest.raises(forebay.OutOfBounds):
            step.put("U", np.zeros(SHAPE), ghost_low=ghost, ghost_high=ghost)  # type: ignore[arg-type]


def test_fields_that_cannot_be(two: forebay.LocalGroup) -> None:
    with producer(two) as sim:
        for options in (
            {"dtype": "O", "shape": (3,)},
            {"dtype": "U7", "shape": (3,)},
            {"dtype": "M8[s]", "shape": (3,)},
            {"dtype": np.longdouble, "shape": (3,)},
        ):
            with pytest.raises(forebay.TypeMismatch, match="known are"):
                sim.array("U", **options)  # type: ignore[arg-type]
        for options in (
            {"dtype": "no such type", "shape": (3,)},
            {"dtype": "f8"},
            {"dtype": "f8", "shape": (3, 2), "dims": ("x",)},
            {"dtype": "f8", "shape": (3, 2), "spacing": (1, 2, 3)},
            {"dtype": "f8", "shape": (3, 2), "every": 0},
            {"dtype": "f8", "shape": (1,) * 40},
            {"dtype": "f8", "ndim": 40},
            {"dtype": "f8", "shape": (-1, 2)},
            {"dtype": "f8", "shape": (2**63, 2**63)},
            {"dtype": "f8", "shape": (2**64, 2)},
            {"dtype": "f8", "shape": (3,), "association": "edge"},
        ):
            with pytest.raises((forebay.Invalid, forebay.OutOfBounds)):
                sim.array("U", **options)  # type: ignore[arg-type]
        for name in ("", "x" * 5000, "new\nline", "a b\0"):
            with pytest.raises(forebay.Invalid):
                sim.array(name, dtype="f8", shape=(3,))
        sim.array("U", dtype="f8", shape=SHAPE)
        with pytest.raises(forebay.Conflict):
            sim.array("U", dtype="f4", shape=SHAPE)
        with sim.step(0) as step:
            with pytest.raises(forebay.NotFound, match=r"'V'.*U"):
                step.put("V", np.zeros(SHAPE))
            with pytest.raises(forebay.StepOrder):
                sim.array("V", dtype="f8", shape=SHAPE)
            assert not step.put("U", np.zeros(SHAPE))


def test_an_unplaced_block_has_no_offset(two: forebay.LocalGroup) -> None:
    with consumer(two), producer(two) as sim:
        sim.array("x", dtype="f8", ndim=1)
        with sim.step(0) as step:
            with pytest.raises(forebay.OutOfBounds):
                step.put("x", np.zeros(3), offset=(0,))
            with pytest.raises(forebay.OutOfBounds):
                step.put("x", np.zeros((3, 1)))


def test_regions_that_cannot_be(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", whole)
        with reader.next() as found:
            field = found["U"]
            for index in (np.s_[8, 0], np.s_[0, -7], np.s_[0, 0, 0], np.s_[..., 0, ...]):
                with pytest.raises(forebay.OutOfBounds):
                    field[index]
            for bad in ([1, 2], np.array([True] * 8), None, "U", 1.5, (np.newaxis, 0), True, whole > 3):
                with pytest.raises(forebay.Invalid):
                    field[bad]
            np.testing.assert_array_equal(field[...], whole)


# ---- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_overlapping_blocks(two: forebay.LocalGroup, transport: str, ranks: int) -> None:
    """The one who put the second block is told at a later call; a reader gets no wrong bytes."""
    shape = (80, 60)
    with (
        consumer(two, transport=transport) as reader,
        open_ranks(two, "s", ranks, transport=transport) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f8", shape=shape)
        steps = [rank.step(0).__enter__() for rank in sim]
        steps[0].put("U", np.full((50, 60), 1.0), offset=(0, 0), number=0)
        steps[-1].put("U", np.full((31, 60), 2.0), offset=(49, 0), number=1)
        for step in steps:
            step.__exit__(None, None, None)
        with reader.next() as found:
            with pytest.raises((forebay.NotCovered, forebay.Conflict)):
                found["U"][...]
            first = next(block for block in found["U"].blocks())
            begin = 0 if first.number == 0 else 49
            part = found["U"][begin : begin + first.shape[0]]
            assert (part == first.number + 1).all()

        problem = wait_until(lambda: trouble(sim))
        assert "overlap" in problem
        assert "'U'" in problem
        whole = reference(shape)
        with sim[0].step(1) as step:
            step.put("U", whole)
        for rank in sim[1:]:
            with rank.step(1):
                pass
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("again", [True, False])
def test_a_rank_that_is_told_of_a_refused_block_may_begin_its_step_again(
    one: forebay.LocalGroup, transport: str, again: bool
) -> None:
    """What the other rank puts in that step is not lost: if this one leaves it out, the step is torn."""
    half = 200
    with consumer(one, transport=transport) as reader, open_ranks(one, "s", 2, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(2 * half,))

        def put_half(rank: int, number: int, offset: int) -> None:
            with sim[rank].step(number) as step:
                step.put("U", np.full(half, float(number)), offset=(offset,))

        put_half(0, 0, 0)
        put_half(1, 0, half - 1)
        assert reader.next().number == 0
        with pytest.raises(forebay.Conflict, match="overlap"):
            sim[1].begin(1)
        put_half(0, 1, 0)
        if again:
            put_half(1, 1, half)
        put_half(0, 2, 0)
        put_half(1, 2, half)
        with reader.next() as step:
            assert (step.number, step.torn, step.missed) == (1, not again, 0)
            assert (step["U"][: 2 * half if again else half] == 1).all()
        with reader.next() as step:
            assert (step.number, step.torn, step.missed) == (2, False, 0)
    status = stream_status(one, "s")
    assert status is not None
    assert status["steps"] == {"closed": 3, "dropped": 0, "torn": int(not again)}


def test_the_same_block_twice(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", whole[:4])
            with pytest.raises(forebay.Conflict, match="number"):
                step.put("U", whole[4:], offset=(4, 0))
            step.put("U", whole[4:], offset=(4, 0), number=1)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("how", ["put", "alloc", "big-endian"])
def test_a_block_over_the_budget(own_place: Path, transport: str, how: str) -> None:
    """It is refused at once with the budget's size; the same block, smaller, is taken."""
    if transport == "tcp" and how == "alloc":
        pytest.skip("memory is not allocated over TCP")
    with (
        forebay.local(servers=1, budget_bytes=4 << 20) as group,
        consumer(group, transport=transport) as reader,
        producer(group, transport=transport) as sim,
    ):
        for number in range(3):
            sim.array("U", dtype="f8", shape=(1024, 1024))
            with sim.step(2 * number) as step:
                uses: dict[str, Callable[[], object]] = {
                    "alloc": lambda: step.alloc("U", (1024, 1024)),
                    "put": lambda: step.put("U", np.zeros((1024, 1024))),
                    "big-endian": lambda: step.put("U", np.zeros((1024, 1024), ">f8")),
                }
                with pytest.raises(forebay.OverBudget, match="budget"):
                    uses[how]()
            sim.array("U", dtype="f8", shape=(300, 100))
            with sim.step(2 * number + 1) as step:
                if how == "alloc":
                    with pytest.raises(forebay.OverBudget):
                        step.alloc("U", (300 + 10**6, 100), ghost_low=(10**6, 0))
                assert step.put("U", reference((300, 100)))
            for found in iter(reader.next, None):
                with found:
                    if found.number == 2 * number + 1:
                        np.testing.assert_array_equal(found["U"][...], reference((300, 100)))
                        break
        check_it_works(group, transport)


def free_bytes() -> int:
    line = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(240)
def test_a_block_over_4_gib(own_place: Path) -> None:
    if free_bytes() < 10 << 30:
        pytest.skip("needs 10 GiB of free memory")
    rows, columns = 4099, (1 << 20) + 3
    base = np.arange(rows + columns, dtype=np.uint32).view(np.uint8)[1::4].copy()
    # Row i is the base from i on: 4 GiB that occupy 1 MiB.
    whole = np.lib.stride_tricks.as_strided(base, (rows, columns), (1, 1), writeable=False)
    with (
        forebay.local(servers=1, budget_bytes=5 << 30) as group,
        consumer(group, timeout=120) as reader,
        consumer(group, timeout=120, transport="tcp") as remote,
        producer(group, timeout=120) as sim,
    ):
        sim.array("U", dtype="u1", shape=(rows, columns))
        with sim.step(0) as step:
            assert step.put("U", whole)
        with reader.next() as found:
            (block,) = found["U"].blocks()
            assert block.data.nbytes == rows * columns > 1 << 32
            for row in [*range(0, rows, 41), rows - 1]:
                assert (block.data[row] == base[row : row + columns]).all()
            np.testing.assert_array_equal(found["U"][-3:, ::977], whole[-3:, ::977])
            del block
        with remote.next() as found:
            np.testing.assert_array_equal(found["U"][-2:], whole[-2:])
            np.testing.assert_array_equal(found["U"][::-1000, -7:], whole[::-1000, -7:])
