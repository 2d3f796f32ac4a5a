"""Blocks of which several servers hold copies: what was acknowledged outlives servers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.commands import FOREBAY
from support.deaths import kill_servers
from support.groups import (
    BUDGET,
    group_status,
    is_given_back,
    pid_of_server,
    server_ids,
    steps_lacking_copies,
    stream_coordinated_by,
)
from support.processes import is_alive, stand_still
from support.ranks import RANK, READER, check_steps, end_ranks, put_steps, start_ranks
from support.sessions import consumer, producer
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


@pytest.mark.parametrize("coordinator", [0, 1, 2])
@pytest.mark.parametrize("durability", ["local", "replicated"])
def test_what_was_acknowledged_outlives_a_server(
    own_place: Path, child: Callable[..., Child], transport: str, durability: str, coordinator: int
) -> None:
    """The home of a rank, whether it coordinates the stream or not, dies right after the ranks have heard."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        ranks = start_ranks(child, group.path, stream, 2, transport=transport, durability=durability)
        put_steps(ranks, range(20))
        kill_servers(group, 0)
        check_steps(group, stream, range(20), transport=transport)
        put_steps(ranks, range(20, 30))
        check_steps(group, stream, range(30), transport=transport)
        end_ranks(ranks)
        check_steps(group, stream, range(30))


def test_servers_die_one_after_the_other(own_place: Path, child: Callable[..., Child]) -> None:
    """Copies are made again after each death, also by servers that joined meanwhile."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        ranks = start_ranks(child, group.path, "s", 2)
        done = 0
        for dead in range(5):
            put_steps(ranks, range(done, done + 5))
            done += 5
            group.add_servers()
            kill_servers(group, dead)
            wait_until(lambda dead=dead: dead not in server_ids(group))
            check_steps(group, "s", range(done))
            wait_until(lambda: steps_lacking_copies(group) == 0)
        end_ranks(ranks)
        check_steps(group, "s", range(done))


def test_as_many_die_at_once_as_may(own_place: Path, child: Callable[..., Child]) -> None:
    with forebay.local(servers=7, budget_bytes=BUDGET) as group:
        ranks = start_ranks(child, group.path, "s", 3)
        put_steps(ranks, range(10))
        kill_servers(group, 0, 1)
        check_steps(group, "s", range(10))
        put_steps(ranks, range(10, 20))
        wait_until(lambda: steps_lacking_copies(group) == 0)
        kill_servers(group, 2, 3)
        check_steps(group, "s", range(20))
        end_ranks(ranks)


def test_large_runs(own_place: Path, child: Callable[..., Child]) -> None:
    """In runs of more than 64 ranks the records of blocks are with the owners of tiles."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group, contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(producer(group, rank=rank, size=70, keep=100, replicas=2, policy="block"))
            for rank in range(70)
        ]
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(140, 100))
        for number in range(3):
            for rank, sim in enumerate(ranks):
                with sim.step(number) as step:
                    step.put(
                        "U",
                        reference((140, 100), "f8", number)[2 * rank : 2 * rank + 2],
                        offset=(2 * rank, 0),
                    )
        kill_servers(group, 1)
        with consumer(group, start="oldest", window=4) as reader:
            for number in range(3):
                with reader.next() as step:
                    np.testing.assert_array_equal(step["U"][...], reference((140, 100), "f8", number))


