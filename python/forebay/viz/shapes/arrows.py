# SPDX-License-Identifier: Apache-2.0
"""Vectors as arrows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import Piece, pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Arrows
from forebay.viz.parts import Part
from forebay.viz.surface import Surface, unit

Array = NDArray[Any]

_SIDES = 8
# Of an arrow that is 1 long: where its head begins, and how thick shaft and head are.
_NECK, _SHAFT, _HEAD = 0.65, 0.03, 0.1


def arrows(layer: Arrows, step: Step, domain: Domain, facts: Facts) -> list[Part]:
    """An arrow at each so-many-th element of this worker's blocks, counted in the whole array."""
    check_vector(layer.vector, step)
    found = pieces(step, (*layer.vector, *layer.fields), domain, below=0, above=0)
    return [Part.of(piece, _within(piece, layer, facts.longest)) for piece in found]


def check_vector(vector: tuple[str, str, str], step: Step) -> None:
    """Fails unless these fields are the components of a vector in three dimensions."""
    for name in vector:
        if len(step.field(name).shape or ()) != 3:
            raise Invalid(
                f"field '{name}' has {step.field(name).ndim} dimensions: the components of a vector have 3"
            )


def _within(piece: Piece, layer: Arrows, longest: float) -> Surface:
    picks = tuple(
        slice((-begin) % layer.every + begin - first, end - first, layer.every)
        for begin, end, first in zip(piece.begin, piece.end, piece.first, strict=True)
    )
    grid = np.meshgrid(
        *[
            np.arange(pick.start, pick.stop, pick.step) + first
            for pick, first in zip(picks, piece.first, strict=True)
        ],
        indexing="ij",
    )
    index = np.stack([axis.reshape(-1) for axis in grid[::-1]], axis=1)
    vectors = np.stack([piece.values[name][picks].reshape(-1) for name in layer.vector], axis=1).astype("f8")
    lengths = np.linalg.norm(vectors, axis=1)
    shown = np.isfinite(lengths) & (lengths > 0)
    if not shown.any():
        return Surface.empty()
    vectors, lengths, index = vectors[shown], lengths[shown], index[shown]
    values = lengths if layer.color is None else piece.values[layer.color][picks].reshape(-1)[shown]
    size = layer.length * layer.every * float(np.abs(piece.grid.spacing).min()) / longest
    return _instances(piece.grid.places(index), vectors * size, values)


def _instances(places: Array, vectors: Array, values: Array) -> Surface:
    """An arrow for each, in the middle of its place."""
    lengths = np.linalg.norm(vectors, axis=1)
    along = vectors / lengths[:, None]
    # Across it: with the axis that it is farthest from.
    axis = np.eye(3)[np.abs(along).argmin(axis=1)]
    across = np.cross(along, axis)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    frame = np.stack([across, np.cross(along, across), along], axis=1)
    points, normals, triangles = _arrow()
    count = len(points)
    placed = (points @ frame) * lengths[:, None, None] + (places - vectors / 2)[:, None, :]
    first = count * np.arange(len(places))[:, None, None]
    return Surface(
        placed.reshape(-1, 3).astype("f4"),
        unit((normals @ frame).reshape(-1, 3)),
        np.repeat(values, count),
        (triangles + first).reshape(-1, 3),
    )


def _arrow() -> tuple[Array, Array, Array]:
    """One that is 1 long along z: points, normals, triangles."""
    angles = 2 * np.pi * np.arange(_SIDES) / _SIDES
    around = np.stack([np.cos(angles), np.sin(angles), np.zeros(_SIDES)], axis=1)
    up, ones = np.array([0, 0, 1.0]), np.ones((_SIDES, 1))

    def ring(radius: float, height: float) -> Array:
        return radius * around + height * up

    slope = around * (1 - _NECK) + _HEAD * up
    rings = [
        (ring(_SHAFT, 0), -up * ones),
        (ring(0, 0), -up * ones),
        (ring(_SHAFT, 0), around),
        (ring(_SHAFT, _NECK), around),
        (ring(_SHAFT, _NECK), -up * ones),
        (ring(_HEAD, _NECK), -up * ones),
        (ring(_HEAD, _NECK), slope),
        (ring(0, 1), slope),
    ]
    triangles, here = [], np.arange(_SIDES)
    beside = (here + 1) % _SIDES
    for low in range(0, len(rings), 2):
        a, b = _SIDES * low, _SIDES * (low + 1)
        triangles += [
            np.stack([a + here, a + beside, b + here], 1),
            np.stack([b + here, a + beside, b + beside], 1),
        ]
    made = Surface(
        np.concatenate([points for points, _ in rings]).astype("f4"),
        np.concatenate([normals for _, normals in rings]).astype("f4"),
        np.zeros(len(rings) * _SIDES, "f4"),
        np.concatenate(triangles),
    ).oriented()
    return made.points.astype("f8"), made.normals.astype("f8"), made.triangles
