"""The programs of docs/comm.md run as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import native

import forebay

PAGE = (Path(__file__).parent.parent / "docs" / "comm.md").read_text(encoding="utf-8")


def program(name: str, directory: Path) -> Path:
    """One of the page's, which says its name in the first line."""
    language = {".py": "python", ".c": "c"}[Path(name).suffix]
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (code,) = [code for code in blocks if name in code.splitlines()[0]]
    (directory / name).write_text(code)
    return directory / name


def started(count: int, source: Path) -> str:
    run = [sys.executable, "-m", "forebay.MPI", "-n", str(count), str(source)]
    return subprocess.run(run, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_histogram(own_place: Path, ranks: int) -> None:
    bars = [line.count("#") for line in started(ranks, program("histogram.py", own_place)).splitlines()]
    assert len(bars) == 10
    # A bell.
    assert max(bars) == bars[4] or max(bars) == bars[5]
    assert bars[0] == bars[-1] == 0


def test_the_halo_exchange(one: forebay.LocalGroup, own_place: Path) -> None:
    """In Python and in C, among different numbers of ranks: the heat is the same."""
    source = program("halo.py", own_place)
    told = {started(ranks, source) for ranks in (1, 2, 4)}
    assert len(told) == 1
    (own_place / "halo.c").write_text(program("halo.c", own_place).read_text())
    built = native.build("c", own_place / "halo.c", own_place)
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    for size in (1, 3):
        ranks = [
            subprocess.Popen(
                [str(built), f"halo {size}", str(rank), str(size)],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        told.add("".join(rank.communicate(timeout=60)[0] for rank in ranks))
        assert [rank.returncode for rank in ranks] == [0] * size
    assert len(told) == 1, told


def test_pictures_are_put_together(own_place: Path) -> None:
    assert started(3, program("nearest.py", own_place)) == ""
