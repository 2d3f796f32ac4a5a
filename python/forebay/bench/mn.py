# SPDX-License-Identifier: Apache-2.0
"""M processes that write and N that read, step by step, whatever carries the data between them.

Each writer hands over one array of its own at each step.  Each reader is given the arrays of whole writers, copies them into memory
of its own, or looks at 64 places of each where they are.  Nothing is in flight when a step begins.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from forebay.bench.children import Channel, Child
from forebay.bench.errors import BenchError
from forebay.bench.patterns import Array
from forebay.bench.peers.adios2_sst import contact, remove_contact
from forebay.bench.rigs import own_array
from forebay.bench.samples import now_ns

_TIMEOUT = 60.0
_SST_TRIES = 4


@dataclass(frozen=True)
class Place:
    """Which of how many processes one is, and what it moves."""

    stream: str
    group: str
    rank: int
    writers: int
    readers: int
    elements: int

    def mine(self) -> range:
        """Of a reader: the writers whose arrays it is given; the remainder goes to the first."""
        each, more = divmod(self.writers, self.readers)
        begin = self.rank * each + min(self.rank, more)
        return range(begin, begin + each + (self.rank < more))


class Writer(Protocol):
    """One of the writers."""

    def write(self, number: int, array: Array) -> None:
        """Hands over a step."""

    def close(self) -> None:
        """Ends its stream."""


class Reader(Protocol):
    """One of the readers."""

    def read(self, out: list[Array] | None) -> list[float]:
        """Waits for a step and takes it, into `out` or where it is: the first element of each array."""

    def close(self) -> None:
        """Leaves."""


def _nothing(place: Place) -> None:
    """Removes nothing."""


@dataclass(frozen=True)
class Carrier:
    """What carries the data."""

    label: str
    writer: Callable[[Place], Writer]
    reader: Callable[[Place], Reader]
    clean_up: Callable[[Place], None] = _nothing
    tries: int = 1
    """How often its processes may be begun: another's library crashes, by chance, as many of its streams open."""


class _ForebayWriter:
    def __init__(self, place: Place) -> None:
        forebay: Any = importlib.import_module("forebay")
        self._sim = forebay.Producer(
            place.stream,
            rank=place.rank,
            size=place.writers,
            group=place.group,
            policy="block",
            timeout=_TIMEOUT,
        )
        self._sim.array("state", dtype="f8", ndim=1)

    def write(self, number: int, array: Array) -> None:
        with self._sim.step(number) as step:
            step.put("state", array)

    def close(self) -> None:
        self._sim.close()


