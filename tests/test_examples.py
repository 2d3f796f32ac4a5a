"""The examples that are programs of several processes, small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.native import ROOT, compiler

EXAMPLES = ROOT / "examples"


def rows(own_place: Path, script: str, *arguments: object) -> list[list[str]]:
    """The rows of the table that an example prints, in a directory that it leaves as it was."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own_place, timeout=110)
    assert done.returncode == 0, done.stderr
    header, line, *found = done.stdout.splitlines()
    assert re.fullmatch(r"\|( --- \|)+", line)
    cells = [row.strip("| ").split(" | ") for row in found]
    assert all(len(row) == header.count(" | ") + 1 for row in cells), done.stdout
    return cells


def test_m_ranks_are_read_by_n(own_place: Path) -> None:
    """A simulation in C and a reader in C++; the example checks that each star is counted once."""
    for language in ("c", "cpp"):
        compiler(language)
    found = rows(own_place, "mn/table.py", "--stars", 500, "3:2", "2:3")
    assert [row[0] for row in found] == ["3:2", "2:3"]


@pytest.mark.parametrize("fields", [1, 5])
def test_three_readers_need_a_field_each(own_place: Path, fields: int) -> None:
    arguments = ("--sizes", 4000, "--fields", fields, "--ranks", 2, "--steps", 5, "--rounds", 1)
    ((size, offered, *times),) = rows(own_place, "contracts/table.py", *arguments)
    assert (size, offered) == ("4 kB", str(fields))
    assert all(time.endswith(" µs") for time in times[:3])
