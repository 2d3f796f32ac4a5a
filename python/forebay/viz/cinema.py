# SPDX-License-Identifier: Apache-2.0
"""Databases of pictures: Cinema's specification D, a table of what each picture shows and where its file lies."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay._errors import Invalid
from forebay.viz import files
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
    """Adds pictures whose files are there to a database, which is made if there is none; what it says of older files of these names is
    replaced, as they were.

    One worker calls it for all. Readers see the table before or after that. `Invalid` if there is another table, `OSError` if it cannot
    be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _TABLE
    lines: dict[str, list[str]] = {}
    if path.exists():
        with path.open(newline="") as table:
            before = csv.reader(table)
            if tuple(next(before, ())) != _COLUMNS:
                raise Invalid(f"{path} is no table of pictures of forebay.viz: choose another directory")
            lines = {line[-1]: line for line in before if len(line) == len(_COLUMNS)}
    lines |= {row.file: [_cell(cell) for cell in _cells(picture, row)] for row in rows}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *lines.values()])
    files.write(path, text.getvalue().encode())


def _cells(picture: Picture, row: Row) -> tuple[object, ...]:
    camera: Camera = picture.cameras[row.camera]
    placed = camera.eye is None
    azimuth = (camera.azimuth + camera.spin * row.step) % 360 if placed else None
    return row.step, row.time, azimuth, camera.elevation if placed else None, row.camera, row.file


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
