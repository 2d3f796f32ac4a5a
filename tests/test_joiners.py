"""Ranks that run use servers which join: each new one gets its share of them, and of blocks that are spread."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.commands import FOREBAY
from support.deaths import kill_servers
from support.groups import BUDGET, group_status, is_given_back, server_ids, stream_coordinated_by
from support.processes import stand_still
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def whole(number: int) -> np.ndarray[Any, Any]:
    return reference(SHAPE, "f8", number)


@contextlib.contextmanager
def ranks_and_reader(
    group: forebay.LocalGroup, size: int
) -> Iterator[tuple[list[forebay.Producer], forebay.Consumer]]:
    """Ranks that have put three steps, which were read."""
    with consumer(group) as reader, open_ranks(group, "s", size) as ranks:
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        write_steps(ranks, range(3), whole)
        list(take(reader, range(3)))
        yield ranks, reader


def holders(step: forebay.Step) -> dict[int, int]:
    """By rank: the server that holds its block."""
    return {block.rank: block.server for block in step["U"].blocks()}


def take(reader: forebay.Consumer, numbers: range) -> Iterator[dict[int, int]]:
    """The next steps, which must be these and whole; who holds what of each."""
    for number in numbers:
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False)
            np.testing.assert_array_equal(step["U"][...], whole(number))
            yield holders(step)


@pytest.mark.parametrize("on_loss", ["skip", "fail"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_new_servers_get_their_share_of_the_ranks(
    one: forebay.LocalGroup, two: forebay.LocalGroup, transport: str, on_loss: str, replicas: int
) -> None:
    """Nobody moves between servers that were there before."""
    group = one if replicas == 1 else two
    options = {"transport": transport, "on_loss": on_loss, "replicas": replicas}
    with consumer(group, transport=transport) as reader, open_ranks(group, "s", 6, **options) as ranks:
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        homes = {rank: rank % replicas for rank in range(6)}
        write_steps(ranks, range(5), whole)
        assert list(take(reader, range(5)))[-1] == homes
        for count in range(replicas + 1, replicas + 3):
            group.add_servers()
            first = 10 * count
            write_steps(ranks, range(first, first + 10), whole)
            homes.update({rank: count - 1 for rank in range(6) if rank % count == count - 1})
            found = list(take(reader, range(first, first + 10)))
            # What a step's home tells of the change is heeded when the next one begins.
            assert all(held == homes for held in found[2:])
            assert [rank.lost for rank in ranks] == [None] * 6
    wait_until(lambda: is_given_back(group))


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_who_comes_for_a_dead_server_gets_its_ranks(own_place: Path, transport: str, victim: int) -> None:
    """They went to the others meanwhile, and nobody is left with more than its share."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET) as group,
        consumer(group, transport=transport) as reader,
        open_ranks(group, "s", 6, transport=transport, replicas=2) as ranks,
    ):
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        homes = {rank: rank % 3 for rank in range(6)}
        write_steps(ranks, range(5), whole)
        assert list(take(reader, range(5)))[-1] == homes
        for newcomer in (3, 4):
            kill_servers(group, victim)
            first = 20 * newcomer
            write_steps(ranks, range(first, first + 10), whole)
            held = list(take(reader, range(first, first + 10)))[-1]
            orphans = {rank for rank, home in homes.items() if home == victim}
            assert {rank for rank in homes if held[rank] != homes[rank]} == orphans
            assert len({held[rank] for rank in orphans}) == 2, "one rank for each of the two"
            group.add_servers()
            write_steps(ranks, range(first + 10, first + 20), whole)
            homes.update(dict.fromkeys(orphans, newcomer))
            assert list(take(reader, range(first + 10, first + 20)))[-1] == homes
            victim = newcomer


