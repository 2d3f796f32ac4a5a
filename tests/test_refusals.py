"""What a machine refuses: it works all the same, or the error names the limit and what to do."""

from __future__ import annotations

import errno
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.children import Child
from support.commands import FOREBAY
from support.hosts import inside
from support.processes import is_alive
from support.refusing import SEALS, refusing
from support.single_rank import SINGLE_RANK, put_steps
from support.waiting import wait_until

import forebay


def limited(own_place: Path, limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a group under a limit of the shell's, for a second, and tells what became of it."""
    group = own_place / "group.json"
    command = f'ulimit {limit}; exec "{FOREBAY}" up --group "{group}" --timeout 10 {" ".join(arguments)}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)


LIMITS = {
    "the size of files": ("-f 1024", "ulimit -f"),
    "open files": ("-n 12", "ulimit -n"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_named(own_place: Path, limit: str) -> None:
    """The servers do not come up, and the command says which limit it is."""
    given, named = LIMITS[limit]
    done = limited(own_place, given, "-n", "1", "--budget", "4G")
    assert done.returncode == 1, done
    assert named in done.stderr, done.stderr


@pytest.mark.parametrize("given", ["-f 40000", "-v 400000"])
def test_a_limit_that_a_server_meets_while_it_runs(own_place: Path, transport: str, given: str) -> None:
    """Memory for blocks that it may not have: the put fails and names the limit; the server lives."""
    group = own_place / "group.json"
    command = f'ulimit {given}; exec "{FOREBAY}" up -n 1 --group "{group}" --budget 400M'
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=60)
    try:
        (server,) = forebay.Admin(group=group).status()["servers"]
        with forebay.Space(group=group, timeout=20, transport=transport) as space:
            for step in range(2):
                if "-v" in given and transport == "shm":
                    space.put(
                        "large", np.ones(1 << 20), step=step
                    )  # the server shows memory that it need not map
                    continue
                with pytest.raises(forebay.Error, match=f"ulimit {given[:2]}"):
                    space.put("large", np.ones(1 << 20), step=step)
        assert is_alive(server["pid"])
        assert forebay.Admin(group=group).status()["servers"][0]["pid"] == server["pid"]
    finally:
        subprocess.run([FOREBAY, "down", "--group", str(group)], check=True, capture_output=True, timeout=60)
    wait_until(lambda: not is_alive(server["pid"]))


@pytest.mark.parametrize("to", ["a file", "a pipe's file"])
def test_what_is_read_does_not_fit_the_limit_of_files(
    two: forebay.LocalGroup, own_place: Path, to: str
) -> None:
    """The command is not ended without a word; it names the limit."""
    with forebay.Producer("s", group=two.path, keep=1) as sim:
        sim.array("large", dtype="f8", shape=(1 << 16,))
        with sim.step(0) as step:
            step.put("large", np.ones(1 << 16))
    place = own_place / "large.npy"
    written = f'-o "{place}"' if to == "a file" else f'> "{place}"'
    command = f'ulimit -f 8; "{FOREBAY}" get s large --format npy --group "{two.path}" {written}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    assert "ulimit -f" in done.stderr


PAIR = """
with forebay.Producer("s", group=sys.argv[1], timeout=10) as sim:
    sim.array("U", dtype="f8", shape=(100000,))
    with forebay.Consumer("s", group=sys.argv[1], timeout=10) as reader:
        with sim.step(0) as step:
            step.put("U", np.arange(1e5))
        step = reader.next()
        assert step["U"][5] == 5
        step.release()
print("done")
"""

WORKS: list[tuple[str, ...]] = [
    ("pidfd_open",),
    ("linkat", "link"),
    ("getrandom",),
    ("statx",),
    ("pidfd_send_signal",),
]
"""What Forebay does without."""

NAMED = {
    "memfd_create": "memfd_create",
    SEALS: "F_ADD_SEALS",
    "flock": "flock",
    "ftruncate": "Operation not permitted",
}
"""What it cannot do without, and how the error names it."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers")
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("calls", WORKS, ids=lambda calls: calls[0])
def test_what_a_filter_may_refuse(
    own_place: Path, child: Callable[..., Child], calls: tuple[str, ...], error: int
) -> None:
    """Servers and clients work all the same; the death of a client is noticed."""
    group = own_place / "group.json"
    filtered = refusing(*calls, error=error)
    up = [*filtered, FOREBAY, "up", "-n", "2", "--budget", "64M", "--group", group, "--timeout", "30"]
    subprocess.run(up, check=True, capture_output=True, timeout=60)
    try:
        pair = child(PAIR, group, inside=filtered)
        pair.expect("done")
        pair.ended()
        killed = child(SINGLE_RANK, group, "shm", "killed", 1, inside=filtered)
        killed.expect("open")
        put_steps(killed, 0, 2)
        killed.process.kill()
        wait_until(lambda: phase(group, "killed") == "crashed")
    finally:
        subprocess.run([FOREBAY, "down", "--group", group], check=True, capture_output=True, timeout=60)


def phase(group: Path, stream: str) -> str:
    status = forebay.Admin(group=group).status()
    return next((found["phase"] for found in status["streams"] if found["name"] == stream), "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers")
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call", NAMED)
def test_what_a_filter_refuses_is_named(
    own_place: Path, child: Callable[..., Child], call: str, error: int
) -> None:
    """By the command that starts servers, or by what is staged; the servers live."""
    group = own_place / "group.json"
    filtered = refusing(call, error=error)
    up = [*filtered, FOREBAY, "up", "-n", "1", "--budget", "64M", "--group", group, "--timeout", "10"]
    done = subprocess.run([*map(str, up)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        told = done.stderr
    else:
        try:
            pair = child(PAIR, group)
            assert pair.code() != 0
            told = pair.errors
            assert forebay.Admin(group=group).status()["servers"][0].get("error") is None
        finally:
            subprocess.run([FOREBAY, "down", "--group", group], check=True, capture_output=True, timeout=60)
    wanted = (
        NAMED[call]
        if error == errno.EPERM
        else NAMED[call].replace("Operation not permitted", "Function not")
    )
    assert wanted in told, told
    assert "forebay doctor" in told


@pytest.mark.parametrize("given", ["0.0.0.0", "::", "127.0.1.1 0.0.0.0"])
def test_an_address_that_stands_for_all_is_refused(own_place: Path, given: str) -> None:
    done = subprocess.run(
        [FOREBAY, "serve", "--group", own_place / "group.json", "--bind", given],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "--advertise" in done.stderr
    assert "ip -brief" in done.stderr


def test_a_group_on_loopback_tells_other_hosts_what_to_do(own_place: Path, hosts: list[str]) -> None:
    """Whoever reads its connection file on another host: a client, or a server that wants to join."""
    group = own_place / "group.json"
    serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--bind", "127.0.0.1"]
    server = subprocess.Popen([*inside(hosts[0]), *map(str, serve)], stderr=subprocess.DEVNULL)
    try:
        wait_until(group.exists)
        for command in (["ls", "--group", group, "--timeout", "3"], [*serve[1:], "--timeout", "3"]):
            elsewhere = [*inside(hosts[1]), *map(str, [FOREBAY, *command])]
            done = subprocess.run(elsewhere, capture_output=True, text=True, timeout=60)
            assert done.returncode != 0
            assert "server0 listens on a loopback address" in done.stderr, done.stderr
            assert "--bind" in done.stderr
    finally:
        server.kill()
        server.wait()
