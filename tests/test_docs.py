"""What the pages in docs/ show works as they say: their examples are taken from them and run."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import native
from support.commands import FOREBAY
from support.sessions import producer
from support.waiting import wait_until

import forebay

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (
    "contracts.md",
    "expressions.md",
    "parallel.md",
    "coupling.md",
    "looking.md",
    "guarantees.md",
    "tuning.md",
    "driving.md",
    "pictures.md",
)


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def examples(language: str) -> list[object]:
    """All blocks in a language, by page and number."""
    found: list[object] = []
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)
        codes = [code for name, code in blocks if name == language]
        found += [pytest.param(code, id=f"{page}-{number}") for number, code in enumerate(codes)]
    assert found, f"no example in {language}"
    return found


@pytest.mark.parametrize("code", examples("python"))
def test_an_example(
    code: str, one: forebay.LocalGroup, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stands alone, on a group that `FOREBAY_GROUP` names, and checks what the page says of it."""
    monkeypatch.chdir(own_place)
    monkeypatch.setenv("FOREBAY_GROUP", one.path)
    exec(code, {})


def test_the_program_that_waits_for_events(one: forebay.LocalGroup, own_place: Path) -> None:
    """The one in C."""
    (source,) = re.findall(r"^```c\n(.*?)^```", text("expressions.md"), re.DOTALL | re.MULTILINE)
    (own_place / "hot.c").write_text(source)
    program = native.build("c", own_place / "hot.c", own_place)
    with contextlib.closing(native.Program([str(program)], one.path)) as running:
        admin = forebay.Admin(group=one.path)
        wait_until(lambda: len(admin.subscriptions()) == 1)
        with producer(one, "furnace") as sim:
            sim.array("T", dtype="f8", shape=(4,))
            (watch,) = admin.subscriptions()
            forebay.subscribe(
                watch["text"], name=watch["name"], on="rise", limit=2, group=one.path
            ).wait_active()
            for number, hottest in enumerate((1300, 1500, 1600, 1000, 1450)):
                with sim.step(number) as step:
                    step.put("T", np.array([0.0, 1.0, hottest, 2.0]))
        assert running.rest() == "step 1: t = 1500 at [2]\nstep 4: t = 1450 at [2]\n"


@pytest.mark.parametrize("code", examples(""))
def test_commands(code: str, own_place: Path) -> None:
    """In the order of the page."""
    environment = {**os.environ, "PATH": f"{FOREBAY.parent}:{os.environ['PATH']}"}
    for command in code.splitlines():
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60
        )
        # What this machine lacks is not the page's fault.
        assert done.returncode == 0 or "doctor" in command, f"{command}: {done.stderr}"


def test_the_pipeline_that_draws(
    one: forebay.LocalGroup, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created and asked for its latest picture as the page says."""
    monkeypatch.chdir(own_place)
    monkeypatch.setenv("FOREBAY_GROUP", one.path)
    monkeypatch.setenv("PATH", f"{FOREBAY.parent}:{os.environ['PATH']}")
    page = text("pictures.md")
    code = re.findall(r"^```python\n# look.py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    create, latest = re.findall(r"^```shell\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    (own_place / "look.py").write_text(code)
    subprocess.run(["bash", "-c", create], check=True, timeout=60)
    whole = np.random.default_rng(0).random((8, 9, 10))
    with producer(one, "grayscott", policy="block") as sim:
        for name in "UV":
            sim.array(name, dtype="f8", shape=whole.shape)
        with sim.step(10) as step:
            step.put("U", whole)
            step.put("V", whole)
        wait_until((own_place / "pictures" / "surface-000010.png").exists, timeout=60)
    wait_until(lambda: subprocess.run(["bash", "-c", latest], check=False, timeout=60).returncode == 0)
    assert (own_place / "now.png").read_bytes() == (
        own_place / "pictures" / "surface-000010.png"
    ).read_bytes()


SRUN = """#!/bin/bash
# All nodes are this one.
count=1
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks-per-node=1 ]] && count=$SLURM_NNODES
    shift
done
for ((i = 1; i < count; i++)); do "$@" & done
"$@"
wait
"""

SIMULATION = f"""#!{sys.executable}
import forebay, numpy as np
with forebay.Producer("s") as sim:
    sim.array("U", dtype="f8", shape=(3,))
    with sim.step(0) as step:
        step.put("U", np.zeros(3))
print(len(forebay.Admin().status()["servers"]))
"""


@pytest.mark.parametrize("code", examples("sh"))
def test_a_job_on_several_nodes(code: str, own_place: Path) -> None:
    """As it stands, with a launcher that takes this machine for each of the nodes."""
    for name, content in (("srun", SRUN), ("simulation", SIMULATION)):
        (own_place / name).write_text(content)
        (own_place / name).chmod(0o755)
    path = f"{own_place}:{FOREBAY.parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "HOME": str(own_place),
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
    }
    script = code.replace("16G", "64M").replace('"$(hostname -i)"', "127.0.0.1")
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{script}\nwait"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=own_place,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2", "2 servers ended."], done.stderr


def test_every_kind_of_error_is_explained() -> None:
    page = text("guarantees.md")
    for kind in forebay.Error.__subclasses__():
        assert f"`{kind.__name__}`" in page


def test_the_columns_of_status(one: forebay.LocalGroup) -> None:
    """Those that the page explains are there."""
    table = text("tuning.md").partition("| column | what it says |")[2].partition("\n\n")[0]
    firsts = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    names = [name for first in firsts for name in re.findall(r"`([A-Z /]+)`", first)]
    assert len(names) == 12
    with producer(one) as sim:
        sim.array("U", dtype="f8", shape=(3, 2))

        def shown() -> str:
            return subprocess.run(
                [FOREBAY, "status", "--group", one.path], capture_output=True, text=True, timeout=60
            ).stdout

        output = wait_until(lambda: (now := shown()) and "STREAM" in now and now)
    for name in names:
        if name != "MISSED":  # of pipelines, and there is none
            assert name in output