def test_blocks_that_are_spread_go_to_new_servers_too(two: forebay.LocalGroup, transport: str) -> None:
    """One rank. Within a step it takes the servers to be the same."""
    asked: list[int] = []

    def place(block: forebay.BlockToPlace) -> int:
        asked.append(len(block.servers))
        return block.servers[block.number % len(block.servers)]

    with (
        consumer(two, transport=transport) as reader,
        producer(two, placement=place, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(12):
            if number == 4:
                two.add_servers()
            with sim.step(number) as step:
                for part in range(6):
                    rows = slice(10 * part, 10 * part + 10)
                    step.put("U", whole(number)[rows], offset=(10 * part, 0), number=part)
            with reader.next() as read:
                np.testing.assert_array_equal(read["U"][...], whole(number))
                blocks = {block.number: block.server for block in read["U"].blocks()}
            servers = 2 if number < 4 else 3
            if number not in (4, 5):
                assert blocks == {part: part % servers for part in range(6)}
        assert set(asked) == {2, 3}
        assert all(len(set(asked[6 * step : 6 * step + 6])) == 1 for step in range(12))


def test_a_server_that_joins_and_stands_still_gets_no_ranks(one: forebay.LocalGroup) -> None:
    """They stay where they are, and begin a moment later."""
    with ranks_and_reader(one, 2) as (ranks, reader):
        one.add_servers()
        stand_still(one.servers[1].pid)
        try:
            write_steps(ranks, range(3, 9), whole)
            assert list(take(reader, range(3, 9)))[-1] == {0: 0, 1: 0}
        finally:
            os.kill(one.servers[1].pid, signal.SIGCONT)
        assert server_ids(one) == [0, 1]


def test_ranks_move_while_another_server_stands_still(own_place: Path) -> None:
    """It knows nothing of them that their home, which lives, has not told."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(forebay.local(servers=3, budget_bytes=BUDGET))
        stream = stream_coordinated_by(group, 0)
        reader = stack.enter_context(consumer(group, stream, timeout=60))
        # Of four ranks those whose home does not stand still. That of the last is the fourth server when that has joined.
        ranks = [
            stack.enter_context(producer(group, stream, rank=rank, size=4, on_loss="fail", timeout=60))
            for rank in range(4)
        ]
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        write_steps(ranks, [0], whole)
        list(take(reader, range(1)))
        pid = next(server["pid"] for server in group_status(group)["servers"] if server["server"] == 2)
        stand_still(pid)
        # Whoever asks for the status would wait for it.
        command = [FOREBAY, "serve", "--group", group.path, "--budget", "64M"]
        joiner = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
        stack.callback(joiner.wait)
        stack.callback(joiner.kill)
        try:
            wait_until(lambda: len(json.loads(Path(group.path).read_text())["servers"]) == 4)
            for number in range(1, 4):
                with ranks[3].step(number) as step:
                    step.put("U", whole(number)[45:], offset=(45, 0))
        finally:
            os.kill(pid, signal.SIGCONT)
        for number in range(1, 4):
            write_steps(ranks[:3], [number], lambda n: whole(n)[:45])
        assert list(take(reader, range(1, 4)))[-1][3] == 3
        assert [rank.lost for rank in ranks] == [None] * 4


def test_a_rank_comes_back_when_the_server_dies_to_which_it_went(two: forebay.LocalGroup) -> None:
    """At any step after it has joined: the ranks go on where they were before, and the next one gets its share again."""
    with ranks_and_reader(two, 3) as (ranks, reader):
        first = 3
        for turn in range(4):
            two.add_servers()
            joined = server_ids(two)[-1]
            write_steps(ranks, range(first, first + turn), whole)
            list(take(reader, range(first, first + turn)))
            first += turn
            kill_servers(two, joined, wait=True)
            write_steps(ranks, range(first, first + 3), whole)
            assert set(list(take(reader, range(first, first + 3)))[-1].values()) <= {0, 1}
            first += 3
            wait_until(lambda: len(group_status(two)["servers"]) == 2)
        assert [rank.lost for rank in ranks] == [None] * 3
