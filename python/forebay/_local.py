# SPDX-License-Identifier: Apache-2.0
"""A private group for a script, a notebook or a test: gone with its process, however that ends."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from forebay import _forebay
from forebay._admin import Admin
from forebay._arrays import integer
from forebay._errors import Error, Invalid, NotFound, Timeout, Unreachable
from forebay._installed import command_path

# For how many seconds servers can be told to put up with one that is silent.
_SILENCE_MIN, _SILENCE_MAX = 1, 3600


@dataclass(frozen=True)
class LocalServer:
    """A server of a private group."""

    number: int
    """As `forebay status` shows it: 2 for server2."""
    pid: int
    process: subprocess.Popen[bytes]


class LocalGroup:
    """Servers on loopback and shared memory. Made by `local`. `servers` are those that were started, by their numbers."""

    def __init__(
        self, servers: int, budget_bytes: int | None, arguments: Sequence[str], timeout: float
    ) -> None:
        self._directory = tempfile.mkdtemp(prefix="forebay-")
        self.path = os.path.join(self._directory, "group.json")
        self.log = os.path.join(self._directory, "servers.log")
        self.servers: dict[int, LocalServer] = {}
        self._joining: list[subprocess.Popen[bytes]] = []
        self._serve = [command_path(), "serve", "--group", self.path, "--servers", str(servers)]
        self._serve += ["--bind", "127.0.0.1", "--watch-parent", str(os.getpid()), *arguments]
        self._serve += ["--private-place", self._directory]
        if budget_bytes is not None:
            self._serve += ["--budget", str(budget_bytes)]
        try:
            self._start(servers)
            self._wait(self._all_answer, timeout)
            self._have_joined()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<forebay.LocalGroup of {len(self.servers)} servers: {self.path}>"

    def _start(self, servers: int) -> None:
        with open(self.log, "ab") as log:
            for _ in range(servers):
                process = subprocess.Popen(
                    self._serve, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
                )
                self._joining.append(process)

    def add_servers(self, count: int = 1, *, timeout: float = 30.0) -> list[int]:
        """Starts more servers and waits until they are members; returns their numbers. Nothing that runs is held up.

        Raises `Timeout` if they are not admitted, for which more than half of the group must answer.
        """
        self._start(integer(count, "count", low=1, bits=12))
        try:
            pids = {process.pid for process in self._joining}
            self._wait(lambda _: pids <= set(_forebay.member_processes(self.path).values()), timeout)
        except BaseException:
            for process in self._joining:
                process.kill()
                process.wait()
            self._joining.clear()
            raise
        return self._have_joined()

    def remove_server(self, server: int, *, discard: bool = False, timeout: float = 30.0) -> None:
        """Has a server leave the group, as `Admin.remove_server` does, and waits until it has ended."""
        left = self.servers.get(integer(server, "server", bits=32))
        if left is None:
            known = ", ".join(map(str, self.servers)) or "none"
            raise NotFound(f"this group has started no server {server}; there are {known}")
        Admin(group=self.path, timeout=timeout).remove_server(left.number, discard=discard)
        left.process.wait(timeout)
        del self.servers[left.number]

    def _have_joined(self) -> list[int]:
        """Servers are given their numbers as they find each other."""
        joining = {process.pid: process for process in self._joining}
        members = _forebay.member_processes(self.path)
        joined = {number: joining[pid] for number, pid in sorted(members.items()) if pid in joining}
        for number, process in joined.items():
            self.servers[number] = LocalServer(number, process.pid, process)
        self._joining.clear()
        return list(joined)

    def _wait(self, is_so: Callable[[float], bool], timeout: float) -> None:
        """Waits until it is so, which is asked with the seconds that are left, while those that join still run."""
        if math.isnan(timeout):
            raise Invalid("timeout is nan: give seconds")
        deadline = time.monotonic() + timeout
        while True:
            for process in self._joining:
                if process.poll() is not None:
                    raise Unreachable(f"a server ended at once: {self.output().strip()}")
            left = deadline - time.monotonic()
            with contextlib.suppress(Error):
                if os.path.exists(self.path) and is_so(max(0.0, left)):
                    return
            if left <= 0:
                raise Timeout(f"the group was not up within {timeout:g} s: {self.output().strip()}")
            time.sleep(0.002)

    def _all_answer(self, left: float) -> bool:
        told = Admin(group=self.path, timeout=min(5.0, left)).status()["servers"]
        return all("error" not in server for server in told)

    def __fspath__(self) -> str:
        """The connection file, so that the group itself can be given wherever its path can."""
        return self.path

    def output(self) -> str:
        """What the servers printed."""
        with contextlib.suppress(OSError), open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()
        return ""

    def close(self) -> None:
        """Ends the servers and removes their files."""
        processes = [*(server.process for server in self.servers.values()), *self._joining]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        # One deadline for all: servers that stand still do so together.
        deadline = time.monotonic() + 5
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        for process in processes:
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def local(
    servers: int = 1,
    *,
    budget_bytes: int | None = None,
    encrypt: bool = False,
    silence: float | None = None,
    timeout: float = 30.0,
) -> LocalGroup:
    """Starts a private group of servers. Its `path` is what other handles take as `group`.

    `budget_bytes` is how many bytes of blocks each server may hold; `encrypt` seals bulk data over TCP; within
    `silence` seconds the others give up a server that stands still, and not before half of them
    (default 10). The servers end when the group is closed, or when this process ends, however it does.
    """
    servers = integer(servers, "servers", low=1, bits=12)
    if budget_bytes is not None:
        budget_bytes = integer(budget_bytes, "budget_bytes", low=1)
    arguments = ["--encrypt"] if encrypt else []
    if silence is not None:
        try:
            possible = _SILENCE_MIN <= float(silence) <= _SILENCE_MAX
        except (TypeError, ValueError):
            possible = False
        if not possible:
            raise Invalid(f"silence is {silence!r}: give {_SILENCE_MIN} to {_SILENCE_MAX} seconds")
        arguments += ["--silence", str(silence)]
    return LocalGroup(servers, budget_bytes, arguments, timeout)
