# SPDX-License-Identifier: Apache-2.0
"""What `bench subscribe` has the servers watch, beside readers that compute by themselves, and ADIOS2."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.bench import forebay_side
from forebay.bench.asked import named, normal, peer
from forebay.bench.children import Channel, Child
from forebay.bench.errors import BenchError
from forebay.bench.grayscott import Load, Program, calibrate, find
from forebay.bench.harness import MIB, Report, at_least, at_most, named_size, repetitions_of, under
from forebay.bench.pairs import StepTimes, compare
from forebay.bench.processes import cpu_seconds
from forebay.bench.samples import Samples, interleave, median, now_ns, seconds_since

_PATIENCE = 60.0


def subscribe(group: forebay_side.Group, text: str, stream: str, **options: Any) -> Any:
    """A subscription that is in force."""
    made = forebay_side.package().subscribe(text, stream=stream, group=group.path, **options)
    made.wait_active()
    return made


def _producer(group: forebay_side.Group, stream: str, shape: tuple[int, ...]) -> Any:
    return forebay_side.producer(group, stream, shape)


# ---- submitting ------------------------------------------------------------------------------------


def submit(options: argparse.Namespace, report: Report) -> None:
    """Submitting one subscription more, from a process that has one; with two servers the other one is told to keep it, too."""
    forebay = forebay_side.package()
    repetitions = repetitions_of(options.repetitions, options.quick, 101, few=5)
    for servers in (1, 2):
        with forebay_side.local_group(servers=servers) as group, ExitStack() as stack:
            producer = stack.enter_context(_producer(group, "s", (64,)))
            with producer.step(0) as step:
                step.put(forebay_side.FIELD, np.zeros(64), offset=(0,))
            stack.enter_context(subscribe(group, "max(U) > 1", "s"))
            samples: Samples = []
            for number in range(repetitions):
                began = now_ns()
                made = forebay.subscribe(f"max(U) > {number}.5", stream="s", group=group.path)
                samples.append(seconds_since(began))
                stack.enter_context(made)
        words = "one server" if servers == 1 else "two servers and this process on two cores"
        report.micros(f"submitting, {words}", samples, bar=under(100) if servers == 1 else None)


# ---- from the last put to the event ----------------------------------------------------------------


def _listen(channel: Channel, path: str, stream: str, text: str) -> None:
    """Says when each event came."""
    forebay = forebay_side.package()
    with forebay.subscribe(text, stream=stream, group=path, on="each") as subscription:
        subscription.wait_active()
        channel.send("ready")
        for what, *_ in channel:
            if what == "close":
                break
            with subscription.next(timeout=_PATIENCE):
                channel.send(now_ns())
    channel.send("closed")


def _get_and_compute(channel: Channel, path: str, stream: str, blocks: int) -> None:
    """A reader that gets all of each step, and says when it knows its minimum."""
    with forebay_side.consumer(path, stream) as reader:
        channel.send("ready")
        out: Any = None
        for what, *_ in channel:
            if what == "close":
                break
            with reader.next() as step:
                field = step[forebay_side.FIELD]
                out = np.empty(field.shape) if out is None else out
                field.read(region=np.s_[:], out=out)
                float(out.min())
                channel.send(now_ns())
    channel.send("closed")


def _sst_reader(channel: Channel, name: str, elements: int) -> None:
    sst = importlib.import_module("forebay.bench.peers.adios2_sst")
    setup = importlib.import_module("forebay.bench.rigs").Setup(name, elements, 2, {"tuned": True})
    channel.send("ready")
    reader = sst.Reader(setup)
    for what, *_ in channel:
        if what == "close":
            break
        float(reader.read(None).min())
        channel.send(now_ns())
    reader.close()
    channel.send("closed")


class _Sst:
    """The same array by SST."""

    def __init__(self, array: NDArray[np.float64], stack: ExitStack) -> None:
        self._sst = importlib.import_module("forebay.bench.peers.adios2_sst")
        setup_of = importlib.import_module("forebay.bench.rigs").Setup
        name = f"subscribe-{os.getpid()}"
        stack.callback(self._sst.remove_contact, name)
        self.child = stack.enter_context(Child("SST reader", _sst_reader, name, array.size))
        self.child.answer()
        self.writer = self._sst.Writer(setup_of(name, array.size, 2, {"tuned": True}))
        self.writer.array[:] = array.reshape(-1)

    def seconds(self) -> float:
        """From the end of the put until the reader knows the minimum."""
        self.child.tell("step")
        adios2, writer = self.writer.adios2, self.writer
        writer.engine.BeginStep()
        writer.engine.Put(writer.variable, writer.array, adios2.Mode.Sync)
        began = now_ns()
        writer.engine.EndStep()
        return float(self.child.answer() - began) / 1e9

    def close(self) -> None:
        self.child.tell("close")
        self.writer.close()
        self.child.answer()


class _Watched:
    """A producer here, and somebody in another process who is told, or computes."""

    def __init__(
        self,
        group: forebay_side.Group,
        stream: str,
        array: NDArray[np.float64],
        blocks: int,
        child: Child,
        stack: ExitStack,
    ) -> None:
        self.array, self.blocks, self.child = array, blocks, child
        self.producer = stack.enter_context(_producer(group, stream, array.shape))
        self.child.answer()
        self.number = 0

    def put(self) -> int:
        """A step with all blocks; when the last was put."""
        step = self.producer.begin(self.number)
        each = self.array.shape[0] // self.blocks
        for block in range(self.blocks):
            first = block * each
            step.put(forebay_side.FIELD, self.array[first : first + each], number=block, offset=(first, 0, 0))
        put = now_ns()
        self.producer.end()
        self.number += 1
        return put

    def seconds(self) -> float:
        """From the last put until it is known."""
        self.child.tell("step")
        put = self.put()
        return float(self.child.answer() - put) / 1e9

    def close(self) -> None:
        self.child.tell("close")
        self.child.answer()


def event(options: argparse.Namespace, report: Report) -> None:
    """From the last put to the event, while statistics are kept; beside who gets the data and computes."""
    planes, blocks = (16, 4) if options.quick else (2048, 16)
    array = normal(planes, 256, 256) + 100.0
    size = array.nbytes
    repetitions = repetitions_of(options.repetitions, options.quick, 9)
    known: dict[str, Samples] = {}
    with forebay_side.local_group(servers=2, budget=3 * size + 256 * MIB) as group:
        for name in ("fires", "not", "reader"):
            with ExitStack() as stack:
                target, extra = (_get_and_compute, blocks) if name == "reader" else (_listen, "min(U) > 5")
                # What does not fire tells nothing: it is evaluated together with one that does, whose event tells when.
                silent = subscribe_later(group, "min(U) > 1e9", name) if name == "not" else None
                child = stack.enter_context(Child(name, target, group.path, name, extra))
                side = _Watched(group, name, array, blocks, child, stack)
                known |= interleave([named(name, side.seconds)], repetitions=repetitions, warmup=2)
                if silent:
                    _check_silent(group, silent.name, side.number)
                    silent.close()
                side.close()
    if peer("adios2", report):
        with ExitStack() as stack:
            sst = _Sst(array, stack)
            known |= interleave([named("sst", sst.seconds)], repetitions=repetitions, warmup=1)
            sst.close()
    case = f"min(U) > t, {size // MIB} MiB"
    millis = {name: [seconds * 1e3 for seconds in samples] for name, samples in known.items()}
    report.samples(f"last put to event, {case}", millis["fires"], "ms", bar=under(5))
    better = max(
        (name for name in ("reader", "sst") if name in millis), key=lambda name: -median(millis[name])
    )
    words = {"reader": "get and numpy.min", "sst": "SST and numpy.min"}
    for others in ("reader", "sst"):
        if others not in millis:
            continue
        rates = {name: [1e3 / ms for ms in millis[name]] for name in ("fires", "not", others)}
        bars = (at_least(10), at_least(100)) if others == better else (None, None)
        report.samples(
            "answers a second, it fires",
            rates["fires"],
            "1/s",
            against=words[others],
            base=rates[others],
            bar=bars[0],
        )
        report.samples(
            "the same, it does not fire",
            rates["not"],
            "1/s",
            against=words[others],
            base=rates[others],
            bar=bars[1],
        )


def _check_silent(group: forebay_side.Group, name: str, steps: int) -> None:
    with forebay_side.package().Admin(group=group.path) as admin:
        (told,) = (one for one in admin.subscriptions() if one["name"] == name)
    if (told["evaluated"], told["events"]) != (steps, 0):
        raise BenchError(f"a subscription that never fires: {told}")


class _Puts(_Watched):
    """A producer whose steps nobody waits for."""

    def __init__(
        self,
        group: forebay_side.Group,
        stream: str,
        array: NDArray[np.float64],
        blocks: int,
        stack: ExitStack,
    ) -> None:
        self.array, self.blocks = array, blocks
        self.producer = stack.enter_context(_producer(group, stream, array.shape))
        self.number = 0


def subscribe_later(group: forebay_side.Group, text: str, stream: str, **options: Any) -> Any:
    """A subscription to a stream that comes later."""
    return forebay_side.package().subscribe(text, stream=stream, group=group.path, **options)


# ---- what statistics cost --------------------------------------------------------------------------


class _Bp5:
    """Puts to a file in memory by ADIOS2's BP5, with statistics or without."""

    def __init__(self, array: NDArray[np.float64], level: int, directory: str) -> None:
        self.adios2: Any = importlib.import_module("adios2.bindings")
        self.session = self.adios2.ADIOS()
        io = self.session.DeclareIO(f"level {level}")
        io.SetEngine("BP5")
        io.SetParameters({"StatsLevel": str(level)})
        self.array = array
        shape = list(array.shape)
        self.variable = io.DefineVariable("U", array, shape, [0] * array.ndim, shape, True)
        self.path = str(Path(directory) / f"level{level}.bp")
        self.engine = io.Open(self.path, self.adios2.Mode.Write)

    def seconds(self) -> float:
        """One put."""
        self.engine.BeginStep()
        began = now_ns()
        self.engine.Put(self.variable, self.array, self.adios2.Mode.Sync)
        seconds = seconds_since(began)
        self.engine.EndStep()
        return seconds


