# SPDX-License-Identifier: Apache-2.0
"""Elements whose values lie within limits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import Piece, pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Threshold
from forebay.viz.parts import Part
from forebay.viz.surface import Surface

Array = NDArray[Any]


def threshold(layer: Threshold, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """Boxes around the elements of this worker's blocks that are within, without the faces between two of them."""
    if len(step.field(layer.field).shape or ()) != 3:
        raise Invalid(
            f"field '{layer.field}' has {step.field(layer.field).ndim} dimensions: a threshold needs 3"
        )
    found = pieces(step, layer.fields, domain, below=1, above=1)
    return [Part.of(piece, _within(piece, layer)) for piece in found]


def _within(piece: Piece, layer: Threshold) -> Surface:
    assert layer.color is not None
    values = piece.values[layer.field]
    # Beyond the domain there is nothing.
    edges = [
        (int(first == 0 and begin == 0), int(first + n == end))
        for first, begin, n, end in zip(piece.first, piece.begin, values.shape, piece.end, strict=True)
    ]
    inside = np.pad((values >= layer.low) & (values <= layer.high), edges)
    own = tuple(
        slice(begin - first + edge[0], end - first + edge[0])
        for begin, end, first, edge in zip(piece.begin, piece.end, piece.first, edges, strict=True)
    )
    colors = piece.values[layer.color][piece.box()]
    parts = []
    for dimension in range(3):
        for side in (-1, 1):
            beside = list(own)
            beside[dimension] = slice(own[dimension].start + side, own[dimension].stop + side)
            shown = inside[own] & ~inside[tuple(beside)]
            parts.append(_faces(piece, np.argwhere(shown), colors[shown], 2 - dimension, side))
    return Surface.join(parts)


def _faces(piece: Piece, elements: Array, values: Array, axis: int, side: int) -> Surface:
    """The faces of elements at one side, half a spacing away."""
    centers = piece.grid.places(elements[:, ::-1] + np.array(piece.begin[::-1]))
    half = piece.grid.spacing / 2
    one, other = (along for along in range(3) if along != axis)
    corners = np.repeat(centers[:, None, :], 4, axis=1)
    corners[:, :, axis] += side * half[axis]
    for corner, (a, b) in enumerate(((-1, -1), (1, -1), (1, 1), (-1, 1))):
        corners[:, corner, one] += a * half[one]
        corners[:, corner, other] += b * half[other]
    normals = np.zeros((len(elements), 3))
    normals[:, axis] = side
    return Surface.of_quads(corners, normals, values)
