"""The examples that are programs of several processes, small."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import run
from support.native import ROOT, compiler
from support.waiting import wait_until

import forebay

EXAMPLES = ROOT / "examples"
BIN = Path(sys.prefix, "bin")


def program_of(script: str) -> Any:
    """An example's script as a module."""
    spec = importlib.util.spec_from_file_location(Path(script).stem, EXAMPLES / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_the_mandelbulb_while_a_server_joins(two: forebay.LocalGroup, own_place: Path) -> None:
    """It says what each call took, on how many workers; they draw a picture at each step."""
    config = json.dumps({"output": str(own_place / "out"), "size": [160, 120]})
    pipeline = f"{EXAMPLES}/pipelines/mandelbulb.py:Bulb"
    on = ["--group", two.path]
    run("pipeline", "create", "mandelbulb", pipeline, "--driven", "--config", config, *on)
    words = ["--block", "8x24x24", "--steps", "100000", "--json", "steps", "--until", "end", *on]
    environment = {**os.environ, "TMPDIR": str(own_place)}
    command = [BIN / "mpiexec", "-n", "2", BIN / "mandelbulb", *words]
    with subprocess.Popen(command, cwd=own_place, env=environment, stdout=subprocess.DEVNULL) as program:
        try:
            told = own_place / "steps"
            wait_until(lambda: told.exists() and '"workers": 2' in told.read_text())
            two.add_servers()
            wait_until(lambda: '"workers": 3' in told.read_text())
        finally:
            (own_place / "end").touch()
        assert program.wait(timeout=60) == 0
    steps = [json.loads(line) for line in told.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    calls = ("activate", "stage", "execute", "deactivate")
    assert all(step[call] > 0 for step in steps for call in calls)
    pictures = sorted((own_place / "out").iterdir())
    assert [file.name for file in pictures] == [f"bulb-{number:06d}.png" for number in range(len(steps))]
    first, last = (np.asarray(Image.open(file)).astype("i2") for file in (pictures[0], pictures[-1]))
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 200
    # Other servers drew the caption, and the fractal has become another one.
    assert (first != last).any()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--block", "8x8"], "--block 8x8: expected three extents such as 64x48x80"),
        (["--power", "1"], "--power 1: expected a number greater than 1"),
        (["--steps", "-3"], "--steps -3: expected a whole number from 1"),
        (["--nothing"], "--nothing: no such option; --help lists all options"),
        (["--steps"], "--steps: expected a value; --help lists all options"),
        (["more"], "more: no such option; --help lists them"),
    ],
)
def test_the_mandelbulb_says_what_is_wrong_with_an_option(words: list[str], why: str) -> None:
    done = subprocess.run(
        [BIN / "mandelbulb", *words], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"mandelbulb: {why}\n")


def test_a_database_of_pictures_from_all_around(two: forebay.LocalGroup, own_place: Path) -> None:
    """Of the stars' last step a picture from each of 5 cameras, of which two are made at a time."""
    for language in ("c", "cpp"):
        compiler(language)
    config = {"output": str(own_place), "size": [160, 120], "cameras": 5, "every": 4}
    words = ["--config", json.dumps(config), "--group", two.path]
    run("pipeline", "create", "stars", f"{EXAMPLES}/pipelines/stars.py:Orbit", *words)
    (own_place / "programs").mkdir()
    simulation, _ = program_of("mn/table.py").build(own_place / "programs")
    environment = {**os.environ, "FOREBAY_GROUP": two.path, "TMPDIR": str(own_place)}
    command = [BIN / "mpiexec", "-n", "2", simulation, "2000", "5"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    rows_of = own_place / "stars.cdb" / "data.csv"
    wait_until(lambda: rows_of.exists() and len(rows_of.read_text().splitlines()) == 11)
    files = [line.rpartition(",")[2] for line in rows_of.read_text().splitlines()[1:]]
    assert files == [f"stars-{step:06d}-{camera}.png" for step in (0, 4) for camera in range(5)]
    seen = {np.asarray(Image.open(rows_of.parent / file)).tobytes() for file in files}
    assert len(seen) == 10
