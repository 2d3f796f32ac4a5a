"""Looking after a group, from each language: the same calls, and the group is gone at the end."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from support.commands import FOREBAY
from support.native import ROOT, Program, build

import forebay

SOURCES = ROOT / "crates" / "capi" / "tests"
SUFFIXES = {"c": "c", "cpp": "cpp", "fortran": "f90"}


@pytest.fixture
def code(own_place: Path) -> str:
    """The code of a pipeline that does nothing."""
    path = own_place / "nothing.py"
    path.write_text(
        "import forebay\n\nclass Nothing(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n"
    )
    return f"{path}:Nothing"


@pytest.mark.parametrize("language", SUFFIXES)
def test_from(
    language: str,
    two: forebay.LocalGroup,
    code: str,
    built: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `Admin` does in Python."""
    monkeypatch.setenv("FOREBAY_COMMAND", str(FOREBAY))
    source = SOURCES / f"administration.{SUFFIXES[language]}"
    program = build(language, source, built)
    with contextlib.closing(Program([str(program), code], two.path)) as running:
        assert running.rest(120) == ""
    for server in two.servers.values():
        assert server.process.wait(10) == 0


def test_from_python(two: forebay.LocalGroup, code: str) -> None:
    with forebay.Admin(group=two, timeout=40) as admin:
        assert admin.add_servers(2) == [2, 3]
        admin.remove_server(3)
        with pytest.raises(forebay.NotFound, match="no server3"):
            admin.remove_server(3)
        with pytest.raises(forebay.Invalid, match="server='server2': an integer is needed"):
            admin.remove_server("server2")  # type: ignore[arg-type]
        admin.create_pipeline("nothing", code, stream="s", driven=True)
        assert [pipeline["name"] for pipeline in admin.status()["pipelines"]] == ["nothing"]
        admin.destroy_pipeline("nothing")
        with pytest.raises(forebay.Conflict):
            admin.heal()
        assert json.loads(forebay.group_text(two))["servers"]
        admin.shutdown()


def test_an_error_of_the_command_is_told_by_its_kind(two: forebay.LocalGroup, own_place: Path) -> None:
    with pytest.raises(forebay.ConnectionFile, match=r"none\.json"):
        forebay.Admin(group=own_place / "none.json", timeout=5).add_servers()
