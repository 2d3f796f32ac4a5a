# SPDX-License-Identifier: Apache-2.0
"""What a layer gives to be drawn of one block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.viz.blocks import Piece
from forebay.viz.surface import Surface

Array = NDArray[Any]


@dataclass
class Solid:
    """Values that fill a box, one at each of its points."""

    values: Array
    """As z, y, x."""
    origin: Array
    spacing: Array
    """Both as x, y, z, in the scene."""


@dataclass
class Balls:
    """Spheres of one size."""

    points: Array
    """(n, 3), float32, in the scene."""
    radius: float
    values: Array
    """(n,), float32 or float64: of the field that colours them."""
    light: Array | None = None
    """(n,), float32: how much comes to each, from 0 to 1; all of it by default."""

    @classmethod
    def join(cls, several: Sequence[Balls]) -> Balls:
        """All as one: all or none of them are lit."""
        points = [np.zeros((0, 3), "f4"), *(some.points for some in several)]
        values = [np.zeros(0, "f4"), *(some.values for some in several)]
        lights = [some.light for some in several if some.light is not None]
        return cls(
            np.concatenate(points),
            several[0].radius if several else 1.0,
            np.concatenate(values),
            np.concatenate(lights) if lights else None,
        )


@dataclass
class Part:
    """What is in a box, and in none of the others: so it is known what is seen before what."""

    low: Array
    high: Array
    shape: Surface | Solid | Balls

    @classmethod
    def of(cls, piece: Piece, shape: Surface | Solid | Balls) -> Part:
        """From a block's first element to the first of its neighbour."""
        last = [min(end, extent - 1) for end, extent in zip(piece.end, piece.grid.shape, strict=True)]
        ends = piece.grid.places(piece.begin[::-1]), piece.grid.places(last[::-1])
        return cls(np.minimum(*ends), np.maximum(*ends), shape)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see."""
        match self.shape:
            case Surface():
                return not len(self.shape.triangles)
            case Balls():
                return not len(self.shape.points)
        return False
