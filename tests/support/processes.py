"""Processes by their numbers: whether they run, sleep or stand still, and which ones a test started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from support.waiting import wait_until

MARK = "FOREBAY_TEST_MARK"
"""In the environment of every process that a test starts, directly or through others."""


def is_asleep(thread: int | None) -> bool:
    """Whether a thread waits, and not only to be given the interpreter: that it was offered meanwhile."""
    for _ in range(5):
        if Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            return False
        time.sleep(0.005)
    return True


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has reached every thread of a process: it reaches each for itself."""
    states = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


def is_pausing(pid: int) -> bool:
    """Whether a process of one thread sleeps for a time: it waits for nothing else."""
    return Path(f"/proc/{pid}/wchan").read_text() == "hrtimer_nanosleep"


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs: one that nobody has asked for its end yet does not."""
    with contextlib.suppress(OSError):
        states = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return any(state.rpartition(")")[2].split()[0] not in "ZX" for state in states)
    return False


def stand_still(pid: int) -> None:
    """Stops a process; returns once no thread of it can answer."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))


def marked_processes(mark: str) -> dict[int, str]:
    """Processes that carry this mark in their environment, with their command lines."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = line[:200].decode(errors="replace")
    return found