def test_copies_go_with_their_step(own_place: Path) -> None:
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        with consumer(group) as reader, producer(group, replicas=2, policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            for number in range(50):
                with sim.step(number) as step:
                    step.put("U", reference(SHAPE, "f8", number))
                with reader.next() as found:
                    np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
        wait_until(lambda: is_given_back(group))
        wait_until(lambda: sum(server["backup_steps"] for server in group_status(group)["servers"]) == 0)


def test_more_replicas_than_servers(two: forebay.LocalGroup) -> None:
    with pytest.raises(
        forebay.Invalid, match=r"replicas is 3, more than the group has servers \(2\): add some"
    ):
        producer(two, replicas=3)
    for wrong in (0, 9):
        with pytest.raises(forebay.Invalid, match="1 to 8 servers"):
            producer(two, replicas=wrong)
    with pytest.raises(forebay.Invalid, match="durability"):
        producer(two, replicas=2, durability="certain")
    with producer(two, rank=0, size=2, replicas=2), pytest.raises(forebay.Conflict, match="replicas 2"):
        producer(two, rank=1, size=2)


def put_all(steps: Iterator[Any], array: np.ndarray[Any, Any]) -> None:
    for count in steps:
        with count as step:
            step.put("U", array)


def test_a_backup_without_room(own_place: Path) -> None:
    """On one host copies take none; so what is put is bounded by the budget of the server that it is put to."""
    with forebay.local(servers=2, budget_bytes=8 << 20) as group:
        with consumer(group, window=2), producer(group, replicas=2, policy="block", timeout=2) as sim:
            sim.array("U", dtype="f8", shape=(1 << 18,))
            steps = (sim.step(number) for number in range(20))
            with pytest.raises(forebay.Full):
                put_all(steps, np.full(1 << 18, 1.0))
        wait_until(lambda: is_given_back(group))


def all_have_copies(group: Path, inside: list[str]) -> bool:
    """Whether no step lacks a copy, as the servers say that are left."""
    status = [*inside, FOREBAY, "--json", "status", "--group", str(group)]
    told = subprocess.run(list(map(str, status)), capture_output=True, text=True, timeout=30, check=False)
    if told.returncode != 0:
        return False
    servers = json.loads(told.stdout)["servers"]
    return all(server.get("steps_lacking_copies") == 0 for server in servers)


@pytest.mark.parametrize("coordinator", [0, 1], ids=["coordinates", "is a home"])
@pytest.mark.parametrize("durability", ["local", "replicated"])
def test_a_backup_reads_what_was_said_before_a_death(
    own_place: Path, child: Callable[..., Child], durability: str, coordinator: int
) -> None:
    """On one host nobody waits until a backup has read what it is to keep: it does before it takes over."""
    # The third one makes the home sure of its lease.
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        home, backup = (pid_of_server(group, number) for number in range(2))
        ranks = start_ranks(child, group.path, stream, 2, durability=durability, size=1)
        put_steps(ranks, range(5))
        stand_still(backup)
        try:
            # As many as its socket has room for.
            put_steps(ranks, range(5, 20))
            os.kill(home, signal.SIGKILL)
            wait_until(lambda: not is_alive(home))
        finally:
            os.kill(backup, signal.SIGCONT)
        check_steps(group, stream, range(20), size=1)
        put_steps(ranks, range(20, 25))
        end_ranks(ranks)
        check_steps(group, stream, range(25), size=1)


@pytest.mark.parametrize("durability", ["local", "replicated"])
def test_copies_on_another_host(
    own_place: Path, hosts: list[str], child: Callable[..., Child], durability: str
) -> None:
    """Servers that share no memory: the bytes are copied, and each server's death is outlived."""
    group = own_place / "g.json"
    inside = [["ip", "netns", "exec", name] for name in hosts]
    servers = []
    try:
        for number in range(3):
            host = number % 2
            serve = [FOREBAY, "serve", "--group", group, "--budget", "32M", "--bind", f"10.99.0.{host + 1}"]
            servers.append(subprocess.Popen([*inside[host], *map(str, serve)]))
            wait_until(lambda number=number: group.exists() and len(server_ids(group)) == number + 1)
        ranks = [
            child(RANK, group, "auto", "s", rank, 2, 2, durability, 60, inside=inside[0]) for rank in range(2)
        ]
        for rank in ranks:
            rank.expect("open")
        put_steps(ranks, range(20))
        for dead in range(2):
            servers[dead].send_signal(signal.SIGKILL)
            servers[dead].wait()
            reader = child(READER, group, 0, 20, 60, inside=inside[1])
            reader.expect("whole")
            reader.ended()
            if dead == 0:
                # With one server left there is nobody to keep a copy.
                wait_until(lambda: all_have_copies(group, inside[1]))
        end_ranks(ranks)
    finally:
        for server in servers:
            server.kill()
            server.wait()
