"""How groups form, and who cannot keep them from it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import FOREBAY, command
from support.sessions import check_it_works
from support.waiting import wait_until


class Serve:
    """`forebay serve`."""

    def __init__(self, path: Path, servers: int, *more: object) -> None:
        arguments = [FOREBAY, "serve", "--group", path, "--servers", servers, *more]
        arguments += ["--budget", "32M", "--bind", "127.0.0.1"]
        self.process = subprocess.Popen(
            list(map(str, arguments)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def ended(self, timeout: float = 20) -> tuple[int, str]:
        """Its exit code and what it said."""
        _, said = self.process.communicate(timeout=timeout)
        return self.process.returncode, said

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def started() -> Iterator[list[Serve]]:
    servers: list[Serve] = []
    yield servers
    for server in servers:
        server.close()


def is_complete(path: Path) -> bool:
    """Whether all servers have come."""
    return bool(json.loads(path.read_text())["awaited"] == 0)


def test_who_says_nothing_keeps_nobody_waiting(own_place: Path, started: list[Serve]) -> None:
    """More connections than may be on their way at once, all of them silent."""
    path = own_place / "group.json"
    started.append(Serve(path, 2))
    wait_until(path.exists)
    address = next(a for a in json.loads(path.read_text())["servers"][0]["addresses"] if a.startswith("shm:"))
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect("\0" + address.partition("/")[2])
        started.append(Serve(path, 2))
        # Each may take 10 s for its handshake: one after another, they would keep the group from forming.
        wait_until(lambda: is_complete(path))
        check_it_works(str(path))
    assert command("down", "--group", path).returncode == 0
    assert [server.ended()[0] for server in started] == [0, 0]


def test_a_copy_of_the_connection_file_lets_no_server_in(own_place: Path, started: list[Serve]) -> None:
    """Clients may use a copy; servers share what is beside the file."""
    path = own_place / "group.json"
    started.append(Serve(path, 1))
    wait_until(path.exists)
    copy = own_place / "copy.json"
    copy.write_text(path.read_text())
    copy.chmod(0o600)
    check_it_works(str(copy))
    code, said = serve_to_end(copy)
    assert code == 3
    assert "not through a copy" in said
    assert len(json.loads(path.read_text())["servers"]) == 1
    assert command("down", "--group", path).returncode == 0
    assert [server.ended()[0] for server in started] == [0]


def serve_to_end(path: Path) -> tuple[int, str]:
    server = Serve(path, 2)
    try:
        return server.ended()
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_founder_that_is_told_to_end_leaves_nothing(
    own_place: Path, started: list[Serve], number: signal.Signals
) -> None:
    path = own_place / "group.json"
    started.append(Serve(path, 2))
    wait_until(path.exists)
    started[0].process.send_signal(number)
    assert started[0].ended()[0] == 0
    assert list(own_place.glob("*group*")) + list(own_place.glob(".*group*")) == []


def test_the_first_server_decides_for_all(own_place: Path, started: list[Serve]) -> None:
    """How long servers may be silent, and whether bulk data is encrypted: one that is told otherwise does not join."""
    path = own_place / "group.json"
    started.append(Serve(path, 1, "--silence", 30, "--encrypt"))
    wait_until(path.exists)
    told = json.loads(command("add", "--group", path, "--budget", "32M", "--json").stdout)
    assert told["servers"] == 2
    for server in json.loads(command("status", "--group", path, "--json").stdout)["servers"]:
        assert (server["silence_seconds"], server["encrypts_bulk_data"]) == (30.0, True)
    code, said = Serve(path, 1, "--silence", 5).ended()
    assert code == 1
    assert "silent for 30s, not 5s: its first server has decided that for all" in said
    assert len(json.loads(path.read_text())["servers"]) == 2
    assert command("down", "--group", path).returncode == 0


def test_who_encrypts_joins_none_that_do_not(own_place: Path, started: list[Serve]) -> None:
    path = own_place / "group.json"
    started.append(Serve(path, 1))
    wait_until(path.exists)
    code, said = Serve(path, 1, "--encrypt").ended()
    assert code == 1
    assert "does not encrypt bulk data: its first server has decided" in said
    assert len(json.loads(path.read_text())["servers"]) == 1
