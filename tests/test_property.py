"""Any decomposition, any ghosts, any region: what is read is what NumPy says."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.arrays import reference
from support.groups import BUDGET
from support.sessions import open_ranks

import forebay

RANKS = 3
DTYPES = ["?", "i1", "u2", "f4", "f8", "c16"]
_names = itertools.count()


@st.composite
def decompositions(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """A global shape and the boxes (begin, end) that fill it, by cutting again and again."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))
    boxes = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6))):
        index = draw(st.integers(0, len(boxes) - 1))
        begin, end = boxes[index]
        axis = draw(st.integers(0, len(shape) - 1))
        if end[axis] - begin[axis] < 2:
            continue
        at = draw(st.integers(begin[axis] + 1, end[axis] - 1))
        middle_end, middle_begin = list(end), list(begin)
        middle_end[axis] = middle_begin[axis] = at
        boxes[index : index + 1] = [(begin, tuple(middle_end)), (tuple(middle_begin), end)]
    return shape, boxes


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[object, ...]:
    """NumPy's basic indexing, also out of range where NumPy clips."""
    parts: list[object] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        bound = st.none() | st.integers(-extent - 2, extent + 2)
        stride = st.none() | st.integers(1, 5) | st.integers(-5, -1)
        parts.append(draw(st.builds(slice, bound, bound, stride) | st.integers(-extent, extent - 1)))
    if draw(st.booleans()):
        parts.append(...)
    return tuple(parts)


@st.composite
def layouts(draw: st.DrawFn, array: np.ndarray) -> np.ndarray:
    """The same array, laid out in some other way in memory."""
    how = draw(st.sampled_from(["as is", "fortran", "strided", "reversed", "permuted"]))
    if how == "fortran":
        return np.asfortranarray(array)
    if how == "strided":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if how == "reversed":
        return array[::-1].copy()[::-1]
    if how == "permuted":
        order = draw(st.permutations(range(array.ndim)))
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    return array


@pytest.fixture(scope="module")
def shared() -> Iterator[forebay.LocalGroup]:
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        yield group


@pytest.mark.parametrize("way", ["shm", "tcp"])
@given(data=st.data())
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_stream_reads_as_numpy(shared: forebay.LocalGroup, way: str, data: st.DataObject) -> None:
    shape, boxes = data.draw(decompositions())
    dtype = data.draw(st.sampled_from(DTYPES))
    ghosts = data.draw(
        st.lists(
            st.lists(
                st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=len(shape), max_size=len(shape)
            ),
            min_size=len(boxes),
            max_size=len(boxes),
        )
    )
    whole = reference(shape, dtype, data.draw(st.integers(0, 9)))
    name = f"p{next(_names)}"
    with (
        forebay.Consumer(name, group=shared.path, timeout=20, transport=way) as reader,
        open_ranks(shared, name, RANKS, transport=way) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype=dtype, shape=shape)
        with contextlib.ExitStack() as stack:
            steps = [stack.enter_context(rank.step(0)) for rank in sim]
            for number, ((begin, end), ghost) in enumerate(zip(boxes, ghosts, strict=True)):
                part = whole[tuple(slice(a, b) for a, b in zip(begin, end, strict=True))]
                padded = data.draw(layouts(np.pad(part, ghost, constant_values=1)))
                low, high = zip(*ghost, strict=True)
                step = steps[number % RANKS]
                assert step.put("U", padded, offset=begin, ghost_low=low, ghost_high=high, number=number)
        with reader.next() as found:
            field = found["U"]
            np.testing.assert_array_equal(field[...], whole, strict=True)
            for _ in range(4):
                index = data.draw(indices(shape))
                wanted = whole[index]
                np.testing.assert_array_equal(field[index], wanted)
                out = data.draw(layouts(np.zeros(np.shape(wanted), dtype))) if np.ndim(wanted) else None
                if out is not None and not any(n == 0 for n in out.shape):
                    field.read(index, out=out)
                    np.testing.assert_array_equal(out, wanted)
            assert len(field.blocks()) == len(boxes)


@pytest.mark.parametrize("way", ["shm", "tcp"])
@given(data=st.data())
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_space_reads_as_numpy(shared: forebay.LocalGroup, way: str, data: st.DataObject) -> None:
    shape, boxes = data.draw(decompositions())
    dtype = data.draw(st.sampled_from(DTYPES))
    whole = reference(shape, dtype)
    name = f"p{next(_names)}"
    with forebay.Space(group=shared.path, timeout=5, transport=way) as space:
        for begin, end in data.draw(st.permutations(boxes)):
            part = whole[tuple(slice(a, b) for a, b in zip(begin, end, strict=True))]
            space.put(name, data.draw(layouts(part)), step=0, offset=begin, shape=shape)
        for _ in range(4):
            index = data.draw(indices(shape))
            np.testing.assert_array_equal(space.get(name, step=0, region=index), whole[index])
        space.remove(name, step=0)
