# SPDX-License-Identifier: Apache-2.0
"""Particles as spheres."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._step import Block, Step
from forebay.viz.blocks import block_of
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Spheres
from forebay.viz.parts import Balls, Part

Array = NDArray[Any]


def spheres(layer: Spheres, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The particles that this worker has, without ghosts: those are others' own."""
    parts = []
    for block in places_of(layer, step):
        points = domain.to_scene(block.interior)
        values = np.full(len(points), np.nan, "f4")
        if layer.color is not None:
            values = _numbers(block_of(step, layer.color, block).interior, len(points), layer)
        seen = np.isfinite(points).all(axis=1)
        balls = Balls(points[seen].astype("f4"), layer.radius * domain.scale, values[seen])
        parts.append(Part(points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf), balls))
    return parts


def places_of(layer: Spheres, step: Step) -> list[Block]:
    """The blocks, beside this worker, of where the particles are."""
    blocks = step.blocks(layer.places_field)
    for block in blocks:
        if block.data.ndim != 2 or block.data.shape[1] != 3:
            raise Invalid(
                f"field '{layer.places_field}' has elements of shape {block.data.shape[1:]}: places have x, y and z"
            )
    return blocks


def _numbers(values: Array, count: int, layer: Spheres) -> Array:
    """One for each particle: of a vector its length."""
    if len(values) != count:
        raise Invalid(
            f"field '{layer.color}' has {len(values)} particles where '{layer.places_field}' has {count}"
        )
    if values.ndim > 1:
        values = np.linalg.norm(values.astype("f8").reshape(count, -1), axis=1)
    return values.astype("f4")
