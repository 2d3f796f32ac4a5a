# SPDX-License-Identifier: Apache-2.0
"""Databases of pictures: Cinema's specification D, a table of what each picture shows and where its file lies."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay._errors import Invalid
from forebay.viz.camera import Camera
from forebay.viz.picture import Picture

_COLUMNS = ("step", "time", "azimuth", "elevation", "camera", "FILE")
_TABLE = "data.csv"


@dataclass(frozen=True)
class Row:
    """A picture of the database."""

    step: int
    time: float | None
    camera: int
    """Which of the picture's cameras it is from."""
    file: str
    """Its name, in the database's directory."""


def directory_of(output: Path, picture: Picture) -> Path:
    """Where the files of a picture lie: beside others, or in a database of their own."""
    return output / f"{picture.name}.cdb" if picture.cinema else output


def add(directory: Path, picture: Picture, rows: Sequence[Row]) -> None:
    """Adds pictures whose files are there to a database, which is made if there is none; those that it has are left out.

    One worker calls it for all. Readers see the rows before or all of them. `Invalid` if there is another table, `OSError` if it cannot be
    written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _TABLE
    known: set[str] = set()
    if path.exists():
        with path.open(newline="") as table:
            lines = csv.reader(table)
            if tuple(next(lines, ())) != _COLUMNS:
                raise Invalid(f"{path} is no table of pictures of forebay.viz: choose another directory")
            known = {line[-1] for line in lines if line}
    text = io.StringIO()
    lines_out = csv.writer(text, lineterminator="\n")
    if not path.exists():
        lines_out.writerow(_COLUMNS)
    for row in rows:
        if row.file not in known:
            lines_out.writerow([_cell(cell) for cell in _cells(picture, row)])
    # One write: who reads the table meanwhile finds whole lines.
    with open(path, "ab", buffering=0) as table_file:
        content = text.getvalue().encode()
        if content and table_file.write(content) != len(content):
            raise OSError(f"{path}: only a part of the table was written: is the disk full?")
        os.fsync(table_file.fileno())


def _cells(picture: Picture, row: Row) -> tuple[object, ...]:
    camera: Camera = picture.cameras[row.camera]
    placed = camera.eye is None
    azimuth = (camera.azimuth + camera.spin * row.step) % 360 if placed else None
    return row.step, row.time, azimuth, camera.elevation if placed else None, row.camera, row.file


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
