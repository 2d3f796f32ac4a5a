# SPDX-License-Identifier: Apache-2.0
"""bench pictures: what it takes to draw on a group that grows, beside VTK's own way, MPI, and a restart.

frames           240,000 triangles on 2 processes, beside VTK's synchronized renderers with its tree compositer
                 on the same communicator
pipelines        all that the pipelines of examples/pipelines do with a step of Gray-Scott (the same data for all
                 numbers of processes) and of the Mandelbulb (as many blocks as processes), in turn on mpi4py's
                 messages, on Forebay's with the same code, and with Forebay's own compositing; the ratio is
                 the median of those of each start of the processes, and so is the spread
resize           from asking for one more server to the first picture in which it drew; and the same by ending the
                 group and starting a larger one
joins            the longest time that a step's pipeline takes while a server joins, which has a core of its own, as
                 another node would; and where it shares all cores with the others. Beside it, what the longest of as
                 many steps before took: that much is this machine's noise
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.bench import forebay_side, grayscott, pictures_plot, pictures_scenes
from forebay.bench.communicators import Communicator, communicators, timed
from forebay.bench.driven import Driven
from forebay.bench.harness import Report, at_most, repetitions_of
from forebay.bench.measured import Measured
from forebay.bench.samples import Samples, median, spread

Array = NDArray[Any]
_EDGE, _TINY = 96, 32
_BULB = (32, 128, 128)
_GRAYSCOTT_STEPS = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--plot", metavar="FILE", help="draw pipelines, resizes and joins, too")
    parser.add_argument("--part", choices=("frames", "pipelines", "resize", "joins"), help="only one part")


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all, or one part."""
    os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")
    quick, measured = options.quick, Measured()
    repetitions = repetitions_of(options.repetitions, quick, 3, few=1)
    parts = (options.part,) if options.part else ("frames", "pipelines", "resize", "joins")
    with communicators() as known:
        if "frames" in parts:
            _frames(known[0], report, repetitions, 4 if quick else 20)
        if "pipelines" in parts:
            # One peer shows that it works.
            _pipelines(known[:2] if quick else known, report, measured, quick, repetitions)
    if "resize" in parts:
        _resizes(report, measured, quick, repetitions)
    if "joins" in parts:
        _joins(report, measured, quick, repetitions_of(options.repetitions, quick, 7, few=1))
    if options.plot:
        pictures_plot.plot(options.plot, measured)


def _rank(comm: Communicator, ranks: int, *words: object) -> dict[tuple[str, int], float]:
    command = [sys.executable, "-m", "forebay.bench.pictures_rank", *map(str, words)]
    return timed(comm.run(ranks, command))


def _frames(ours: Communicator, report: Report, repetitions: int, turns: int) -> None:
    times: dict[str, Samples] = {}
    for number in range(repetitions):
        report.measuring(f"frames {number + 1} of {repetitions}")
        for (what, _), seconds in _rank(ours, 2, "frames", turns).items():
            times.setdefault(what, []).append(1e3 * seconds)
    report.samples(
        "frame of 240k triangles, 2 processes",
        times["frame"],
        "ms",
        against="VTK's renderers",
        base=times["frame-vtk"],
        bar=at_most(1.15),
        note="until rank 0 has the picture as an array; VTK's until it is in rank 0's window",
    )
    report.samples(
        "the same, both as arrays", times["frame"], "ms", against="VTK's renderers", base=times["picture-vtk"]
    )


# ---- pipelines on comm and on mpi4py ------------------------------------------------------------------------


