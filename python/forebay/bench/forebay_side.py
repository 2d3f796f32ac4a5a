# SPDX-License-Identifier: Apache-2.0
"""All that the benchmarks know of Forebay's own interface, in one place.

The package is imported when it is used, so that the bare baselines and `--help` work without the core.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench.errors import BenchError
from forebay.bench.harness import MIB
from forebay.bench.patterns import Array
from forebay.bench.rigs import Fill, Route, Setup, own_array

FIELD = "U"
_TIMEOUT = 60.0
_STREAM_SLACK = 16 * MIB


def package() -> Any:
    """The package `forebay`, or a message that says what is missing."""
    try:
        return importlib.import_module("forebay")
    except ImportError as error:
        raise BenchError(f"the package forebay cannot be imported: {error}; try: make build") from error


@dataclass(frozen=True)
class Group:
    """A private group of servers."""

    path: str
    pids: tuple[int, ...]


@contextlib.contextmanager
def local_group(servers: int = 2, budget: int | None = None) -> Iterator[Group]:
    """A private group, gone with this process."""
    with package().local(servers=servers, budget_bytes=budget) as group:
        yield Group(str(group.path), tuple(int(server.pid) for server in group.servers.values()))


def wait_for_members(path: str, count: int) -> None:
    """Waits until a connection file tells of so many servers."""
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if len(json.loads(Path(path).read_text())["servers"]) >= count:
                return
        time.sleep(0.01)
    raise BenchError(f"a group did not get {count} servers in {_TIMEOUT:g} s")


@dataclass(frozen=True)
class ServerStatus:
    """What a server says about itself, in bytes where nothing else is said."""

    pid: int
    rss: int
    arena: int
    staged: int
    peak_staged: int
    budget: int
    directory: int
    blocks: int


def status(group: Group) -> list[ServerStatus]:
    """What every server of the group says about itself."""
    with package().Admin(group=group.path) as admin:
        told: Mapping[str, Any] = admin.status()
    return [
        ServerStatus(
            pid=int(server["pid"]),
            rss=int(server["rss_bytes"]),
            arena=int(server["arena_bytes"]),
            staged=int(server["staged_bytes"]),
            peak_staged=int(server["peak_staged_bytes"]),
            budget=int(server["budget_bytes"]),
            directory=int(server["directory_bytes"]),
            blocks=int(server["blocks"]),
        )
        for server in told["servers"]
    ]


def producer(group: Group | str, stream: str, shape: tuple[int, ...], **options: Any) -> Any:
    """A producer of the one field of doubles that the benchmarks use."""
    path = group.path if isinstance(group, Group) else group
    options = {"policy": "block", "timeout": _TIMEOUT, **options}
    opened = package().Producer(stream, group=path, **options)
    opened.array(FIELD, dtype="f8", shape=shape, dims=("z", "y", "x")[-len(shape) :])
    return opened


def consumer(
    group: Group | str, stream: str, transport: str = "auto", fields: tuple[str, ...] = (FIELD,)
) -> Any:
    """A consumer of that field, or of others, at every step."""
    path = group.path if isinstance(group, Group) else group
    forebay = package()
    wanted = {name: forebay.every(1) for name in fields}
    return forebay.Consumer(stream, fields=wanted, group=path, timeout=_TIMEOUT, transport=transport)


def space(group: Group, transport: str = "auto") -> Any:
    """A space."""
    return package().Space(group=group.path, transport=transport)


def create_pipeline(group: Group, name: str, target: str, config: Mapping[str, object]) -> None:
    """Gives every server a worker that runs the pipeline `target` (`file.py:Class`)."""
    with package().Admin(group=group.path) as admin:
        admin.create_pipeline(name, target, config=dict(config))


def whole_block(step: Any) -> Array:
    """The one block of a step, as a view."""
    array: Array = step[FIELD].blocks()[0].data
    return array


def plane(step: Any, name: str) -> Array:
    """A copy of the middle plane across the fastest of three dimensions."""
    field = step[name]
    cut: Array = field[:, :, int(field.shape[2]) // 2]
    return cut


def until_seen(write: Callable[[int], None], seen: Callable[[float], bool], patience: float = 30.0) -> int:
    """Writes steps until the consumer has seen one, and is thus attached.  Returns the next step's number."""
    deadline = time.monotonic() + patience
    number = 0
    while True:
        write(number)
        number += 1
        if seen(0.02):
            return number
        if time.monotonic() > deadline:
            raise BenchError(f"the consumer has seen none of {number} steps within {patience:g} s")


class StreamWriter:
    """The producer's end of a rig."""

    def __init__(self, setup: Setup) -> None:
        self.array = own_array(setup.elements)
        self.shape = (setup.elements,)
        self.producer = producer(
            setup.options["group"], setup.name, self.shape, transport=setup.options["transport"]
        )

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Fills its own array and puts it, or fills what alloc gave; a step around each."""
        if not in_place:
            fill(self.array, number)
        with self.producer.step(number, time=float(number)) as step:
            if not in_place:
                step.put(FIELD, self.array, offset=(0,))
            elif (memory := step.alloc(FIELD, self.shape, offset=(0,))) is not None:
                fill(memory, number)
                step.commit(memory)

    def close(self) -> None:
        """Ends the stream."""
        self.producer.close()


class StreamReader:
    """The consumer's end of a rig."""

    def __init__(self, setup: Setup) -> None:
        self.consumer = consumer(setup.options["group"], setup.name, setup.options["transport"])
        self.step: Any = None

    def read(self, out: Array | None) -> Array:
        """The next step: its block as a view, or a read into `out`."""
        self.step = self.consumer.next(timeout=_TIMEOUT)
        if out is None:
            return whole_block(self.step)
        self.step[FIELD].read(region=np.s_[:], out=out)
        return out

    def release(self) -> None:
        """Gives the step back."""
        self.step.release()
        self.step = None

    def close(self) -> None:
        """Leaves the stream."""
        self.consumer.close()


def stream_budget(elements: int, depth: int) -> int:
    """A budget for so many steps in flight, and a little more."""
    return depth * elements * 8 + _STREAM_SLACK


def route(group: Group, transport: str) -> Route:
    """Forebay, through shared memory or over TCP."""
    return Route(
        f"forebay {transport}",
        StreamWriter,
        StreamReader,
        {"group": group.path, "transport": transport},
        in_place=transport == "shm",
        settings="policy block, one server",
    )
