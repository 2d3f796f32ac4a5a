# SPDX-License-Identifier: Apache-2.0
"""bench startup: the first steps of a fresh group, and sixteen producers at once.

group up           inside the clock: `forebay.local(servers=2)`, until it returns
producer opens     inside: opening a producer and declaring its field
step 1 to 10       inside: begin, put of 64 MiB, end; a consumer in another process takes every step and has
                   given it back before the next begins.  Beside: the median of steps 11 to 30 of the same
                   group.  Every repetition is a fresh group and a fresh producer.
16 at once         sixteen ranks, each a process, put a block of 4 MiB each into one global array at the same
                   moment.  Rate: all bytes, from the first rank's begin until the last rank's end.  Beside:
                   the same sixteen processes copying as much into touched shared memory at the same moment.
                   The first step, and the steps once it runs.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import Any

from forebay.bench import forebay_side
from forebay.bench.baselines import SharedBuffer, copy_seconds
from forebay.bench.children import Channel, Child
from forebay.bench.errors import WrongData
from forebay.bench.harness import MIB, Report, named_size, repetitions_of
from forebay.bench.patterns import Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Samples, median, now_ns, percentile, seconds_since

_FIRST = 10
_RANKS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--size", type=float, metavar="MIB", help="bytes of a step in MiB (64)")
    parser.add_argument("--ranks", type=int, default=_RANKS, metavar="N", help="producers at once (16)")


def take_steps(channel: Channel, path: str, stream: str, elements: int, blocks: int) -> None:
    """The consumer: checks every block of every step, gives it back, says which step it was."""
    pattern = Pattern(elements)
    with forebay_side.consumer(path, stream) as consumer:
        channel.send("ready")
        for step in consumer:
            with step:
                number = int(step.number)
                found = step[forebay_side.FIELD].blocks()
                complete = len(found) == blocks
                for block in found:
                    pattern.check(block.data, number)
                del found
            channel.send((number, complete))


def until_taken(child: Child, number: int) -> None:
    """Waits until the consumer has given that step back, and checks that it was complete."""
    taken, complete = child.answer(30.0)
    if taken != number or not complete:
        raise WrongData(f"the consumer took step {taken} where step {number} was due, or not all of it")


def first_steps(report: Report, size: int, groups: int, later: int) -> None:
    """Fresh groups, one after another."""
    elements = size // 8
    pattern, array = Pattern(elements), own_array(elements)
    steps: list[Samples] = [[] for _ in range(_FIRST)]
    steady: Samples = []
    up: Samples = []
    opened: Samples = []
    for turn in range(groups):
        report.measuring(f"fresh group {turn + 1} of {groups}")
        with ExitStack() as stack:
            began = now_ns()
            group = stack.enter_context(forebay_side.local_group(servers=2))
            up.append(seconds_since(began))
            child = stack.enter_context(Child("consumer", take_steps, group.path, "startup", elements, 1))
            child.answer()
            began = now_ns()
            producer: Any = stack.enter_context(forebay_side.producer(group, "startup", (elements,)))
            opened.append(seconds_since(began))
            rest: Samples = []
            for number in range(_FIRST + later):
                pattern.fill(array, number)
                began = now_ns()
                with producer.step(number, time=float(number)) as step:
                    step.put(forebay_side.FIELD, array, offset=(0,))
                (steps[number] if number < _FIRST else rest).append(seconds_since(began))
                until_taken(child, number)
            steady.append(median(rest))
    report.micros("group up", up)
    report.micros("producer opens", opened)
    for nth, seconds in enumerate(steps, start=1):
        report.rate(f"step {nth}", size, seconds, against="steady state of the same group", base=steady)


def one_rank(channel: Channel, path: str, rank: int, ranks: int, elements: int) -> None:
    """One of many producers: a step, or a bare copy, whenever it is told to."""
    pattern, array = Pattern(elements), own_array(elements)
    target = SharedBuffer(elements * 8).array()
    opened = now_ns()
    shape = (ranks * elements,)
    with forebay_side.producer(path, "many", shape, rank=rank, size=ranks) as producer:
        channel.send(seconds_since(opened))
        for what, number, start in channel:
            pattern.fill(array, number)
            time.sleep(max(0.0, (start - now_ns()) / 1e9))
            began = now_ns()
            if what == "copy":
                copy_seconds(target, array)
            else:
                with producer.step(number, time=float(number)) as step:
                    step.put(forebay_side.FIELD, array, offset=(rank * elements,))
            channel.send((began, now_ns()))


def together(children: list[Child], what: str, number: int) -> tuple[float, Samples]:
    """Lets all ranks do something at the same moment; seconds from first to last, and those of each rank."""
    start = now_ns() + 20_000_000
    for child in children:
        child.tell(what, number, start)
    times = [child.answer() for child in children]
    whole = max(end for _, end in times) - min(begin for begin, _ in times)
    return whole / 1e9, [(end - begin) / 1e9 for begin, end in times]


def at_once(report: Report, ranks: int, size: int, repetitions: int) -> None:
    """Many producers at the same moment."""
    report.measuring(f"{ranks} producers")
    elements = size // 8
    name = f"{ranks} ranks of {named_size(size)}"
    with ExitStack() as stack:
        group = stack.enter_context(forebay_side.local_group(servers=2))
        consumer = stack.enter_context(Child("consumer", take_steps, group.path, "many", elements, ranks))
        consumer.answer()
        children = [
            stack.enter_context(Child(f"rank {r}", one_rank, group.path, r, ranks, elements))
            for r in range(ranks)
        ]
        opening = [float(child.answer()) for child in children]
        together(children, "copy", 0)
        first, _ = together(children, "put", 0)
        until_taken(consumer, 0)
        puts: Samples = []
        copies: Samples = []
        each: Samples = []
        for turn in range(-3, repetitions):
            number = turn + 4
            copied, _ = together(children, "copy", number)
            whole, of_ranks = together(children, "put", number)
            until_taken(consumer, number)
            if turn >= 0:
                puts.append(whole)
                copies.append(copied)
                each += of_ranks
    total = ranks * size
    against = f"{ranks} processes copying into touched shared memory"
    report.rate(f"{name}, first step", total, [first], against=against, base=[median(copies)])
    report.rate(f"{name}, steady", total, puts, against=against, base=copies)
    report.micros(f"step of one of {ranks} ranks", each, note=f"p99 {percentile(each, 99) * 1e6:.0f} us")
    report.micros(f"opening of {ranks} ranks", opening)


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures fresh groups, then many producers."""
    groups = repetitions_of(options.repetitions, options.quick, 5, few=2)
    size = int((options.size or (0.5 if options.quick else 64)) * MIB) // 64 * 64
    first_steps(report, size, groups, later=5 if options.quick else 20)
    at_once(report, options.ranks, MIB // 4 if options.quick else 4 * MIB, groups * 4)
    report.note("no bars: these are reported beside the steady state")
