"""What the tests of real processes share: waiting, children, reference arrays."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import forebay

BUDGET = 256 << 20
"""Bytes of blocks that each server of a test may hold: far less than the machine has."""

MARK = "FOREBAY_TEST_MARK"
"""In the environment of every process that a test starts, directly or through others."""

FOREBAY = Path(sys.executable).with_name("forebay")

PREAMBLE = """
import json, os, sys, signal, threading, time
import numpy as np
import forebay
from support import *
"""


def wait_until(condition: Callable[[], Any], timeout: float = 20.0, what: str = "") -> Any:
    """Waits until the condition holds; returns what it returned."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what or condition}"
        time.sleep(0.005)


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


class Child:
    """A Python process that runs a snippet. It talks by lines."""

    def __init__(self, code: str, *arguments: object, inside: Sequence[str] = (), **options: Any) -> None:
        text = PREAMBLE + textwrap.dedent(code)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-W", "error", "-c", text, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )
        self.pid = self.process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    def line(self, timeout: float = 30.0) -> str:
        """Its next line."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the child says nothing for {timeout:g} s; {self.errors}") from None
        if line is None:
            self.process.wait(5)
            self._readers[1].join(5)
            raise AssertionError(f"the child ended ({self.process.returncode}): {self.errors}")
        return line

    def expect(self, wanted: str, timeout: float = 30.0) -> None:
        """Its next line is this one."""
        found = self.line(timeout)
        assert found == wanted, f"{found!r} instead of {wanted!r}; {self.errors}"

    def say(self, text: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        """It reads the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def ended(self, timeout: float = 30.0) -> list[str]:
        """Waits for its end, which must be a good one; the lines that were not read yet."""
        code = self.code(timeout)
        assert code == 0, f"the child ended with {code}: {self.errors}"
        lines = []
        while (line := self._lines.get(timeout=5)) is not None:
            lines.append(line)
        return lines

    def code(self, timeout: float = 30.0) -> int:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(f"the child hangs: {self.errors}") from None
        for reader in self._readers:
            reader.join(5)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


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


def server_status(group: forebay.LocalGroup, number: int = 0) -> dict[str, Any]:
    with forebay.Admin(group=group.path, timeout=10) as admin:
        found: dict[str, Any] = admin.status()["servers"][number]
    return found


def stream_status(group: forebay.LocalGroup, name: str) -> dict[str, Any] | None:
    """What the stream's coordinator says of it; None if there is no such stream (any more)."""
    with forebay.Admin(group=group.path, timeout=10) as admin:
        return next((stream for stream in admin.status()["streams"] if stream["name"] == name), None)


def open_ranks_of(group: forebay.LocalGroup, name: str) -> int:
    """How many ranks of a stream's latest run are open."""
    status = stream_status(group, name)
    return 0 if status is None else int(status["ranks"]["open"])


def total(group: forebay.LocalGroup, key: str) -> int:
    with forebay.Admin(group=group.path, timeout=10) as admin:
        return sum(server.get(key, 0) for server in admin.status()["servers"])


def is_given_back(group: forebay.LocalGroup) -> bool:
    """Whether nothing is staged, on any server."""
    return total(group, "staged_bytes") == 0


def reference(shape: tuple[int, ...], dtype: Any = "f8", step: int = 0) -> np.ndarray[Any, Any]:
    """A global array in which every element tells its place and step."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64) * 3 + step * 1001 + 1
    if dtype.kind == "b":
        flat = (numbers * 2654435761) // 65536 % 3 == 0
    elif dtype.kind == "c":
        flat = numbers + 1j * (numbers % 97 + step)
    elif dtype == np.float16:
        flat = numbers % 2039
    elif dtype.itemsize == 1:
        flat = numbers % 127 - (60 if dtype.kind == "i" else 0)
    else:
        flat = numbers % 30011 if dtype.itemsize == 2 else numbers
    return flat.astype(dtype).reshape(shape)


def cut(extent: int, parts: int) -> list[tuple[int, int]]:
    """Cuts an extent into unequal, non-empty parts: (begin, end) of each."""
    weights = np.arange(1, parts + 1) + 1.5
    ends = np.floor(np.cumsum(weights) / weights.sum() * (extent - parts)).astype(int) + np.arange(
        1, parts + 1
    )
    ends[-1] = extent
    begins = [0, *ends[:-1].tolist()]
    return [(int(a), int(b)) for a, b in zip(begins, ends.tolist(), strict=True)]


def write_steps(
    producers: list[forebay.Producer],
    numbers: Any,
    whole: Callable[[int], np.ndarray[Any, Any]],
    field: str = "U",
) -> None:
    """All ranks, in this process, put their slab along the first dimension at each step."""
    for number in numbers:
        array = whole(number)
        slabs = cut(array.shape[0], len(producers))
        with contextlib.ExitStack() as stack:
            for producer, (begin, end) in zip(producers, slabs, strict=True):
                step = stack.enter_context(producer.step(number, time=number / 8))
                step.put(field, array[begin:end], offset=(begin, *[0] * (array.ndim - 1)))


def trouble(producers: list[forebay.Producer]) -> str | None:
    """What the servers tell one of these ranks that went wrong with what it put."""
    for producer in producers:
        try:
            producer.flush()
        except forebay.Conflict as error:
            return str(error)
    return None


@contextlib.contextmanager
def open_ranks(group: Any, stream: str, size: int, **options: Any) -> Iterator[list[forebay.Producer]]:
    """All ranks of a run, in this process."""
    path = getattr(group, "path", group)
    options.setdefault("timeout", 20)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(forebay.Producer(stream, rank=rank, size=size, group=path, **options))
            for rank in range(size)
        ]


def consumer(group: Any, stream: str = "s", **options: Any) -> forebay.Consumer:
    """A reader of this group, given as such or by its path."""
    options.setdefault("timeout", 20)
    return forebay.Consumer(stream, group=getattr(group, "path", group), **options)


def producer(group: Any, stream: str = "s", **options: Any) -> forebay.Producer:
    """The only rank of a run, unless the options say otherwise."""
    options.setdefault("timeout", 20)
    return forebay.Producer(stream, group=getattr(group, "path", group), **options)


def check_it_works(group: Any, transport: str = "auto") -> None:
    """A step goes through, whole."""
    path = getattr(group, "path", group)
    with (
        forebay.Consumer("works", group=path, transport=transport, timeout=20) as reader,
        open_ranks(path, "works", 2, transport=transport) as sim,
    ):
        whole = reference((300, 70))
        for rank in sim:
            rank.array("U", dtype="f8", shape=(300, 70))
        with sim[0].step(0) as a, sim[1].step(0) as b:
            a.put("U", whole[:120])
            b.put("U", whole[120:], offset=(120, 0))
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def edited(group: forebay.LocalGroup, path: Path, **changes: object) -> str:
    """A copy of the group's connection file with changes."""
    content = json.loads(Path(group.path).read_text())
    content.update(changes)
    content["homes"] = [server["id"] for server in content["servers"]]
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return str(path)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `forebay` with these arguments."""
    return subprocess.run(
        [FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
