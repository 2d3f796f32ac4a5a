"""Pipelines: their code, what they note, what the group says of them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay

HEADER = """
import json, os, sys
import numpy as np
import forebay

def note(config, **values):
    path = os.path.join(config["out"], f"{os.getpid()}-{len(os.listdir(config['out']))}.part")
    with open(path, "w") as file:
        json.dump(values, file)
    os.rename(path, path[:-5] + ".json")
"""


@pytest.fixture
def code(own_place: Path) -> Callable[[str], str]:
    """Writes a pipeline's code to a file; returns its path."""

    def write(text: str, name: str = "code.py") -> str:
        path = own_place / name
        path.write_text(HEADER + textwrap.dedent(text))
        return str(path)

    return write


@pytest.fixture
def out(own_place: Path) -> Path:
    """Where pipelines leave what they have seen."""
    path = own_place / "out"
    path.mkdir()
    return path


def notes(out: Path) -> list[dict[str, Any]]:
    """All that pipelines noted with `note`, in any order."""
    return [json.loads(path.read_text()) for path in out.glob("*.json")]


def pipeline_status(group: forebay.LocalGroup, name: str) -> dict[str, Any]:
    """What the group says of a pipeline; empty if there is none of this name."""
    pipelines = forebay.Admin(group=group.path).status()["pipelines"]
    return next((pipeline for pipeline in pipelines if pipeline["name"] == name), {})


SUMS = """
import forebay

class Sum(forebay.Pipeline):
    fields = {"U": forebay.every(1)}

    def execute(self, step, comm):
        own = sum(float(block.data.sum()) for block in step.blocks("U"))
        total = comm.allreduce(own)
        with open(self.config["out"], "a") as out:
            if comm.rank == 0:
                print(step.number, comm.size, total, file=out, flush=True)
"""


HELD_SUMS = SUMS.replace("import forebay", "import os\nimport time\n\nimport forebay").replace(
    "        own = sum",
    """        while os.path.exists(self.config["out"] + ".wait"):
            time.sleep(0.01)
        own = sum""",
)
