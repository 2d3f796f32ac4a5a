"""Texts: what a member means, in the words of one language, in lines of one width."""

from __future__ import annotations

import re
import textwrap

from faces.declaration import Declaration, Wrong, camel

WIDTH = 118
"""Of lines in headers and in Fortran."""


class Words:
    """How one language writes what a text of the declaration names."""

    def __init__(self, declaration: Declaration, language: str) -> None:
        self._declaration = declaration
        self._language = language

    def of(self, text: str) -> str:
        """A text in this language's words."""
        return re.sub(r"\{([a-z_]+)(?:\.([A-Za-z+-]+))?\}", self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        group, name = found.group(1), found.group(2)
        if name is None:
            known = self._declaration.names.get(group)
            if known is None:
                raise Wrong(f"[names] has no '{group}'")
            return self._code(known[self._language])
        if group == "error":
            kind = next((kind for kind in self._declaration.errors if kind.name == name), None)
            if kind is None:
                raise Wrong(f"there is no error '{name}'")
            words = {"c": kind.c, "python": name, "rust": f"ErrorKind::{name}"}
            return self._code(words[self._language])
        enum = self._declaration.enums[group]
        value = enum.value(name)
        named = f'"{name}"'
        variant = camel(name)
        words = {
            "c": named if enum.by_name else value.c,
            "python": named,
            "rust": f"{enum.in_rust}::{variant}",
        }
        return self._code(words[self._language])

    def _code(self, word: str) -> str:
        return word if self._language == "c" else f"`{word}`"


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most this width."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def snake(name: str) -> str:
    """`OnLoss` as on_loss."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def clause(text: str) -> str:
    """A text that goes on: without its full stop."""
    return text if text.endswith("...") else text.removesuffix(".")


def byte_count(number: int) -> str:
    """Bytes for people: 1 GiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 1 << power and number % (1 << power) == 0:
            return f"{number >> power} {unit}"
    return f"{number} bytes"
