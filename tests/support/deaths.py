"""Servers of a group that are killed or stand still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import forebay
from support.groups import group_status, pid_of_server
from support.processes import is_alive, stand_still
from support.waiting import wait_until


def kill_servers(group: forebay.LocalGroup, *numbers: int, wait: bool = False) -> list[int]:
    """Ends the servers of these numbers at once; their processes. `wait`s until they have ended, if asked to."""
    processes = {server["server"]: server["pid"] for server in group_status(group)["servers"]}
    pids = [int(processes[number]) for number in numbers]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    if wait:
        wait_until(lambda: not any(is_alive(pid) for pid in pids))
    return pids


@contextmanager
def stopped_server(group: forebay.LocalGroup, number: int) -> Iterator[None]:
    """The server of this number stands still meanwhile."""
    pid = pid_of_server(group, number)
    stand_still(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
