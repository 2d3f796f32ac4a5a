"""Which blocks are whose, among the ranks of a parallel reader."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.arrays import cut, reference
from support.cohorts import cohort, next_of_all
from support.sessions import open_ranks, write_steps

import forebay

SHAPE = (24, 10)


def read(group: Any, readers: int, writers: int, assign: Any, **options: Any) -> list[list[forebay.Block]]:
    """What each reader has of a field that so many ranks write."""
    array = reference(SHAPE, step=1)
    with (
        cohort(group, readers, assign=assign, **options) as ranks,
        open_ranks(group, "s", writers) as sims,
    ):
        for sim in sims:
            sim.array("U", dtype="f8", shape=SHAPE)
        write_steps(sims, [1], lambda _: array)
        return [step.mine("U") for step in next_of_all(ranks)]


def assembled(found: list[list[forebay.Block]]) -> np.ndarray[Any, Any]:
    """How often each element is there, and the elements."""
    array = np.full(SHAPE, np.nan)
    for block in (block for blocks in found for block in blocks):
        assert block.offset is not None
        place = tuple(
            slice(begin, begin + length * by, by)
            for begin, length, by in zip(block.offset, block.shape, block.step, strict=True)
        )
        assert np.isnan(array[place]).all(), "once"
        array[place] = block.interior
    return array


@pytest.mark.parametrize(
    "assign", ["ranks", "round-robin", "balanced", "slab", "host+ranks", "host+round-robin", "host+balanced"]
)
@pytest.mark.parametrize(("readers", "writers"), [(2, 4), (4, 4), (3, 4), (3, 2), (5, 3)])
def test_each_element_is_one_readers(
    two: forebay.LocalGroup, assign: str, readers: int, writers: int
) -> None:
    """Whatever the numbers of readers and writers."""
    found = read(two, readers, writers, assign)
    np.testing.assert_array_equal(assembled(found), reference(SHAPE, step=1))
    if assign != "slab":
        assert sum(map(len, found)) == writers
    elif readers == 3:
        assert [sum(block.shape[0] for block in blocks) for blocks in found] == [8, 8, 8]


def test_by_default_all_have_all(two: forebay.LocalGroup) -> None:
    for blocks in read(two, 2, 3, "all"):
        assert [block.rank for block in blocks] == [0, 1, 2]


def test_whole_ranks_stay_together(two: forebay.LocalGroup) -> None:
    """The mapping of libIS: the remainder is spread over the first readers."""
    found = read(two, 3, 8, "ranks")
    assert [[block.rank for block in blocks] for blocks in found] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_slabs_of_a_part(two: forebay.LocalGroup) -> None:
    """What the contract asks for is cut, not the whole field."""
    fields = {"U": forebay.every(1, region=np.s_[2:20:2, 5])}
    found = read(two, 3, 4, "slab", fields=fields)
    expected = np.full(SHAPE, np.nan)
    expected[2:20:2, 5] = reference(SHAPE, step=1)[2:20:2, 5]
    np.testing.assert_array_equal(assembled(found), expected)
    assert [sum(block.shape[0] for block in blocks) for blocks in found] == [3, 3, 3]


def test_the_slab_as_a_region(two: forebay.LocalGroup) -> None:
    """It is read as any other; where something else is assigned there is none."""
    array = reference(SHAPE, step=1)
    with cohort(two, 2, assign="slab") as ranks, open_ranks(two, "s", 3) as sims:
        for sim in sims:
            sim.array("U", dtype="f8", shape=SHAPE)
            sim.particles("p", {"x": "f4"})
        write_steps(sims, [1], lambda _: array)
        first, second = next_of_all(ranks)
        regions = [step["U"].mine_region for step in (first, second)]
        assert regions == [np.s_[0:12:1, 0:10:1], np.s_[12:24:1, 0:10:1]]
        np.testing.assert_array_equal(second["U"][regions[1]], array[12:])
    with cohort(two, 2, "t", assign="ranks") as ranks, open_ranks(two, "t", 1) as sims:
        sims[0].array("U", dtype="f8", shape=SHAPE)
        write_steps(sims, [1], lambda _: array)
        with pytest.raises(forebay.Invalid, match="assign 'slab'"):
            _ = next_of_all(ranks)[0]["U"].mine_region


def test_particles_go_with_their_ranks_where_slabs_are_cut(two: forebay.LocalGroup) -> None:
    with cohort(two, 2, assign="slab") as ranks, open_ranks(two, "s", 3) as sims:
        for rank, sim in enumerate(sims):
            sim.particles("p", {"x": "f4"})
            with sim.step(0) as step:
                step.put("p/x", np.full(rank + 1, rank, "f4"))
        found = [step.mine("p/x") for step in next_of_all(ranks)]
        assert [[block.rank for block in blocks] for blocks in found] == [[0, 1], [2]]


def test_a_function_of_the_users(two: forebay.LocalGroup) -> None:
    """It is called with what is known of the blocks before they are read, and of the readers."""
    called = []

    def last_first(blocks: Any, readers: Any) -> dict[int, list[Any]]:
        called.append((blocks, readers))
        return {reader.rank: list(blocks)[::-1][reader.rank :: len(readers)] for reader in readers}

    found = read(two, 2, 4, last_first)
    assert [[block.rank for block in blocks] for blocks in found] == [[1, 3], [0, 2]]
    blocks, readers = called[0]
    assert [block.rank for block in blocks] == [0, 1, 2, 3]
    assert all(block.nbytes == 8 * math.prod(block.shape) for block in blocks)
    assert {block.host for block in blocks} == {readers[0].host} == {readers[1].host}
    begin, end = cut(24, 4)[1]
    assert (blocks[1].offset, blocks[1].shape) == ((begin, 0), (end - begin, 10))


def forgets(blocks: Any, readers: Any) -> dict[int, Any]:
    return {0: blocks[1:]}


def repeats(blocks: Any, readers: Any) -> dict[int, Any]:
    return {0: blocks, 1: blocks[:1]}


def invents(blocks: Any, readers: Any) -> dict[int, Any]:
    return {0: blocks, 1: [3]}


def names_nobody(blocks: Any, readers: Any) -> dict[int, Any]:
    return {7: blocks}


def returns_a_list(blocks: Any, readers: Any) -> Any:
    return [blocks]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (forgets, "block 0 of rank 0, of field 'U', to nobody"),
        (repeats, "block 0 of rank 0, of field 'U', to ranks 0 and 1"),
        (invents, "gave rank 1 what is no block of field 'U': 3"),
        (names_nobody, r"names rank 7, which does not read: \[0, 1\] do"),
        (returns_a_list, "returned list"),
    ],
)
def test_functions_that_are_wrong(two: forebay.LocalGroup, function: Callable[..., Any], text: str) -> None:
    with pytest.raises(forebay.Invalid, match=text):
        read(two, 2, 3, function)


def test_a_function_that_raises(two: forebay.LocalGroup) -> None:
    def raises(blocks: Any, readers: Any) -> Any:
        raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        read(two, 2, 3, raises)
