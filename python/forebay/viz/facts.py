# SPDX-License-Identifier: Apache-2.0
"""What workers must agree on before they draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forebay._mpi.communicator import Intracomm
from forebay._mpi.constants import IN_PLACE
from forebay._mpi.operations import MAX, SUM
from forebay._step import Step
from forebay.viz.layers import Arrows, Contour, Layer


@dataclass(frozen=True)
class Facts:
    """Of one layer, the same on all workers."""

    comm: Intracomm
    """All who draw it."""
    side: int
    """Of a contour: whether most of the domain lies above its first value (1) or below it (-1)."""
    longest: float
    """Of arrows: the length of the longest vector, at this and all earlier steps."""


def agree(layers: list[Layer], step: Step, comm: Intracomm, longest: np.ndarray) -> list[Facts]:
    """The facts of all layers. `longest` are those of earlier steps, which are replaced."""
    counts = np.zeros((len(layers), 2), "i8")
    for number, layer in enumerate(layers):
        if not set(layer.fields) <= set(step.fields):
            continue
        if isinstance(layer, Contour):
            for block in step.blocks(layer.field):
                counts[number] += int((block.interior > layer.each[0]).sum()), block.interior.size
        elif isinstance(layer, Arrows):
            longest[number] = max(longest[number], _longest(layer, step))
    comm.Allreduce(IN_PLACE, counts, SUM)
    comm.Allreduce(IN_PLACE, longest, MAX)
    sides = [1 if 2 * above >= every else -1 for above, every in counts]
    return [Facts(comm, side, float(length)) for side, length in zip(sides, longest, strict=True)]


def _longest(layer: Arrows, step: Step) -> float:
    """The longest vector of this worker's blocks."""
    parts = [{block.offset: block.interior for block in step.blocks(name)} for name in layer.vector]
    found = 0.0
    for place in parts[0].keys() & parts[1].keys() & parts[2].keys():
        square = sum(part[place].astype("f8") ** 2 for part in parts)
        lengths = np.sqrt(square[np.isfinite(square)]) if isinstance(square, np.ndarray) else np.zeros(0)
        found = max(found, float(lengths.max(initial=0.0)))
    return found
