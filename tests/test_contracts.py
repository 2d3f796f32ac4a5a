"""Contracts: only the parts that somebody needs leave the simulation, at the steps at which they are needed."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.arrays import reference
from support.commands import run
from support.groups import is_given_back, stream_status
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

SHAPE = (60, 48)
ROWS = 20
"""Of each of three ranks, which have ghosts of one layer."""


def put_whole(ranks: list[forebay.Producer], number: int, whole: np.ndarray[Any, Any]) -> list[bool]:
    """Each rank puts its rows, with those of its neighbours as ghosts."""
    rows = len(whole) // len(ranks)
    with contextlib.ExitStack() as stack:
        staged = []
        for rank, sim in enumerate(ranks):
            step = stack.enter_context(sim.step(number))
            low, high = int(rank > 0), int(rank < len(ranks) - 1)
            part = whole[rank * rows - low : (rank + 1) * rows + high]
            staged.append(
                step.put("U", part, offset=(rank * rows, 0), ghost_low=(low, 0), ghost_high=(high, 0))
            )
    return staged


def declare(ranks: list[forebay.Producer], **options: Any) -> None:
    for sim in ranks:
        sim.array("U", dtype="f8", shape=SHAPE, **options)


def cut(field: forebay.Field, region: Any) -> np.ndarray[Any, Any]:
    """Of the whole array what the field's blocks show: zero elsewhere; each element at most once."""
    assert field.shape is not None
    shown = np.zeros(field.shape)
    seen = np.zeros(field.shape, int)
    for block in field.blocks():
        assert block.offset is not None
        place = tuple(
            slice(first, first + (count - 1) * step + 1, step)
            for first, count, step in zip(block.offset, block.shape, block.step, strict=True)
        )
        shown[place] = block.interior
        seen[place] += 1
    assert seen.max(initial=0) <= 1
    wanted = np.zeros(field.shape, bool)
    wanted[region] = True
    np.testing.assert_array_equal(seen.astype(bool), wanted)
    return shown


REGIONS = {
    "a column": np.s_[:, 5:6],
    "a number": np.s_[17],
    "a box across ranks": np.s_[15:47, 3:20],
    "from the end": np.s_[-7:, -9:-2],
    "behind an ellipsis": np.s_[..., 40:],
    "every fourth": np.s_[::4, ::4],
    "every third of a box": np.s_[4:50:3, 1::5],
}


@pytest.mark.parametrize("region", REGIONS.values(), ids=REGIONS)
def test_only_a_part_leaves_the_simulation(two: forebay.LocalGroup, transport: str, region: Any) -> None:
    whole = reference(SHAPE)
    every = forebay.every(1, region=region)
    with (
        consumer(two, fields={"U": every}, transport=transport) as reader,
        open_ranks(two, "s", 3, transport=transport) as ranks,
    ):
        declare(ranks)
        put_whole(ranks, 0, whole)
        with reader.next() as step:
            field = step["U"]
            wanted = np.zeros(SHAPE)
            wanted[region] = whole[region]
            np.testing.assert_array_equal(cut(field, region), wanted)
            np.testing.assert_array_equal(field[region], whole[region])
            with pytest.raises(forebay.NotCovered, match="lies outside what this reader needs of it: region"):
                field[...]
            held = (stream_status(two, "s") or {})["held"]["bytes"]
            # What was asked for, and ghosts where it touches the border of a block.
            assert held <= wanted.astype(bool).sum() * 8 * 1.35
    wait_until(lambda: is_given_back(two))


