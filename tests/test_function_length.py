"""The check that functions are short, or say why they are not."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_function_length as length  # noqa: E402


def function(lines: int, above: str = "") -> str:
    """A function of so many lines, with a brace in a text that closes nothing."""
    body = "".join(f'    let _{n} = "}}";\n' for n in range(lines - 2))
    return f"{above}pub fn grows(a: [u8; 4]) -> u32 {{\n{body}}}\n\nfn short() {{}}\n"


def test_a_function_of_70_lines_is_not_too_long() -> None:
    assert length.too_long(function(70)) == []


def test_a_longer_one_is_named_with_its_line() -> None:
    assert length.too_long("//! A file.\n\n" + function(71)) == [(3, "grows", 71)]


@pytest.mark.parametrize("above", ["", "#[must_use]\n", "// It draws.\n"])
def test_a_reason_above_it_is_enough(above: str) -> None:
    text = function(71, "/// Grows.\n// Long because each line is a case.\n" + above)
    assert length.too_long(text) == []


@pytest.mark.parametrize("above", ["// Long because \n", "// Long because it is.\n\n", "// It is long.\n"])
def test_a_reason_that_is_none(above: str) -> None:
    assert [name for _, name, _ in length.too_long(function(71, above))] == ["grows"]


def test_tests_do_not_count() -> None:
    assert length.too_long("#[cfg(test)]\nmod tests {\n" + function(90) + "}\n") == []


def test_the_functions_of_this_repository() -> None:
    assert length.violations(ROOT) == []
