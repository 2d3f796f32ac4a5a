"""The C interface and what stands on it, by programs in C, C++ and Fortran that hold their own checks."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from support.native import CASE_NAMES, ROOT, SOURCES, Program, build
from support.sessions import consumer

import forebay

PROGRAMS = {
    "asynchronous": ("c", "asynchronous.c"),
    "attributes": ("c", "attributes.c"),
    "bad_input": ("c", "bad_input.c"),
    "data": ("c", "data.c"),
    "fields": ("c", "fields.c"),
    "looking": ("c", "looking.c"),
    "placement": ("c", "placement.c"),
    "processes": ("c", "processes.c"),
    "watching": ("c", "watching.c"),
    "objects": ("cpp", "objects.cpp"),
    "turned": ("fortran", "turned.f90"),
}


def cases() -> list[object]:
    """Every case of every program, by the names in its source."""
    found: list[object] = []
    for program, (language, file) in PROGRAMS.items():
        names = re.findall(CASE_NAMES[language], (SOURCES / file).read_text(), re.MULTILINE)
        assert names, f"no case in {file}"
        found.extend(pytest.param(program, name, id=f"{program}-{name}") for name in names)
    return found


@pytest.mark.parametrize("program, case", cases())
def test_case(program: str, case: str, two: forebay.LocalGroup, built: Path) -> None:
    """One case, on a group of its own."""
    language, file = PROGRAMS[program]
    command = [str(build(language, SOURCES / file, built)), case]
    with contextlib.closing(Program(command, two.path)) as running:
        assert running.rest() == ""


def test_the_static_library(one: forebay.LocalGroup, built: Path) -> None:
    """A program that carries the library within itself."""
    source = ROOT / "examples" / "tutorial" / "c" / "01_producer.c"
    program = build("c", source, built, library="-l:libforebay.a")
    with (
        consumer(one, "tutorial", name="viewer") as reader,
        contextlib.closing(Program([str(program)], one.path)) as running,
    ):
        assert [step.number for step in reader] == list(range(5))
        assert running.rest() == "5 steps\n"


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_the_headers_stand_alone(language: str, built: Path) -> None:
    """Each header compiles first in a file, without a warning, in the oldest language it promises."""
    header = {"c": "forebay.h", "cpp": "forebay.hpp"}[language]
    source = built / f"alone.{language}"
    source.write_text(
        f"#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n".replace(
            "(void)", "()" if language == "cpp" else "(void)"
        )
    )
    build(language, source, built)


def test_fortran_has_the_numbers_of_the_header() -> None:
    """The module repeats the header's constants, since Fortran cannot read it."""
    numbers = r"\b(FB_[A-Z0-9_]+) = (\d+)\b"
    header = dict(re.findall(numbers, (ROOT / "include" / "forebay.h").read_text()))
    module = dict(re.findall(numbers, (ROOT / "fortran" / "forebay.f90").read_text()))
    assert {name: header.get(name) for name in module} == module
    # Memory kinds and spilling are not built.
    left_out = ("FB_MEMORY_", "FB_POLICY_SPILL")
    assert {name for name in header if not name.startswith(left_out)} == set(module)
