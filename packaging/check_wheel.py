#!/usr/bin/env python3
"""Looks into a wheel: whether it is whole, small, and runs on the machines that its name promises.

packaging/check_wheel.py dist/forebay-*.whl
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SIZE_MAX = 15 << 20
GLIBC = (2, 28)
NEEDED = (
    "scripts/forebay",
    "data/include/forebay.h",
    "data/include/forebay.hpp",
    "data/include/forebay_comm.h",
    "data/include/forebay_mpi.h",
    "data/include/forebay/forebay.f90",
    "data/lib/libforebay.so.0",
    "data/lib/libforebay.so",
    "data/lib/cmake/forebay/forebay-config.cmake",
    "data/lib/cmake/forebay/forebay-config-version.cmake",
    "data/lib/pkgconfig/forebay.pc",
    "data/share/man/man1/forebay.1",
    "data/share/bash-completion/completions/forebay",
    "data/share/zsh/site-functions/_forebay",
    "data/share/fish/vendor_completions.d/forebay.fish",
)
TOOLS = (("auditwheel", "show"), ("check-wheel-contents",))


def wants(library: Path) -> tuple[int, ...]:
    """The newest glibc that a program or library asks for."""
    text = subprocess.run(["readelf", "-V", library], check=True, capture_output=True, text=True).stdout
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", text)
    return max(tuple(map(int, version)) for version in versions)


def soname(library: Path) -> str:
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    found = re.search(r"SONAME.*\[(.*)\]", text)
    return found[1] if found else ""


def fails(*command: str | Path) -> list[str]:
    """What a tool says that finds something wrong."""
    done = subprocess.run(command, capture_output=True, text=True)
    return [f"{command[0]}: {done.stdout}{done.stderr}"] if done.returncode else []


def problems(wheel: Path) -> list[str]:
    """What is wrong with it."""
    found = []
    if wheel.stat().st_size > SIZE_MAX:
        found.append(f"{wheel.stat().st_size} bytes, more than {SIZE_MAX}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as place:
        names = archive.namelist()
        data = next((name.split("/")[0] for name in names if ".data/" in name), "")
        found += [f"{needed} is missing" for needed in NEEDED if f"{data}/{needed}" not in names]
        archive.extractall(place)
        elves = [
            path for path in Path(place).rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
        ]
        if len(elves) != 3:
            found.append(f"{len(elves)} programs and libraries, not 3: {[path.name for path in elves]}")
        for path in elves:
            if wants(path) > GLIBC:
                found.append(f"{path.name} wants glibc {'.'.join(map(str, wants(path)))}")
            if path.name.endswith(".abi3.so"):
                # Alone: the tool takes the linker script beside it for a library of another system.
                found += fails("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", path)
            if path.name.startswith("libforebay") and soname(path) != "libforebay.so.0":
                found.append(f"{path.name} has the soname '{soname(path)}'")
    return found


def main() -> None:
    wheel = Path(sys.argv[1])
    wrong = problems(wheel)
    for tool in TOOLS:
        wrong += fails(*tool, wheel)
    if wrong:
        raise SystemExit("\n".join([f"{wheel.name}:", *wrong]))
    print(f"{wheel.name}: {wheel.stat().st_size / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    main()
