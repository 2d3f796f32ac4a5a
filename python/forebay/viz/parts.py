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
class Part:
    """What is in a box, and in none of the others: so it is known what is seen before what."""

    low: Array
    high: Array
    shape: Surface | Solid

    @classmethod
    def of(cls, piece: Piece, shape: Surface | Solid) -> Part:
        """From a block's first element to the first of its neighbour."""
        last = [min(end, extent - 1) for end, extent in zip(piece.end, piece.grid.shape, strict=True)]
        ends = piece.grid.places(piece.begin[::-1]), piece.grid.places(last[::-1])
        return cls(np.minimum(*ends), np.maximum(*ends), shape)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see."""
        return isinstance(self.shape, Surface) and not len(self.shape.triangles)


def joined(parts: Sequence[Part]) -> Surface:
    """The surfaces of all parts as one."""
    return Surface.join([part.shape for part in parts if isinstance(part.shape, Surface)])
