"""What is handed over beside plain arrays: taken if nothing of it is lost, else refused with what to do."""

from __future__ import annotations

import collections
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.sessions import consumer, open_ranks, producer

import forebay


class Marked:
    """An array of another package, which tells by an attribute that it means more than its elements."""

    def __init__(self, **marks: object) -> None:
        self.__dict__.update(marks)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return np.ones(3)


class Measured(np.ndarray[Any, Any]):
    """A subclass as packages for units have it."""


class Lazy:
    """An array of another package that is computed when NumPy asks for it."""

    def __init__(self, computed: np.ndarray[Any, Any]) -> None:
        self.computed = computed

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return self.computed


def missing(*truths: bool) -> Callable[[], np.ndarray[Any, Any]]:
    return lambda: np.array(truths)


MEAN_MORE = {
    "a mask": np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
    "a mask that hides nothing": np.ma.masked_array([1.0, 2.0, 3.0]),
    "a list of masked": [np.ma.masked_array([1.0], [1]), np.ones(1), np.ones(1)],
    "the masked element": [1.0, np.ma.masked, 2.0],
    "a mask that is computed": Lazy(np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])),
    "a subclass that is computed": Lazy(np.ones(3).view(Measured)),
    "a sequence of masked": collections.deque([1.0, np.ma.masked, 2.0]),
    "a subclass": np.ones(3).view(Measured),
    "a list of a subclass": [np.ones(1).view(Measured)] * 3,
    "units": Marked(units="m/s"),
    "unit": Marked(unit="m/s"),
    "coordinates": Marked(coords={"x": [1, 2, 3]}),
    "named dimensions": Marked(sizes={"x": 3}),
    "labels": Marked(iloc=missing()),
    "nulls": Marked(null_count=1),
    "counted nulls": Marked(null_count=lambda: 1),
    "missing elements": Marked(isna=missing(False, True, False)),
}

MEAN_THAT = {
    "of another package": Marked(),
    "without nulls": Marked(null_count=0, isna=missing(False, False, False), mask=lambda: None),
    "that is computed": Lazy(np.ones(3)),
    "a sequence": collections.deque([1.0, 1.0, 1.0]),
    "a list": [1, 1.0, True + 0],
    "a view": memoryview(np.ones(3)),
    "turned round": np.ones(6)[::-2],
    "big-endian": np.ones(3, ">f8"),
}


@pytest.mark.parametrize("given", MEAN_MORE.values(), ids=MEAN_MORE)
def test_what_means_more_than_its_elements_is_refused(one: forebay.LocalGroup, given: object) -> None:
    """By put, by the space, as an attribute and as spacing; the step goes on."""
    with forebay.Space(group=one.path) as space, consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(3,))
        with pytest.raises(forebay.TypeMismatch, match=r"field 'U'.*: give"):
            space.put("U", given, step=0)
        with pytest.raises(forebay.TypeMismatch, match=r"attribute 'k'.*: give"):
            sim.attr("k", given)  # type: ignore[arg-type]
        with pytest.raises(forebay.TypeMismatch, match=r"field 'V': spacing.*: give"):
            sim.array("V", dtype="f8", shape=(1, 1, 1), spacing=given)  # type: ignore[arg-type]
        with sim.step(0) as step:
            with pytest.raises(forebay.TypeMismatch, match=r"field 'U'.*: give"):
                step.put("U", given)
            assert step.put("U", np.ones(3))
        assert reader.next()["U"][...].sum() == 3


@pytest.mark.parametrize("given", MEAN_THAT.values(), ids=MEAN_THAT)
def test_what_means_no_more_is_taken(one: forebay.LocalGroup, given: object) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(3,))
        with sim.step(0) as step:
            assert step.put("U", given)
        assert reader.next()["U"][...].tolist() == [1, 1, 1]


def test_what_is_read_into_is_plain(one: forebay.LocalGroup) -> None:
    """A mask would go on hiding what was read."""
    with forebay.Space(group=one.path) as space, consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(3,))
        with sim.step(0) as step:
            step.put("U", np.ones(3))
        space.put("U", np.ones(3), step=0)
        masked = np.ma.masked_array(np.zeros(3), [1, 0, 0])
        with pytest.raises(forebay.TypeMismatch, match=r"out: .*has a mask"):
            reader.next()["U"].read(out=masked)
        with pytest.raises(forebay.TypeMismatch, match=r"out: .*has a mask"):
            space.get("U", step=0, out=masked)


EXACT = [
    ("i4", 3),
    ("u1", 255),
    ("u8", 2**64 - 1),
    ("f4", 0.5),
    ("f4", 3),
    ("f8", 2**53),
    ("f4", float("inf")),
    ("c8", 1 + 0.5j),
    ("c16", 2.5),
    ("i8", 2.0),
    ("?", True),
]
INEXACT = [
    ("i4", 3.5),
    ("i4", 2**31),
    ("u1", -1),
    ("u8", 2**64),
    ("f4", 0.1),
    ("f8", 2**53 + 1),
    ("f8", 10**400),
    ("i4", float("nan")),
    ("f8", 1j),
    ("c8", complex(float("nan"), 1e300)),
    ("i4", True),
    ("?", 1),
    ("f4", np.float64(0.5)),
    ("f8", Fraction(1, 2)),
    ("f8", "1"),
    ("f8", None),
]


