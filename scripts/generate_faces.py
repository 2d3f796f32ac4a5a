#!/usr/bin/env python3
"""Makes what all languages share of the declarations, `interface/forebay.toml` and `interface/status.toml`.

Without arguments it writes the files that differ, and names them. With --check it writes nothing, names them, and fails
if there are any.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from faces import extension, fortran_arrays, fortran_functions, regions
from faces.c import Header
from faces.cpp import HeaderPlus
from faces.declaration import Declaration, Wrong, load
from faces.fortran import LICENCE, Module
from faces.python import Package
from faces.rust import Rust
from faces.status import Status

ROOT = Path(__file__).resolve().parent.parent

# Classes and functions whose docstrings have a part about options.
DOCUMENTED = {
    "python/forebay/_producer.py": {"class Producer": "producer", "    def array": "field"},
    "python/forebay/_consumer.py": {"class Consumer": "consumer"},
    "python/forebay/_space.py": {"class Space": "space"},
    "python/forebay/_admin.py": {"class Admin": "admin"},
    "python/forebay/_pipeline_handle.py": {"class PipelineHandle": "pipeline_handle"},
}


def made(root: Path) -> Iterator[tuple[str, str]]:
    """Each file that is made, or has parts that are, with what it is to be."""
    declaration = load(root)
    yield from _rust(declaration)
    header = _filled(root, "include/forebay.h", Header(declaration).part)
    yield "include/forebay.h", header
    yield "include/forebay.hpp", _filled(root, "include/forebay.hpp", HeaderPlus(declaration).part)
    yield from _fortran(root, declaration, header)
    yield from _python(root, declaration)
    yield from _status(Status(root))


def _status(status: Status) -> Iterator[tuple[str, str]]:
    yield "crates/client/src/admin/status/told.rs", formatted(["rustfmt", "--edition", "2024"], status.rust())
    where = "python/forebay/status.py"
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", where, "-"]
    yield where, formatted(ruff, status.python())
    yield "docs/status.md", status.page()


def _rust(declaration: Declaration) -> Iterator[tuple[str, str]]:
    rust = Rust(declaration)
    files = {
        "crates/core/src/error/kind.rs": rust.error_kinds(),
        "crates/client/src/declared/choices.rs": rust.choices(),
        "crates/client/src/declared/options.rs": rust.options(),
        "crates/capi/src/abi/declared.rs": rust.abi(),
        "crates/capi/src/options.rs": rust.given(),
        "crates/python/src/options.rs": extension.options(declaration),
    }
    for where, text in files.items():
        yield where, formatted(["rustfmt", "--edition", "2024"], text)


def _fortran(root: Path, declaration: Declaration, header: str) -> Iterator[tuple[str, str]]:
    module = Module(declaration)

    def part(name: str, indent: str) -> list[str]:
        if name.startswith("generic "):
            return fortran_arrays.interface(name.removeprefix("generic "), indent)
        return module.to_place() if name == "to_place" else module.part(name, indent)

    yield "fortran/forebay.f90", _filled(root, "fortran/forebay.f90", part)
    lines = [
        "   ! Part of forebay.f90: the structs and functions of forebay.h.",
        "   !",
        f"   ! {LICENCE}",
        "   !",
    ]
    lines += [f"   ! {regions.BANNER.capitalize()}, and in forebay.h.", ""]
    lines += [*module.structs(), "", *fortran_functions.interfaces(declaration, header)]
    yield "fortran/forebay_c.inc", "\n".join(lines) + "\n"
    yield "fortran/forebay_open.inc", module.openings()
    yield "fortran/forebay_arrays.inc", fortran_arrays.procedures()


def _python(root: Path, declaration: Declaration) -> Iterator[tuple[str, str]]:
    package = Package(declaration)
    folder = "python/forebay"
    texts = {f"{folder}/_choices.py": package.choices(), f"{folder}/_options.py": package.options()}
    for name in ("_errors.py", "__init__.py", "_forebay.pyi"):
        texts[f"{folder}/{name}"] = _filled(root, f"{folder}/{name}", package.part)
    for where, classes in DOCUMENTED.items():
        text = _filled(root, where, package.part)
        for head, options in classes.items():
            indent = " " * (len(head) - len(head.lstrip()) + 4)
            text = documented(text, head, indent, package.docs(options, indent))
        texts[where] = text
    for where, text in texts.items():
        ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", where, "-"]
        yield where, formatted(ruff, text)


def _filled(root: Path, where: str, part: Callable[[str, str], list[str]]) -> str:
    return regions.filled((root / where).read_text(encoding="utf-8"), where, part)


def documented(text: str, head: str, indent: str, lines: list[str]) -> str:
    """A module's text with these lines as what a class or a function says of its parameters."""
    before, begun, rest = text.partition(f"\n{head}")
    opened, title, rest = rest.partition(f"{indent}Parameters\n{indent}----------\n")
    _, close, after = rest.partition(f'\n{indent}"""\n')
    if not (begun and title and close):
        raise Wrong(f"{head.strip()} has no docstring with 'Parameters'")
    return before + begun + opened + title + "\n".join(lines) + close + after


def formatted(command: list[str], text: str) -> str:
    """A text as the formatter of its language leaves it."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(command)}: {done.stderr}\n{text}")
    return done.stdout


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the checkout")
    given = parser.parse_args()
    try:
        files = list(made(given.root))
    except Wrong as error:
        sys.stderr.write(f"{error}\n")
        return 1
    differ = []
    for where, text in files:
        path = given.root / where
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differ.append(where)
            if not given.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for where in differ:
        print(
            f"{where} {'differs from the declaration: run scripts/generate_faces.py' if given.check else 'written'}"
        )
    return 1 if given.check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
