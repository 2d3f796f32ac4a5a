# SPDX-License-Identifier: Apache-2.0
"""bench elastic: what joins, deaths and copies cost a simulation that runs.

begin              inside the clock: `begin` of a step of which a reader takes 1 MiB, with 2 and 4 servers that
                   are all there; 0.5 ms between two steps.  Beside it: end.
activate           the same of a pipeline that is driven: `activate`, then `execute` of a pipeline that does
                   nothing, then `deactivate`; 1 MiB is staged in between
server joins       from the start of a server's process until the group has it as a member
first placed       from the same start until a rank that runs has ended the first step with data on that server.  Three
                   ranks take turns, each with 1 MiB a step; two servers are there before.
server leaves      from the order until it has ended
longest step       of a simulation that puts 1 MiB every 2 ms while two servers join, or while its home leaves and
                   then the next one, less its median
server dies        from SIGKILL of the home server, which in every second group coordinates the stream too,
                   until a reader has a whole step that began after it.  Every repetition is a fresh group.
server stands      the same where the home is stopped instead (SIGSTOP), which is given up after 5 to 10 s of
                   silence
two copies         begin, put, end with `replicas=2`, on one host, beside the same with one copy
over tcp           hosts are network namespaces on this machine (needs root): two copies where the rank, its home
                   and the server that has the other copy are on three hosts
dies on another    as `server dies`, where nobody can prove the death: only its connections break
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from forebay.bench import forebay_side, hosts
from forebay.bench.children import Channel, Child
from forebay.bench.harness import MIB, Report, at_least, named_size, repetitions_of, under, within
from forebay.bench.patterns import Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, Samples, interleave, median, now_ns, seconds_since

_ELEMENTS = MIB // 8
_PAUSE = 0.002
# Between the steps whose calls are measured. With longer ones waking an idle machine is most of what they take: twice
# as much after 2 ms, five times as much after 10 ms.
_SHORT_PAUSE = 0.0005
_PATIENCE_S = 30.0
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
            time.sleep(_SHORT_PAUSE)
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


_QUIET = """
import forebay

class Quiet(forebay.Pipeline):
    fields = {"%s": forebay.every(1)}

    def execute(self, step, comm):
        pass
"""


def activates(report: Report, transport: str, servers: int, repetitions: int) -> None:
    """A pipeline that a rank drives, while nothing changes."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    times: dict[str, Samples] = {"activate": [], "execute": [], "deactivate": []}
    forebay = forebay_side.package()
    with tempfile.TemporaryDirectory() as place, forebay_side.local_group(servers=servers) as group:
        code = Path(place, "quiet.py")
        code.write_text(_QUIET % forebay_side.FIELD)
        with forebay.Admin(group=group.path) as admin:
            admin.create_pipeline("quiet", f"{code}:Quiet", stream="quiet", driven=True)
        with forebay.PipelineHandle("quiet", group=group.path, transport=transport) as handle:
            handle.array(forebay_side.FIELD, dtype="f8", shape=(_ELEMENTS,))
            for number in range(repetitions + 20):
                time.sleep(_SHORT_PAUSE)
                pattern.fill(array, number)
                calls = (handle.activate, handle.execute, handle.deactivate)
                for name, call in zip(times, calls, strict=True):
                    began = now_ns()
                    call(number)
                    times[name].append(seconds_since(began))
                    if name == "activate":
                        handle.stage(forebay_side.FIELD, array)
    where = "" if transport == "auto" else ", tcp"
    for name, samples in times.items():
        limit = None if name == "execute" else under(_BEGIN_LIMIT_US[transport, servers])
        report.micros(f"{name}, {servers} servers{where}", samples[20:], bar=limit)


