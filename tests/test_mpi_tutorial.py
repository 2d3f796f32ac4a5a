"""Programs as in the tutorial of mpi4py's documentation: what they print with mpi4py they print with Forebay, once a line is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).with_name("mpi_tutorial").glob("*.py"))
THEIRS, OURS = "from mpi4py import MPI", "from forebay import MPI"
RANKS = 3


def printed(launcher: list[str], program: Path) -> list[str]:
    """Its lines, whatever their order."""
    run = (
        [*launcher, sys.executable, str(program)]
        if launcher[0] != sys.executable
        else [*launcher, str(program)]
    )
    environment = {**os.environ, "MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(Path(sys.prefix, "lib"))}
    # Lines of several processes do not mix where each writes all of its own at its end.
    environment.pop("PYTHONUNBUFFERED", None)
    ran = subprocess.run(run, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return sorted(ran.stdout.splitlines())


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_it_prints_the_same_after_one_line_is_changed(program: Path, own_place: Path) -> None:
    text = program.read_text()
    assert text.count(THEIRS) == 1
    changed = own_place / program.name
    changed.write_text(text.replace(THEIRS, OURS))
    theirs = printed([str(Path(sys.prefix, "bin", "mpiexec")), "-n", str(RANKS)], program)
    ours = printed([sys.executable, "-m", "forebay.MPI", "-n", str(RANKS)], changed)
    assert theirs
    assert ours == theirs