class _ForebayReader:
    def __init__(self, place: Place) -> None:
        forebay: Any = importlib.import_module("forebay")
        parallel: dict[str, Any] = {"name": "readers", "rank": place.rank, "size": place.readers}
        self._reader = forebay.Consumer(
            place.stream,
            group=place.group,
            timeout=_TIMEOUT,
            assign="ranks",
            start="run",
            **(parallel if place.readers > 1 else {}),
        )

    def read(self, out: list[Array] | None) -> list[float]:
        with self._reader.next() as step:
            blocks = step.mine("state")
            if out is None:
                return [float(block.data[:: max(1, len(block.data) // 64)][0]) for block in blocks]
            for target, block in zip(out, blocks, strict=True):
                np.copyto(target, block.data)
            return [float(target[0]) for target in out]

    def close(self) -> None:
        self._reader.close()


class _SstEnd:
    """One stream of SST's: its package is built without MPI, so that each writer has a stream of its own."""

    def __init__(self, place: Place, writer: int) -> None:
        self.adios2: Any = importlib.import_module("adios2.bindings")
        self.session = self.adios2.ADIOS()
        self.io = self.session.DeclareIO("stream")
        self.io.SetEngine("SST")
        self.io.SetParameters({"QueueLimit": "4", "SpeculativePreloadMode": "ON"})
        self.path = contact(f"{place.stream}-{writer}")


class _SstWriter(_SstEnd):
    def __init__(self, place: Place) -> None:
        super().__init__(place, place.rank)
        shape = [place.elements]
        self._variable = self.io.DefineVariable("U", own_array(place.elements), shape, [0], shape, True)
        self._engine = self.io.Open(self.path, self.adios2.Mode.Write)
        self._engine.LockWriterDefinitions()

    def write(self, number: int, array: Array) -> None:
        self._engine.BeginStep()
        self._engine.Put(self._variable, array, self.adios2.Mode.Deferred)
        self._engine.EndStep()

    def close(self) -> None:
        self._engine.Close()


class _SstReader:
    def __init__(self, place: Place) -> None:
        self._ends = [_SstEnd(place, writer) for writer in place.mine()]
        _wait_for([Path(f"{end.path}.sst") for end in self._ends])
        self._engines = [_opened(end) for end in self._ends]
        for engine in self._engines:
            engine.LockReaderSelections()

    def read(self, out: list[Array] | None) -> list[float]:
        assert out is not None
        for end, engine, target in zip(self._ends, self._engines, out, strict=True):
            status = engine.BeginStep()
            if status != end.adios2.StepStatus.OK:
                raise BenchError(f"SST's reader got {status} instead of a step")
            engine.Get(end.io.InquireVariable("U"), target, end.adios2.Mode.Deferred)
            engine.EndStep()
        return [float(target[0]) for target in out]

    def close(self) -> None:
        for engine in self._engines:
            engine.Close()


def _opened(end: _SstEnd) -> Any:
    """A reader of one stream. Where one process opens many, SST says of some, by chance, that their writer has gone."""
    for _ in range(_SST_TRIES):
        with contextlib.suppress(RuntimeError):
            return end.io.Open(end.path, end.adios2.Mode.Read)
        time.sleep(0.5)
    return end.io.Open(end.path, end.adios2.Mode.Read)


def _wait_for(contacts: list[Path]) -> None:
    """Waits until all writers are there: SST's own wait for one fails where the file is half written."""
    deadline = time.monotonic() + _TIMEOUT
    while not all(path.exists() and path.stat().st_size for path in contacts):
        if time.monotonic() > deadline:
            raise BenchError(f"SST's writers have not come in {_TIMEOUT:g} s")
        time.sleep(0.01)
    time.sleep(0.2)


def _remove_contacts(place: Place) -> None:
    for writer in range(place.writers):
        remove_contact(f"{place.stream}-{writer}")


FOREBAY = Carrier("forebay", _ForebayWriter, _ForebayReader)
SST = Carrier("SST best", _SstWriter, _SstReader, _remove_contacts, tries=_SST_TRIES)


def _copies(channel: Channel, sources: list[Array], targets: list[Array]) -> None:
    began = now_ns()
    for source, target in zip(sources, targets, strict=True):
        np.copyto(target, source)
    channel.send((began, now_ns()))


def _write(channel: Channel, carrier: Carrier, place: Place) -> None:
    writer = carrier.writer(place)
    array, spare = own_array(place.elements), own_array(place.elements)
    channel.send("ready")
    for what, *more in channel:
        if what == "step":
            array[0] = more[0] + place.rank / 1024
            began = now_ns()
            writer.write(more[0], array)
            channel.send((began, now_ns()))
        elif what == "memcpy":
            _copies(channel, [array], [spare])
        else:
            writer.close()
            channel.send("closed")
            return


def _read(channel: Channel, carrier: Carrier, place: Place) -> None:
    mine = place.mine()
    out, spare = [own_array(place.elements) for _ in mine], [own_array(place.elements) for _ in mine]
    channel.send("opening")
    reader = carrier.reader(place)
    channel.send("ready")
    for what, *more in channel:
        if what == "step":
            number, copy = more
            found = reader.read(out if copy else None)
            ended = now_ns()
            if found != [number + writer / 1024 for writer in mine]:
                raise BenchError(f"step {number} holds {found} for the writers {mine}")
            channel.send((0, ended))
        elif what == "memcpy":
            _copies(channel, out, spare)
        else:
            reader.close()
            channel.send("closed")
            return


class Processes:
    """The writers and readers of one carrier, warm."""

    def __init__(
        self, carrier: Carrier, group: str, stream: str, shape: tuple[int, int, int], stack: ExitStack
    ) -> None:
        writers, readers, elements = shape
        places = Place(stream, group, 0, writers, readers, elements)
        stack.callback(carrier.clean_up, places)

        def start(role: str, target: Any, rank: int) -> Child:
            place = Place(stream, group, rank, writers, readers, elements)
            return stack.enter_context(Child(f"{role} {rank} of {carrier.label}", target, carrier, place))

        self.readers = [start("reader", _read, rank) for rank in range(readers)]
        for reader in self.readers:
            reader.answer()
        self.writers = [start("writer", _write, rank) for rank in range(writers)]
        for child in (*self.readers, *self.writers):
            child.answer()
        self._next = 0

    def step(self, copy: bool) -> float:
        """Seconds from before the first writer hands over until the last reader has taken a step."""
        number, self._next = self._next, self._next + 1
        for reader in self.readers:
            reader.tell("step", number, copy)
        for writer in self.writers:
            writer.tell("step", number)
        began = min(writer.answer()[0] for writer in self.writers)
        return float(max(reader.answer()[1] for reader in self.readers) - began) / 1e9

    def memcpy(self, of_readers: bool) -> float:
        """Seconds in which the writers, and then maybe the readers, copy as many bytes in their own memory."""
        return sum(_together(side) for side in (self.writers, self.readers)[: 1 + of_readers])

    def close(self) -> None:
        """Ends the stream."""
        for child in (*self.writers, *self.readers):
            child.tell("close")
        for child in (*self.writers, *self.readers):
            child.answer()


def _together(children: list[Child]) -> float:
    for child in children:
        child.tell("memcpy")
    times = [child.answer() for child in children]
    return float(max(ended for _, ended in times) - min(began for began, _ in times)) / 1e9


@contextlib.contextmanager
def processes(
    carrier: Carrier, group: str, stream: str, shape: tuple[int, int, int], stack: ExitStack
) -> Iterator[Processes]:
    """Writers, readers and elements of each array; closed at the end."""
    running = _begun(carrier, group, stream, shape, stack)
    yield running
    running.close()


def _begun(
    carrier: Carrier, group: str, stream: str, shape: tuple[int, int, int], stack: ExitStack
) -> Processes:
    """The processes after a first step; begun again on another stream where one failed before, as often as the carrier may."""
    for attempt in range(1, carrier.tries):
        with ExitStack() as own:
            try:
                running = Processes(carrier, group, f"{stream}-{attempt}", shape, own)
                running.step(copy=True)
            except BenchError as error:
                what = str(error).splitlines()[0].removesuffix(":")
                print(f"forebay bench: {what}; {carrier.label} is begun again", file=sys.stderr)
                continue
            stack.enter_context(own.pop_all())
            return running
    return Processes(carrier, group, stream, shape, stack)
