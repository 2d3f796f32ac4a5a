# SPDX-License-Identifier: Apache-2.0
"""bench idle: the CPU time of a server that has nothing to do.

For some seconds, the CPU time of all threads of each server (from the scheduler, in nanoseconds) relative to
the time that passed; the value is that of the busiest server.

nobody           nothing is attached
attached         a producer between two steps, and a consumer that waits for the next
holding blocks   as before, with 64 blocks staged by `space.put`
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.children import Channel, Child
from forebay.bench.harness import Report, repetitions_of, under
from forebay.bench.processes import cpu_seconds
from forebay.bench.samples import Samples, median, now_ns, seconds_since, spread

_LIMIT_PERCENT = 0.5
_SETTLE = 1.0
_ELEMENTS = 1 << 17


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--seconds", type=float, metavar="S", help="length of each repetition (5)")


def wait_for_steps(channel: Channel, path: str, stream: str) -> None:
    """A consumer that waits."""
    with forebay_side.consumer(path, stream) as consumer:
        channel.send("ready")
        for step in consumer:
            step.release()


def busiest(group: forebay_side.Group, seconds: float) -> float:
    """The percentage of a core that the busiest server took."""
    before = [cpu_seconds(pid) for pid in group.pids]
    began = now_ns()
    time.sleep(seconds)
    passed = seconds_since(began)
    after = [cpu_seconds(pid) for pid in group.pids]
    return max((b - a) / passed * 100 for a, b in zip(before, after, strict=True))


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures the three states one after another, in a group of two servers."""
    repetitions = repetitions_of(options.repetitions, options.quick, 5, few=2)
    seconds = options.seconds or (0.5 if options.quick else 5.0)

    def measure(state: str) -> None:
        report.measuring(state)
        time.sleep(_SETTLE)
        shares: Samples = [busiest(group, seconds) for _ in range(repetitions)]
        report.value(
            f"server, {state}",
            median(shares),
            "%",
            bar=under(_LIMIT_PERCENT),
            n=repetitions,
            spread=spread(shares),
            more={"highest %": max(shares)},
        )

    with ExitStack() as stack:
        group = stack.enter_context(forebay_side.local_group(servers=2))
        measure("nobody attached")
        child = stack.enter_context(Child("consumer", wait_for_steps, group.path, "idle"))
        producer = stack.enter_context(forebay_side.producer(group, "idle", (_ELEMENTS,)))
        child.answer()
        with producer.step(0, time=0.0):
            pass
        measure("attached")
        space = stack.enter_context(forebay_side.space(group))
        array = np.zeros(_ELEMENTS)
        for number in range(64):
            space.put("idle", array, step=number, offset=(0,), shape=(_ELEMENTS,))
        measure("holding blocks")
    report.note(f"each repetition is {seconds:g} s long; % of one core; other staging servers poll: 100 %")