@contextlib.contextmanager
def _held(stream: str, fields: dict[str, Array], blocks: int, **of_fields: Any) -> Iterator[str]:
    """A group on which a step of a stream is held, cut along z; its path."""
    with (
        forebay_side.package().local(servers=1) as group,
        forebay_side.package().Producer(stream, group=group.path, keep=1) as sim,
    ):
        for name, array in fields.items():
            sim.array(name, dtype=array.dtype, shape=array.shape, **of_fields)
        with sim.step(0, time=0.0) as step:
            for name, array in fields.items():
                for number in range(blocks):
                    first, end = (len(array) * n // blocks for n in (number, number + 1))
                    step.put(name, array[first:end], offset=(first, 0, 0), number=number)
        yield group.path


def _reaction(edge: int) -> dict[str, Array]:
    """U and V of the mini-application after some hundred steps."""
    forebay = forebay_side.package()
    with tempfile.TemporaryDirectory() as place, forebay.local(servers=1) as group:
        program = grayscott.Program(
            grayscott.find("grayscott"),
            grayscott.find("mpiexec"),
            ["--group", group.path, "--output-every", str(_GRAYSCOTT_STEPS), "--policy", "block"],
        )
        load = grayscott.Load(2, edge, _GRAYSCOTT_STEPS)
        with forebay.Consumer("grayscott", fields=["U", "V"], group=group.path) as reader:
            running = threading.Thread(target=program.run, args=(load, Path(place)))
            running.start()
            with reader.next() as step:
                found = {name: np.array(step[name][...], "f8") for name in ("U", "V")}
            running.join()
    return found


def _pipelines(
    known: list[Communicator], report: Report, measured: Measured, quick: bool, repetitions: int
) -> None:
    if len(known) < 2:
        report.note("pipelines need an MPI and mpi4py to compare with: make peers")
        return
    edge, turns = (_TINY, (3, 3)) if quick else (_EDGE, (8, 24))
    ranks = (2,) if quick else (1, 2, 4)
    reaction = _reaction(edge)
    for number in ranks:
        with _held("grayscott", reaction, 4) as path:
            _pipeline(known, report, measured, ("grayscott", number), (path, turns, repetitions))
    for number in ranks:
        bulb = pictures_scenes.mandelbulb(
            (_BULB[0] * number, *_BULB[1:]) if not quick else (8 * number, 24, 24)
        )
        with _held("mandelbulb", {"escape": bulb}, number) as path:
            _pipeline(known, report, measured, ("mandelbulb", number), (path, turns, repetitions))


def _pipeline(
    known: list[Communicator],
    report: Report,
    measured: Measured,
    which: tuple[str, int],
    how: tuple[str, tuple[int, int], int],
) -> None:
    (stream, ranks), (path, (turns, turns_for_bar), repetitions) = which, how
    cores = len(os.sched_getaffinity(0))
    # One process sends nothing; and who has no core of its own waits for others', which MPI does without giving its own away.
    has_bar = 1 < ranks <= cores
    for mpi in known[1:]:
        times: dict[str, Samples] = {}
        for repetition in range(repetitions):
            report.measuring(f"{stream} on {ranks}, {mpi.name}, {repetition + 1} of {repetitions}")
            words = ("pipeline", path, stream, turns_for_bar if has_bar else turns)
            for (what, _), seconds in _rank(mpi, ranks, *words).items():
                times.setdefault(what, []).append(1e3 * seconds)
        for what, text in {"forebay": "", "own": ", own compositing"}.items():
            # Of the same processes each: what one start of them has in common is in both.
            pairs = [ours / theirs for ours, theirs in zip(times[what], times["mpi"], strict=True)]
            report.value(
                f"{stream}, {ranks} processes{text}",
                median(times[what]),
                "ms",
                ratio=median(pairs),
                against=f"mpi4py, {mpi.name}",
                against_value=median(times["mpi"]),
                bar=at_most(1.05) if has_bar and what == "forebay" else None,
                n=repetitions,
                spread=spread(pairs),
            )
        kept = measured.pipelines.setdefault(stream, {}).setdefault(mpi.name, {})
        kept[ranks] = (median(times["mpi"]) / 1e3, median(times["forebay"]) / 1e3)


# ---- servers that join --------------------------------------------------------------------------------------


def _resizes(report: Report, measured: Measured, quick: bool, repetitions: int) -> None:
    sizes, edge = ((1,), _TINY) if quick else ((1, 2, 3, 4), _EDGE)
    elastic: dict[int, Samples] = {size: [] for size in sizes}
    restart: dict[int, Samples] = {size: [] for size in sizes}
    gaps: dict[int, Samples] = {size: [] for size in sizes}
    for repetition in range(repetitions):
        for size in sizes:
            report.measuring(f"resize {size} to {size + 1}, {repetition + 1} of {repetitions}")
            with Driven(size, edge) as driven:
                driven.steps(5)
                took, longest = driven.grown()
                elastic[size].append(took)
                gaps[size].append(longest)
            with Driven(size, edge) as driven:
                driven.steps(5)
                restart[size].append(driven.restarted(size + 1))
    for size in sizes:
        report.samples(
            f"from {size} to {size + 1} servers",
            elastic[size],
            "s",
            against="restart",
            base=restart[size],
            bar=at_most(0.1),
            note="until there is a picture in which it drew",
        )
        report.samples(
            f"from {size} to {size + 1} servers, longest time without a picture",
            gaps[size],
            "s",
            against="restart",
            base=restart[size],
        )
        measured.elastic[size], measured.restart[size] = median(elastic[size]), median(restart[size])
        measured.gaps[size] = median(gaps[size])


def _joins(report: Report, measured: Measured, quick: bool, repetitions: int) -> None:
    edge, around = (_TINY, 6) if quick else (_EDGE, 20)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        report.note("joins need two cores: one for each server")
        return
    for shared in (False,) if quick else (False, True):
        longest: Samples = []
        calm: Samples = []
        for repetition in range(repetitions):
            report.measuring(f"joins {repetition + 1} of {repetitions}")
            with _only_on(cores if shared else cores[:1]), Driven(1, edge) as driven:
                driven.steps(around)
                began = len(driven.told)
                driven.grown(after=around, cores=None if shared else cores[1:2])
            joined = next(n for n, step in enumerate(driven.told) if step["workers"] > 1)
            times = [step["execute"] for step in driven.told]
            before, joining = times[3:began], times[began : joined + 3]
            longest.append(max(joining) / median(before))
            calm.append(max(before[-len(joining) :]) / median(before))
            if not shared:
                measured.joins, measured.asked = driven.told, driven.asked
        report.value(
            "longest pipeline time at a join" + (", cores shared" if shared else ""),
            median(longest),
            "x the median before",
            against="as many steps without a join",
            against_value=median(calm),
            ratio=median(longest),
            bar=None if shared else at_most(1.2),
            n=len(longest),
            spread=spread(longest),
        )


@contextlib.contextmanager
def _only_on(cores: list[int]) -> Iterator[None]:
    """What this thread starts runs on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
