# SPDX-License-Identifier: Apache-2.0
"""The domain as a solid, cut open."""

from __future__ import annotations

import numpy as np

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Clip, Plane
from forebay.viz.parts import Part
from forebay.viz.shapes.slices import across, across_axis
from forebay.viz.surface import Surface


def clip(layer: Clip, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The faces of the domain that this worker's blocks have, and where planes cut it the field within."""
    field = step.field(layer.field)
    if len(field.shape or ()) != 3:
        raise Invalid(f"field '{layer.field}' has {field.ndim} dimensions: a clip needs 3")
    assert layer.color is not None
    # What a plane shows looks to the side that is cut away.
    outward = [Plane([-along for along in plane.normal], plane.point) for plane in layer.clip]
    parts = []
    for piece in pieces(step, layer.fields, domain, below=0, above=1):
        values, shown = piece.values[layer.color], []
        for axis in range(3):
            ends = piece.grid.places(0)[axis], piece.grid.places(np.array(piece.grid.shape[::-1]) - 1)[axis]
            shown += [
                across_axis(piece, values, axis, end, side) for end, side in zip(ends, (-1, 1), strict=True)
            ]
        shown += [across(piece, values, plane, domain) for plane in outward]
        parts.append(Part.of(piece, Surface.join(shown)))
    return parts