def test_readers_of_different_parts_see_their_own_alone(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with contextlib.ExitStack() as stack:
        readers = [
            (region, stack.enter_context(consumer(two, fields={"U": forebay.every(1, region=region)})))
            for region in REGIONS.values()
        ]
        ranks = stack.enter_context(open_ranks(two, "s", 3, transport=transport))
        declare(ranks)
        for number in range(3):
            put_whole(ranks, number, whole + number)
            for region, reader in readers:
                with reader.next() as step:
                    wanted = np.zeros(SHAPE)
                    wanted[region] = whole[region] + number
                    np.testing.assert_array_equal(cut(step["U"], region), wanted)
                    np.testing.assert_array_equal(step["U"][region], wanted[region])
        # One that needs all brings all; the others see no more than before.
        everything = stack.enter_context(consumer(two))
        put_whole(ranks, 3, whole)
        with everything.next() as step:
            np.testing.assert_array_equal(step["U"][...], whole)
            assert {block.shape for block in step["U"].blocks()} == {(ROWS, SHAPE[1])}
        for region, reader in readers:
            with reader.next() as step:
                wanted = np.zeros(SHAPE)
                wanted[region] = whole[region]
                np.testing.assert_array_equal(cut(step["U"], region), wanted)


def test_a_rank_of_which_nothing_is_needed_stages_nothing(one: forebay.LocalGroup, transport: str) -> None:
    needed = {"U": forebay.every(1, region=np.s_[25:30])}
    with consumer(one, fields=needed) as reader, open_ranks(one, "s", 3, transport=transport) as ranks:
        declare(ranks)
        assert put_whole(ranks, 0, reference(SHAPE)) == [False, True, False]
        with reader.next() as step:
            assert [block.rank for block in step["U"].blocks()] == [1]


def test_what_is_computed_in_place_is_there_whole_and_shown_in_part(one: forebay.LocalGroup) -> None:
    region = np.s_[3:9, ::2]
    with consumer(one, fields={"U": forebay.every(1, region=region)}) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            memory = step.alloc("U", SHAPE)
            assert memory is not None
            memory[...] = reference(SHAPE)
        with reader.next() as step:
            (block,) = step["U"].blocks()
            np.testing.assert_array_equal(block.data, reference(SHAPE)[region])
            np.testing.assert_array_equal(step["U"][region], reference(SHAPE)[region])
            with pytest.raises(forebay.NotCovered):
                step["U"][3]


COUNT = itertools.count()
"""Each example has a stream of its own."""


def slices(extent: int) -> st.SearchStrategy[slice]:
    def made(first: int, count: int, step: int) -> slice:
        return slice(first, min(first + count, extent), step)

    return st.builds(made, st.integers(0, extent - 1), st.integers(1, extent), st.integers(1, 5))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    regions=st.lists(st.tuples(slices(SHAPE[0]), slices(SHAPE[1])), min_size=1, max_size=5),
    size=st.integers(1, 3),
)
def test_whatever_the_regions(one: forebay.LocalGroup, regions: list[Any], size: int) -> None:
    whole = reference(SHAPE)
    name = f"s{next(COUNT)}"
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(consumer(one, name, fields={"U": forebay.every(1, region=region)}))
            for region in regions
        ]
        ranks = stack.enter_context(open_ranks(one, name, size))
        declare(ranks)
        put_whole(ranks, 0, whole)
        for region, reader in zip(regions, readers, strict=True):
            with reader.next() as step:
                wanted = np.zeros(SHAPE)
                wanted[region] = whole[region]
                np.testing.assert_array_equal(cut(step["U"], region), wanted)
                np.testing.assert_array_equal(step["U"][region], whole[region])


def test_a_shape_that_changes_keeps_what_still_lies_in_it(one: forebay.LocalGroup) -> None:
    with (
        consumer(one, fields={"U": forebay.every(1, region=np.s_[2:8, -3:])}) as reader,
        producer(one) as sim,
    ):
        for number, shape in enumerate([(10, 6), (5, 9), (2, 9), (9, 4)]):
            sim.array("U", dtype="f8", shape=shape)
            whole = reference(shape)
            with sim.step(number) as step:
                assert step.put("U", whole) == (number != 2)
            with reader.next() as found:
                assert found.number == number
                if number != 2:
                    np.testing.assert_array_equal(found["U"][2:8, -3:], whole[2:8, -3:])


