# SPDX-License-Identifier: Apache-2.0
"""What is measured in C, as a simulation calls it, with the header and library of this installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from forebay.bench.errors import BenchError, WrongData
from forebay.bench.samples import Samples


def zero_copy(group: str, size: int, repetitions: int) -> tuple[Samples, Samples]:
    """Seconds of alloc + commit, and of seeing a whole block, for arrays of `size` bytes (native/zero_copy.c)."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as directory:
        program = _compile("zero_copy", Path(directory))
        command = [program, group, f"zero copy {size}", str(size // 8), str(repetitions)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == 3:
        raise WrongData(done.stderr.strip())
    if done.returncode != 0:
        raise BenchError(f"zero_copy failed: {done.stderr.strip()}")
    pairs = [line.split() for line in done.stdout.splitlines()]
    return [int(alloc) / 1e9 for alloc, _ in pairs], [int(view) / 1e9 for _, view in pairs]


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
