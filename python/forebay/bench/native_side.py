# SPDX-License-Identifier: Apache-2.0
"""What is measured in C, as a simulation calls it, with the header and library of this installation."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forebay.bench.errors import BenchError, WrongData
from forebay.bench.samples import Samples


def zero_copy(group: str, size: int, repetitions: int) -> tuple[Samples, Samples]:
    """Seconds of alloc + commit, and of seeing a whole block, for arrays of `size` bytes (native/zero_copy.c)."""
    with compiled("zero_copy") as program:
        told = _run([program, group, f"zero copy {size}", str(size // 8), str(repetitions)])
    pairs = [line.split() for line in told]
    return [int(alloc) / 1e9 for alloc, _ in pairs], [int(view) / 1e9 for _, view in pairs]


def latencies(program: str, group: str, stream: str, transport: str, steps: int, gap: float) -> Samples:
    """Seconds from the producer's stamp to the reader's value, of all steps but a first tenth (native/latency.c).

    `program` is the compiled one; steps are `gap` seconds apart.
    """
    told = _run([program, group, stream, transport, str(steps), str(round(gap * 1e6))])
    return [int(age) / 1e9 for age in told]


@contextlib.contextmanager
def compiled(name: str) -> Iterator[str]:
    """A program of `native/`, compiled for as long as it is used."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as directory:
        yield _compile(name, Path(directory))


def _run(command: list[str]) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == 3:
        raise WrongData(done.stderr.strip())
    if done.returncode != 0:
        raise BenchError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def _compile(name: str, directory: Path) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError("there is no C compiler (cc) on the path")
    prefix, program = Path(sys.prefix), directory / name
    source = Path(__file__).parent / "native" / f"{name}.c"
    libraries = [f"-L{prefix / 'lib'}", "-lforebay", f"-Wl,-rpath,{prefix / 'lib'}"]
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", f"-I{prefix / 'include'}"]
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(program), *libraries],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"compiling {name}.c failed:\n{done.stderr}")
    return str(program)
