"""Connection files that are missing, damaged, stale, open to others, or wanted by two groups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.commands import FOREBAY, command
from support.groups import edited
from support.sessions import check_it_works, consumer, producer

import forebay


def everyone(path: str) -> Iterator[Callable[[], object]]:
    """Every way to use a connection file."""
    yield lambda: forebay.Producer("s", group=path, timeout=3)
    yield lambda: forebay.Consumer("s", group=path, timeout=3)
    yield lambda: forebay.Admin(group=path, timeout=3).shutdown()
    yield lambda: forebay.Space(group=path, timeout=3).put("x", np.ones(3), step=0)


def test_a_missing_connection_file(own_place: Path) -> None:
    path = str(own_place / "none.json")
    for use in everyone(path):
        with pytest.raises(forebay.ConnectionFile, match=r"none\.json"):
            use()
    with pytest.raises(forebay.ConnectionFile, match="unheard-of"):
        forebay.Consumer("s", group="unheard-of")
    assert command("status", "--group", path).returncode == 3


def test_a_connection_file_that_others_may_read(one: forebay.LocalGroup) -> None:
    for mode in (0o644, 0o640, 0o606):
        os.chmod(one.path, mode)
        for use in everyone(one.path):
            with pytest.raises(forebay.ConnectionFile, match="chmod 600"):
                use()
        assert command("status", "--group", one.path).returncode == 3
    os.chmod(one.path, 0o600)
    check_it_works(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_connection_file_of_somebody_else(one: forebay.LocalGroup) -> None:
    os.chown(one.path, 12345, 12345)
    for use in everyone(one.path):
        with pytest.raises(forebay.ConnectionFile, match="belongs to user 12345"):
            use()
    assert command("status", "--group", one.path).returncode == 3
    os.chown(one.path, 0, 0)
    check_it_works(one)


def test_a_stale_connection_file(own_place: Path) -> None:
    """Its servers are gone: said at once, and `forebay up` replaces it."""
    path = str(own_place / "stale.json")
    with forebay.local(servers=2) as group:
        edited(group, Path(path))
    started = time.monotonic()
    for use in (use for index, use in enumerate(everyone(path)) if index != 2):
        with pytest.raises(forebay.Unreachable, match="server"):
            use()
    assert time.monotonic() - started < 10
    up = command("up", "-n", 2, "--group", path, "--budget", "64M")
    assert up.returncode == 0, up.stderr
    check_it_works(path)
    assert command("down", "--group", path).returncode == 0


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"forebay": 1}', "[1, 2]", "\0" * 100, "{" * 100000])
def test_a_damaged_connection_file(own_place: Path, text: str) -> None:
    path = own_place / "bad.json"
    path.write_text(text)
    path.chmod(0o600)
    for use in everyone(str(path)):
        with pytest.raises(forebay.ConnectionFile, match=r"bad\.json"):
            use()
    assert command("up", "--group", path).returncode == 3
    assert path.read_text() == text


def test_a_wrong_secret(two: forebay.LocalGroup, own_place: Path, transport: str) -> None:
    """Refused at once, never retried, and nobody else notices."""
    for changes in ({"secret": "ab" * 32}, {"lineage": "cd" * 16}):
        path = edited(two, own_place / "wrong.json", **changes)
        started = time.monotonic()
        with pytest.raises(forebay.WrongSecret, match="stale"):
            producer(path, transport=transport)
        with pytest.raises(forebay.WrongSecret):
            consumer(path, transport=transport)
        with pytest.raises(forebay.WrongSecret):
            forebay.Space(group=path, transport=transport).get("x", step=0)
        assert time.monotonic() - started < 5
    check_it_works(two, transport)


def test_the_text_of_a_connection_file(two: forebay.LocalGroup) -> None:
    check_it_works(Path(two.path).read_text())


@pytest.mark.parametrize("servers", [1, 2])
def test_two_groups_race_for_one_path(own_place: Path, servers: int) -> None:
    """One of them wins and works; the other says why it did not start, and leaves the winner alone."""
    for attempt in range(4):
        path = own_place / f"race{attempt}.json"
        up = [
            str(FOREBAY),
            "up",
            "-n",
            str(servers),
            "--group",
            str(path),
            "--budget",
            "32M",
            "--timeout",
            "15",
        ]
        racing = [
            subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
        ]
        told = [process.communicate(timeout=60) for process in racing]
        codes = sorted(process.returncode for process in racing)
        try:
            assert codes == [0, 1], told
            assert path.exists(), "the winner's connection file is gone"
            check_it_works(str(path))
            status = forebay.Admin(group=str(path)).status()["servers"]
            assert len(status) == servers
        finally:
            down = command("down", "--group", path)
            if down.returncode != 0:
                kill_servers_of(path)
        assert down.returncode == 0, down.stderr
        assert not path.exists()


def kill_servers_of(path: Path) -> None:
    """Ends what a lost race left running, so that one failure does not make others."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if b"serve" in line and str(path).encode() in line:
                os.kill(int(entry.name), 9)
