"""Builds Forebay for pip: the command, the library and what belongs to them, beside the Python package (PEP 517).

maturin makes the package; cargo, here, the rest, which goes into the wheel's `data`. Environment:

    FOREBAY_WHEEL_GLIBC=2.28     for this glibc and later, by cargo-zigbuild: what `make wheel` does
    FOREBAY_WHEEL_PROFILE=NAME   another profile of Cargo.toml than `wheel`
"""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "target" / "wheel-data"
"""As pyproject.toml names it."""

sys.path.insert(0, str(ROOT / "packaging"))
import tree  # noqa: E402

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    DATA.mkdir(parents=True, exist_ok=True)  # maturin looks for it
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)  # type: ignore[no-any-return]


def _triple() -> str:
    return f"{platform.machine()}-unknown-linux-gnu"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    profile = os.environ.get("FOREBAY_WHEEL_PROFILE", "wheel")
    glibc = os.environ.get("FOREBAY_WHEEL_GLIBC")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cargo = ["cargo", "zigbuild", "--target", f"{_triple()}.{glibc}"] if glibc else ["cargo", "build"]
    cargo += ["--locked", "--profile", profile, "-p", "forebay-cli", "-p", "forebay-capi"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    built = target / _triple() if glibc else target
    tree.install_wheel_data(built / ("debug" if profile == "dev" else profile), DATA)
    settings = dict(config_settings or {})
    arguments = ["--locked", "--profile", profile]
    if glibc:
        arguments += [
            "--zig",
            "--target",
            _triple(),
            "--compatibility",
            f"manylinux_{glibc.replace('.', '_')}",
        ]
    os.environ["MATURIN_PEP517_ARGS"] = " ".join(arguments)
    return maturin.build_wheel(wheel_directory, settings, metadata_directory)  # type: ignore[no-any-return]


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """All files of the repository: what a wheel is built from, and tested with."""
    name = f"forebay-{tree.version()}"
    with tempfile.TemporaryDirectory() as place:
        metadata = Path(
            place, prepare_metadata_for_build_wheel(place, config_settings), "METADATA"
        ).read_bytes()
    with tarfile.open(Path(sdist_directory, f"{name}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(f"{name}/PKG-INFO")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
        for path in _files():
            archive.add(ROOT / path, f"{name}/{path}", recursive=False)
    return f"{name}.tar.gz"


def _files() -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    if (ROOT / ".git").exists():
        found = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
            "\0"
        )
        return sorted(path for path in found if path and (ROOT / path).is_file())
    # Of an unpacked archive: what it came with.
    skipped = {"target", ".venv", "__pycache__"}
    kept = (
        path
        for path in ROOT.rglob("*")
        if path.is_file() and path.name != "PKG-INFO" and path.suffix != ".so"
    )
    relative = (path.relative_to(ROOT) for path in kept)
    return sorted(str(path) for path in relative if not skipped & set(path.parts))
