"""What the README shows does what it says: its code is taken from it and run, in the order of the page."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.commands import FOREBAY
from support.native import compiler
from support.waiting import wait_until

import forebay

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
SHELL = [code for language, code in BLOCKS if language == ""]
EXTENTS = (6, 7, 40)


@pytest.fixture
def two_servers(monkeypatch: pytest.MonkeyPatch) -> forebay.LocalGroup:
    with forebay.local(servers=2) as group:
        monkeypatch.setenv("FOREBAY_GROUP", group.path)
        yield group


def produce(steps: int) -> None:
    """The README's simulation, with what it leaves open filled in."""
    n, m, k = EXTENTS
    local = np.pad(np.arange(n * m * k, dtype="f8").reshape(EXTENTS), 1)
    names = {"rank": 0, "size": 1, "N": n, "M": m, "K": k, "steps": steps, "t": 0.5, "local": local}
    exec(PYTHON[0], {**names, "low": (0, 0, 0), "forebay": forebay})


def test_a_simulation_and_a_reader(two_servers: forebay.LocalGroup) -> None:
    planes = []
    attached = threading.Event()

    class Viewer(forebay.Consumer):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)  # type: ignore[arg-type]
            attached.set()

    def read() -> None:
        seen = (
            PYTHON[1].replace("forebay.Consumer", "Viewer") + "        planes.append((step.number, plane))\n"
        )
        exec(seen, {"forebay": forebay, "Viewer": Viewer, "planes": planes})

    reader = threading.Thread(target=read)
    reader.start()
    assert attached.wait(20)
    produce(25)
    reader.join(30)
    expected = np.arange(np.prod(EXTENTS), dtype="f8").reshape(EXTENTS)[:, :, 32]
    assert [number for number, _ in planes] == [0, 10, 20]
    for _, plane in planes:
        np.testing.assert_array_equal(plane, expected)


def test_an_event(two_servers: forebay.LocalGroup) -> None:
    printed = []

    class EnoughError(Exception):
        pass

    def first(*what: object) -> None:
        printed.append(what)
        raise EnoughError

    def watch() -> None:
        with pytest.raises(EnoughError):
            exec(PYTHON[2], {"forebay": forebay, "print": first})

    watching = threading.Thread(target=watch)
    watching.start()
    wait_until(lambda: forebay.Admin().subscriptions())
    # The first steps may go by until the servers have agreed on what is watched.
    while watching.is_alive():
        produce(5)
        watching.join(0.1)
    [(step, values, places, mean)] = printed
    text = "max(grayscott.U[0:4])"
    largest = float(4 * EXTENTS[1] * EXTENTS[2] - 1)
    assert (step >= 2, values, mean) == (True, {text: largest}, largest / 2)
    assert places[text].index == (3, EXTENTS[1] - 1, EXTENTS[2] - 1)


def test_a_pipeline(two_servers: forebay.LocalGroup, tmp_path: Path) -> None:
    (tmp_path / "mean.py").write_text(PYTHON[3])
    lines = [line.split("#")[0].strip() for line in SHELL[-1].splitlines()]
    create = next(line for line in lines if line.startswith("forebay pipeline create"))
    assert f"forebay up -n {len(two_servers.servers)}" in lines
    subprocess.run([FOREBAY, *create.split()[1:]], cwd=tmp_path, env=os.environ, check=True, timeout=60)
    produce(11)

    def printed() -> list[str]:
        (pipeline,) = forebay.Admin().status()["pipelines"]
        workers = pipeline["workers"]
        return [line for worker in workers for line in worker["log"]]

    mean = float(np.arange(np.prod(EXTENTS)).mean())
    wait_until(lambda: printed().count(f"10 {mean}") == 1, 30)


@pytest.mark.parametrize("language", ["c", "cpp", "fortran"])
def test_what_the_shell_compiles(tmp_path: Path, language: str) -> None:
    """The lines as they stand, in a directory of their own with the environment that runs this."""
    compiler(language)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    lines = next(code for code in SHELL if "gfortran" in code).splitlines()
    assert len(lines) == 5
    (compiled,) = (line for line in lines[2:] if f"/{language}/" in line)
    script = "\n".join(["set -eu", *lines[:2], compiled])
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=120)
    (producer,) = tmp_path.glob("producer-*")
    ended = subprocess.run([producer], capture_output=True, text=True, check=False, timeout=30)
    assert "forebay up" in ended.stderr, "without a group it says what to do"
