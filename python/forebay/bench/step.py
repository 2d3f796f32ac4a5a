# SPDX-License-Identifier: Apache-2.0
"""bench step: what a step costs that nobody wants.

begin + end        inside the clock: entering and leaving `producer.step(n)`, with no consumer attached
with two puts      the same, with two puts of 64 MiB fields that are not demanded in it
undemanded put     inside: one `step.put` of such a field

Steps follow each other with a pause of half a millisecond, as a simulation computes in between.
"""

from __future__ import annotations

import argparse
import time
from itertools import count
from typing import Any

from forebay.bench import forebay_side
from forebay.bench.harness import MIB, Report, repetitions_of, under
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, interleave, now_ns, seconds_since

_LIMIT_US = 60.0
_PAUSE = 0.0005
_ELEMENTS = 64 * MIB // 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark: none."""


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures through shared memory, and over TCP for comparison."""
    repetitions = repetitions_of(options.repetitions, options.quick, 2000, few=50)
    array = own_array(_ELEMENTS)
    with forebay_side.local_group(servers=2) as group:
        for transport in ("auto", "tcp"):
            report.measuring(transport)
            stream = f"step-{transport}"
            with forebay_side.producer(group, stream, (_ELEMENTS,), transport=transport) as producer:
                numbers = count()

                def empty(producer: Any = producer, numbers: Any = numbers) -> Sample:
                    time.sleep(_PAUSE)
                    number = next(numbers)
                    began = now_ns()
                    with producer.step(number, time=float(number)):
                        pass
                    return {"begin + end": seconds_since(began)}

                def two_puts(producer: Any = producer, numbers: Any = numbers) -> Sample:
                    time.sleep(_PAUSE)
                    number = next(numbers)
                    began = now_ns()
                    with producer.step(number, time=float(number)) as step:
                        before = now_ns()
                        step.put(forebay_side.FIELD, array, offset=(0,))
                        put = seconds_since(before)
                        step.put(forebay_side.FIELD, array, offset=(0,), number=1)
                    return {"with two puts": seconds_since(began), "undemanded put": put}

                series = interleave([empty, two_puts], repetitions=repetitions, warmup=50)
            where = "shared memory" if transport == "auto" else "tcp"
            for name, samples in series.items():
                bar = under(_LIMIT_US) if name != "undemanded put" and transport == "auto" else None
                report.micros(f"{name}, {where}", samples, bar=bar)
