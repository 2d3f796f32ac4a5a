"""Checks that functions are short: a longer one says above itself why it is.

A function counts its lines from its `fn` to its closing brace. One of more than 70 has a line `// Long because ...` among the
lines above it; clippy allows none of more than 100 (`clippy.toml`). What a file compiles for tests alone does not count.
"""

import re
import sys
from pathlib import Path

from file_order import without_tests

LONGEST = 70
REASON = "// Long because "
_FUNCTION = re.compile(r"\bfn\s+(\w+)")


def too_long(text: str) -> list[tuple[int, str, int]]:
    """The functions of a file that are too long without a reason: the line, the name, how many lines it has."""
    code, _ = without_tests(text)
    lines = text.splitlines()
    found = []
    for function in _FUNCTION.finditer(code):
        end = _end_of_body(code, function.end())
        first = code.count("\n", 0, function.start())
        length = code.count("\n", function.start(), end) + 1
        if length > LONGEST and not _has_reason(lines[:first]):
            found.append((first + 1, function[1], length))
    return found


def _end_of_body(code: str, start: int) -> int:
    """Where the body that begins after `start` ends; `start` if there is none."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] == ";" and depth == 0:
            return start
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
            if depth == 0 and code[at] == "}":
                return at
    return start


def _has_reason(above: list[str]) -> bool:
    """Whether the comments and attributes directly above a function give one."""
    for line in reversed(above):
        said = line.strip()
        if said.startswith(REASON) and len(said) > len(REASON):
            return True
        if not said.startswith(("//", "#[")):
            return False
    return False


def violations(root: Path) -> list[str]:
    """What is too long under the crates of the repository at `root`, one sentence for each."""
    found = []
    sources = [*root.glob("crates/*/src/**/*.rs"), *root.glob("crates/*/simulation/**/*.rs")]
    for path in sorted(sources):
        where = path.relative_to(root)
        for line, name, length in too_long(path.read_text(encoding="utf-8")):
            found.append(
                f"{where}:{line} `{name}` has {length} lines: shorten it to {LONGEST}, or say above it `{REASON}...`"
            )
    return found


def main() -> int:
    """Prints the violations in this repository and returns the exit status."""
    found = violations(Path(__file__).resolve().parent.parent)
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
