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
from forebay.viz.occlusion import light_of
from forebay.viz.parts import Balls, Part

Array = NDArray[Any]


def spheres(layer: Spheres, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The particles that this worker has, without ghosts: those are others' own."""
    parts = []
    for block in places_of(layer, step):
        values = np.full(block.shape[0], np.nan, "f4")
        if layer.color is not None:
            values = _numbers(block_of(step, layer.color, block).interior, block.shape[0], layer)
        seen = _seen(layer, block.interior)
        points = domain.to_scene(block.interior[seen])
        balls = Balls(points.astype("f4"), layer.radius * domain.scale, values[seen], _light(layer, block))
        parts.append(Part(points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf), balls))
    return parts


def _seen(layer: Spheres, places: Array) -> Array:
    """Which are somewhere, and not cut away: a sphere is cut away as a whole, with its middle."""
    seen = np.isfinite(places).all(axis=1)
    for plane in layer.clip:
        normal = np.asarray(plane.normal, "f8")
        seen &= (places - np.asarray(plane.point, "f8")) @ normal >= 0
    return np.asarray(seen)


def _light(layer: Spheres, block: Block) -> Array | None:
    """How much light comes to each that is seen, between those that are: ghosts are behind the borders."""
    if layer.reach == 0:
        return None
    seen, first = _seen(layer, block.data), block.ghost_low[0]
    light = np.ones(len(block.data), "f4")
    light[seen] = light_of(block.data[seen], layer.radius, layer.reach)
    return light[first : first + block.shape[0]][seen[first : first + block.shape[0]]]


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
    return values.astype("f8")
