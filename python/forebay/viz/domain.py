# SPDX-License-Identifier: Apache-2.0
"""Where all of the data lies, and the scene's own coordinates: whatever the units, the domain is one long from corner to corner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._step import Field

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """The box around the data: its lowest and its highest corner as x, y, z, in the units of the data."""

    lowest: tuple[float, float, float]
    highest: tuple[float, float, float]

    @classmethod
    def between(cls, low: Vector, high: Vector) -> Domain:
        """The one with these corners."""
        return cls(*(tuple(map(float, corner)) for corner in (low, high)))  # type: ignore[arg-type]

    @property
    def low(self) -> Vector:
        """Its lowest corner."""
        return np.array(self.lowest)

    @property
    def high(self) -> Vector:
        """Its highest corner."""
        return np.array(self.highest)

    @property
    def scale(self) -> float:
        """How long a unit of the data is in the scene."""
        size = float(np.linalg.norm(self.high - self.low))
        return 1 / size if 0 < size < np.inf else 1.0

    def to_scene(self, points: Any) -> Vector:
        """Places of the data in the scene, where the middle of the domain is 0. In 64 bits, so that neighbours stay apart."""
        return (np.asarray(points, "f8") - (self.low + self.high) / 2) * self.scale

    @property
    def scene_box(self) -> tuple[Vector, Vector]:
        """Its corners in the scene."""
        return self.to_scene(self.low), self.to_scene(self.high)


@dataclass(frozen=True)
class Grid:
    """Where the elements of a field lie, at one level: all as x, y, z, in the scene, or in the units of the data."""

    origin: Vector
    spacing: Vector
    shape: tuple[int, int, int]
    """How many elements there are, as z, y, x."""

    turned: tuple[bool, bool, bool] = (False, False, False)
    """Along which axes, as z, y, x, it counts the other way than the field does, whose spacing is negative there."""

    @classmethod
    def of(cls, field: Field, domain: Domain | None, level: int = 0) -> Grid:
        """That of a field of three dimensions, or of two, which are y and x. It counts upwards. Without a domain it is in the units of the data."""
        shape, spacing, origin = field_grid(field)
        if level:
            ratio = np.array(field.refinement or (2,) * len(shape), "f8")[::-1] ** level
            ratio = np.concatenate([ratio, np.ones(3 - len(ratio))])
            # An element of a cell stands in its middle; the first of a finer level nearer to the edge.
            origin = origin - (spacing / 2 - spacing / ratio / 2) * (field.association == "cell")
            spacing = spacing / ratio
            shape = tuple(int(n * r) for n, r in zip(shape, ratio[::-1], strict=True))  # type: ignore[assignment]
        turned = tuple(bool(along < 0) for along in spacing[::-1])
        origin = np.minimum(origin, origin + spacing * (np.array(shape[::-1]) - 1))
        if domain is not None:
            origin, spacing = domain.to_scene(origin), spacing * domain.scale
        return cls(origin, abs(spacing), shape, turned)  # type: ignore[arg-type]

    def places(self, index: Any) -> Vector:
        """Where indices (as x, y, z) lie."""
        return self.origin + np.asarray(index, "f8") * self.spacing


def field_grid(field: Field) -> tuple[tuple[int, int, int], Vector, Vector]:
    """Its shape as z, y, x; spacing and origin as x, y, z in the units of the data. What it lacks of three dimensions is 1 element thick.

    `Invalid` if its elements lie nowhere, or at one place.
    """
    given = field.shape or ()
    lacking = 3 - len(given)
    shape = (1,) * lacking + tuple(given)
    spacing = np.array((tuple(field.spacing) or (1.0,) * len(given))[::-1] + (1.0,) * lacking, "f8")
    origin = np.array((tuple(field.origin) or (0.0,) * len(given))[::-1] + (0.0,) * lacking, "f8")
    if not (
        np.isfinite(spacing).all() and np.isfinite(origin).all() and spacing[np.array(shape[::-1]) > 1].all()
    ):
        raise Invalid(
            f"field '{field.name}' has spacing {field.spacing} and origin {field.origin}: it cannot be drawn; give finite numbers,"
            " and a spacing that is not 0"
        )
    return shape, spacing, origin  # type: ignore[return-value]


def box_of(field: Field) -> tuple[Vector, Vector]:
    """From its first element to its last one, as x, y, z."""
    shape, spacing, origin = field_grid(field)
    last = origin + spacing * (np.array(shape[::-1]) - 1)
    return np.minimum(origin, last), np.maximum(origin, last)
