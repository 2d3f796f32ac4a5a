# SPDX-License-Identifier: Apache-2.0
"""bench put: handing over an array on one host, beside one memcpy of it into touched shared memory.

A consumer in a second process takes every step, so that all of it is demanded; before the next step is
begun it has given the last one back.

put              inside the clock: `step.put` of an array that was filled just before, nothing else
step with put    inside: begin, put, end
alloc + commit   inside: fb_alloc and fb_commit in a C program, each with caches that hold nothing of ours, but
                 not the filling between them
from Python      inside: `step.alloc` and `step.commit`, with the caches as filling the array leaves them: what a
                 large array washes out is the interpreter
fill in place    inside: filling what `alloc` gave, beside filling touched shared memory: it shows whether
                 alloc hands out memory that still has to be touched
memcpy           inside: numpy.copyto of the same array into one slot of touched shared memory, the same
                 slot each time (the strictest: it may still lie in the cache)
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from forebay.bench import forebay_side, native_side
from forebay.bench.baselines import SharedBuffer, copy_seconds
from forebay.bench.children import Channel, Child
from forebay.bench.harness import MIB, Report, at_least, named_size, repetitions_of, sizes_of, under, within
from forebay.bench.patterns import Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, Samples, interleave, now_ns

_PUT_BARS = (8 * MIB, 64 * MIB)
_ALLOC_LIMIT_US = 60.0
_GROWTH_LIMIT_US = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--sizes", type=float, nargs="+", metavar="MIB", help="sizes in MiB (1 8 64 256)")


def take_steps(channel: Channel, path: str, stream: str, elements: int) -> None:
    """The consumer: takes each step, checks it, gives it back and says which it was."""
    pattern = Pattern(elements)
    with forebay_side.consumer(path, stream) as consumer:
        for step in consumer:
            with step:
                number = int(step.number)
                array = forebay_side.whole_block(step)
                (pattern.check if number % 8 else pattern.check_all)(array, number)
                del array
            channel.send(number)


class Side:
    """A producer here and its consumer in another process, for arrays of one size."""

    def __init__(self, group: forebay_side.Group, size: int, stack: ExitStack) -> None:
        elements = size // 8
        stream = f"put{size}"
        self.pattern = Pattern(elements)
        self.array = own_array(elements)
        self.shape = (elements,)
        self.shared = SharedBuffer(size)
        self.target = self.shared.array()
        self.child = stack.enter_context(Child("consumer", take_steps, group.path, stream, elements))
        self.producer: Any = stack.enter_context(forebay_side.producer(group, stream, self.shape))
        self.number = forebay_side.until_seen(self._write, self.child.answered)
        self._catch_up()

    def _write(self, number: int) -> None:
        self.pattern.fill(self.array, number)
        with self.producer.step(number, time=float(number)) as step:
            step.put(forebay_side.FIELD, self.array, offset=(0,))

    def _catch_up(self) -> None:
        while self.child.answer() != self.number - 1:
            pass

    def put(self) -> Sample:
        """One step with a put."""
        self.pattern.fill(self.array, self.number)
        began = now_ns()
        with self.producer.step(self.number, time=float(self.number)) as step:
            before = now_ns()
            step.put(forebay_side.FIELD, self.array, offset=(0,))
            after = now_ns()
        ended = now_ns()
        self.number += 1
        self._catch_up()
        return {"put": (after - before) / 1e9, "step": (ended - began) / 1e9}

    def alloc(self) -> Sample:
        """One step with alloc, fill, commit."""
        with self.producer.step(self.number, time=float(self.number)) as step:
            began = now_ns()
            memory = step.alloc(forebay_side.FIELD, self.shape, offset=(0,))
            given = now_ns()
            self.pattern.fill(memory, self.number)
            filled = now_ns()
            step.commit(memory)
            ended = now_ns()
            del memory
        self.number += 1
        self._catch_up()
        return {"alloc": (given - began + ended - filled) / 1e9, "fill": (filled - given) / 1e9}

    def memcpy(self) -> Sample:
        """The same copy, bare."""
        self.pattern.fill(self.array, self.number)
        seconds = copy_seconds(self.target, self.array)
        self.pattern.check(self.target, self.number)
        return {"memcpy": seconds}

    def bare_fill(self) -> Sample:
        """The same filling, bare."""
        began = now_ns()
        self.pattern.fill(self.target, self.number)
        return {"bare fill": (now_ns() - began) / 1e9}


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all sizes."""
    sizes = sizes_of(options.sizes, options.quick, (1, 8, 64, 256), (0.25, 1))
    repetitions = repetitions_of(options.repetitions, options.quick, 31)
    allocs: dict[int, Samples] = {}
    from_python: dict[int, Samples] = {}
    with forebay_side.local_group(servers=2) as group:
        for size in sizes:
            report.measuring(named_size(size))
            with ExitStack() as stack:
                side = Side(group, size, stack)
                series = interleave(
                    [side.put, side.memcpy, side.alloc, side.bare_fill], repetitions=repetitions, warmup=5
                )
            name = named_size(size)
            memcpy = f"memcpy of {name} into touched shared memory"
            bar = at_least(0.9) if size in _PUT_BARS else None
            report.rate(f"put {name}", size, series["put"], against=memcpy, base=series["memcpy"], bar=bar)
            report.rate(f"step with put {name}", size, series["step"], against=memcpy, base=series["memcpy"])
            report.rate(
                f"fill in place {name}",
                size,
                series["fill"],
                against=f"filling {name} of touched shared memory",
                base=series["bare fill"],
            )
            allocs[size] = native_side.zero_copy(group.path, size, repetitions)[0]
            from_python[size] = series["alloc"]
    for size, samples in allocs.items():
        report.micros(f"alloc + commit {named_size(size)}", samples, bar=under(_ALLOC_LIMIT_US))
    report.growth("alloc + commit", allocs, within(_GROWTH_LIMIT_US))
    for size, samples in from_python.items():
        report.micros(f"from Python {named_size(size)}", samples)
