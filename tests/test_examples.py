"""The examples that are programs of several processes, small."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.native import ROOT, compiler

EXAMPLES = ROOT / "examples"


def rows(own_place: Path, script: str, *arguments: object) -> list[list[str]]:
    """The rows of the tables that an example prints, in a directory that it leaves as it was."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own_place, timeout=110)
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\n)+", done.stdout, re.MULTILINE):
        header, line, *lines = table.splitlines()
        assert re.fullmatch(r"\|( --- \|)+", line)
        cells = [row.strip("| ").split(" | ") for row in lines]
        assert all(len(row) == header.count(" | ") + 1 for row in cells), done.stdout
        found += cells
    return found


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


def test_the_experiments_of_watching(own_place: Path) -> None:
    """Each prints its table, and all are drawn."""
    picture = own_place / "watch.png"
    arguments = ("--mib", 1, "--steps", 3, "--scales", 1, "--regions", 1, "--plot", picture)
    found = rows(own_place, "watch/table.py", *arguments)
    assert [(row[0], len(row)) for row in found] == [("4 / 1 / 2", 6), ("4 / 1 / 2", 7), ("4 MiB", 8)]
    assert picture.read_bytes()[1:4] == b"PNG"


def test_the_gallery(own_place: Path) -> None:
    """A picture of each kind, and all on one sheet."""
    arguments = (
        "gallery/gallery.py",
        own_place / "out",
        "--size",
        "120x90",
        "--sheet",
        own_place / "sheet.jpg",
    )
    command = [sys.executable, *map(str, (EXAMPLES / arguments[0], *arguments[1:]))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own_place, timeout=110)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 9
    assert (own_place / "sheet.jpg").read_bytes()[:2] == b"\xff\xd8"
