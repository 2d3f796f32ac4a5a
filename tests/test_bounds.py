"""Where blocks and ranks lie in space, and rows of what has no place in a global array."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

COUNTS = (5, 0, 7)
GHOSTS = ((0, 2), (0, 0), (1, 3))
"""Of each rank: how many lie before its own particles, and after them."""


def stored(rank: int) -> int:
    return COUNTS[rank] + sum(GHOSTS[rank])


def ions(rank: int) -> dict[str, np.ndarray[Any, Any]]:
    ids = np.arange(stored(rank)) + 100 * rank
    return {"x": (ids[:, None] + np.array([0.25, 0.5])).astype("f8"), "id": ids.astype("i8")}


def own(name: str) -> np.ndarray[Any, Any]:
    """What all ranks have, without ghosts."""
    parts = [ions(rank)[name][GHOSTS[rank][0] : GHOSTS[rank][0] + COUNTS[rank]] for rank in range(3)]
    return np.concatenate(parts)


@contextlib.contextmanager
def step_of_ions(group: forebay.LocalGroup, transport: str, **options: Any) -> Any:
    """A step of three ranks, and their producers."""
    with (
        consumer(group, transport=transport, **options) as reader,
        open_ranks(group, "s", 3, transport=transport) as sim,
    ):
        for rank in sim:
            rank.particles("ions", {"x": ("f8", 2), "id": "i8"})
            rank.rank_bounds(2)
        with contextlib.ExitStack() as stack:
            for number, rank in enumerate(sim):
                step = stack.enter_context(rank.step(0))
                low, high = GHOSTS[number]
                for name, values in ions(number).items():
                    widths = {"ghost_low": (low, 0)[: values.ndim], "ghost_high": (high, 0)[: values.ndim]}
                    step.put(f"ions/{name}", values, **widths)
                edges = ([number, 0.0], [number + 1, 2.0])
                if number == 1:
                    step.put_rank_bounds(*edges)
                else:
                    step.put_rank_bounds(*edges, ghost_low=[number - 0.5, -1], ghost_high=[number + 1.5, 3])
        with reader.next() as found:
            yield found


def test_particles_are_read_by_rows(two: forebay.LocalGroup, transport: str) -> None:
    with step_of_ions(two, transport) as step:
        for rows in (
            slice(None),
            slice(3, 9),
            slice(-2, None),
            slice(0, 0),
            slice(5, 5),
            slice(4, 5),
            slice(90, 99),
            slice(7, 3),
        ):
            found = step.particle_rows("ions", rows)
            assert sorted(found) == ["id", "x"]
            for name, values in found.items():
                np.testing.assert_array_equal(values, own(name)[rows], strict=True)
        with pytest.raises(forebay.Invalid, match="without a stride"):
            step.particle_rows("ions", slice(0, 9, 2))
        with pytest.raises(forebay.Invalid, match="a slice"):
            step.particle_rows("ions", 3)
        with pytest.raises(forebay.NotFound, match="electrons"):
            step.particle_rows("electrons", slice(1))


def test_ghosts_are_told_apart(two: forebay.LocalGroup, transport: str) -> None:
    with step_of_ions(two, transport) as step:
        ghosts, found = step.particle_ghosts("ions"), step.particles("ions", ghosts=True)
        assert len(ghosts) == sum(stored(rank) for rank in range(3))
        for name, values in found.items():
            np.testing.assert_array_equal(values, np.concatenate([ions(rank)[name] for rank in range(3)]))
            np.testing.assert_array_equal(values[~ghosts], own(name))
            np.testing.assert_array_equal(step.particles("ions")[name], own(name))


def test_ranks_say_where_they_are(two: forebay.LocalGroup, transport: str) -> None:
    with step_of_ions(two, transport) as step:
        assert step.rank_bounds == {
            0: forebay.RankBounds([0, 0], [1, 2], [-0.5, -1], [1.5, 3]),
            1: forebay.RankBounds([1, 0], [2, 2], [1, 0], [2, 2]),
            2: forebay.RankBounds([2, 0], [3, 2], [1.5, -1], [3.5, 3]),
        }


def test_a_contract_names_the_bounds(two: forebay.LocalGroup, transport: str) -> None:
    with (
        step_of_ions(two, transport, fields=["ions"]) as step,
        pytest.raises(forebay.NotCovered, match="the contract does not name 'rank_bounds'"),
    ):
        _ = step.rank_bounds


def test_bounds_that_are_none(one: forebay.LocalGroup) -> None:
    with producer(one) as sim, consumer(one):
        for ndim in (0, 9):
            with pytest.raises(forebay.Invalid, match="1 to 8 dimensions"):
                sim.rank_bounds(ndim)
        sim.rank_bounds(2)
        step = sim.step(0)
        with pytest.raises(forebay.StepOrder, match="not open"):
            step.put_rank_bounds([0, 0], [1, 1])
        with step:
            with pytest.raises(forebay.Invalid, match="from 3 to 1 in dimension 1"):
                step.put_rank_bounds([0, 3], [1, 1])
            with pytest.raises(forebay.Invalid, match="NaN"):
                step.put_rank_bounds([0, float("nan")], [1, 1])
            with pytest.raises(forebay.Invalid, match="1 numbers beside 2"):
                step.put_rank_bounds([0, 0], [1])
            with pytest.raises(forebay.Invalid, match="have to hold those"):
                step.put_rank_bounds([0, 0], [1, 1], ghost_low=[0.5, 0])
            assert step.put_rank_bounds([0, float("-inf")], [1, float("inf")])
            with pytest.raises(forebay.Conflict):
                step.put_rank_bounds([0, 0], [1, 1])


@pytest.mark.parametrize("association", ["cell", "vertex"])
def test_blocks_lie_in_space(one: forebay.LocalGroup, association: Any) -> None:
    with (
        consumer(one) as reader,
        consumer(one, fields={"U": forebay.every(1, region=np.s_[::2, 1:3])}) as part,
    ):
        with producer(one) as sim:
            sim.array(
                "U",
                dtype="f8",
                shape=(6, 4),
                spacing=(0.5, 2),
                origin=(10, 0),
                association=association,
                refinement=(2, 2),
            )
            sim.array("bare", dtype="f8", shape=(6, 4))
            with sim.step(0) as step:
                step.put("U", np.zeros((4, 4)), offset=(1, 0), ghost_low=(1, 0), ghost_high=(1, 0))
                step.put("U", np.zeros((4, 4)), offset=(2, 0), level=1, number=1)
                step.put("bare", np.zeros((6, 4)))
        half = 0.5 if association == "cell" else 0
        with reader.next() as found:
            field = found["U"]
            coarse, fine = sorted(field.blocks(), key=lambda block: block.level)
            assert field.bounds(coarse) == (
                (10.5 - half / 2, -2 * half),
                (11 + half / 2, 6 + 2 * half),
            )
            assert field.bounds(coarse, ghosts=True) == (
                (10 - half / 2, -2 * half),
                (11.5 + half / 2, 6 + 2 * half),
            )
            if association == "cell":
                assert field.bounds(fine) == ((10.25, -1), (11.25, 3))
            else:
                assert field.bounds(fine) == ((10.5, 0), (11.25, 3))
            bare = found["bare"]
            with pytest.raises(forebay.Invalid, match="how far apart"):
                bare.bounds(bare.blocks()[0])
        with part.next() as found:
            field = found["U"]
            blocks = [block for block in field.blocks() if block.level == 0]
            assert field.bounds(blocks[0]) == ((11 - half / 2, 2 - 2 * half), (11 + half / 2, 4 + 2 * half))


def test_rows_of_what_has_none(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        sim.array("uneven", dtype="f8", ndim=2)
        with sim.step(0) as step:
            step.put("U", np.zeros(4))
            step.put("uneven", np.zeros((2, 3)))
            step.put("uneven", np.zeros((2, 4)), number=1)
        with reader.next() as found:
            with pytest.raises(forebay.Invalid, match="has a global shape"):
                found._core.row_count("U")
            with pytest.raises(forebay.Invalid, match="differ beyond their first dimension"):
                found._core.row_count("uneven")
    wait_until(lambda: not forebay.Admin(group=one.path).status()["streams"][0]["attached"])
