"""Where tests have what they share: in the package `support`, and never in each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# What `make soak` runs for ten minutes is a program of its own; the short turn of it is a test.
PROGRAMS = {"soak"}


def imported(source: str) -> Iterator[str]:
    """The first part of the name of every module that this source imports, wherever it does so; "." if from beside it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else str(node.module).partition(".")[0]


def borrowed(source: str, allowed: set[str]) -> set[str]:
    """Files of tests that this source imports, other than those allowed."""
    files = {path.stem for path in TESTS.glob("*.py")} | {"tests", "."}
    return {name for name in imported(source) if name in files or name.startswith("test_")} - allowed


def test_no_test_imports_another() -> None:
    found = {
        str(path.relative_to(TESTS)): borrowed(path.read_text(), PROGRAMS if path.parent == TESTS else set())
        for path in TESTS.rglob("*.py")
    }
    assert len(found) > 60
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from test_faces import ROOT",
        "import test_faces",
        "def late():\n    from test_faces import ROOT",
        "from tests.test_faces import ROOT",
        "from .test_faces import ROOT",
        "from . import test_faces",
        "import conftest",
    ],
)
def test_an_import_of_a_test_is_noticed(line: str) -> None:
    assert borrowed(line, PROGRAMS) != set()


def test_support_may_be_imported() -> None:
    assert (
        borrowed("import pytest\nfrom support.groups import BUDGET\nimport support.waiting", set()) == set()
    )
