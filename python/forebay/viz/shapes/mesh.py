# SPDX-License-Identifier: Apache-2.0
"""Meshes of cells, with points of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import block_of
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Mesh
from forebay.viz.parts import Part
from forebay.viz.surface import Surface, unit

Array = NDArray[Any]

# The faces of cells by their number of corners, as VTK and most others count these.
_FACES: dict[int, tuple[tuple[int, ...], ...]] = {
    3: ((0, 1, 2),),
    4: ((0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 0, 3)),
    8: ((0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
}


def mesh(layer: Mesh, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The outer faces of this worker's cells, each flat. Where meshes of two ranks meet, both have such faces, within."""
    parts = []
    for cells in step.blocks(layer.cells):
        points = block_of(step, layer.points, cells)
        if points.data.ndim != 2 or points.data.shape[1] != 3:
            raise Invalid(
                f"field '{layer.points}' has elements of shape {points.data.shape[1:]}: points have x, y and z"
            )
        places = domain.to_scene(points.data)
        colors = None if layer.color is None else block_of(step, layer.color, cells).data
        surface = _surface(layer, places, cells.data, colors)
        parts.append(Part(places.min(axis=0, initial=np.inf), places.max(axis=0, initial=-np.inf), surface))
    return parts


def _surface(layer: Mesh, places: Array, cells: Array, colors: Array | None) -> Surface:
    if cells.ndim != 2 or cells.shape[1] not in _FACES or cells.dtype.kind not in "iu":
        raise Invalid(
            f"field '{layer.cells}' has elements {cells.dtype} of shape {cells.shape[1:]}: cells are 3 indices of points"
            " (triangles), 4 (tetrahedra) or 8 (hexahedra)"
        )
    if cells.size and not (cells.min() >= 0 and cells.max() < len(places)):
        raise Invalid(
            f"field '{layer.cells}': there is no point {cells.min() if cells.min() < 0 else cells.max()}:"
            f" '{layer.points}' of that rank has {len(places)}"
        )
    faces = _FACES[cells.shape[1]]
    corners = np.concatenate([cells[:, face] for face in faces]).astype("i8")
    owner = np.tile(np.arange(len(cells)), len(faces))
    if len(faces) > 1:
        # Two cells that touch have one face.
        _, first, count = np.unique(np.sort(corners, axis=1), axis=0, return_index=True, return_counts=True)
        outer = np.sort(first[count == 1])
        corners, owner = corners[outer], owner[outer]
    if not len(corners):
        return Surface.empty()
    if corners.shape[1] == 4:
        corners, owner = np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]]), np.tile(owner, 2)
    a, b, c = (places[corners[:, corner]] for corner in range(3))
    normals = unit(np.cross(b - a, c - a))
    return Surface(
        places[corners].reshape(-1, 3).astype("f4"),
        np.repeat(normals, 3, axis=0),
        _values(layer, colors, (corners, owner), (len(places), len(cells))),
        np.arange(corners.size).reshape(-1, 3),
    )


def _values(layer: Mesh, colors: Array | None, faces: tuple[Array, Array], counts: tuple[int, int]) -> Array:
    corners, owner = faces
    if colors is None:
        return np.full(corners.size, np.nan, "f4")
    if len(colors) == counts[0]:
        return colors[corners.reshape(-1)].astype("f8")
    if len(colors) == counts[1]:
        return np.repeat(colors[owner], 3).astype("f8")
    raise Invalid(
        f"field '{layer.color}' has {len(colors)} values: the mesh has {counts[0]} points and {counts[1]} cells"
    )
