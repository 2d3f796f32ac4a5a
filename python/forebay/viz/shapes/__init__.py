# SPDX-License-Identifier: Apache-2.0
"""What layers look like: of each the triangles that a worker's blocks give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay._step import Step
from forebay.viz import layers
from forebay.viz.domain import Domain
from forebay.viz.shapes.contour import contour
from forebay.viz.shapes.faces import clip
from forebay.viz.shapes.slices import slices
from forebay.viz.shapes.threshold import threshold
from forebay.viz.surface import Surface

_SHAPES: dict[type[layers.Layer], Callable[[Any, Step, Domain, int], Surface]] = {
    layers.Contour: contour,
    layers.Slice: slices,
    layers.Clip: clip,
    layers.Threshold: threshold,
}


def shape(layer: layers.Layer, step: Step, domain: Domain, side: int) -> Surface:
    """The triangles of a layer; nothing at a step that lacks a field of it. `side` is what `side_of` gave on all workers together."""
    if not set(layer.fields) <= set(step.fields):
        return Surface.empty()
    return _SHAPES[type(layer)](layer, step, domain, side).finite()
