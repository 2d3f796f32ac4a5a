# SPDX-License-Identifier: Apache-2.0
"""Triangles that are to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class Surface:
    """Triangles in the scene."""

    points: Array
    """(n, 3), float32."""
    normals: Array
    """(n, 3), float32: to where light comes from."""
    values: Array
    """(n,), float32 or float64: of the field that colours it; NaN where there is none."""
    triangles: Array
    """(m, 3), int64: indices of points."""

    @classmethod
    def empty(cls) -> Surface:
        """No triangle."""
        return cls(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"), np.zeros(0, "f4"), np.zeros((0, 3), "i8"))

    @classmethod
    def join(cls, surfaces: Sequence[Surface]) -> Surface:
        """All as one."""
        parts = [part for part in surfaces if len(part.triangles)]
        if not parts:
            return cls.empty()
        ends = np.cumsum([len(part.points) for part in parts])
        triangles = [part.triangles + end - len(part.points) for part, end in zip(parts, ends, strict=True)]
        return cls(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.normals for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate(triangles),
        )

    def finite(self) -> Surface:
        """Without triangles that have a corner nowhere: what is computed of NaN and infinities."""
        seen = np.asarray(np.isfinite(self.points).all(axis=1))
        if seen.all():
            return self
        # Points that no triangle has do no harm, but where they lie must be a number.
        points = np.where(seen[:, None], self.points, np.float32(0))
        return Surface(points, self.normals, self.values, self.triangles[seen[self.triangles].all(axis=1)])

    def oriented(self) -> Surface:
        """With corners in such an order that each triangle's front is where its first corner's normal points to."""
        a, b, c = (self.points[self.triangles[:, corner]].astype("f8") for corner in range(3))
        turned = (np.cross(b - a, c - a) * self.normals[self.triangles[:, 0]]).sum(axis=1) < 0
        triangles = np.where(turned[:, None], self.triangles[:, ::-1], self.triangles)
        return Surface(self.points, self.normals, self.values, triangles)

    @classmethod
    def of_quads(cls, corners: Array, normals: Array, values: Array) -> Surface:
        """Flat quadrangles: corners (n, 4, 3) in order around, a normal for each, a value for each or for each corner."""
        count = len(corners)
        values = values if values.ndim == 2 else np.repeat(values[:, None], 4, axis=1)
        first = 4 * np.arange(count, dtype="i8")[:, None, None]
        return cls(
            corners.reshape(-1, 3).astype("f4"),
            np.repeat(normals, 4, axis=0).astype("f4"),
            values.reshape(-1),
            (first + np.array([[0, 1, 2], [0, 2, 3]])).reshape(-1, 3),
        ).oriented()


def unit(vectors: Array) -> Array:
    """The same directions, each one long."""
    vectors = np.where(np.isfinite(vectors), vectors, 0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / (lengths + 1e-30), "f4")
