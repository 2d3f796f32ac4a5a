# SPDX-License-Identifier: Apache-2.0
"""One producer process and one consumer process, whatever carries the data between them.

The loops are the same for Forebay, for the bare baselines and for the peers; only the `Writer` and the
`Reader` differ.  In a burst of steps the clock runs from before the producer fills its first step until the
consumer has taken the last one: filling, handing over, waiting for each other and taking are inside, opening
and closing are not.  To take a step is to look at 64 places of it in a view, or to copy it into an array of
one's own and to look at those places there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from forebay.bench.children import Channel, Child
from forebay.bench.errors import WrongData
from forebay.bench.patterns import Array, Pattern, age_ns, stamp
from forebay.bench.samples import Samples, now_ns

Fill = Callable[[Array, int], None]
_LAST_OF_WARM_UP = -0.1  # no step has it at its first place
_WARM_UP_STEPS = 12  # more than are ever in flight, so that both sides have touched every buffer


@dataclass(frozen=True)
class Setup:
    """What both ends have to know."""

    name: str
    elements: int
    depth: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """The producer's end."""

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Fills an array of its own and hands over a copy, or fills the memory that the reader will see."""

    def close(self) -> None:
        """Ends the stream."""


class Reader(Protocol):
    """The consumer's end."""

    def read(self, out: Array | None) -> Array:
        """Waits for the next step: a view of it, or `out` with a copy."""

    def release(self) -> None:
        """Gives the step back; its view is not used any more."""

    def close(self) -> None:
        """Leaves the stream."""


def _nothing(name: str) -> None:
    """Removes nothing."""


@dataclass(frozen=True)
class Route:
    """A way from a producer to a consumer."""

    label: str
    writer: Callable[[Setup], Writer]
    reader: Callable[[Setup], Reader]
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = True
    """Whether the producer can fill the memory that the reader will see."""
    view: bool = True
    """Whether the reader can look at a step without copying it."""
    clean_up: Callable[[str], None] = _nothing
    """Removes what a pair of that name may have left behind, once both are gone."""
    settings: str = ""
    """How it is set up, for people."""


def own_array(elements: int) -> Array:
    """An array whose pages have been touched."""
    array: Array = np.empty(elements, dtype=np.float64)
    array.fill(1.0)
    return array


def produce(
    channel: Channel, open_writer: Callable[[Setup], Writer], fills_in_place: bool, setup: Setup
) -> None:
    """The producer's process."""
    writer = open_writer(setup)
    pattern = Pattern(setup.elements)
    channel.send("ready")

    def fill_last(array: Array, number: int) -> None:
        pattern.fill(array, number)
        array.reshape(-1)[0] = _LAST_OF_WARM_UP

    for what, *more in channel:
        if what == "warm up":
            tried = 0
            while not channel.poll(0.02):  # until the consumer has seen one: then it is attached
                writer.write(tried, pattern.fill, False)
                tried += 1
            channel.receive()
            last = tried + _WARM_UP_STEPS
            for number in range(tried, last):
                writer.write(number, pattern.fill, fills_in_place and number % 2 == 0)
            writer.write(last, fill_last, False)
            channel.send(last + 1)
        elif what == "burst":
            first, count, in_place = more
            began = now_ns()
            for number in range(first, first + count):
                writer.write(number, pattern.fill, in_place)
            channel.send(began)
        elif what == "stamps":
            first, count, gap = more
            for number in range(first, first + count):
                time.sleep(gap)
                writer.write(number, stamp, False)
            channel.send(None)
        elif what == "close":
            writer.close()
            channel.send(None)
            return


def consume(channel: Channel, open_reader: Callable[[Setup], Reader], views: bool, setup: Setup) -> None:
    """The consumer's process."""
    reader = open_reader(setup)
    pattern = Pattern(setup.elements)
    out = own_array(setup.elements)
    channel.send("ready")
    for what, *more in channel:
        if what == "warm up":
            _take_warm_up(channel, reader, pattern, out, views)
        elif what == "burst":
            first, count, copy = more
            for number in range(first, first + count):
                pattern.check(reader.read(out if copy else None), number)
                reader.release()
            channel.send(now_ns())
        elif what == "stamps":
            ages = []
            for _ in range(more[0]):
                ages.append(age_ns(reader.read(None if views else out)))
                reader.release()
            channel.send(ages)
        elif what == "close":
            reader.close()
            channel.send(None)
            return


def _take_warm_up(channel: Channel, reader: Reader, pattern: Pattern, out: Array, view: bool) -> None:
    """Takes steps in both ways, compares each of them whole, until the one marked as the last."""
    expected: int | None = None
    while True:
        copy = not view or expected is None or expected % 4 < 2
        array = reader.read(out if copy else None).reshape(-1)
        first = float(array[0])
        if first == _LAST_OF_WARM_UP:
            del array
            reader.release()
            channel.send("warm")
            return
        number = pattern.step_of(first)
        if expected is not None and number != expected:
            raise WrongData(f"step {number} arrived where step {expected} was due")
        pattern.check_all(array, number)
        del array
        reader.release()
        if expected is None:
            channel.send("seen")
        expected = number + 1


class Rig:
    """Both processes of a route, running and warm."""

    def __init__(self, route: Route, setup: Setup) -> None:
        self.route = route
        self._name = setup.name
        options = {**route.options, **setup.options}
        setup = Setup(setup.name, setup.elements, setup.depth, options)
        self._producer = Child(
            f"producer of {route.label}", produce, route.writer, route.in_place, setup, env=route.env
        )
        self._consumer = Child(
            f"consumer of {route.label}", consume, route.reader, route.view, setup, env=route.env
        )
        self._next = 0
        try:
            for child in (self._producer, self._consumer):
                child.answer()
            self._warm_up()
        except BaseException:
            self._end(patience=0.2)
            raise

    def _warm_up(self) -> None:
        self._consumer.tell("warm up")
        self._producer.tell("warm up")
        self._consumer.answer()
        self._next = self._producer.ask("seen")
        self._consumer.answer()

    def burst(self, count: int, *, in_place: bool, copy: bool) -> float:
        """Moves so many steps; returns seconds for each."""
        self._consumer.tell("burst", self._next, count, copy)
        self._producer.tell("burst", self._next, count, in_place)
        self._next += count
        began, ended = self._producer.answer(), self._consumer.answer()
        return float(ended - began) / 1e9 / count

    def latencies(self, count: int, gap: float) -> Samples:
        """Seconds from the producer's stamp to the reader's value, for so many steps `gap` seconds apart."""
        self._consumer.tell("stamps", count)
        self._producer.tell("stamps", self._next, count, gap)
        self._next += count
        self._producer.answer()
        return [age / 1e9 for age in self._consumer.answer()]

    def _end(self, patience: float) -> None:
        self._producer.close(patience)
        self._consumer.close(patience)
        self.route.clean_up(self._name)

    def close(self) -> None:
        """Ends the stream and both processes."""
        self._consumer.tell("close")
        self._producer.tell("close")
        for child in (self._producer, self._consumer):
            child.answer(30.0)
        self._end(patience=10.0)

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end(patience=0.2)
