"""The tutorial: every language's producer with every language's reader; all print the same."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest
from support.native import ROOT, Program, build
from support.tutorial import expected

import forebay

LANGUAGES = ("c", "cpp", "fortran", "python")
SUFFIXES = {"c": "c", "cpp": "cpp", "fortran": "f90", "python": "py"}


def command(language: str, part: str, built: Path) -> list[str]:
    """How to run one part of the tutorial in one language."""
    source = ROOT / "examples" / "tutorial" / language / f"{part}.{SUFFIXES[language]}"
    if language == "python":
        return [sys.executable, "-W", "error", str(source)]
    return [str(build(language, source, built))]


@pytest.mark.parametrize("reader", LANGUAGES)
@pytest.mark.parametrize("producer", LANGUAGES)
def test_every_pair_of_languages(producer: str, reader: str, two: forebay.LocalGroup, built: Path) -> None:
    """A reader prints the same, whatever it and the simulation are written in."""
    commands = command(producer, "01_producer", built), command(reader, "02_reader", built)
    with contextlib.closing(Program(commands[1], two.path)) as reading:
        assert reading.line() == "waiting for steps"
        with contextlib.closing(Program(commands[0], two.path)) as producing:
            assert producing.rest() == "5 steps\n"
        assert reading.rest() == expected()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("first", ["producer", "reader"])
def test_a_pair_is_started_in_either_order(
    language: str, first: str, two: forebay.LocalGroup, built: Path
) -> None:
    """At once, or one well after the other; again and again in one group."""
    commands = {
        "producer": command(language, "01_producer", built),
        "reader": command(language, "02_reader", built),
    }
    order = [first, *({"producer", "reader"} - {first})]
    for pause in (0.0, 0.2, 0.5):
        with contextlib.ExitStack() as stack:
            programs = {}
            for name in order:
                programs[name] = stack.enter_context(contextlib.closing(Program(commands[name], two.path)))
                time.sleep(pause)
            assert programs["producer"].rest() == "5 steps\n"
            assert programs["reader"].rest() == "waiting for steps\n" + expected()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("part", ["01_producer", "02_reader"])
def test_without_a_group_the_error_names_the_remedy(
    language: str, part: str, own_place: Path, built: Path
) -> None:
    """What a newcomer sees who has not started a group."""
    with contextlib.closing(Program(command(language, part, built), str(own_place / "none.json"))) as program:
        with pytest.raises(AssertionError, match="forebay up") as failure:
            program.rest()
        assert "none.json" in str(failure.value)
