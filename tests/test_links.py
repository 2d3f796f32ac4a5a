"""The network between three hosts loses packets: between two of them only, or between all for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.children import Child
from support.commands import FOREBAY
from support.groups import server_ids
from support.hosts import inside, servers_seen_from, stream_coordinated_at
from support.single_rank import SINGLE_RANK, STEPS_READER, put_steps
from support.waiting import wait_until

# The system ends idle connections, and makes others again, at its own pace.
pytestmark = pytest.mark.timeout(400)
# What a busy machine needs to answer.
SILENCE = 4

IDLE = """
with forebay.Consumer(sys.argv[2], group=sys.argv[1], timeout=120) as reader:
    print("attached")
    try:
        reader.next()
    except forebay.Unreachable:
        print("lost")
"""


def ip(host: str, *arguments: str) -> None:
    subprocess.run(["ip", "-n", host, *arguments], check=True, capture_output=True)


def readers_of(group: Path, host: str, server: int) -> int:
    """How many connections of readers a server has, as told on its host."""
    status = [*inside(host), FOREBAY, "--json", "--timeout", "5", "status", "--group", group]
    told = subprocess.run(list(map(str, status)), capture_output=True, text=True, timeout=60, check=True)
    servers = json.loads(told.stdout)["servers"]
    connections = next(found["connections"] for found in servers if found["server"] == server)
    return int(connections.get("consumers", 0))


def lose_packets(hosts: list[str], one: int, other: int) -> None:
    """What these two send each other comes to nobody, and nobody says so."""
    for host, to in ((one, other), (other, one)):
        ip(hosts[host], "neigh", "replace", f"10.99.0.{to + 1}", "lladdr", "02:00:00:00:00:99", "dev", "v0")
        ip(hosts[host], "neigh", "change", f"10.99.0.{to + 1}", "dev", "v0", "nud", "permanent")


def lose_no_packets(hosts: list[str], one: int, other: int) -> None:
    for host, to in ((one, other), (other, one)):
        ip(hosts[host], "neigh", "del", f"10.99.0.{to + 1}", "dev", "v0")


@contextmanager
def servers(place: Path, hosts: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One server on each of the first three hosts. What they say is in `0.log` and so on."""
    started: list[subprocess.Popen[bytes]] = []
    group = place / "g.json"
    try:
        for number, host in enumerate(hosts[:3]):
            serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--bind", f"10.99.0.{number + 1}"]
            serve += ["--silence", SILENCE]
            with (place / f"{number}.log").open("wb") as log:
                environment = {**os.environ, "FOREBAY_LOG": "info"}
                started.append(
                    subprocess.Popen([*inside(host), *map(str, serve)], stderr=log, env=environment)
                )
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        yield started
    finally:
        for server in started:
            server.kill()
            server.wait()


def member_of(group: Path, server: subprocess.Popen[bytes]) -> int:
    """The number of a server, as the connection file tells it."""
    servers = json.loads(group.read_text())["servers"]
    return next(int(entry["id"]) for entry in servers if entry["pid"] == server.pid)


def test_of_two_that_do_not_hear_each_other_one_goes(
    own_place: Path, three_hosts: list[str], child: Callable[..., Child]
) -> None:
    """Others reach both, and ask in their place: so none of the two falls silent."""
    group = own_place / "g.json"
    with servers(own_place, three_hosts):
        reader = child(STEPS_READER, group, "s", 9, inside=inside(three_hosts[1]))
        reader.expect("attached")
        rank = child(SINGLE_RANK, group, "auto", "s", 2, inside=inside(three_hosts[0]))
        rank.expect("open")
        put_steps(rank, 0, 3)

        lose_packets(three_hosts, 1, 2)
        put_steps(rank, 3, 6)
        wait_until(lambda: 2 not in server_ids(group), timeout=120)
        # It is yet to know that from the one that it does not reach either.
        wait_until(lambda: "server1 is not reached" in (own_place / "2.log").read_text(), timeout=60)

        lose_no_packets(three_hosts, 1, 2)
        wait_until(lambda: len(servers_seen_from(group, inside(three_hosts[0]))) == 3, timeout=90)
        put_steps(rank, 6, 9)
        reader.expect("whole")
        rank.close_input()
        for ended in (rank, reader):
            ended.ended()


def test_who_falls_silent_after_a_cut_that_healed_is_given_up(
    own_place: Path, three_hosts: list[str], child: Callable[..., Child]
) -> None:
    """While nobody reaches anybody nobody goes, and then all go on."""
    group, switch = own_place / "g.json", three_hosts[-1]
    with servers(own_place, three_hosts) as started:
        # All that is read is on this host: a client whose network is away does not wait so long.
        stream = stream_coordinated_at(child, group, [inside(three_hosts[0])], 0)
        reader = child(STEPS_READER, group, stream, 9, inside=inside(three_hosts[0]))
        reader.expect("attached")
        rank = child(SINGLE_RANK, group, "auto", stream, 2, 150, inside=inside(three_hosts[0]))
        rank.expect("open")
        put_steps(rank, 0, 3)

        idle = child(
            IDLE,
            group,
            stream_coordinated_at(child, group, [inside(three_hosts[0])], 1),
            inside=inside(three_hosts[0]),
        )
        idle.expect("attached")

        ip(switch, "link", "set", "sw0", "down")
        # Until the system has ended a connection on which nothing is sent.
        wait_until(lambda: readers_of(group, three_hosts[1], 1) == 0, timeout=90)
        for number in range(3):
            log = (own_place / f"{number}.log").read_text()
            assert all(log.count(f"server{other} does not answer") == 1 for other in {0, 1, 2} - {number}), (
                log
            )
        ip(switch, "link", "set", "sw0", "up")
        for host in three_hosts[:3]:
            wait_until(lambda host=host: servers_seen_from(group, inside(host)) == [0, 1, 2], timeout=90)
        idle.expect("lost", timeout=120)
        # Connections come back as much later as the network was away.
        put_steps(rank, 3, 6, timeout=150)
        # Amid the healing two may have voted to go on without the third: then it has come back as another member.
        wait_until(lambda: len(server_ids(group)) == 3, timeout=60)

        silent = member_of(group, started[2])
        started[2].send_signal(signal.SIGSTOP)
        wait_until(lambda: silent not in server_ids(group), timeout=60)
        put_steps(rank, 6, 9)
        reader.expect("whole")
        rank.close_input()
        for ended in (rank, reader):
            ended.ended()
        started[2].send_signal(signal.SIGCONT)
        wait_until(lambda: server_ids(group) == [0, 1, 3], timeout=60)
