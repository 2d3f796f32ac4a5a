# SPDX-License-Identifier: Apache-2.0
"""What layers look like: of each the triangles that a worker's blocks give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay._step import Step
from forebay.viz import layers
from forebay.viz.domain import Domain
from forebay.viz.parts import Part
from forebay.viz.shapes.contour import contour
from forebay.viz.shapes.faces import clip
from forebay.viz.shapes.slices import slices
from forebay.viz.shapes.threshold import threshold
from forebay.viz.shapes.volume import volume
from forebay.viz.surface import Surface

_SHAPES: dict[type[layers.Layer], Callable[[Any, Step, Domain, int], list[Part]]] = {
    layers.Contour: contour,
    layers.Slice: slices,
    layers.Clip: clip,
    layers.Threshold: threshold,
    layers.Volume: volume,
}


def shape(layer: layers.Layer, step: Step, domain: Domain, side: int) -> list[Part]:
    """What this worker's blocks give to a layer; nothing at a step that lacks a field of it. `side` is what `side_of` gave of all workers."""
    if not set(layer.fields) <= set(step.fields):
        return []
    parts = _SHAPES[type(layer)](layer, step, domain, side)
    for part in parts:
        if isinstance(part.shape, Surface):
            part.shape = part.shape.finite()
    return [part for part in parts if not part.is_empty]