# ---- periods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "period, wanted",
    [
        (forebay.every(1), [1005, 1015, 1025, 1035, 1045, 1055]),
        (forebay.every(3), [1005, 1035]),
        (forebay.every(2, first=1012), [1015, 1035, 1055]),
    ],
)
def test_periods_count_what_the_producer_makes_available(
    one: forebay.LocalGroup, transport: str, period: Any, wanted: list[int]
) -> None:
    with (
        consumer(one, fields={"U": period}, window=8) as reader,
        producer(one, first=1005, stride=10, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=(4,))
        for number in range(1005, 1065, 10):
            with sim.step(number) as step:
                assert step.put("U", np.ones(4)) == (number in wanted)
        sim.close()
        assert [step.number for step in reader] == wanted


def test_steps_outside_the_sequence_are_refused(one: forebay.LocalGroup) -> None:
    with producer(one, first=1005, stride=10) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with pytest.raises(forebay.Invalid, match=r"first=1005 and stride=10: the nearest are 1015 and 1025"):
            sim.begin(1019)
        with sim.step(1025):
            pass
    with pytest.raises(forebay.Invalid, match="stride is 0"):
        producer(one, stride=0)
    with open_ranks(one, "t", 2) as (first, _), producer(one, "u", size=1):
        first.array("U", dtype="f8", shape=(4,))
    with producer(one, "v", rank=0, size=2, stride=10) as a, producer(one, "v", rank=1, size=2) as b:
        a.array("U", dtype="f8", shape=(4,))
        with pytest.raises(forebay.Conflict, match="stride 1, not 10"):
            b.array("U", dtype="f8", shape=(4,))


def test_a_contract_that_meets_nothing_is_told(one: forebay.LocalGroup) -> None:
    """To its reader, in the status, and once in the log."""
    needed = {"U": forebay.every(10)}
    with consumer(one, name="viewer", fields=needed, timeout=1) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        for number in range(1, 171, 10):
            with sim.step(number) as step:
                assert not step.put("U", np.ones(4))
        sim.flush()
        told = r"none of the last 16 steps, of which the latest are 131, 141, 151, 161: 'U' is offered from 0 on every 1, "
        for timeout in (None, 0.6):
            with pytest.raises(forebay.Timeout, match=told):
                reader.next(timeout=timeout)
        (row,) = (stream_status(one, "s") or {})["readers"]
        assert "none of the last 16 steps" in row["unmatched"]
        assert "none of the last 16 steps" in run("status", "--group", one.path).stdout
        with sim.step(180) as step:
            assert step.put("U", np.ones(4))
        with reader.next() as found:
            assert found.number == 180
        (row,) = (stream_status(one, "s") or {})["readers"]
        assert row["unmatched"] is None


# ---- what need not be there, and what is named --------------------------------------------------


def test_an_optional_field_may_come_later_or_never(one: forebay.LocalGroup) -> None:
    needed = {"U": 1, "late": forebay.every(1, optional=True), "never": forebay.every(1, optional=True)}
    with consumer(one, fields=needed) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0) as step:
            step.put("U", np.ones(4))
        with reader.next() as found:
            assert found.fields == ["U"]
        sim.array("late", dtype="f4", shape=(2,))
        with sim.step(1) as step:
            step.put("U", np.ones(4))
            assert step.put("late", np.ones(2, "f4"))
        with reader.next() as found:
            assert found.fields == ["U", "late"]
    with consumer(one, "t", fields={"never": 1}) as reader, producer(one, "t") as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0):
            pass
        with pytest.raises(forebay.NotFound, match="no field 'never'"):
            reader.next()


def test_a_species_is_named_for_all_its_fields(one: forebay.LocalGroup) -> None:
    with (
        consumer(one, fields=["ions"]) as reader,
        consumer(one, fields={"ions": 1, "ions/x": 2}) as other,
        producer(one) as sim,
    ):
        sim.particles("ions", {"x": ("f8", 3), "id": "i8"})
        sim.particles("ions2", {"x": "f8"})
        for number in range(2):
            with sim.step(number) as step:
                assert step.put("ions/x", np.ones((5, 3)))
                assert step.put("ions/id", np.arange(5))
                assert not step.put("ions2/x", np.ones(5))
            with reader.next() as found:
                assert found.fields == ["ions/id", "ions/x"]
            with other.next() as found:
                assert found.fields == (["ions/id", "ions/x"] if number == 0 else ["ions/id"])


# ---- bad input ----------------------------------------------------------------------------------