class _Put:
    """A producer whose field is watched."""

    def __init__(
        self, group: forebay_side.Group, array: NDArray[np.float64], text: str, stream: str, stack: ExitStack
    ) -> None:
        forebay = forebay_side.package()
        self.array = array
        self.made = stack.enter_context(subscribe_later(group, text, stream, on="rise"))
        self.admin = stack.enter_context(forebay.Admin(group=group.path))
        self.stream = stream
        self.producer = stack.enter_context(_producer(group, stream, array.shape))
        self.number = 0

    def seconds(self) -> float:
        """One put, while nothing else is done."""
        step = self.producer.begin(self.number)
        self.array[0] += 1.0
        began = now_ns()
        step.put(forebay_side.FIELD, self.array, offset=(0,))
        seconds = seconds_since(began)
        self.producer.end()
        self.number += 1
        self._catch_up()
        return seconds

    def _catch_up(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            told = [one for one in self.admin.subscriptions() if one["stream"] == self.stream]
            if told and told[0]["last_step"] == self.number - 1:
                return
        raise BenchError("a step was not evaluated")


def put(options: argparse.Namespace, report: Report) -> None:
    """A put with the statistics that subscriptions want, beside one without."""
    sizes = [1 * MIB] if options.quick else [8 * MIB, 64 * MIB, 256 * MIB]
    repetitions = repetitions_of(options.repetitions, options.quick, 31)
    with forebay_side.local_group(servers=1, budget=8 * max(sizes) + 256 * MIB) as group:
        for size in sizes:
            array = normal(size // 8)
            with ExitStack() as stack:
                sides = {
                    "with": _Put(group, array, "max(U) > 1e9", f"with {size}", stack),
                    "without": _Put(group, array.copy(), "mean(U) > 1e9", f"without {size}", stack),
                }
                subjects = [named(name, side.seconds) for name, side in sides.items()]
                if peer("adios2", report):
                    directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
                    files = {level: _Bp5(array, level, directory) for level in (0, 1)}
                    subjects += [named(f"level {level}", file.seconds) for level, file in files.items()]
                series = interleave(subjects, repetitions=repetitions, warmup=3)
            case = f"put of {named_size(size)}, statistics"
            report.rate(
                case, size, series["with"], against="without", base=series["without"], bar=at_least(0.9)
            )
            if "level 1" in series:
                report.rate(
                    f"{case}, BP5", size, series["level 1"], against="BP5 without", base=series["level 0"]
                )


# ---- many ------------------------------------------------------------------------------------------


def many(options: argparse.Namespace, report: Report) -> None:
    """Processor time of the servers for a step that so many subscriptions watch."""
    count = 20 if options.quick else 1000
    steps = 5 if options.quick else 40
    array = normal(16, 256, 256)
    seconds: dict[int, Samples] = {}
    for subscriptions in (1, count):
        seconds[subscriptions] = []
        with forebay_side.local_group(servers=1) as group, ExitStack() as stack:
            for number in range(subscriptions):
                stack.enter_context(subscribe_later(group, f"mean(U) > {number + 1}.5", "m", on="rise"))
            side = _Puts(group, "m", array, 1, stack)
            admin = stack.enter_context(forebay_side.package().Admin(group=group.path))
            for step in range(steps):
                before = sum(cpu_seconds(pid) for pid in group.pids)
                side.put()
                deadline = time.monotonic() + _PATIENCE
                while not _all_at(admin, step, subscriptions):
                    time.sleep(0.02)
                    if time.monotonic() > deadline:
                        raise BenchError("a step was not evaluated by all")
                if step > 1:
                    seconds[subscriptions].append(sum(cpu_seconds(pid) for pid in group.pids) - before)
    millis = {number: [one * 1e3 for one in samples] for number, samples in seconds.items()}
    report.samples(
        f"{count} subscriptions on a field of {array.nbytes // MIB} MiB",
        millis[count],
        "ms",
        against="one subscription",
        base=millis[1],
        bar=at_most(20),
    )


# ---- beside a simulation ---------------------------------------------------------------------------


def _look_on(channel: Channel, path: str) -> None:
    """A reader that takes every step and does nothing."""
    wanted = {"U": forebay_side.package().every(1), "V": forebay_side.package().every(1)}
    with forebay_side.package().Consumer("grayscott", fields=wanted, group=path, start="run") as reader:
        channel.send("ready")
        for step in reader:
            step.release()
    channel.send("done")


def slowdown(options: argparse.Namespace, report: Report) -> None:
    """A simulation's step while ten subscriptions read all of it, beside one with a reader that does nothing."""
    bins = None
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-bench-")))
        mpiexec = find("mpiexec", bins)
        steps, edge, step_ms = (20, 24, 5.0) if options.quick else (60, 96, 40.0)
        plain = Program(find("grayscott-plain", bins), mpiexec)
        load = calibrate(plain, Load(2, edge, steps), step_ms, scratch)
        # As much as steps that wait take in a long run, too.
        group = stack.enter_context(forebay_side.local_group(servers=2, budget=16 * load.step_bytes))
        program = Program(find("grayscott", bins), mpiexec, ("--group", group.path))

        evaluated: Samples = []

        def with_reader() -> StepTimes:
            with Child("reader", _look_on, group.path) as child:
                child.answer()
                times = program.run(load, scratch).step_seconds
                child.answer()
                return times

        def with_subscriptions() -> StepTimes:
            texts = [f"mean({field} * {number + 1}) > 1e9" for number in range(5) for field in ("U", "V")]
            made = [subscribe_later(group, text, "grayscott", on="rise") for text in texts]
            times = program.run(load, scratch).step_seconds
            names = {subscription.name for subscription in made}
            with forebay_side.package().Admin(group=group.path) as admin:
                told = [one["evaluated"] for one in admin.subscriptions() if one["name"] in names]
            evaluated.append(sum(told) / (len(texts) * load.steps))
            for subscription in made:
                subscription.remove()
                subscription.close()
            return times

        rounds = repetitions_of(options.repetitions, options.quick, 8, few=1)
        pairs = compare(with_reader, with_subscriptions, rounds=rounds)
    bare = [ms * 1e3 for run in pairs.a for ms in run]
    watched = [ms * 1e3 for run in pairs.b for ms in run]
    report.value(
        "step with 10 subscriptions",
        median(watched),
        "ms",
        against=f"with a reader that does nothing, 2 ranks, {step_ms:g} ms",
        against_value=median(bare),
        ratio=pairs.ratio(),
        interval=pairs.interval(),
        bar=at_most(1.1),
        n=len(pairs.b),
        more={"share of steps that were evaluated": median(evaluated)},
    )


def _all_at(admin: Any, step: int, count: int) -> bool:
    told = admin.subscriptions()
    return len(told) == count and all(one["last_step"] == step for one in told)