@pytest.mark.parametrize("dtype, number", EXACT)
def test_numbers_of_python_fit_where_they_are_exact(one: forebay.LocalGroup, dtype: str, number: Any) -> None:
    """Alone, and in lists of lists."""
    with consumer(one) as reader, producer(one) as sim:
        sim.array("n", dtype=dtype, shape=())
        sim.array("U", dtype=dtype, shape=(1, 2))
        with sim.step(0) as step:
            assert step.put("n", number)
            assert step.put("U", [(number, number)])
        found = reader.next()
        assert found["n"][...].item() == number
        assert found["U"][...].tolist() == [[number, number]]


@pytest.mark.parametrize("number, bits", [(0, 0), (1.5, 0x3FC0), (-2, 0xC000), (float("inf"), 0x7F80)])
def test_numbers_of_python_fit_bfloat16(one: forebay.LocalGroup, number: float, bits: int) -> None:
    """Which NumPy does not know: without ml_dtypes its bits are read."""
    with consumer(one) as reader, producer(one) as sim:
        sim.array("n", dtype="bfloat16", shape=(3,))
        with sim.step(0) as step:
            for wrong in (1.001, 1e300, 2**24 + 1):
                with pytest.raises(forebay.TypeMismatch, match="exact"):
                    step.put("n", [wrong] * 3)
            with pytest.raises(forebay.TypeMismatch, match="ml_dtypes"):
                step.put("n", np.ones(3, "f4"))
            step.put("n", [number, number], offset=(1,))
        found = reader.next()
        assert found["n"].read(fill=number).view("u2").tolist() == [bits] * 3


@pytest.mark.parametrize("dtype, number", INEXACT)
def test_numbers_that_would_be_rounded_are_refused(one: forebay.LocalGroup, dtype: str, number: Any) -> None:
    with consumer(one), producer(one) as sim:
        sim.array("n", dtype=dtype, shape=())
        sim.array("U", dtype=dtype, shape=(1, 2))
        with sim.step(0) as step:
            for name, given in (("n", number), ("U", [[number, number]])):
                with pytest.raises(forebay.TypeMismatch, match=f"field '{name}'"):
                    step.put(name, given)
            with pytest.raises(forebay.Invalid, match="different lengths"):
                step.put("U", [[1.0, 2.0], [3.0]] if dtype != "?" else [[True], []])


def test_a_number_that_is_no_number_is_kept(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f4", shape=(2,))
        with sim.step(0) as step:
            assert step.put("U", [float("nan"), 1])
        assert np.isnan(reader.next()["U"][...]).tolist() == [True, False]


# ---- where a block lies -------------------------------------------------------------------------


def test_several_ranks_say_where_their_blocks_lie(two: forebay.LocalGroup) -> None:
    """Two halves without an offset would both lie at the beginning. The whole field needs none, nor does a rank that is alone."""
    with consumer(two) as reader, open_ranks(two, "s", 2) as (first, second):
        for rank in (first, second):
            rank.array("U", dtype="f8", shape=(4,))
            rank.array("V", dtype="f8", shape=(4,))
        with first.step(0) as step, second.step(0) as other:
            for part in (step, other):
                with pytest.raises(forebay.OutOfBounds, match=r"shape \(2,\).*2 ranks.*`offset`"):
                    part.put("U", np.ones(2))
                with pytest.raises(forebay.OutOfBounds, match="`offset`"):
                    part.put("U", np.ones(4), ghost_low=1)
                with pytest.raises(forebay.OutOfBounds, match="`offset`"):
                    part.alloc("U", (2,))
                with pytest.raises(forebay.OutOfBounds, match="`offset`"):
                    part.put("V", np.ones(4), level=1)
            step.put("U", np.ones(2), offset=(0,))
            other.put("U", np.ones(2), offset=(2,))
            step.put("V", np.ones(4))
        assert reader.next()["V"][...].sum() == 4
    with consumer(two, "t") as reader, producer(two, "t") as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0) as step:
            step.put("U", np.ones(2))
        assert reader.next()["U"][:2].sum() == 2


# ---- times --------------------------------------------------------------------------------------


def test_a_step_without_a_time_has_none(two: forebay.LocalGroup, transport: str) -> None:
    """One rank that gives a time is enough."""
    with (
        consumer(two, transport=transport) as reader,
        open_ranks(two, "s", 2, transport=transport) as (first, second),
    ):
        for rank in (first, second):
            rank.array("U", dtype="f8", shape=(2,))
        for number, times in enumerate([(None, None), (0.5, None), (None, 0.75), (0.0, 0.0)]):
            for rank, (sim, time) in enumerate(zip((first, second), times, strict=True)):
                with sim.step(number, time=time) as step:
                    step.put("U", np.ones(1), offset=(rank,))
        assert [reader.next().time for _ in range(4)] == [None, 0.5, 0.75, 0.0]
