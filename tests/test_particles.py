"""Particle species and buffers: fields without a place in a global array."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.groups import is_given_back
from support.pipelines import notes
from support.sessions import open_ranks
from support.waiting import wait_until

import forebay

FIELDS: dict[str, Any] = {"x": ("f8", 3), "charge": "f4", "id": np.int64}


def species(rank: int, step: int) -> dict[str, np.ndarray[Any, Any]]:
    """The particles of a rank: another count at each step and rank, once none."""
    count = 370 * ((rank + step) % 3)
    ids = np.arange(count) + 1000 * rank
    x = (ids[:, None] + np.array([0.25, 0.5, 0.75])).astype("f8")
    return {"x": x, "charge": (ids / 8).astype("f4"), "id": ids.astype("i8")}


def test_a_species_is_read_whole(two: forebay.LocalGroup, transport: str) -> None:
    with (
        forebay.Consumer("s", group=two.path, timeout=20) as reader,
        forebay.Consumer("s", group=two.path, timeout=20, fields=["ions/id"]) as of_one,
        open_ranks(two, "s", 3, transport=transport) as sim,
    ):
        for rank in sim:
            rank.particles("ions", FIELDS)
        for number in range(3):
            with contextlib.ExitStack() as stack:
                steps = [stack.enter_context(rank.step(number)) for rank in sim]
                for rank, step in enumerate(steps):
                    for name, values in species(rank, number).items():
                        half = len(values) // 3
                        assert step.put(f"ions/{name}", values[:half], number=0)
                        assert step.put(f"ions/{name}", values[half:], number=1, wait=False)
            with reader.next() as found:
                assert found.fields == ["ions/charge", "ions/id", "ions/x"]
                ions = found.particles("ions")
                assert sorted(ions) == ["charge", "id", "x"]
                for name, values in ions.items():
                    expected = np.concatenate([species(rank, number)[name] for rank in range(3)])
                    np.testing.assert_array_equal(values, expected, strict=True)
                    assert not values.flags.writeable
                del ions, values
                with pytest.raises(forebay.NotFound, match="electrons"):
                    found.particles("electrons")
            with of_one.next() as found:
                assert list(found.particles("ions")) == ["id"]
    wait_until(lambda: is_given_back(two))


def test_a_worker_beside_none_of_them_gets_none(
    two: forebay.LocalGroup, code: Callable[[str], str], out: Path
) -> None:
    """The other worker's server holds them all."""
    path = code("""
        class Count(forebay.Pipeline):
            def execute(self, step, comm):
                ions = step.particles("ions")
                shapes = {name: [str(values.dtype), *values.shape] for name, values in ions.items()}
                note(self.config, rank=comm.rank, shapes=shapes)
    """)
    with forebay.Admin(group=two.path, timeout=30) as admin, forebay.Producer("s", group=two.path) as sim:
        admin.create_pipeline("count", f"{path}:Count", stream="s", config={"out": str(out)})
        sim.particles("ions", FIELDS)
        with sim.step(0) as step:
            for name, values in species(0, 1).items():
                step.put(f"ions/{name}", values)
        wait_until(lambda: len(notes(out)) == 2)
        shapes = sorted((note["shapes"]["x"], note["shapes"]["id"]) for note in notes(out))
        assert shapes == [
            (["float64", 0, 3], ["int64", 0]),
            (["float64", 370, 3], ["int64", 370]),
        ]


def test_what_is_said_of_their_fields(one: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer(
            "s", fields={"ions": forebay.every(1, stats=True)}, group=one.path, timeout=20
        ) as reader,
        forebay.Producer("s", group=one.path, timeout=20) as sim,
    ):
        with pytest.raises(forebay.Invalid, match="units of mass"):
            sim.particles("ions", FIELDS, units={"mass": "u"})
        sim.particles("ions", FIELDS, units={"x": "m"})
        with sim.step(0) as step:
            for name, values in species(1, 0).items():
                step.put(f"ions/{name}", values)
        with reader.next() as found:
            assert (found["ions/x"].units, found["ions/id"].units) == ("m", "")
            (block,) = found.blocks("ions/id")
            assert block.stats is not None
            assert (block.stats.min, block.stats.max, block.stats.count) == (1000, 1369, 370)


def test_they_share_their_ghosts(one: forebay.LocalGroup) -> None:
    """Else rows of different particles would stand beside each other."""
    with forebay.Consumer("s", group=one.path, timeout=20), forebay.Producer("s", group=one.path) as sim:
        sim.particles("e", FIELDS)
        with sim.step(0) as step:
            step.put("e/id", np.arange(5), ghost_low=1)
            with pytest.raises(forebay.Conflict, match=r"0 ghosts before them and 1 after.* 1 ghosts before"):
                step.put("e/charge", np.zeros(5, "f4"), ghost_high=1)
            step.put("e/charge", np.zeros(5, "f4"), ghost_low=1)


def test_they_share_one_count(one: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        forebay.Producer("s", group=one.path, timeout=20) as sim,
    ):
        sim.particles("e", FIELDS)
        with sim.step(0) as step:
            step.put("e/id", np.arange(4))
            with pytest.raises(
                forebay.Conflict, match=r"'e/charge' has 5 particles; that of 'e/id' has 4 particles"
            ):
                step.put("e/charge", np.zeros(5, "f4"))
            with pytest.raises(forebay.OutOfBounds, match="3 components"):
                step.put("e/x", np.zeros((4, 2)))
            step.put("e/charge", np.zeros(4, "f4"))
            step.put("e/charge", np.zeros(500, "f4"), number=1)
            # What was given back has said nothing.
            memory = step.alloc("e/x", (4, 3), number=2)
            assert memory is not None
            step.abort(memory)
            step.put("e/x", np.zeros((700, 3)), number=2)
        with (
            reader.next() as found,
            pytest.raises(forebay.NotCovered, match=r"'e/\w+' at step 0: block \d of rank 0 was not put"),
        ):
            found.particles("e")
        bad: list[dict[str, Any]] = [{}, {"": "f8"}]
        for fields in bad:
            with pytest.raises(forebay.Invalid):
                sim.particles("f", fields)
        for name in ("", "a/b"):
            with pytest.raises(forebay.Invalid):
                sim.particles(name, FIELDS)


def test_a_single_block_is_not_copied(one: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        forebay.Producer("s", group=one.path, timeout=20) as sim,
    ):
        sim.particles("e", {"x": "f8"}, every=2)
        for number in range(3):
            with sim.step(number) as step:
                assert step.put("e/x", np.arange(1000.0)) == (number != 1)
        with reader.next() as found:
            assert np.shares_memory(found.particles("e")["x"], found["e/x"].blocks()[0].data)


def test_buffers(two: forebay.LocalGroup, transport: str) -> None:
    """Bytes of any length, none too."""
    lengths = [0, 1, 1024, 1025, 70_000]
    with (
        forebay.Consumer("s", group=two.path, timeout=20, transport=transport) as reader,
        open_ranks(two, "s", 2, transport=transport) as sim,
    ):
        for rank in sim:
            rank.buffer("log")
        for number, length in enumerate(lengths):
            said = [bytes([rank, number]) * length for rank in range(2)]
            with sim[0].step(number) as a, sim[1].step(number) as b:
                a.put("log", said[0])
                b.put("log", memoryview(said[1]))
            with reader.next() as found:
                blocks = {block.rank: block.data.tobytes() for block in found.blocks("log")}
                assert blocks == dict(enumerate(said))
