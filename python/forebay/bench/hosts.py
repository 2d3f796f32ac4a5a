# SPDX-License-Identifier: Apache-2.0
"""Hosts on this machine: network namespaces on one switch, which share no memory. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forebay._installed import command_path
from forebay.bench import forebay_side
from forebay.bench.errors import BenchError

_CLONE_NEWNET = 0x40000000
_END_PATIENCE_S = 10.0


def why_not() -> str | None:
    """Why there can be no hosts but one here; None if there can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    return None if shutil.which("ip") else "the command `ip` is missing"


def move_to(host: str) -> None:
    """From now on this process, which has started no thread, lives on that host."""
    with open(f"/run/netns/{host}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot move to {host}")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def some_hosts(count: int) -> Iterator[list[str]]:
    """Their names; they end with this."""
    switch = f"fbbench{os.getpid()}"
    names = [f"{switch}{letter}" for letter in "abcdefgh"[:count]]
    made: list[str] = []
    try:
        for name in [switch, *names]:
            _ip("netns", "add", name)
            made.append(name)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            port = f"v{number}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "v", "netns", name)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", "v")
            _ip("-n", name, "link", "set", "v", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            _ip("netns", "del", name)


def address(number: int) -> str:
    """Where a host of this number is."""
    return f"10.98.0.{number + 1}"


@contextlib.contextmanager
def group_on(
    names: list[str], numbers: list[int], budget: str
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A group with servers on the hosts of these numbers, one after the other: its path, and the servers."""
    servers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as place, open(Path(place, "log"), "wb") as log:
        path = Path(place, "group.json")
        try:
            for count, number in enumerate(numbers, 1):
                inside = ["ip", "netns", "exec", names[number]]
                serve = [command_path(), "serve", "--group", str(path), "--bind", address(number)]
                serve += ["--budget", budget]
                servers.append(subprocess.Popen([*inside, *serve], stdout=log, stderr=log))
                forebay_side.wait_for_members(str(path), count)
            yield str(path), servers
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                try:
                    server.wait(_END_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()
