"""What befalls the machine: a disk that is full, clocks that jump, a control group's memory that runs out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.children import Child
from support.commands import FOREBAY
from support.groups import BUDGET, server_ids
from support.native import compiler
from support.processes import is_alive
from support.sessions import consumer
from support.single_rank import SINGLE_RANK, put_steps, read_steps
from support.waiting import wait_until

import forebay

# ---- a full disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(own_place: Path) -> Iterator[Path]:
    """A file system of a quarter of a MiB."""
    place = own_place / "disk"
    place.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
        )
    except OSError as error:
        pytest.skip(f"there is no mount: {error}")
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> Path:
    """Takes all room that is left."""
    with (place / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    return place / "fill"


def test_the_disk_of_the_connection_file_is_full(small_disk: Path, child: Callable[..., Child]) -> None:
    """The members agree, and all goes on; the file tells of them when there is room."""
    group = small_disk / "g.json"
    servers = []
    try:
        for number in range(3):
            serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--bind", "127.0.0.1"]
            servers.append(subprocess.Popen([*map(str, serve)], stderr=subprocess.DEVNULL))
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        rank = child(SINGLE_RANK, group, "auto", "s", 2)
        rank.expect("open")
        with consumer(group) as reader:
            put_steps(rank, 0, 3)
            read_steps(reader, 0, 2)
            filled = fill(small_disk)
            # The home of the rank.
            servers[0].kill()
            servers[0].wait()
            put_steps(rank, 3, 6)
            read_steps(reader, 2, 6)
            assert server_ids(group) == [0, 1, 2], "there was room"
            with consumer(group) as later:
                put_steps(rank, 6, 8)
                read_steps(later, 6, 8)
            filled.unlink()
            wait_until(lambda: server_ids(group) == [1, 2])
            assert sorted(entry.name for entry in small_disk.iterdir()) == [".g.json.witness", "g.json"]
        rank.close_input()
        rank.ended()
    finally:
        for server in servers:
            server.kill()
            server.wait()


# ---- clocks that jump -------------------------------------------------------------------------------

JUMP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

/* A year ahead, and then a year back, with every other look. */
static long jump(void) {
    static long looks;
    return (__sync_add_and_fetch(&looks, 1) % 2 ? 1 : -1) * 365L * 86400L;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    (void)zone;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out) *out = precise.tv_sec;
    return precise.tv_sec;
}
"""

READER = """
import time
looks = [time.time() for _ in range(8)]
assert max(looks) - min(looks) > 1e7, "the clock does not jump"
with forebay.Consumer("s", group=sys.argv[1], timeout=20) as reader:
    print("attached")
    for number in range(6):
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False), step
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))
print("whole")
"""


def test_clocks_that_jump(
    own_place: Path, child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """No deadline, lease or suspicion depends on the time of day."""
    source, shim = own_place / "jump.c", own_place / "jump.so"
    source.write_text(JUMP)
    subprocess.run([compiler("c"), "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        reader = child(READER, group.path)
        reader.expect("attached")
        rank = child(SINGLE_RANK, group.path, transport, "s", 2)
        rank.expect("open")
        put_steps(rank, 0, 3)
        os.kill(group.servers[0].pid, signal.SIGKILL)
        put_steps(rank, 3, 6)
        reader.expect("whole")
        rank.close_input()
        for ended in (rank, reader):
            ended.ended()


# ---- a control group's memory -----------------------------------------------------------------------


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group with 96 MiB."""
    for base in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        place = Path(base, f"forebay{os.getpid()}")
        with contextlib.suppress(OSError):
            place.mkdir()
            for name in ("memory.limit_in_bytes", "memory.max"):
                if (place / name).exists():
                    (place / name).write_text(str(96 << 20))
                    yield place
                    wait_until(lambda place=place: not (place / "cgroup.procs").read_text())
                    place.rmdir()
                    return
            place.rmdir()
    pytest.skip("no control group can be made")


def test_a_control_group_runs_out_of_memory(
    own_place: Path, little_memory: Path, child: Callable[..., Child]
) -> None:
    """A server with a larger budget than its control group is killed; the simulation goes on without it."""
    group = own_place / "g.json"
    serve = f"{FOREBAY} serve --group {group} --budget 512M --bind 127.0.0.1"
    confined = f"echo $$ > {little_memory}/cgroup.procs && exec {serve}"
    servers = []
    try:
        for number, line in enumerate([confined, f"exec {serve}"]):
            servers.append(subprocess.Popen(["sh", "-c", line], stderr=subprocess.DEVNULL))
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        array = np.ones(1 << 20)
        options = {"transport": "tcp", "timeout": 20, "keep": 100}
        with forebay.Producer("s", group=group, **options) as sim:
            sim.array("U", dtype="f8", shape=array.shape)
            for number in range(60):
                with sim.step(number) as step:
                    step.put("U", array)
            wait_until(lambda: not is_alive(servers[0].pid) or servers[0].poll() is not None)
            wait_until(lambda: server_ids(group) == [1])
            with consumer(group, transport="tcp") as reader:
                with sim.step(60) as step:
                    assert step.put("U", array * 60)
                found = reader.next(timeout=20)
                while found.number < 60:
                    found = reader.next(timeout=20)
                assert not found.torn
                np.testing.assert_array_equal(found["U"][...], array * 60)
        assert servers[0].wait() == -signal.SIGKILL
    finally:
        for server in servers:
            server.kill()
            server.wait()
