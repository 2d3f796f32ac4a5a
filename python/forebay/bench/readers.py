# SPDX-License-Identifier: Apache-2.0
"""bench readers: reading what many have written, by many: on one host and over TCP.

cohort           from before a rank ends a step until `next` has returned in all ranks of a parallel reader: of four, beside
                 a single reader
mn               M processes write 4 MiB each, N read: from before the first hands over a step until the last has taken it,
                 by copying it (`copy`) or by looking at it where it is (`view`).  Beside ADIOS2's SST, one stream for each
                 writer, since its package has no MPI; and beside what memcpy allows: the writers copy as many bytes in
                 their own memory, and then (`copy`) the readers
tcp              a producer on its server's host, and a reader over TCP: bursts of steps, each copied.  Beside SST
blocks           64 MiB over TCP in 4,096 blocks, beside one block
ranks            reading all of a field to which 64, 65, 128 and 256 ranks of one host have put 8 KiB each, for each block
decomposition    16 ranks write slabs, 8 readers read slabs of the other dimension, one after another, beside slabs of the same
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.children import Channel, Child
from forebay.bench.harness import MIB, Report, at_least, at_most, named_size, repetitions_of
from forebay.bench.mn import FOREBAY, SST, processes
from forebay.bench.patterns import Array
from forebay.bench.peers import adios2_sst
from forebay.bench.rigs import Rig, Route, Setup, own_array
from forebay.bench.samples import Sample, interleave, now_ns, seconds_since

_SST_IS_THERE = importlib.util.find_spec("adios2") is not None
_ALL_ARE_TOLD = 0.003
_LEFT_OUT = "not measured beside SST: adios2 is not installed (pip install adios2)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--part", choices=sorted(_PARTS), metavar="PART", help=f"only one of {', '.join(_PARTS)}"
    )


# ---- a cohort -------------------------------------------------------------------------------------


def _take(channel: Channel, path: str, stream: str, rank: int, size: int) -> None:
    """One rank of a parallel reader: says when it was told of each step."""
    forebay = forebay_side.package()
    parallel: dict[str, Any] = {"name": "cohort", "rank": rank, "size": size}
    options = {"group": path, "timeout": 60.0, **(parallel if size > 1 else {})}
    channel.send("opening")
    with forebay.Consumer(stream, **options) as reader:
        channel.send("ready")
        for what, *_ in channel:
            if what == "close":
                break
            with reader.next():
                told = now_ns()
                # It answers when all were told: until then it would take their processors away.
                channel.receive()
                channel.send(told)
    channel.send("closed")


class _Cohort:
    """A producer in this process, and the ranks of a reader in their own."""

    def __init__(self, group: forebay_side.Group, size: int, stack: ExitStack) -> None:
        stream = f"cohort of {size}"
        self.ranks = [
            stack.enter_context(Child(f"rank {rank} of {size}", _take, group.path, stream, rank, size))
            for rank in range(size)
        ]
        for _ in range(2):
            for child in self.ranks:
                child.answer()
        self.array: Array = np.zeros(512)
        self.producer = stack.enter_context(forebay_side.producer(group, stream, self.array.shape))
        self.number = 0

    def told(self) -> float:
        """Seconds from before the step ends until the last rank was told."""
        for child in self.ranks:
            child.tell("take")
        step = self.producer.begin(self.number)
        step.put(forebay_side.FIELD, self.array)
        began = now_ns()
        self.producer.end()
        self.number += 1
        time.sleep(_ALL_ARE_TOLD)
        return float(max(child.ask("when") for child in self.ranks) - began) / 1e9

    def close(self) -> None:
        for child in self.ranks:
            child.tell("close")
        for child in self.ranks:
            child.answer()


def _cohort(options: argparse.Namespace, report: Report) -> None:
    repetitions = repetitions_of(options.repetitions, options.quick, 301, few=5)
    with forebay_side.local_group(servers=1) as group, ExitStack() as stack:
        sides = {size: _Cohort(group, size, stack) for size in (1, 4)}
        series = interleave(
            [_named(str(size), side.told) for size, side in sides.items()],
            repetitions=repetitions,
            warmup=5,
        )
        for side in sides.values():
            side.close()
    report.micros(
        "told of a step, all of 4", series["4"], against="one reader", base=series["1"], bar=at_most(2)
    )


# ---- M to N ---------------------------------------------------------------------------------------


def _mn(options: argparse.Namespace, report: Report) -> None:
    if not _SST_IS_THERE:
        report.note(_LEFT_OUT)
    for writers, readers in ((4, 1), (3, 2)) if options.quick else ((4, 1), (4, 2), (4, 4), (16, 1), (3, 4)):
        report.measuring(f"{writers}:{readers}")
        _pair(options, report, writers, readers)


def _pair(options: argparse.Namespace, report: Report, writers: int, readers: int) -> None:
    name, elements = f"{writers}:{readers}", 8192 if options.quick else 524_288
    size = writers * elements * 8
    shape = (writers, readers, elements)
    with forebay_side.local_group(servers=1, budget=8 * size + 64 * MIB) as group, ExitStack() as stack:
        stream = f"mn-{writers}-{readers}"
        forebay = stack.enter_context(processes(FOREBAY, group.path, stream, shape, stack))
        subjects: list[Callable[[], Sample]] = [
            _named("copy", lambda: forebay.step(copy=True)),
            _named("view", lambda: forebay.step(copy=False)),
            _named("memcpy of both", lambda: forebay.memcpy(of_readers=True)),
            _named("memcpy of writers", lambda: forebay.memcpy(of_readers=False)),
        ]
        if _SST_IS_THERE:
            sst = stack.enter_context(processes(SST, "", stream, shape, stack))
            subjects.append(_named("SST", lambda: sst.step(copy=True)))
        series = interleave(
            subjects, repetitions=repetitions_of(options.repetitions, options.quick, 31), warmup=4
        )
    for kind, limit in (("copy", "memcpy of both"), ("view", "memcpy of writers")):
        # A reader that looks copies nothing: what is left is the time until it is told.
        compared = [(limit, f"{limit} {name}", at_least(0.85) if kind == "copy" else None)]
        if _SST_IS_THERE:
            compared.append(("SST", f"SST best {name}", at_least(4)))
        for other, against, bar in compared:
            report.rate(f"{kind} {name}", size, series[kind], against=against, base=series[other], bar=bar)


# ---- over TCP -------------------------------------------------------------------------------------


class _TcpReader(forebay_side.StreamReader):
    """A reader that reaches the servers over TCP, whatever the producer does."""

    def __init__(self, setup: Setup) -> None:
        options = {**setup.options, "transport": "tcp"}
        super().__init__(Setup(setup.name, setup.elements, setup.depth, options))


def _tcp(options: argparse.Namespace, report: Report) -> None:
    if not _SST_IS_THERE:
        report.note(_LEFT_OUT)
        return
    repetitions = repetitions_of(options.repetitions, options.quick, 7, few=2)
    sst = adios2_sst.routes()[1]
    for size in (MIB // 4, MIB) if options.quick else (8 * MIB, 64 * MIB, 256 * MIB):
        report.measuring(f"tcp {named_size(size)}")
        elements, count = size // 8, max(2, min(64, 512 * MIB // size))
        budget = forebay_side.stream_budget(elements, 2)
        with forebay_side.local_group(servers=1, budget=budget) as group, ExitStack() as stack:
            route = Route(
                "forebay, reader over tcp",
                forebay_side.StreamWriter,
                _TcpReader,
                {"group": group.path, "transport": "shm"},
            )
            rigs = {
                "forebay": stack.enter_context(Rig(route, Setup(f"readers-{size}", elements))),
                "SST": stack.enter_context(Rig(sst, Setup(f"readers-sst-{size}", elements))),
            }
            series = interleave(
                [_burst(name, rig, count) for name, rig in rigs.items()], repetitions=repetitions, warmup=1
            )
        name = named_size(size)
        report.rate(
            f"steps of {name}",
            size,
            series["forebay"],
            against=f"{sst.label} {name}",
            base=series["SST"],
            bar=at_least(2.5),
        )


def _burst(name: str, rig: Rig, count: int) -> Callable[[], Sample]:
    return _named(name, lambda: rig.burst(count, in_place=False, copy=True))


class _Field:
    """A step of one field, put by ranks in this process, that is read again and again."""

    def __init__(
        self,
        group: forebay_side.Group,
        stream: str,
        shape: tuple[int, ...],
        blocks: list[list[Any]],
        stack: ExitStack,
    ) -> None:
        """`blocks` are, for each rank, the slices that it puts."""
        forebay = forebay_side.package()
        self.expected: Array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        self.out: Array = own_array(self.expected.size).reshape(shape)
        self.reader = stack.enter_context(
            forebay.Consumer(stream, group=group.path, timeout=60, transport=self._transport(stream))
        )
        ranks = [
            stack.enter_context(forebay_side.producer(group, stream, shape, rank=rank, size=len(blocks)))
            for rank in range(len(blocks))
        ]
        for rank, mine in zip(ranks, blocks, strict=True):
            with rank.step(0) as step:
                for number, block in enumerate(mine):
                    offset = [part.start for part in block]
                    step.put(forebay_side.FIELD, self.expected[tuple(block)], offset=offset, number=number)
        self.field = stack.enter_context(self.reader.next())[forebay_side.FIELD]

    @staticmethod
    def _transport(stream: str) -> str:
        return "tcp" if stream.startswith("tcp") else "auto"

    def read(self) -> float:
        """Seconds that reading all of it takes."""
        self.out.fill(-1.0)
        began = now_ns()
        self.field.read(np.s_[...], out=self.out)
        seconds = seconds_since(began)
        assert np.array_equal(self.out, self.expected)
        return seconds

    def regions(self, regions: Sequence[tuple[slice, ...]]) -> float:
        """Seconds that reading these takes, one after another."""
        outs = [np.ones(self.expected[region].shape) for region in regions]
        began = now_ns()
        for region, out in zip(regions, outs, strict=True):
            self.field.read(region, out=out)
        seconds = seconds_since(began)
        for region, out in zip(regions, outs, strict=True):
            assert np.array_equal(out, self.expected[region])
        return seconds


def _slabs(length: int, count: int) -> list[slice]:
    return [slice(length * n // count, length * (n + 1) // count) for n in range(count)]


def _blocks(options: argparse.Namespace, report: Report) -> None:
    length = (4 if options.quick else 64) * MIB // 8
    count = 64 if options.quick else 4096
    report.measuring("blocks")
    with forebay_side.local_group(servers=1, budget=3 * length * 8) as group, ExitStack() as stack:
        many = _Field(group, "tcp many", (length,), [[[slab] for slab in _slabs(length, count)]], stack)
        one = _Field(group, "tcp one", (length,), [[[slice(0, length)]]], stack)
        series = interleave(
            [_named("many", many.read), _named("one", one.read)],
            repetitions=repetitions_of(options.repetitions, options.quick, 31),
            warmup=3,
        )
    report.rate(
        f"{named_size(length * 8)} in {count} blocks",
        length * 8,
        series["many"],
        against="one block over TCP",
        base=series["one"],
        bar=at_least(0.7),
    )


def _ranks(options: argparse.Namespace, report: Report) -> None:
    counts = (8, 9) if options.quick else (64, 65, 128, 256)
    report.measuring("ranks")
    with forebay_side.local_group(servers=1) as group, ExitStack() as stack:
        sides = {}
        for count in counts:
            slabs = [[[slab]] for slab in _slabs(1024 * count, count)]
            sides[count] = _Field(group, f"{count} ranks", (1024 * count,), slabs, stack)
        series = interleave(
            [_each(side, count) for count, side in sides.items()],
            repetitions=repetitions_of(options.repetitions, options.quick, 61),
            warmup=5,
        )
    for count in counts[1:]:
        report.micros(
            f"a block of {count} ranks",
            series[str(count)],
            against=f"a block of {counts[0]} ranks",
            base=series[str(counts[0])],
            bar=at_most(1.5),
        )


def _each(side: _Field, count: int) -> Callable[[], Sample]:
    return _named(str(count), lambda: side.read() / count)


def _decomposition(options: argparse.Namespace, report: Report) -> None:
    edge = 256 if options.quick else 2048
    report.measuring("decomposition")
    with forebay_side.local_group(servers=1) as group, ExitStack() as stack:
        written = [[[slab, slice(0, edge)]] for slab in _slabs(edge, 16)]
        side = _Field(group, "decomposition", (edge, edge), written, stack)
        matched = [(slab, slice(0, edge)) for slab in _slabs(edge, 8)]
        across = [(slice(0, edge), slab) for slab in _slabs(edge, 8)]
        series = interleave(
            [
                _named("matched", lambda: side.regions(matched)),
                _named("across", lambda: side.regions(across)),
            ],
            repetitions=repetitions_of(options.repetitions, options.quick, 41),
            warmup=3,
        )
    report.micros(
        "slabs across those written",
        series["across"],
        against="slabs along those written",
        base=series["matched"],
        bar=at_most(1.2),
    )


def _named(name: str, call: Callable[[], float]) -> Callable[[], Sample]:
    return lambda: {name: call()}


_PARTS: Mapping[str, Callable[[argparse.Namespace, Report], None]] = {
    "cohort": _cohort,
    "mn": _mn,
    "tcp": _tcp,
    "blocks": _blocks,
    "ranks": _ranks,
    "decomposition": _decomposition,
}


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all parts, or one."""
    for name, measure in _PARTS.items():
        if getattr(options, "part", None) in (None, name):
            measure(options, report)
