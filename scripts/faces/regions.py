"""Parts of files that are made: what stands between two marks in a file that is written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable

from faces.declaration import SOURCE, Wrong

_OPEN = re.compile(
    rf"^(?P<indent> *)(?P<comment>/\*|//|!|#) generated from {re.escape(SOURCE)}: (?P<name>[^*\n]+?)(?: \*/)?$"
)
_CLOSE = re.compile(r"^ *(?:/\*|//|!|#) end of what is generated(?: \*/)?$")

BANNER = f"generated from {SOURCE} by scripts/generate_faces.py: change it there"
"""What a file says that is made as a whole."""


def filled(text: str, where: str, make: Callable[[str, str], list[str]]) -> str:
    """The text of a file with what `make` gives for the name and the indent of each mark."""
    lines: list[str] = []
    inside: str | None = None
    for line in text.splitlines():
        opened = _OPEN.match(line)
        if opened is not None:
            if inside is not None:
                raise Wrong(f"{where}: '{inside}' has no end")
            inside = opened["name"]
            lines += [line, *make(inside, opened["indent"])]
        elif _CLOSE.match(line):
            if inside is None:
                raise Wrong(f"{where}: an end without a beginning")
            inside = None
            lines.append(line)
        elif inside is None:
            lines.append(line)
    if inside is not None:
        raise Wrong(f"{where}: '{inside}' has no end")
    return "\n".join(lines) + "\n"
