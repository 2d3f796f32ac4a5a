"""Where blocks are held: near their rank, by their id, or as a user's function says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back, stream_status
from support.sessions import open_ranks
from support.waiting import wait_until

import forebay

SHAPE = (13, 24, 50)
BOXES = [(0, 5), (5, 6), (6, 13)]


def put_boxes(step: forebay.OpenStep, array: np.ndarray[Any, Any], rank: int, alloc: bool = False) -> None:
    """Each rank puts its half of each box along the second dimension, as blocks of their own."""
    low, high = (0, 10) if rank == 0 else (10, SHAPE[1])
    for number, (begin, end) in enumerate(BOXES):
        part = array[begin:end, low:high]
        if alloc:
            memory = step.alloc("U", part.shape, offset=(begin, low, 0), number=number)
            assert memory is not None
            memory[...] = part
            step.commit(memory)
            del memory
        else:
            step.put("U", part, offset=(begin, low, 0), number=number)


def spread_by(place: forebay.BlockToPlace) -> int:
    assert (place.field, place.servers) == ("U", (0, 1, 2))
    assert place.offset is not None
    assert BOXES[place.number] == (place.offset[0], place.offset[0] + place.shape[0])
    return 2 - place.number


@pytest.mark.parametrize("kind", ["nearest", "by-block", "function"])
def test_blocks_are_held_where_the_placement_says(
    three: forebay.LocalGroup, transport: str, kind: str
) -> None:
    placement = spread_by if kind == "function" else kind
    with (
        forebay.Consumer("s", group=three, transport=transport) as viewer,
        open_ranks(three, "s", 2, transport=transport, placement=placement) as ranks,
    ):
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        homes = set()
        for number in range(4):
            array = reference(SHAPE, "f8", number)
            for index, rank in enumerate(ranks):
                with rank.step(number) as step:
                    put_boxes(step, array, index, alloc=transport == "shm" and number % 2 == 1)
            with viewer.next() as step:
                assert np.array_equal(step["U"][...], array)
                assert np.array_equal(step["U"][1:12:3, 5:, ::7], array[1:12:3, 5:, ::7])
                held = {(block.rank, block.number): block.server for block in step.blocks("U")}
                for block in step.blocks("U"):
                    assert block.offset is not None
                    box = tuple(slice(o, o + n) for o, n in zip(block.offset, block.shape, strict=True))
                    assert np.array_equal(block.interior, array[box])
                del block
            assert len(held) == 6
            homes.add(tuple(sorted(held.items())))
        assert len(homes) == 1, "every step is placed alike"
        if kind == "function":
            assert all(server == 2 - number for (_, number), server in held.items())
        elif kind == "nearest":
            assert len({server for (rank, _), server in held.items() if rank == 0}) == 1
        else:
            assert len(set(held.values())) > 1
    wait_until(lambda: is_given_back(three))


@pytest.mark.parametrize("is_seen", [True, False])
def test_ranks_that_were_given_the_text_of_the_group_learn_of_servers_that_join(
    two: forebay.LocalGroup, own_place: Path, is_seen: bool
) -> None:
    """From the file that the text names, as all ranks under MPI; where that is not seen, they stay with the servers that they know."""
    text = forebay.group_text(two)
    if not is_seen:
        text = json.dumps({**json.loads(text), "file": str(own_place / "elsewhere")})
    array = reference((16, 32, 32))
    with (
        forebay.Consumer("s", group=two) as viewer,
        forebay.Producer("s", group=text, placement="by-block", policy="block") as sim,
    ):
        sim.array("U", dtype="f8", shape=array.shape)
        number = 0

        def holders() -> set[int]:
            nonlocal number
            with sim.step(number) as step:
                for block in range(16):
                    step.put("U", array[block : block + 1], offset=(block, 0, 0), number=block)
            with viewer.next() as step:
                assert np.array_equal(step["U"][...], array)
                held = {block.server for block in step.blocks("U")}
            number += 1
            return held

        assert holders() == {0, 1}
        two.add_servers()
        if is_seen:
            wait_until(lambda: holders() == {0, 1, 2})
        else:
            assert all(holders() == {0, 1} for _ in range(8))


def test_a_function_that_fails_or_names_no_server_is_an_error(three: forebay.LocalGroup) -> None:
    def broken(place: forebay.BlockToPlace) -> int:
        return {0: 3, 1: 1 // (place.number - 1)}[place.number]

    array = reference(SHAPE)
    with (
        forebay.Consumer("s", group=three) as viewer,
        forebay.Producer("s", group=three, placement=broken) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            with pytest.raises(forebay.Invalid, match=r"server3; there are server0, server1, server2"):
                step.put("U", array[:5], offset=(0, 0, 0))
            with pytest.raises(forebay.Invalid, match=r"placement function failed"):
                step.put("U", array[5:], offset=(5, 0, 0), number=1)
        with viewer.next() as step, pytest.raises(forebay.NotFound, match="did a rank put it"):
            step["U"][...]
    with pytest.raises(forebay.Invalid, match="placement 'random' is not known"):
        forebay.Producer("s", group=three, placement="random")  # type: ignore[arg-type]


def test_what_a_killed_rank_placed_elsewhere_goes(
    three: forebay.LocalGroup, transport: str, child: Callable[..., Child]
) -> None:
    """From a step that is not ended readers get what the rank's home was told of; all memory is free again."""
    with forebay.Consumer("s", group=three, transport=transport) as viewer:
        writer = child(
            """
            sim = forebay.Producer("s", group=sys.argv[1], transport=sys.argv[2],
                                   placement=lambda block: block.number)
            sim.array("U", dtype="f8", shape=(9, 1000))
            for number in range(2):
                step = sim.step(number)
                step.__enter__()
                for box in range(3):
                    step.put("U", np.full((3, 1000), number + 1.0), offset=(3 * box, 0), number=box)
                if number == 0:
                    step.__exit__(None, None, None)
            print("put")
            sys.stdin.readline()
            """,
            three.path,
            transport,
        )
        writer.expect("put", 60)
        with viewer.next() as step:
            assert {block.server for block in step.blocks("U")} == {0, 1, 2}
            assert np.array_equal(step["U"][...], np.full((9, 1000), 1.0))
            held = step.blocks("U")
        writer.kill()
        if transport == "tcp":
            # Each put was answered.
            with viewer.next(timeout=20) as step:
                assert step.torn
                assert np.array_equal(step["U"][...], np.full((9, 1000), 2.0))
        else:
            with viewer.next(timeout=20) as step:
                assert step.torn
        with pytest.raises(forebay.Crashed):
            viewer.next(timeout=20)
        assert all((block.data == 1.0).all() for block in held), "what readers hold stays as it is"
        del held
    wait_until(lambda: is_given_back(three))
    state = stream_status(three, "s")
    assert state is None or state["held"] == {"steps": 0, "bytes": 0, "blocks": 0}


