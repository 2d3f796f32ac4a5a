"""A cable between two hosts is cut, and mended: the larger side goes on, the other one promises nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import FOREBAY, Child, wait_until
from test_coming_back import RANK, put
from test_elastic import ids

# What a busy machine needs to answer.
SILENCE = 4

READER = """
path, stream, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
with forebay.Consumer(stream, group=path, timeout=60) as reader:
    print("attached")
    for number in range(last):
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False), step
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))
print("whole")
"""

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


def servers_of(group: Path, inside: list[str]) -> list[int]:
    """The members that answer, as one side sees them."""
    status = [*inside, FOREBAY, "--json", "--timeout", "5", "status", "--group", group]
    told = subprocess.run(list(map(str, status)), capture_output=True, text=True, timeout=60, check=False)
    servers = json.loads(told.stdout)["servers"] if told.returncode == 0 else []
    return [server["server"] for server in servers if "error" not in server]


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
            wait_until(lambda count=number + 1: group.exists() and len(ids(group)) == count)
        stream = stream_at(child, group, inside, 2 if coordinator == "cut off" else 0)
        reader = child(READER, group, stream, 9, inside=inside[0])
        reader.expect("attached")
        rank = child(RANK, group, "auto", stream, 2, inside=inside[0])
        rank.expect("open")
        put(rank, 0, 3)
        other = child(CUT_OFF, group, inside=inside[1])
        other.expect("acknowledged")

        cable(hosts, "down")
        other.say("")
        other.expect("refused")
        put(rank, 3, 6)
        wait_until(lambda: ids(group) == [0, 1], timeout=60)

        cable(hosts, "up")
        wait_until(lambda: servers_of(group, inside[0]) == [0, 1, 3], timeout=60)
        put(rank, 6, 9)
        reader.expect("whole")
        rank.close_input()
        for ended in (rank, reader):
            ended.ended()
        later = child(READER, group, "after", 2, inside=inside[1])
        later.expect("attached")
        again = child(RANK, group, "auto", "after", 2, inside=inside[0])
        again.expect("open")
        put(again, 0, 2)
        later.expect("whole")
        again.close_input()
        for ended in (again, later):
            ended.ended()
    finally:
        for server in servers:
            server.kill()
            server.wait()


COORDINATED = """
path, wanted = sys.argv[1], int(sys.argv[2])
admin = forebay.Admin(group=path, timeout=20)
for number in range(200):
    with forebay.Consumer(f"name{number}", group=path, timeout=20):
        streams = admin.status()["streams"]
        if any(stream["name"] == f"name{number}" and stream["server"] == wanted for stream in streams):
            print(f"name{number}")
            break
"""


def stream_at(child: Callable[..., Child], group: Path, inside: list[list[str]], server: int) -> str:
    """The name of a stream that this server coordinates."""
    found = child(COORDINATED, group, server, inside=inside[0])
    name = found.line()
    found.ended()
    return name
