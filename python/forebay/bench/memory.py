# SPDX-License-Identifier: Apache-2.0
"""bench memory: what the servers take beside the data, and whether they give it back.

All of it is what the system counts: the servers' resident memory without shared pages (RssAnon + RssFile),
and the pages really allocated to the memory files that they hold open, each file once.  What is staged is
counted here, by the bytes that were put.

at the peak        after the last put: both together, at most 1.05 x the staged bytes + 64 MiB
given back         after everything was removed, within 10 s: what is left beyond what the servers took before
                   the first put
directory          the directory's bytes, as the servers tell, for each of many blocks of 8 bytes
all of a block     resident memory that these blocks added, arena aside, for each (no bar)

The same for blocks put by a single process, by four at once, and for the steps of a stream that its reader has
not taken yet (servers touch memory ahead of such steps).
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.children import Channel, Child
from forebay.bench.errors import BenchError, WrongData
from forebay.bench.harness import MIB, Report, under, within
from forebay.bench.patterns import Pattern
from forebay.bench.processes import Footprint, footprint
from forebay.bench.rigs import own_array

_SHARE = 1.05
_ROOM = 64 * MIB
_DIRECTORY_LIMIT = 256
_GIVE_BACK_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--staged", type=int, metavar="MIB", help="bytes to stage at the peak, in MiB (512)")
    parser.add_argument("--block", type=int, metavar="MIB", help="bytes of a block, in MiB (8)")
    parser.add_argument("--blocks", type=int, metavar="N", help="small blocks, for the directory (20000)")


def put_blocks(channel: Channel, path: str, name: str, elements: int) -> None:
    """A process that puts, checks and removes blocks, a step each."""
    pattern, array, out = Pattern(elements), own_array(elements), own_array(elements)
    with forebay_side.package().Space(group=path) as space:
        channel.send("ready")
        for what, steps in channel:
            for number in range(steps):
                if what == "put":
                    pattern.fill(array, number)
                    space.put(name, array, step=number, offset=(0,), shape=(elements,))
                elif what == "check":
                    space.get(name, step=number, region=np.s_[:], out=out)
                    pattern.check_all(out, number)
                else:
                    space.remove(name, step=number)
            channel.send(None)


def peak(report: Report, writers: int, block: int, staged: int) -> None:
    """Fills the servers, looks, empties them, looks again."""
    steps = max(1, staged // block // writers)
    bytes_staged = steps * writers * block
    with ExitStack() as stack:
        group = stack.enter_context(forebay_side.local_group(servers=2, budget=2 * bytes_staged + _ROOM))
        children = [
            stack.enter_context(Child(f"writer {i}", put_blocks, group.path, f"memory{i}", block // 8))
            for i in range(writers)
        ]
        for child in children:
            child.answer()
        before = footprint(group.pids)
        for what in ("put", "check"):
            for child in children:
                child.tell(what, steps)
            for child in children:
                child.answer(300.0)
        full = footprint(group.pids)
        told = forebay_side.status(group)
        for child in children:
            child.tell("remove", steps)
        for child in children:
            child.answer()
        after, waited = settled(group, before.total)
    who = "1 writer" if writers == 1 else f"{writers} writers"
    tell_peak(report, who, bytes_staged, (before, full), told)
    tell_given_back(report, who, before, after, waited)


def stream_peak(report: Report, block: int, staged: int) -> None:
    """The same, with steps of a stream that wait for their reader."""
    steps = max(2, staged // block)
    bytes_staged = steps * block
    pattern, array, out = Pattern(block // 8), own_array(block // 8), own_array(block // 8)
    with ExitStack() as stack:
        group = stack.enter_context(forebay_side.local_group(servers=2, budget=2 * bytes_staged + _ROOM))
        reader = stack.enter_context(forebay_side.consumer(group, "waiting"))
        writer = stack.enter_context(forebay_side.producer(group, "waiting", (block // 8,), policy="block"))
        before = footprint(group.pids)
        for number in range(steps):
            pattern.fill(array, number)
            with writer.step(number, time=float(number)) as step:
                step.put(forebay_side.FIELD, array, offset=(0,))
        # What is touched after the last step counts as well.
        full = before
        for _ in range(20):
            time.sleep(0.01)
            full = max(full, footprint(group.pids), key=lambda one: one.total)
        told = forebay_side.status(group)
        for number in range(steps):
            with reader.next(timeout=30.0) as step:
                if step.number != number:
                    raise WrongData(f"step {step.number} came where step {number} was due")
                np.copyto(out, step[forebay_side.FIELD][...])
                pattern.check_all(out, number)
        after, waited = settled(group, before.total)
    tell_peak(report, "stream", bytes_staged, (before, full), told)
    tell_given_back(report, "stream", before, after, waited)


def settled(group: forebay_side.Group, before: int) -> tuple[int, float]:
    """Waits until memory is given back, if it is; returns what is taken then, and seconds."""
    began = time.monotonic()
    after = footprint(group.pids).total
    while after > before + _ROOM // 4 and time.monotonic() - began < _GIVE_BACK_SECONDS:
        time.sleep(0.1)
        after = footprint(group.pids).total
    return after, time.monotonic() - began


def tell_peak(
    report: Report,
    who: str,
    bytes_staged: int,
    found: tuple[Footprint, Footprint],
    told: list[forebay_side.ServerStatus],
) -> None:
    """What the servers took when all was staged, and what they took before."""
    before, full = found
    limit = (_SHARE * bytes_staged + _ROOM) / MIB
    report.value(
        f"at the peak, {who}",
        full.total / MIB,
        "MiB",
        against="bytes staged",
        against_value=bytes_staged / MIB,
        bar=within(round(limit, 1)),
        more={
            "before MiB": before.total / MIB,
            "resident MiB": full.private / MIB,
            "arenas MiB": full.shared / MIB,
        },
        note=f"the servers tell: arenas {sum(s.arena for s in told) / MIB:.1f} MiB, "
        f"peak staged {sum(s.peak_staged for s in told) / MIB:.1f} MiB, "
        f"rss {sum(s.rss for s in told) / MIB:.1f} MiB",
    )


def tell_given_back(report: Report, who: str, before: Footprint, after: int, waited: float) -> None:
    """What is left of it when nothing is staged any more."""
    report.value(
        f"given back, {who}",
        (after - before.total) / MIB,
        "MiB",
        bar=within(_ROOM / MIB),
        more={"before MiB": before.total / MIB, "after MiB": after / MIB, "waited s": waited},
    )


def directory(report: Report, blocks: int) -> None:
    """Many small blocks."""
    with forebay_side.local_group(servers=2) as group, forebay_side.space(group) as space:
        value = np.zeros(1)
        space.put("first", value, step=0, offset=(0,), shape=(1,))
        told_before, before = forebay_side.status(group), footprint(group.pids)
        for number in range(blocks):
            value[0] = number
            space.put("small", value, step=number // 100, offset=(number % 100,), shape=(100,))
        told, after = forebay_side.status(group), footprint(group.pids)
        got = space.get("small", step=0, region=np.s_[:])
        if not np.array_equal(got, np.arange(100.0)):
            raise BenchError("the small blocks came back with other content")
    held = sum(s.blocks for s in told) - sum(s.blocks for s in told_before)
    if held < blocks:
        raise BenchError(f"the servers hold {held} blocks, {blocks} were put")
    grown = sum(s.directory for s in told) - sum(s.directory for s in told_before)
    report.value("directory, for each block", grown / blocks, "B", bar=under(_DIRECTORY_LIMIT), n=blocks)
    report.value("all of a block, arena aside", (after.private - before.private) / blocks, "B", n=blocks)


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures the peak, what is given back, and the directory."""
    staged = options.staged or (32 if options.quick else 512)
    block = options.block or (1 if options.quick else 8)
    blocks = (options.blocks or (500 if options.quick else 20000)) // 100 * 100
    for writers in (1, 4):
        report.measuring(f"{writers} writers")
        peak(report, writers, block * MIB, staged * MIB)
    report.measuring("stream")
    stream_peak(report, block * MIB, staged * MIB)
    report.measuring("directory")
    directory(report, max(100, blocks))
    report.note(f"blocks of {block} MiB; two servers together")
