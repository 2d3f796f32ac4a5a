# SPDX-License-Identifier: Apache-2.0
"""bench tcp: put and get over TCP on one host, beside a bare loopback connection moving the same bytes.

put          inside the clock: `space.put` of a filled array, until it returns: then the server has it in its
             arena.  Beside: all bytes sent to another process that receives them into touched shared memory
             and says so by one byte.
get          inside: `space.get` of the same into an array that has been touched.  Beside: one byte sent,
             all bytes received from the other process's shared memory into such an array.

The bare connection has TCP_NODELAY and the buffers that the system gives it.  The last lines compare with
one whose buffers are set to 1 MiB, which is faster on some machines because less falls out of the cache.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.baselines import LoopbackPair
from forebay.bench.harness import MIB, Report, at_least, named_size, repetitions_of, sizes_of
from forebay.bench.patterns import Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, interleave, now_ns, seconds_since

_BAR = 0.85
_BAR_SIZE = 64 * MIB
_SMALL_BUFFERS = MIB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--sizes", type=float, nargs="+", metavar="MIB", help="sizes in MiB (1 8 64)")


class Sides:
    """Forebay over TCP, and two bare connections."""

    def __init__(self, space: Any, size: int, stack: ExitStack) -> None:
        self.space = space
        self.elements = size // 8
        self.pattern = Pattern(self.elements)
        self.array, self.out = own_array(self.elements), own_array(self.elements)
        self.number = 0
        self.plain, self.small = LoopbackPair(size), LoopbackPair(size, _SMALL_BUFFERS)
        stack.callback(self.plain.close)
        stack.callback(self.small.close)

    def forebay(self) -> Sample:
        """One put, one get, one remove."""
        self.number += 1
        self.pattern.fill(self.array, self.number)
        began = now_ns()
        self.space.put("tcp", self.array, step=self.number, offset=(0,), shape=(self.elements,))
        put = seconds_since(began)
        self.out.fill(-1.0)
        began = now_ns()
        self.space.get("tcp", step=self.number, region=np.s_[:], out=self.out)
        got = seconds_since(began)
        self.pattern.check_all(self.out, self.number)
        self.space.remove("tcp", step=self.number)
        return {"put": put, "get": got}

    def _bare(self, pair: LoopbackPair, name: str) -> Sample:
        self.number += 1
        self.pattern.fill(self.array, self.number)
        put = pair.put_seconds(self.array)
        pair.check(self.number)
        self.out.fill(-1.0)
        got = pair.get_seconds(self.out)
        self.pattern.check_all(self.out, self.number)
        return {f"{name} put": put, f"{name} get": got}

    def bare(self) -> Sample:
        """The same, bare."""
        return self._bare(self.plain, "bare")

    def bare_small(self) -> Sample:
        """The same, bare, with buffers of 1 MiB."""
        return self._bare(self.small, "small")


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all sizes."""
    repetitions = repetitions_of(options.repetitions, options.quick, 21)
    with (
        forebay_side.local_group(servers=2) as group,
        forebay_side.space(group, transport="tcp") as space,
    ):
        for size in sizes_of(options.sizes, options.quick, (1, 8, 64), (0.25, 1)):
            name = named_size(size)
            report.measuring(name)
            with ExitStack() as stack:
                sides = Sides(space, size, stack)
                series = interleave(
                    [sides.forebay, sides.bare, sides.bare_small], repetitions=repetitions, warmup=3
                )
            bar = at_least(_BAR) if size == _BAR_SIZE else None
            for what in ("put", "get"):
                bare = f"bare loopback {what} of {name}"
                report.rate(
                    f"{what} {name}", size, series[what], against=bare, base=series[f"bare {what}"], bar=bar
                )
            for what in ("put", "get"):
                against = f"bare loopback {what} of {name}, buffers of 1 MiB"
                report.rate(
                    f"{what} {name}", size, series[what], against=against, base=series[f"small {what}"]
                )