BAD = {
    "a step of 0": (np.s_[::0], forebay.Invalid, "its step is 0"),
    "backwards": (np.s_[::-1], forebay.Invalid, "in their order"),
    "a truth": (True, forebay.Invalid, "no slice, number or ellipsis"),
    "a new axis": (np.s_[:, None], forebay.Invalid, "no slice, number or ellipsis"),
    "an array": (np.arange(3), forebay.Invalid, "no slice, number or ellipsis"),
    "two ellipses": (np.s_[..., 1, ...], forebay.Invalid, "one ellipsis"),
    "nine dimensions": ((slice(None),) * 9, forebay.OutOfBounds, "at most 8"),
    "too large a number": (np.s_[2**64 :], forebay.Invalid, "64 bits"),
}


@pytest.mark.parametrize("region, error, text", BAD.values(), ids=BAD)
def test_regions_that_are_none_are_refused_at_once(
    one: forebay.LocalGroup, region: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        consumer(one, fields={"U": forebay.every(1, region=region)})


MISS = {
    "outside": (np.s_[:70], forebay.OutOfBounds, r"\[:70\] lies outside shape \[60, 48\]: 70 in dimension 0"),
    "before the first": (np.s_[:, -50:], forebay.OutOfBounds, "-50 in dimension 1"),
    "empty": (np.s_[5:5], forebay.OutOfBounds, "is empty: 5:5 in dimension 0"),
    "more dimensions": (np.s_[:, :, 1], forebay.OutOfBounds, "more dimensions than shape"),
}


@pytest.mark.parametrize("comes", ["before", "after"])
@pytest.mark.parametrize("region, error, text", MISS.values(), ids=MISS)
def test_regions_that_a_field_has_not_are_refused(
    one: forebay.LocalGroup, region: Any, error: type[Exception], text: str, comes: str
) -> None:
    def attach() -> forebay.Consumer:
        return consumer(one, fields={"U": forebay.every(1, region=region)})

    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(attach()) if comes == "before" else None
        sim = stack.enter_context(producer(one, keep=1))
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", reference(SHAPE))
        with pytest.raises(error, match=f"field 'U' of stream 's': .*{text}"):
            attach() if reader is None else reader.next()


def test_a_part_of_what_has_no_shape_is_refused(one: forebay.LocalGroup) -> None:
    with consumer(one, fields={"x": forebay.every(1, region=np.s_[:3])}) as reader, producer(one) as sim:
        sim.array("x", dtype="f8", ndim=1)
        with sim.step(0):
            pass
        with pytest.raises(forebay.Invalid, match="without a global shape"):
            reader.next()


def test_very_many_regions_are_the_whole_field(one: forebay.LocalGroup) -> None:
    """Each reader still sees its own alone."""
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                consumer(one, fields={"U": forebay.every(1, region=np.s_[row % 60, row // 60])})
            )
            for row in range(300)
        ]
        sim = stack.enter_context(producer(one))
        sim.array("U", dtype="f8", shape=SHAPE)
        whole = reference(SHAPE)
        with sim.step(0) as step:
            assert step.put("U", whole)
        for row in (0, 59, 60, 299):
            with readers[row].next() as found:
                (block,) = found["U"].blocks()
                assert block.data.tolist() == [[whole[row % 60, row // 60]]]


def test_a_field_that_comes_late_and_is_of_another_kind_ends_the_contract(one: forebay.LocalGroup) -> None:
    needed = {"U": 1, "late": forebay.every(1, dtype="f8", optional=True)}
    with consumer(one, fields=needed) as reader, consumer(one, fields=["U"]) as other, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0) as step:
            step.put("U", np.ones(4))
        assert reader.next().number == 0
        sim.array("late", dtype="f4", shape=(2,))
        with pytest.raises(
            forebay.TypeMismatch, match="'late' of stream 's': it is float32, the contract needs float64"
        ):
            reader.next()
        assert other.next().number == 0


def test_the_status_shows_what_is_needed(one: forebay.LocalGroup) -> None:
    needed = {"U": forebay.every(2, region=np.s_[:, -3:], first=10, optional=True), "V": 1}
    with consumer(one, fields=needed):
        wait_until(lambda: (stream_status(one, "s") or {}).get("attached") == 1)
        (row,) = (stream_status(one, "s") or {})["readers"]
        assert row["needs"]["fields"] == [
            {"field": "U", "every": 2, "first": 10, "region": "[:, -3:]", "optional": True},
            {"field": "V", "every": 1, "first": None, "region": None, "optional": False},
        ]
        assert "U[:, -3:] every 2, V; holds" in run("status", "--group", one.path).stdout
