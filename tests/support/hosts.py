"""Network namespaces: they count as hosts, and share no memory."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.children import Child
from support.commands import FOREBAY


def ip(*arguments: str) -> None:
    """Runs `ip` of iproute2."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def inside(host: str) -> list[str]:
    """What stands before a command that is to run on a host."""
    return ["ip", "netns", "exec", host]


@contextmanager
def namespaces(*which: str) -> Iterator[list[str]]:
    """Network namespaces: they count as hosts, and share no memory. What is made in them goes with them."""
    names = [f"fb{os.getpid()}{name}" for name in which]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made: {error}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def attach(host: str, number: int, device: str) -> None:
    """Gives a host its address."""
    ip("-n", host, "addr", "add", f"10.99.0.{number + 1}/24", "dev", device)
    ip("-n", host, "link", "set", device, "up")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two hosts with a cable between them."""
    with namespaces("a", "b") as names:
        ip("-n", names[0], "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", names[1])
        for number, name in enumerate(names):
            attach(name, number, f"v{number}")
        yield names


@pytest.fixture
def three_hosts() -> Iterator[list[str]]:
    """Three hosts, and as the last one the switch between them."""
    with namespaces("a", "b", "c", "switch") as names:
        *ends, switch = names
        ip("-n", switch, "link", "add", "name", "sw0", "type", "bridge")
        ip("-n", switch, "link", "set", "sw0", "up")
        for number, name in enumerate(ends):
            port = f"p{number}"
            ip("-n", switch, "link", "add", "name", port, "type", "veth", "peer", "name", "v0", "netns", name)
            ip("-n", switch, "link", "set", port, "master", "sw0", "up")
            attach(name, number, "v0")
        yield names


def servers_seen_from(group: Path, inside: list[str]) -> list[int]:
    """The members that answer a command that runs `inside` one of the hosts."""
    status = [*inside, FOREBAY, "--json", "--timeout", "5", "status", "--group", group]
    told = subprocess.run(list(map(str, status)), capture_output=True, text=True, timeout=60, check=False)
    servers = json.loads(told.stdout)["servers"] if told.returncode == 0 else []
    return [server["server"] for server in servers if "error" not in server]


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


def stream_coordinated_at(
    child: Callable[..., Child], group: Path, inside: list[list[str]], server: int
) -> str:
    """The name of a stream that this server coordinates, asked for on the first of these hosts."""
    found = child(COORDINATED, group, server, inside=inside[0])
    name = found.line()
    found.ended()
    return name
