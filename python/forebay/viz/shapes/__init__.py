# SPDX-License-Identifier: Apache-2.0
"""What layers look like: of each what a worker's blocks give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forebay._step import Step
from forebay.viz import layers
from forebay.viz.domain import Domain, box_of, field_grid
from forebay.viz.facts import Facts
from forebay.viz.parts import Part
from forebay.viz.shapes.arrows import arrows
from forebay.viz.shapes.contour import contour
from forebay.viz.shapes.faces import clip
from forebay.viz.shapes.mesh import mesh
from forebay.viz.shapes.slices import slices
from forebay.viz.shapes.spheres import places_of, spheres
from forebay.viz.shapes.streamlines import streamlines
from forebay.viz.shapes.threshold import threshold
from forebay.viz.shapes.volume import volume
from forebay.viz.surface import Surface

_SHAPES: dict[type[layers.Layer], Callable[[Any, Step, Domain, Facts], list[Part]]] = {
    layers.Arrows: arrows,
    layers.Clip: clip,
    layers.Contour: contour,
    layers.Mesh: mesh,
    layers.Slice: slices,
    layers.Spheres: spheres,
    layers.Streamlines: streamlines,
    layers.Threshold: threshold,
    layers.Volume: volume,
}


def can_be_drawn(layer: layers.Layer, step: Step) -> bool:
    """Whether a step has all that a layer needs."""
    return set(layer.fields) <= set(step.fields)


def shape(layer: layers.Layer, step: Step, domain: Domain, facts: Facts) -> list[Part]:
    """What this worker's blocks give to a layer; nothing at a step that lacks a field of it. All workers call it."""
    if not can_be_drawn(layer, step):
        return []
    parts = _SHAPES[type(layer)](layer, step, domain, facts)
    for part in parts:
        if isinstance(part.shape, Surface):
            part.shape = part.shape.finite()
    return [part for part in parts if not part.is_empty]


def boxes(layer: layers.Layer, step: Step) -> list[tuple[Any, Any]]:
    """Where a layer lies, as far as this worker knows: lowest and highest x, y, z, in the units of the data."""
    match layer:
        case layers.Spheres():
            return _around([block.interior for block in places_of(layer, step)], layer.radius)
        case layers.Mesh():
            return _around([block.data for block in step.blocks(layer.points)], 0.0)
    fields = [step.field(name) for name in layer.needs]
    found = []
    for field in fields:
        if field.shape is not None:
            (low, high), room = box_of(field), _room(layer) * np.abs(field_grid(field)[1])
            found.append((low - room, high + room))
    return found


def _room(layer: layers.Layer) -> float:
    """How far beyond elements what shows them reaches, in spacings."""
    match layer:
        case layers.Threshold():
            return 0.5
        case layers.Arrows():
            return layer.length * layer.every / 2
    return 0.0


def _around(places: list[Any], radius: float) -> list[tuple[Any, Any]]:
    """The boxes around some points each."""
    finite = [points[np.isfinite(points).all(axis=1)].astype("f8") for points in places if points.ndim == 2]
    seen = [points for points in finite if points.shape[0] and points.shape[1] == 3]
    return [(points.min(axis=0) - radius, points.max(axis=0) + radius) for points in seen]