def longest_step(servers: int, stream: str, changes: list[Callable[[Any], None]]) -> float:
    """A simulation runs while the members change, one change after the other: its longest step, less the median."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    steps: Samples = []
    with (
        forebay_side.package().local(servers=servers) as group,
        Child("reader", take_steps, group.path, stream, _ELEMENTS) as reader,
        forebay_side.producer(group.path, stream, (_ELEMENTS,)) as producer,
    ):
        reader.answer()
        numbers = count()

        def one() -> float:
            time.sleep(_PAUSE)
            number = next(numbers)
            pattern.fill(array, number)
            began = now_ns()
            with producer.step(number) as step:
                step.put(forebay_side.FIELD, array, offset=(0,))
            return seconds_since(began)

        steps += [one() for _ in range(50)]
        usual = median(steps[10:])
        for change in changes:
            changing = threading.Thread(target=change, args=(group,))
            changing.start()
            while changing.is_alive():
                steps.append(one())
        steps += [one() for _ in range(50)]
    return max(steps[10:]) - usual


def joins(report: Report, repetitions: int) -> None:
    """Servers that join while a simulation runs."""
    joining: Samples = []

    def join(group: Any) -> None:
        began = now_ns()
        group.add_servers()
        joining.append(seconds_since(began))

    longest = [longest_step(2, "joins", [join, join]) * 1e3 for _ in range(repetitions)]
    report.samples("server joins", [seconds * 1e3 for seconds in joining], "ms", bar=under(400.0))
    report.samples("longest step at joins, less the median", longest, "ms", bar=within(20.0))


def until_placed(transport: str = "auto") -> float:
    """The seconds from the start of a third server's process until one of three ranks has ended a step with data there."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    ranks, stream = 3, "placed"
    numbers = count()
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(forebay_side.package().local(servers=ranks - 1))
        reader = stack.enter_context(forebay_side.consumer(group.path, stream, transport))
        producers = [
            stack.enter_context(
                forebay_side.producer(
                    group.path, stream, (ranks * _ELEMENTS,), rank=rank, size=ranks, transport=transport
                )
            )
            for rank in range(ranks)
        ]

        def one() -> tuple[int, set[int]]:
            """A step: when it had ended, and which servers hold it."""
            time.sleep(_PAUSE)
            number = next(numbers)
            pattern.fill(array, number)
            with contextlib.ExitStack() as steps:
                for rank, producer in enumerate(producers):
                    step = steps.enter_context(producer.step(number))
                    step.put(forebay_side.FIELD, array, offset=(rank * _ELEMENTS,))
            ended = now_ns()
            with reader.next() as read:
                return ended, {block.server for block in read[forebay_side.FIELD].blocks()}

        before = [one() for _ in range(20)][-1][1]
        began = now_ns()
        joining = threading.Thread(target=group.add_servers)
        joining.start()
        ended, servers = one()
        while servers <= before and seconds_since(began) < _PATIENCE_S:
            ended, servers = one()
        joining.join()
    return float(ended - began) / 1e9


def first_placed(report: Report, transport: str, repetitions: int) -> None:
    """Servers join, and ranks that run place their data there."""
    milliseconds: Samples = []
    for turn in range(repetitions):
        report.measuring(f"first placed {turn + 1} of {repetitions}, {transport}")
        milliseconds.append(until_placed(transport) * 1e3)
    where = "" if transport == "auto" else ", tcp"
    report.samples(f"first placed{where}", milliseconds, "ms", bar=under(400.0))


def leaves(report: Report, repetitions: int) -> None:
    """Servers that leave while a simulation runs: its home, which coordinates the stream or not, and the next home."""
    leaving: Samples = []

    def leave(group: Any) -> None:
        began = now_ns()
        group.remove_server(min(group.servers))
        leaving.append(seconds_since(began))

    longest = [longest_step(4, f"leaves{turn}", [leave, leave]) * 1e3 for turn in range(repetitions)]
    report.samples("server leaves", [seconds * 1e3 for seconds in leaving], "ms")
    report.samples("longest step at leaves, less the median", longest, "ms", bar=within(20.0))


def next_step_after(group: Any, stream: str, harm: Callable[[Any], None]) -> float:
    """The seconds from when something befalls the home server until a reader has a whole step that began after it."""
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    first, harmed = 50, now_ns()
    with (
        Child("reader", take_steps, group.path, stream, _ELEMENTS) as reader,
        forebay_side.producer(group.path, stream, (_ELEMENTS,)) as producer,
    ):
        reader.answer()
        for number in range(100):
            if number == first:
                harmed = now_ns()
                harm(group.servers[0].process)
            pattern.fill(array, number)
            with producer.step(number) as step:
                step.put(forebay_side.FIELD, array, offset=(0,))
            time.sleep(_PAUSE)
        number, had = reader.answer(_PATIENCE_S)
        while number < first:
            number, had = reader.answer(_PATIENCE_S)
    return float(had - harmed) / 1e9


def deaths(report: Report, repetitions: int) -> None:
    """The home server is killed."""
    milliseconds: Samples = []
    for turn in range(repetitions):
        report.measuring(f"death {turn + 1} of {repetitions}")

        def kill(process: Any) -> None:
            process.kill()
            process.wait()

        with forebay_side.package().local(servers=3) as group:
            milliseconds.append(next_step_after(group, f"s{turn}", kill) * 1e3)
    note = f"longest {max(milliseconds):.0f} ms"
    report.samples("server dies", milliseconds, "ms", bar=under(1000.0), note=note)


def silences(report: Report, repetitions: int) -> None:
    """The home server stands still: nothing proves that it is gone."""
    milliseconds: Samples = []
    for turn in range(repetitions):
        report.measuring(f"silence {turn + 1} of {repetitions}")

        def stand_still(process: Any) -> None:
            os.kill(process.pid, signal.SIGSTOP)

        with forebay_side.package().local(servers=3) as group:
            milliseconds.append(next_step_after(group, f"s{turn}", stand_still) * 1e3)
            group.servers[0].process.kill()
    report.samples("server stands still", milliseconds, "ms", bar=under(15_000.0))


