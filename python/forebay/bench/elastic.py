# SPDX-License-Identifier: Apache-2.0
"""bench elastic: what joins, deaths and copies cost a simulation that runs.

begin              inside the clock: `begin` of a step of which a reader takes 1 MiB, with 2 and 4 servers that
                   are all there.  Beside it: end.
server joins       from the start of a server's process until the group has it as a member
longest step       of a simulation that puts 1 MiB every 2 ms while two servers join, less its median
server dies        from SIGKILL of the home server, which in every second group coordinates the stream too,
                   until a reader has a whole step that began after it.  Every repetition is a fresh group.
two copies         begin, put, end with `replicas=2`, on one host, beside the same with one copy
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from itertools import count
from typing import Any

from forebay.bench import forebay_side
from forebay.bench.children import Channel, Child
from forebay.bench.harness import MIB, Report, at_least, named_size, repetitions_of, under, within
from forebay.bench.patterns import Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, Samples, interleave, median, now_ns, seconds_since

_ELEMENTS = MIB // 8
_PAUSE = 0.002
_PATIENCE_S = 20.0
_BEGIN_LIMIT_US = {("auto", 2): 60.0, ("tcp", 2): 150.0, ("auto", 4): 300.0, ("tcp", 4): 300.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--size", type=float, metavar="MIB", help="bytes of a block that has copies, in MiB (64)"
    )


def take_steps(channel: Channel, path: str, stream: str, elements: int) -> None:
    """A reader: checks every step that it can read whole, and says its number and when it had it."""
    forebay = forebay_side.package()
    pattern, out = Pattern(elements), own_array(elements)
    with forebay_side.consumer(path, stream) as reader:
        channel.send("ready")
        with contextlib.suppress(forebay.Unreachable):
            for step in reader:
                with contextlib.suppress(forebay.Lost, forebay.NotCovered), step:
                    step[forebay_side.FIELD].read(out=out)
                    pattern.check(out, step.number)
                    channel.send((int(step.number), now_ns()))


def begins(report: Report, transport: str, servers: int, repetitions: int) -> None:
    """Steps that are wanted, while nothing changes."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    begin: Samples = []
    end: Samples = []
    with (
        forebay_side.local_group(servers=servers) as group,
        Child("reader", take_steps, group.path, "begins", _ELEMENTS) as reader,
        forebay_side.producer(group, "begins", (_ELEMENTS,), transport=transport) as producer,
    ):
        reader.answer()
        for number in range(-20, repetitions):
            time.sleep(_PAUSE)
            pattern.fill(array, number + 20)
            began = now_ns()
            step = producer.step(number + 20)
            step.__enter__()
            begin.append(seconds_since(began))
            step.put(forebay_side.FIELD, array, offset=(0,))
            began = now_ns()
            step.__exit__(None, None, None)
            end.append(seconds_since(began))
            reader.answer()
    where = "" if transport == "auto" else ", tcp"
    limit = under(_BEGIN_LIMIT_US[transport, servers])
    report.micros(f"begin, {servers} servers{where}", begin[20:], bar=limit)
    report.micros(f"end, {servers} servers{where}", end[20:], bar=limit)


def joins(report: Report, repetitions: int) -> None:
    """Servers that join while a simulation runs."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    joining: Samples = []
    longest: Samples = []
    for _ in range(repetitions):
        steps: Samples = []
        with (
            forebay_side.package().local(servers=2) as group,
            Child("reader", take_steps, group.path, "joins", _ELEMENTS) as reader,
            forebay_side.producer(group.path, "joins", (_ELEMENTS,)) as producer,
        ):
            reader.answer()
            numbers = count()

            def one(numbers: Any = numbers, producer: Any = producer) -> float:
                time.sleep(_PAUSE)
                number = next(numbers)
                pattern.fill(array, number)
                began = now_ns()
                with producer.step(number) as step:
                    step.put(forebay_side.FIELD, array, offset=(0,))
                return seconds_since(began)

            for _ in range(50):
                steps.append(one())
            usual = median(steps[10:])
            for _ in range(2):
                joiner = threading.Thread(target=let_join, args=(group, joining))
                joiner.start()
                while joiner.is_alive():
                    steps.append(one())
            for _ in range(50):
                steps.append(one())
            longest.append(max(steps[10:]) - usual)
    report.samples("server joins", [seconds * 1e3 for seconds in joining], "ms", bar=under(400.0))
    milliseconds = [seconds * 1e3 for seconds in longest]
    report.samples("longest step, less the median", milliseconds, "ms", bar=within(20.0))


def let_join(group: Any, seconds: Samples) -> None:
    """Starts a server of the group; the seconds until it is a member."""
    began = now_ns()
    group.add_servers()
    seconds.append(seconds_since(began))


def deaths(report: Report, repetitions: int) -> None:
    """The home server is killed."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    took: Samples = []
    first, killed = 50, now_ns()
    for turn in range(repetitions):
        report.measuring(f"death {turn + 1} of {repetitions}")
        with (
            forebay_side.package().local(servers=3) as group,
            contextlib.ExitStack() as stack,
        ):
            reader = stack.enter_context(Child("reader", take_steps, group.path, f"s{turn}", _ELEMENTS))
            producer: Any = stack.enter_context(forebay_side.producer(group.path, f"s{turn}", (_ELEMENTS,)))
            reader.answer()
            for number in range(100):
                if number == first:
                    killed = now_ns()
                    group.servers[0].process.kill()
                    group.servers[0].process.wait()
                pattern.fill(array, number)
                with producer.step(number) as step:
                    step.put(forebay_side.FIELD, array, offset=(0,))
                time.sleep(_PAUSE)
            number, had = reader.answer(_PATIENCE_S)
            while number < first:
                number, had = reader.answer(_PATIENCE_S)
            took.append((had - killed) / 1e9)
    milliseconds = [seconds * 1e3 for seconds in took]
    note = f"longest {max(milliseconds):.0f} ms"
    report.samples("server dies", milliseconds, "ms", bar=under(1000.0), note=note)


def copies(report: Report, size: int, repetitions: int) -> None:
    """Two copies beside one."""
    elements = size // 8
    array = own_array(elements)
    with forebay_side.local_group(servers=2) as group, contextlib.ExitStack() as stack:
        producers = {
            replicas: stack.enter_context(
                forebay_side.producer(group, f"copies{replicas}", (elements,), replicas=replicas, keep=1)
            )
            for replicas in (1, 2)
        }
        numbers = count()

        def put(replicas: int) -> Any:
            def one() -> Sample:
                number = next(numbers)
                began = now_ns()
                with producers[replicas].step(number) as step:
                    step.put(forebay_side.FIELD, array, offset=(0,))
                return {str(replicas): seconds_since(began)}

            return one

        times = interleave([put(1), put(2)], repetitions=repetitions, warmup=3)
    report.rate(
        f"put of {named_size(size)}, two copies",
        size,
        times["2"],
        against="one copy",
        base=times["1"],
        bar=at_least(0.9),
    )


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures what does not change, then what does."""
    few = options.quick
    for transport in ("auto", "tcp"):
        for servers in (2, 4):
            report.measuring(f"{servers} servers, {transport}")
            begins(report, transport, servers, repetitions_of(options.repetitions, few, 500, few=30))
    joins(report, repetitions_of(options.repetitions, few, 5, few=1))
    deaths(report, repetitions_of(options.repetitions, few, 10, few=2))
    size = int((options.size or (1 if few else 64)) * MIB) // 64 * 64
    copies(report, size, repetitions_of(options.repetitions, few, 30, few=5))
