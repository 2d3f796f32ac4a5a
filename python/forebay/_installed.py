# SPDX-License-Identifier: Apache-2.0
"""Where what was installed with this package is: the command, the library, headers."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

from forebay._errors import NotFound, Unreachable

_PACKAGE = Path(__file__).resolve().parent


def command_path() -> str:
    """The command `forebay`: the one that FOREBAY_COMMAND names, that came with this package, or that is on the path."""
    named = os.environ.get("FOREBAY_COMMAND")
    places = (
        [Path(named)] if named else [*_recorded("bin/forebay"), Path(sys.executable).with_name("forebay")]
    )
    # Where `pip install --target` puts it.
    places.append(_PACKAGE.parent / "bin" / "forebay")
    found = next((str(place) for place in places if place.is_file()), None) or shutil.which("forebay")
    if found is None:
        raise Unreachable(
            "the command forebay is not where pip puts it, nor on the path: install forebay again, or name the command in "
            "FOREBAY_COMMAND"
        )
    return found


def get_include() -> str:
    """The directory of forebay.h, for compilers (`-I`). `NotFound` if the headers are not installed."""
    return str(_prefix("include/forebay.h") / "include")


def get_library() -> str:
    """The library that programs link, libforebay.so.0; for ctypes, too. `NotFound` if it is not installed."""
    return str(_prefix("lib/libforebay.so.0") / "lib" / "libforebay.so.0")


def get_cmake_dir() -> str:
    """The directory of the CMake package, for `forebay_DIR`. `NotFound` if it is not installed."""
    return str(_prefix("lib/cmake/forebay/forebay-config.cmake") / "lib" / "cmake" / "forebay")


def get_pkgconfig_dir() -> str:
    """The directory of forebay.pc, for PKG_CONFIG_PATH. `NotFound` if it is not installed."""
    return str(_prefix("lib/pkgconfig/forebay.pc") / "lib" / "pkgconfig")


def _prefix(needed: str) -> Path:
    """The directory under which this file of the installation is."""
    places = [*_recorded(needed), Path(command_path()).resolve().parent.parent / needed]
    depth = len(Path(needed).parts)
    for place in places:
        if place.is_file():
            return place.resolve().parents[depth - 1]
    raise NotFound(
        f"{needed} was not installed with this package: `pip install --target` leaves it out; install forebay with "
        "`pip install` into an environment, or with `make install`"
    )


def _recorded(needed: str) -> list[Path]:
    """Where pip says that it has put a file of this package."""
    try:
        files = importlib.metadata.files("forebay") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(os.fspath(file.locate())) for file in files if file.as_posix().endswith(f"/{needed}")]