def times_with_copies(path: str, elements: int, repetitions: int, transport: str) -> dict[str, Samples]:
    """Begin, put and end of steps with one copy and with two: the seconds of each, by the number of copies."""
    array = own_array(elements)
    with contextlib.ExitStack() as stack:
        producers = {
            replicas: stack.enter_context(
                forebay_side.producer(
                    path, f"copies{replicas}", (elements,), replicas=replicas, keep=1, transport=transport
                )
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
                took = seconds_since(began)
                # One copy is ended without waiting for the home; what it still has to do would fall on the next step.
                producers[replicas].flush()
                return {str(replicas): took}

            return one

        return interleave([put(1), put(2)], repetitions=repetitions, warmup=3)


def copies(report: Report, size: int, repetitions: int) -> None:
    """Two copies beside one."""
    with forebay_side.local_group(servers=2) as group:
        times = times_with_copies(group.path, size // 8, repetitions, "auto")
    report.rate(
        f"put of {named_size(size)}, two copies",
        size,
        times["2"],
        against="one copy",
        base=times["1"],
        bar=at_least(0.9),
    )


def take_steps_on(channel: Channel, host: str, path: str, stream: str) -> None:
    """As `take_steps`, on a host."""
    hosts.move_to(host)
    take_steps(channel, path, stream, _ELEMENTS)


def put_copies(channel: Channel, host: str, path: str, elements: int, repetitions: int) -> None:
    """A rank on a host puts over TCP with one copy and with two: the seconds of each."""
    hosts.move_to(host)
    channel.send(times_with_copies(path, elements, repetitions, "tcp"))


def put_while(channel: Channel, host: str, path: str, stream: str) -> None:
    """A rank on a host puts steps until its parent closes the pipe; asked, it says which one it begins next."""
    hosts.move_to(host)
    array = own_array(_ELEMENTS)
    pattern = Pattern(_ELEMENTS)
    with forebay_side.producer(path, stream, (_ELEMENTS,)) as producer, contextlib.suppress(EOFError):
        for number in count():
            if channel.poll():
                channel.receive()
                channel.send(number)
            pattern.fill(array, number)
            with producer.step(number) as step:
                step.put(forebay_side.FIELD, array, offset=(0,))
            time.sleep(_PAUSE)


def broken_connection(names: list[str]) -> float:
    """The seconds from a death that breaks connections until a reader has a whole step that began after it.

    The server that is killed is the only one on the rank's host; the reader is on the other host, with all others.
    """
    stream = "broken"
    with (
        hosts.group_on(names, [0, 1, 1], "256M") as (path, servers),
        Child("reader", take_steps_on, names[1], path, stream) as reader,
        Child("rank", put_while, names[0], path, stream) as rank,
    ):
        reader.answer()
        for _ in range(50):
            reader.answer()
        killed = now_ns()
        servers[0].kill()
        first = rank.ask("next")
        number, had = reader.answer(_PATIENCE_S)
        while number < first:
            number, had = reader.answer(_PATIENCE_S)
        return float(had - killed) / 1e9


def between_hosts(report: Report, size: int, repetitions: int, deaths: int) -> None:
    """What needs more than one host."""
    why_not = hosts.why_not()
    if why_not:
        report.note(f"nothing was measured between hosts: {why_not}")
        return
    with hosts.some_hosts(3) as names:
        report.measuring("copies on another host")
        with (
            hosts.group_on(names, [0, 1], "2G") as (path, _),
            Child("rank", put_copies, names[2], path, size // 8, repetitions) as rank,
        ):
            times = rank.answer()
        report.rate(
            f"put of {named_size(size)} over tcp, two copies",
            size,
            times["2"],
            against="one copy",
            base=times["1"],
            bar=at_least(0.45),
        )
        milliseconds = []
        for turn in range(deaths):
            report.measuring(f"a connection breaks, {turn + 1} of {deaths}")
            milliseconds.append(broken_connection(names) * 1e3)
        note = f"longest {max(milliseconds):.0f} ms"
        report.samples("server dies on another host", milliseconds, "ms", bar=under(2000.0), note=note)


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures what does not change, then what does."""
    few = options.quick
    for transport in ("auto", "tcp"):
        for servers in (2, 4):
            report.measuring(f"{servers} servers, {transport}")
            begins(report, transport, servers, repetitions_of(options.repetitions, few, 500, few=30))
            activates(report, transport, servers, repetitions_of(options.repetitions, few, 500, few=30))
    joins(report, repetitions_of(options.repetitions, few, 5, few=1))
    for transport in ("auto", "tcp"):
        first_placed(report, transport, repetitions_of(options.repetitions, few, 5, few=1))
    leaves(report, repetitions_of(options.repetitions, few, 6, few=2))
    deaths(report, repetitions_of(options.repetitions, few, 10, few=2))
    if not few:
        silences(report, 2)
    size = int((options.size or (1 if few else 64)) * MIB) // 64 * 64
    copies(report, size, repetitions_of(options.repetitions, few, 100, few=5))
    between_hosts(report, size, repetitions_of(options.repetitions, few, 60, few=3), 1 if few else 5)
