# SPDX-License-Identifier: Apache-2.0
"""bench slowdown: the time of a simulation's step with Forebay, beside the same program without it.

Gray-Scott in C on MPI ranks puts U and V, ghosts included, at every step; beside it the same sources with the
puts compiled to nothing.  A step is computing, exchanging ghosts and Forebay's calls, as the program itself
measures it; of all ranks the slowest counts, and the first 5 steps of a run do not.  Work is calibrated once
and then equal in all runs, and equal results are checked by a fingerprint of every bit.

nothing attached     a group is there, the program is connected, nobody wants anything
reader attached      a process takes every step: views of all blocks, and a copy of a plane
pipeline attached    the isosurface of examples/pipelines draws every tenth step
reader stopped       a reader holds its first step and then stands still (SIGSTOP); budget: 16 steps
BP5 to files, SST    the same program with ADIOS2's calls in the place of Forebay's, with ADIOS2's defaults
                     (peers/staging_adios2.c): a file or a stream for each rank, since ADIOS2 from PyPI knows
                     no MPI; every stream of SST has a reader that gets all of it.  Beside the same program
                     without, built with the same flags.

The ratio is that of the median step in runs that alternate (A B B A), with its 95 % interval; the bar is on
it.  Mean, p99 and longest are of all steps of all runs.  Runs of one program differ by more than the bar on most
machines; so beside it stands the time within Forebay's calls, which the program takes itself, as a share of the
step without: what the calls cost, without what they may do to the rest of the step.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forebay.bench import forebay_side, peers
from forebay.bench.errors import BenchError, WrongData
from forebay.bench.grayscott import Load, Program, Run, build_with_adios2, calibrate, examples, find
from forebay.bench.harness import Bar, Report, at_most, named_size
from forebay.bench.onlookers import attached_reader, sst_readers, stopped_reader
from forebay.bench.pairs import Pairs, StepTimes, compare
from forebay.bench.samples import percentile, spread

_BAR = at_most(1.01)
_CALLS_BAR = at_most(0.01)
_CLOSE_ENOUGH = 0.006
_RESOLVED = 0.02
_STUCK_STEPS = 16
_CASES = ("nothing", "reader", "pipeline", "stopped", "bp5", "sst")
_EDGES = {10.0: 64, 100.0: 128}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", help="numbers of ranks (1 2 4)")
    parser.add_argument("--step-ms", type=float, nargs="+", metavar="X", help="lengths of a step (10 100)")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=_CASES,
        metavar="CASE",
        help=f"what to measure: {', '.join(_CASES)} (all)",
    )
    parser.add_argument(
        "--edge", type=int, metavar="N", help="points in each direction (64, or 128 from 100 ms)"
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="steps of a run (so many as take 2 s, 20 at least)"
    )
    parser.add_argument("--bin", metavar="DIRECTORY", help="where grayscott, grayscott-plain and mpiexec are")
    parser.add_argument(
        "--scratch", metavar="DIRECTORY", help="where the files of BP5 go (a temporary directory)"
    )


class Bench:
    """One load, and everything that is measured of it."""

    def __init__(
        self, options: argparse.Namespace, report: Report, scratch: Path, load: Load, step_ms: float
    ) -> None:
        self.options, self.report, self.scratch = options, report, scratch
        self.load, self.step_ms = load, step_ms
        self.rounds = options.repetitions or (1 if options.quick else 12)
        self.fingerprints: set[str] = set()
        self.in_calls: StepTimes = []
        """Seconds within the calls that stage, of each step of the runs since the last report."""

    def _times(self, run: Run) -> StepTimes:
        self.fingerprints.add(run.fingerprint)
        if len(self.fingerprints) > 1:
            raise WrongData("the simulation came to other results than before")
        return run.step_seconds

    def plain(self, program: Program) -> StepTimes:
        """A run that stages nothing."""
        return self._times(program.run(self.load, self.scratch))

    def staged(self, program: Program, wanted: bool) -> StepTimes:
        """A run that stages, or would if somebody wanted it."""
        run = program.run(self.load, self.scratch)
        if run.errors:
            raise BenchError(f"{run.errors} calls failed in {program.path.name}")
        if wanted != (run.staged_bytes > 0):
            raise BenchError(
                f"{program.path.name} staged {run.staged_bytes} bytes, which is not what was wanted"
            )
        self.in_calls += run.staging_seconds
        return self._times(run)

    def add(self, case: str, pairs: Pairs, bar: Bar | None = None) -> None:
        """Reports one comparison."""
        plain = [ms * 1e3 for run in pairs.a for ms in run]
        steps = [ms * 1e3 for run in pairs.b for ms in run]
        low, high = pairs.interval()
        label = f"{self.load.ranks} ranks" if self.load.ranks > 1 else "1 rank"
        if bar and high - low > _RESOLVED:
            self.report.note(
                f"{label}, {self.step_ms:g} ms, {case}: the interval is wider than {_RESOLVED * 100:g} %, "
                "so the bar is not decided; repeat it on a machine that does nothing else"
            )
        in_calls = [seconds * 1e3 for seconds in self.in_calls]
        self.in_calls = []
        over = ", more ranks than cores" if self.load.ranks > (os.cpu_count() or 1) else ""
        self.report.value(
            f"{label}, {self.step_ms:g} ms: {case}",
            percentile(steps, 50),
            "ms",
            against=f"puts compiled to nothing, {label}, {self.step_ms:g} ms ({case}{over})",
            against_value=percentile(plain, 50),
            ratio=pairs.ratio(),
            interval=(low, high),
            bar=bar,
            n=len(pairs.b),
            spread=high - low,
            more={
                "mean ms": sum(steps) / len(steps),
                "p99": percentile(steps, 99),
                "longest": max(steps),
                "without: mean ms": sum(plain) / len(plain),
                "p99 without": percentile(plain, 99),
                "longest without": max(plain),
                "ratio of means": pairs.mean_ratio(),
                "ratio of p10": pairs.quiet_ratio(),
            },
            note=f"95 % interval {low:.4f} to {high:.4f}; two equal programs differ by "
            f"{pairs.noise() * 100:.2f} %; {len(pairs.b)} runs of {self.load.steps} steps each",
        )
        self.report.value(
            f"{label}, {self.step_ms:g} ms: within the calls",
            percentile(in_calls, 50),
            "ms",
            against=f"a step without, {label}, {self.step_ms:g} ms ({case})",
            against_value=percentile(plain, 50),
            bar=_CALLS_BAR if bar else None,
            n=len(in_calls),
            spread=spread(in_calls),
            more={"mean ms": sum(in_calls) / len(in_calls), "p99": percentile(in_calls, 99)},
        )


@contextmanager
def _scratch(directory: str | None) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="forebay-bench-", dir=directory))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def forebay_cases(bench: Bench, plain: Program, cases: list[str]) -> None:
    """Everything with Forebay."""
    mpiexec, bin_directory = plain.mpiexec, bench.options.bin
    budget = _STUCK_STEPS * bench.load.step_bytes
    for case in cases:
        bench.report.measuring(f"{bench.load.ranks} ranks, {bench.step_ms:g} ms: {case}")
        with ExitStack() as stack:
            group = stack.enter_context(
                forebay_side.local_group(servers=2, budget=budget if case == "stopped" else None)
            )
            program = Program(find("grayscott", bin_directory), mpiexec, ("--group", group.path))
            if case == "pipeline":
                pictures = bench.scratch / "pictures"
                pictures.mkdir(exist_ok=True)
                target = f"{examples() / 'pipelines' / 'iso.py'}:Isosurface"
                forebay_side.create_pipeline(group, "iso", target, {"output": str(pictures)})

            def plain_run() -> StepTimes:
                return bench.plain(plain)

            def staged_run(
                case: str = case, group: forebay_side.Group = group, program: Program = program
            ) -> StepTimes:
                if case == "reader":
                    with attached_reader(group):
                        return bench.staged(program, wanted=True)
                if case == "stopped":
                    with stopped_reader(group):
                        return bench.staged(program, wanted=True)
                return bench.staged(program, wanted=case == "pipeline")

            headline = case == "nothing"
            pairs = compare(
                plain_run,
                staged_run,
                rounds=bench.rounds if headline else max(1, bench.rounds // 4),
                close_enough=_CLOSE_ENOUGH,
            )
        words = {"nothing": "nothing attached", "reader": "reader attached", "pipeline": "pipeline attached"}
        bench.add(words.get(case, "reader stopped"), pairs, bar=_BAR if headline else None)


def adios2_cases(bench: Bench, staged: Program, plain: Program, cases: list[str]) -> None:
    """The same data by ADIOS2."""
    output = bench.scratch / "adios2"
    for case in cases:
        bench.report.measuring(f"{bench.load.ranks} ranks, {bench.step_ms:g} ms: {case}")
        env = {
            "BENCH_ADIOS2_ENGINE": case.upper(),
            "BENCH_ADIOS2_PARAMETERS": "",
            "BENCH_ADIOS2_NAME": str(output / "rank"),
        }
        program = Program(staged.path, staged.mpiexec, env=env)

        def staged_run(case: str = case, program: Program = program) -> StepTimes:
            output.mkdir()
            try:
                if case == "sst":
                    with sst_readers(str(output / "rank"), bench.load.ranks, bench.load.steps):
                        return bench.staged(program, wanted=True)
                return bench.staged(program, wanted=True)
            finally:
                shutil.rmtree(output)

        def plain_run() -> StepTimes:
            return bench.plain(plain)

        pairs = compare(plain_run, staged_run, rounds=max(1, bench.rounds // 4))
        bench.add("ADIOS2 BP5 to files" if case == "bp5" else "ADIOS2 SST, read", pairs)


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all loads."""
    cases = options.cases or list(_CASES)
    ours = [case for case in cases if case not in ("bp5", "sst")]
    theirs = [case for case in cases if case in ("bp5", "sst")]
    _, missing = peers.chosen(None)
    if theirs and "adios2" in missing:
        if options.cases:
            raise BenchError("the package adios2 is not installed; try: pip install adios2")
        report.note("not measured beside ADIOS2: it is not installed (pip install adios2)")
        theirs = []
    with _scratch(options.scratch) as scratch:
        mpiexec = find("mpiexec", options.bin)
        plain = Program(find("grayscott-plain", options.bin), mpiexec)
        adios2 = build_with_adios2(scratch, mpiexec, options.bin) if theirs else None
        for step_ms in options.step_ms or ([5.0] if options.quick else [10.0, 100.0]):
            edge = options.edge or (
                24 if options.quick else _EDGES.get(step_ms, 64 if step_ms < 100 else 128)
            )
            steps = options.steps or (20 if options.quick else max(20, int(2000 / step_ms)))
            for ranks in options.ranks or ([1, 2] if options.quick else [1, 2, 4]):
                report.measuring(f"{ranks} ranks, {step_ms:g} ms: calibrating")
                load = calibrate(plain, Load(ranks, edge, steps), step_ms, scratch)
                bench = Bench(options, report, scratch, load, step_ms)
                forebay_cases(bench, plain, ours)
                if adios2:
                    adios2_cases(bench, *adios2, theirs)
            report.note(
                f"{step_ms:g} ms: {edge} x {edge} x {edge} points, {named_size(2 * 8 * edge**3)} a step"
            )
    report.note("spread: the width of the 95 % interval of the ratio; n: runs of each program")
