# SPDX-License-Identifier: Apache-2.0
"""bench latency: the age of an 8-byte step when the reader has its value.

The producer writes the time (CLOCK_MONOTONIC) as the value, right before it begins the step; the reader, which
sleeps until a step comes, takes the value and looks at the clock.  Inside: the step's begin, put and end, waking
the server and the reader, the reader's `next` and its look at the value.  The bars are for programs in C, as
simulations are; the same from Python, whose interpreter finds its own code cold after each sleep, stands beside
it, and so do the peers, which are measured from Python.  Steps are a millisecond apart, so that none waits for
the one before; p50 is over all steps, the spread is that of the p50 of the rounds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from forebay.bench import forebay_side, native_side, peers
from forebay.bench.harness import MIB, Report, named_size, repetitions_of, under
from forebay.bench.peers import bare
from forebay.bench.rigs import Rig, Route, Setup
from forebay.bench.samples import Samples, percentile, spread

_ELEMENTS = 1
_DEPTH = 2
_P50_US = 100.0
_P99_US = 1000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--steps", type=int, metavar="N", help="steps in each round (500)")
    parser.add_argument("--gap-ms", type=float, default=1.0, metavar="X", help="between two steps (1)")
    parser.add_argument("--only-peers", action="store_true", help="leave Forebay out")
    peers.add_arguments(parser)


def peer_routes(name: str) -> list[Route]:
    """The ways of a peer that matter for latency."""
    if name == "iceoryx2":
        from forebay.bench.peers import iceoryx2

        return iceoryx2.latency_routes()
    return [route for route in peers.routes(name) if "malloc" not in route.label]


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures Forebay and the peers, round by round in turn."""
    names, missing = peers.chosen(options.peer)
    for name in missing:
        report.note(f"not measured beside {name}: it is not installed (pip install {name})")
    rounds = repetitions_of(options.repetitions, options.quick, 5)
    steps = options.steps or (100 if options.quick else 500)
    with ExitStack() as stack:
        routes: list[Route] = []
        native: dict[str, Callable[[str], Samples]] = {}
        if not options.only_peers:
            group = stack.enter_context(forebay_side.local_group(servers=1, budget=64 * MIB))
            program = stack.enter_context(native_side.compiled("latency"))
            for transport in ("shm", "tcp"):
                routes.append(forebay_side.route(group, transport))
                native[f"forebay {transport}"] = partial(
                    native_side.latencies,
                    program,
                    group.path,
                    transport=transport,
                    steps=steps * 10 // 9,
                    gap=options.gap_ms / 1e3,
                )
        routes += [bare.shared_memory(_ELEMENTS, _DEPTH), bare.loopback()]
        routes += [route for name in names for route in peer_routes(name)]
        rigs = []
        for route in routes:
            report.measuring(f"starting {route.label}")
            name = f"l{os.getpid()}x{time.monotonic_ns()}"
            rigs.append(stack.enter_context(Rig(route, Setup(name, _ELEMENTS, _DEPTH))))
        measured: dict[str, list[Samples]] = {label: [] for label in (*native, *map(_label, rigs))}
        for turn in range(-1, rounds):
            for label, measure in native.items():
                report.measuring(f"round {turn + 1} of {rounds}, {label}")
                ages = measure(f"{label} {os.getpid()} {turn}")
                if turn >= 0:
                    measured[label].append(ages)
            for rig in rigs if turn % 2 == 0 else reversed(rigs):
                report.measuring(f"round {turn + 1} of {rounds}, {rig.route.label}")
                ages = rig.latencies(steps, options.gap_ms / 1e3)
                if turn >= 0:
                    measured[_label(rig)].append(ages)
    for label, of_rounds in measured.items():
        report_route(report, label, of_rounds)
    report.note(
        f"{rounds} rounds of {steps} steps each, after one that does not count; {named_size(8)} a step; programs in C "
        "connect anew for each round and leave out a tenth more at its beginning"
    )


def _label(rig: Rig) -> str:
    label = rig.route.label
    return f"{label} from Python" if label.startswith("forebay") else label


def report_route(report: Report, label: str, rounds: list[Samples]) -> None:
    """p50 and p99 of all steps, with a bar on Forebay's shared memory."""
    every = [age * 1e6 for ages in rounds for age in ages]
    judged = label == "forebay shm"
    for percent, limit in ((50, _P50_US), (99, _P99_US)):
        report.value(
            f"{label} p{percent}",
            percentile(every, percent),
            "us",
            bar=under(limit) if judged else None,
            n=len(every),
            spread=spread([percentile(ages, percent) for ages in rounds]) if len(rounds) > 1 else None,
            more={"mean us": sum(every) / len(every), "longest us": max(every)} if percent == 99 else None,
        )
