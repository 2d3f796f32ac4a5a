#!/usr/bin/env python3
"""Lays out what is installed of Forebay, the same for `make install`, the wheel and the build's own environment.

    packaging/tree.py --built target/release --into PREFIX [--wheel]

    bin/forebay                          the command
    include/forebay.h, ...               headers; the Fortran module's source in include/forebay
    lib/libforebay.so.0, libforebay.so   the library, and what `-lforebay` finds
    lib/libforebay.a                     not in a wheel
    lib/cmake/forebay, lib/pkgconfig     for CMake and pkg-config
    share/man/man1, share/...            manual pages and completions, which the command itself writes

What is there finds the rest relative to itself: the tree may be moved.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SONAME = "libforebay.so.0"
COMPLETIONS = {
    "bash": "share/bash-completion/completions/forebay",
    "zsh": "share/zsh/site-functions/_forebay",
    "fish": "share/fish/vendor_completions.d/forebay.fish",
}


def version() -> str:
    """The version of all of Forebay, as the workspace says it."""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise SystemExit("packaging/tree.py: Cargo.toml names no version")
    return found[1]


def install(source: Path, target: Path, mode: int = 0o644) -> None:
    """Copies a file. What is there is replaced, not written to: it may run."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, aside)
    aside.chmod(mode)
    aside.replace(target)


def write(text: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_text(text, encoding="utf-8")


def filled(name: str) -> str:
    """A file of this folder with the version in it."""
    major, minor, *_ = version().split(".")
    text = (ROOT / "packaging" / name).read_text(encoding="utf-8")
    return text.replace("@VERSION@", version()).replace("@MAJOR@", major).replace("@MINOR@", minor)


def lay_out(built: Path, scripts: Path, prefix: Path, *, wheel: bool) -> None:
    """The tree; `scripts` is where the command goes."""
    install(built / "forebay", scripts / "forebay", 0o755)
    for header in (ROOT / "include").glob("*.h*"):
        install(header, prefix / "include" / header.name)
    for source in (ROOT / "fortran").iterdir():
        install(source, prefix / "include" / "forebay" / source.name)
    install(built / "libforebay.so", prefix / "lib" / SONAME, 0o755)
    link = prefix / "lib" / "libforebay.so"
    if wheel:
        # A wheel holds no links; a linker script costs nothing where a copy would cost megabytes.
        write(f"INPUT({SONAME})\n", link)
    else:
        link.unlink(missing_ok=True)
        link.symlink_to(SONAME)
        install(built / "libforebay.a", prefix / "lib" / "libforebay.a")
    cmake = prefix / "lib" / "cmake" / "forebay"
    install(ROOT / "packaging" / "forebay-config.cmake", cmake / "forebay-config.cmake")
    write(filled("forebay-config-version.cmake.in"), cmake / "forebay-config-version.cmake")
    write(filled("forebay.pc.in"), prefix / "lib" / "pkgconfig" / "forebay.pc")
    written_by(scripts / "forebay", prefix)


def written_by(command: Path, prefix: Path) -> None:
    """Manual pages and completions."""
    pages = prefix / "share" / "man" / "man1"
    pages.mkdir(parents=True, exist_ok=True)
    subprocess.run([command, "man", pages], check=True)
    for shell, place in COMPLETIONS.items():
        done = subprocess.run([command, "completion", shell], check=True, capture_output=True, text=True)
        write(done.stdout, prefix / place)


def install_wheel_data(built: Path, into: Path) -> None:
    """The tree as a wheel's data."""
    shutil.rmtree(into, ignore_errors=True)
    lay_out(built, into / "scripts", into / "data", wheel=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--built", type=Path, required=True, help="where cargo has put what it built")
    parser.add_argument(
        "--into", type=Path, required=True, help="the prefix; with --wheel the folder of its data"
    )
    parser.add_argument("--wheel", action="store_true", help="as the data of a wheel")
    given = parser.parse_args()
    into = Path(os.path.abspath(given.into))
    if given.wheel:
        install_wheel_data(given.built, into)
    else:
        lay_out(given.built, into / "bin", into, wheel=False)


if __name__ == "__main__":
    main()
