# SPDX-License-Identifier: Apache-2.0
"""bench stream: a producer and a consumer process, step after step, beside bare limits and peers.

Inside the clock, for Forebay, the bare limits and all peers alike: a burst of steps, from before the producer
fills the first until the consumer has taken the last.  The producer writes the step's pattern (`put`: into an
array of its own, then hands over a copy; `alloc`: in place, into the memory that the reader will see), hands
it over, and waits where too many are in flight.  The reader waits for each step, takes it and
checks 64 places (`view`: in place; `copy`: after copying all of it into an array of its own).

What has only one way stands beside both: SST can neither be filled in place nor be looked at without a copy.
Before the clock starts, both sides are attached, at least 12 steps have gone through, each compared whole.
At most 2 steps are in flight, except with SST's defaults, which queue without a limit.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from forebay.bench import forebay_side, peers
from forebay.bench.harness import MIB, Bar, Report, at_least, named_size, repetitions_of, sizes_of
from forebay.bench.peers import bare
from forebay.bench.rigs import Rig, Route, Setup
from forebay.bench.samples import Sample, Samples, interleave

_DEPTH = 2
_BURST_BYTES = 768 * MIB
_SST_BARS = {8 * MIB: 3.0, 64 * MIB: 5.0, 256 * MIB: 5.0}
_SST_OVER_TCP = 2.5
_ICEORYX2 = 0.95


class Case(NamedTuple):
    """How a step is handed over and taken."""

    in_place: bool
    copy: bool

    def __str__(self) -> str:
        return f"{'alloc' if self.in_place else 'put'}+{'copy' if self.copy else 'view'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--sizes", type=float, nargs="+", metavar="MIB", help="sizes in MiB (1 8 64 256)")
    parser.add_argument("--only-peers", action="store_true", help="leave Forebay out")
    peers.add_arguments(parser)


def cases_of(route: Route) -> list[Case]:
    """The ways that a route has."""
    return [
        Case(in_place, copy)
        for in_place in ((False, True) if route.in_place else (False,))
        for copy in ((False, True) if route.view else (True,))
    ]


def nearest(route: Route, case: Case) -> Case:
    """The way of a route that stands beside a case."""
    return Case(case.in_place and route.in_place, case.copy or not route.view)


def steps_in_burst(size: int) -> int:
    """Enough steps that starting and ending do not count."""
    return max(6, min(256, _BURST_BYTES // size))


def start(route: Route, size: int, stack: ExitStack) -> Rig:
    """Starts both processes of a route."""
    name = f"s{os.getpid()}x{time.monotonic_ns()}"
    return stack.enter_context(Rig(route, Setup(name, size // 8, _DEPTH)))


def one_burst(rig: Rig, case: Case, steps: int) -> Callable[[], Sample]:
    """A subject that measures one burst."""
    name = key(rig.route, case)
    return lambda: {name: rig.burst(steps, in_place=case.in_place, copy=case.copy)}


def key(route: Route, case: Case) -> str:
    """The name of a series."""
    return f"{route.label} {case}"


def bar_against(route: Route, peer: str, label: str, size: int, case: Case) -> Bar | None:
    """What Forebay has to reach beside a route of a peer."""
    over_tcp = route.label.endswith("tcp")
    if peer == "adios2" and size in _SST_BARS and "malloc" not in label:
        return at_least(_SST_OVER_TCP if over_tcp else _SST_BARS[size])
    if peer == "iceoryx2" and not over_tcp:
        return at_least(_ICEORYX2)
    return None


class Measured(NamedTuple):
    """All series of one size."""

    size: int
    series: dict[str, Samples]
    subjects: list[Route]
    references: list[tuple[str, Route]]


def measure(size: int, peer_names: list[str], options: argparse.Namespace, repetitions: int) -> Measured:
    """Runs bursts of all routes in turn."""
    references = [("limit", bare.shared_memory(size // 8, _DEPTH)), ("limit", bare.loopback())]
    references += [(name, route) for name in peer_names for route in peers.routes(name)]
    subjects: list[Route] = []
    with ExitStack() as stack:
        if not options.only_peers:
            budget = forebay_side.stream_budget(size // 8, _DEPTH)
            group = stack.enter_context(forebay_side.local_group(servers=1, budget=budget))
            subjects = [forebay_side.route(group, transport) for transport in ("shm", "tcp")]
        routes = subjects + [route for _, route in references]
        bursts: list[Callable[[], Sample]] = []
        for route in routes:
            rig = start(route, size, stack)
            bursts += [one_burst(rig, case, steps_in_burst(size)) for case in cases_of(route)]
        series = interleave(bursts, repetitions=repetitions, warmup=1)
    return Measured(size, series, subjects, references)


def report_size(measured: Measured, report: Report) -> None:
    """All results of one size: everything alone, then Forebay beside each."""
    size, series = measured.size, measured.series
    name = named_size(size)
    for route in [*measured.subjects, *(route for _, route in measured.references)]:
        for case in cases_of(route):
            report.rate(f"{name} {key(route, case)}", size, series[key(route, case)])
        if route.settings:
            report.note(f"{route.label}: {route.settings}")
    for route in measured.subjects:
        for peer, other in measured.references:
            if other.label == "bare tcp" and route.label.endswith("shm"):
                continue
            for case in cases_of(route):
                beside = nearest(other, case)
                report.rate(
                    f"{name} {key(route, case)}",
                    size,
                    series[key(route, case)],
                    against=f"{other.label} {beside}, {name}",
                    base=series[key(other, beside)],
                    bar=bar_against(route, peer, other.label, size, case),
                )


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all sizes."""
    names, missing = peers.chosen(options.peer)
    for name in missing:
        report.note(f"not measured beside {name}: it is not installed (pip install {name})")
    repetitions = repetitions_of(options.repetitions, options.quick, 7, few=2)
    sizes = sizes_of(options.sizes, options.quick, (1, 8, 64, 256), (0.25, 1))
    for size in sizes:
        report.measuring(named_size(size))
        report_size(measure(size, names, options, repetitions), report)
    report.note(
        f"bursts of {', '.join(f'{steps_in_burst(size)} steps of {named_size(size)}' for size in sizes)}; "
        "GB/s are of a step's bytes, counted once"
    )
