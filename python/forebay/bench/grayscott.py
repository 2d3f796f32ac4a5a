# SPDX-License-Identifier: Apache-2.0
"""Runs the mini-application: with Forebay, with its puts compiled to nothing, with ADIOS2 in their place."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forebay.bench.errors import BenchError
from forebay.bench.samples import Samples, median

WARM_UP_STEPS = 5
_RUN_TIMEOUT = 600.0
_FLAGS = ("-std=c99", "-O3")


@dataclass(frozen=True)
class Load:
    """What is computed."""

    ranks: int
    edge: int
    steps: int
    extra_sweeps: int = 0

    @property
    def step_bytes(self) -> int:
        """Both fields, ghosts aside."""
        return 2 * 8 * self.edge**3

    def arguments(self) -> list[str]:
        """As the program takes it."""
        shape = f"{self.edge}x{self.edge}x{self.edge}"
        return ["--shape", shape, "--steps", str(self.steps), "--sub-steps", "1"] + (
            ["--extra-sweeps", str(self.extra_sweeps)] if self.extra_sweeps else []
        )


@dataclass(frozen=True)
class Run:
    """What one run reported; the first steps, which warm up, are left out of the times."""

    step_seconds: Samples
    staging_seconds: Samples
    fingerprint: str
    staged_bytes: int
    errors: int


@dataclass(frozen=True)
class Program:
    """A build of the mini-application, and what it needs to be told."""

    path: Path
    mpiexec: Path
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, load: Load, scratch: Path) -> Run:
        """Runs it to its end."""
        report = scratch / "report.json"
        report.unlink(missing_ok=True)
        command = [
            str(self.mpiexec),
            "-n",
            str(load.ranks),
            str(self.path),
            *load.arguments(),
            *self.arguments,
        ]
        try:
            done = subprocess.run(
                [*command, "--json", str(report)],
                env={**os.environ, **self.env},
                capture_output=True,
                text=True,
                timeout=_RUN_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{self.path.name} has not ended after {_RUN_TIMEOUT:g} s") from error
        if done.returncode != 0 or not report.exists():
            raise BenchError(
                f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        told = json.loads(report.read_text())
        return Run(
            _after_warm_up(told["step_seconds"]),
            _after_warm_up(told["staging_seconds"]),
            str(told["fingerprint"]),
            int(told["staged_bytes"]),
            int(told["forebay_errors"]),
        )


def _after_warm_up(seconds: Sequence[float]) -> Samples:
    return [float(one) for one in seconds][WARM_UP_STEPS:]


def find(name: str, directory: str | None = None) -> Path:
    """A program: in the given directory, beside this Python, or on the path."""
    places = [directory] if directory else [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    for place in places:
        if found := shutil.which(name, path=place):
            return Path(found)
    raise BenchError(f"{name} was not found in {' or '.join(places)}; try: make build, or --bin DIRECTORY")


def examples() -> Path:
    """The folder of examples of the checkout that this file belongs to."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "examples" / "grayscott" / "grayscott.c").exists():
            return folder / "examples"
    raise BenchError("the folder examples was not found above this package: run it from a checkout")


def calibrate(plain: Program, load: Load, step_ms: float, scratch: Path) -> Load:
    """The load with as many extra sweeps as make a step last about so long, found by medians.

    It is found once and then the same in all runs, so that all do equal work.
    """
    few, many = 0, 8

    def step_time(sweeps: int) -> float:
        steps = WARM_UP_STEPS + 15
        tried = Load(load.ranks, load.edge, steps, sweeps)
        return min(median(plain.run(tried, scratch).step_seconds) for _ in range(3))

    base, more = step_time(few), step_time(many)
    each = max((more - base) / (many - few), 1e-6)
    sweeps = max(0, round((step_ms / 1e3 - base) / each))
    return Load(load.ranks, load.edge, load.steps, sweeps)


def build_with_adios2(scratch: Path, mpiexec: Path, directory: str | None) -> tuple[Program, Program]:
    """Compiles the mini-application with ADIOS2 in Forebay's place, and without either, with equal flags."""
    found = importlib.util.find_spec("adios2")
    if found is None or found.origin is None:
        raise BenchError("the package adios2 is not installed; try: pip install adios2")
    library = Path(found.origin).parent
    sources = examples() / "grayscott"
    common = [str(path) for path in sorted(sources.glob("*.c")) if path.name != "staging.c"]
    staging = Path(__file__).parent / "peers" / "staging_adios2.c"
    compiler = str(find("mpicc", directory))
    staged, plain = scratch / "grayscott-adios2", scratch / "grayscott-none"
    paths = f"-Wl,-rpath,{library},-rpath-link,{library.with_name('adios2.libs')}"
    link = [f"-L{library}", "-ladios2_c", "-lm", paths]
    _compile(
        [compiler, *_FLAGS, f"-I{sources}", f"-I{library / 'include'}", *common, str(staging), *link], staged
    )
    _compile([compiler, *_FLAGS, "-DGRAYSCOTT_NO_FOREBAY", *common, "-lm"], plain)
    return Program(staged, mpiexec), Program(plain, mpiexec)


def _compile(command: list[str], output: Path) -> None:
    done = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"compiling {output.name} failed:\n{done.stderr}")
