# SPDX-License-Identifier: Apache-2.0
"""A field as a cloud that one looks into."""

from __future__ import annotations

import numpy as np

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Volume
from forebay.viz.parts import Part, Solid


def volume(layer: Volume, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The values of this worker's blocks, each from its first element to the first of its neighbour."""
    field = step.field(layer.field)
    if len(field.shape or ()) != 3:
        raise Invalid(f"field '{layer.field}' has {field.ndim} dimensions: a volume needs 3")
    parts = []
    for piece in pieces(step, layer.fields, domain, below=0, above=1):
        values = piece.values[layer.field][piece.box(above=1)]
        if min(values.shape) > 1:
            solid = Solid(
                np.ascontiguousarray(values), piece.grid.places(piece.begin[::-1]), piece.grid.spacing
            )
            parts.append(Part.of(piece, solid))
    return parts
