"""A cable between two hosts is cut, and mended: the larger side goes on, the other one promises nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.children import Child
from support.commands import FOREBAY
from support.groups import server_ids
from support.hosts import servers_seen_from, stream_coordinated_at
from support.single_rank import SINGLE_RANK, STEPS_READER, put_steps
from support.waiting import wait_until

# What a busy machine needs to answer.
SILENCE = 4


CUT_OFF = """
with forebay.Producer("cut off", group=sys.argv[1], timeout=2, on_loss="fail") as sim:
    sim.array("U", dtype="f8", shape=(60, 50))
    with sim.step(0) as step:
        step.put("U", reference((60, 50), "f8", 0))
    sim.flush()
    print("acknowledged")
    sys.stdin.readline()
    try:
        while True:
            sim.flush()
    except forebay.Error as error:
        print("refused")
    sys.stdin.readline()
"""


def cable(hosts: list[str], state: str) -> None:
    subprocess.run(["ip", "-n", hosts[0], "link", "set", "v0", state], check=True, capture_output=True)


@pytest.mark.parametrize("coordinator", ["cut off", "not cut off"])
def test_the_larger_side_goes_on(
    own_place: Path, hosts: list[str], child: Callable[..., Child], coordinator: str
) -> None:
    group = own_place / "g.json"
    inside = [["ip", "netns", "exec", name] for name in hosts]
    servers = []
    try:
        for number, host in enumerate([0, 0, 1]):
            serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--bind", f"10.99.0.{host + 1}"]
            serve += ["--silence", SILENCE]
            servers.append(subprocess.Popen([*inside[host], *map(str, serve)]))
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        stream = stream_coordinated_at(child, group, inside, 2 if coordinator == "cut off" else 0)
        reader = child(STEPS_READER, group, stream, 9, inside=inside[0])
        reader.expect("attached")
        rank = child(SINGLE_RANK, group, "auto", stream, 2, inside=inside[0])
        rank.expect("open")
        put_steps(rank, 0, 3)
        other = child(CUT_OFF, group, inside=inside[1])
        other.expect("acknowledged")

        cable(hosts, "down")
        other.say("")
        other.expect("refused")
        put_steps(rank, 3, 6)
        wait_until(lambda: server_ids(group) == [0, 1], timeout=60)

        cable(hosts, "up")
        wait_until(lambda: servers_seen_from(group, inside[0]) == [0, 1, 3], timeout=60)
        put_steps(rank, 6, 9)
        reader.expect("whole")
        rank.close_input()
        for ended in (rank, reader):
            ended.ended()
        later = child(STEPS_READER, group, "after", 2, inside=inside[1])
        later.expect("attached")
        again = child(SINGLE_RANK, group, "auto", "after", 2, inside=inside[0])
        again.expect("open")
        put_steps(again, 0, 2)
        later.expect("whole")
        again.close_input()
        for ended in (again, later):
            ended.ended()
    finally:
        for server in servers:
            server.kill()
            server.wait()
