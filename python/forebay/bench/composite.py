# SPDX-License-Identifier: Apache-2.0
"""bench composite: pictures of 1024 x 1024 with depth, put together into one, and how a gather with NumPy does the same.

Every rank has drawn a part of the picture: in "half" it covers half of the pixels, in "full" all of them. What is told is the time
from the moment that all have drawn until rank 0 has the whole picture, with and without its depths. The bars are what IceT takes for
it over a plain socket on a machine of two cores, and half of what a gather takes from four ranks on.

half, full       the nearest of each pixel, among 2, 4 and 8 processes
layers           the same number of pictures one sees through, one behind the other
"""

from __future__ import annotations

import argparse
import sys

from forebay.bench.communicators import Communicator, communicators, timed
from forebay.bench.harness import Report, at_most, repetitions_of, within
from forebay.bench.samples import median, ratio_interval, spread

# What IceT was measured to take, in ms, by processes.
_ICET = {2: 4.0, 4: 14.0}
_SIDE = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--ranks", type=int, metavar="N", help="only among so many processes")


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all, or among so many processes."""
    repetitions = repetitions_of(options.repetitions, options.quick, 7, few=2)
    turns = 5 if options.quick else 30
    some = (2,) if options.quick else (2, 4, 8)
    with communicators() as known:
        for ranks in some if options.ranks is None else (options.ranks,):
            report.measuring(f"{ranks} processes")
            _measure(known[0], report, ranks, (repetitions, turns))
    report.note(
        "ms until rank 0 has the picture; each the median of a process's calls, of that the median of all runs"
    )


def _measure(ours: Communicator, report: Report, ranks: int, turns: tuple[int, int]) -> None:
    times: dict[str, list[float]] = {}
    repetitions, calls = turns
    for _ in range(repetitions):
        command = [sys.executable, "-m", "forebay.bench.composite_rank", str(_SIDE), str(calls)]
        for (what, _), seconds in timed(ours.run(ranks, command)).items():
            times.setdefault(what, []).append(1e3 * seconds)
    for cover in ("half", "full"):
        gathered = times[f"gather-{cover}"]
        for what, text in ((cover, ""), (f"{cover}-depths", " with depths")):
            value = times[what]
            report.value(
                f"{ranks} processes, {cover}{text}",
                median(value),
                "ms",
                against="gather and NumPy",
                against_value=median(gathered),
                interval=ratio_interval(value, gathered),
                bar=at_most(0.5) if ranks >= 4 and not text else None,
                n=len(value),
                spread=spread(value),
            )
        if ranks in _ICET:
            value = times[cover]
            report.value(
                f"{ranks} processes, {cover}, against IceT's {_ICET[ranks]:g} ms",
                median(value),
                "ms",
                bar=within(_ICET[ranks]),
                n=len(value),
                spread=spread(value),
            )
    layers = times["layers"]
    report.value(f"{ranks} processes, layers", median(layers), "ms", n=len(layers), spread=spread(layers))