def test_what_was_to_go_to_a_server_that_died_goes_to_the_home(three: forebay.LocalGroup) -> None:
    """Not even a simulation that is to fail with its servers notices."""
    array = reference(SHAPE)
    with (
        forebay.Consumer("s", group=three, timeout=20) as viewer,
        forebay.Producer(
            "s", group=three, on_loss="fail", placement=lambda block: block.number, timeout=20
        ) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            for number, (begin, end) in enumerate(BOXES):
                step.put("U", array[begin:end], offset=(begin, 0, 0), number=number)
        held = viewer.next()
        # One that neither coordinates the stream nor is the rank's home.
        state = stream_status(three, "s")
        assert state is not None
        home = {block.server for block in held.blocks("U") if block.number == 0}
        assert home == {0}
        del held
        status = forebay.Admin(group=three).status()
        servers, coordinators = status["servers"], {stream["server"] for stream in status["streams"]}
        victim = next(number for number in (1, 2) if number not in coordinators)
        os.kill(servers[victim]["pid"], signal.SIGKILL)

        for number in range(1, 20):
            with sim.step(number) as step:
                for index, (begin, end) in enumerate(BOXES):
                    assert step.put("U", array[begin:end], offset=(begin, 0, 0), number=index)
            with viewer.next() as found:
                assert (found.number, found.torn, found.missed) == (number, False, 0)
                np.testing.assert_array_equal(found["U"][...], array)
                assert victim not in {block.server for block in found.blocks("U")}
