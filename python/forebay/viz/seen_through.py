# SPDX-License-Identifier: Apache-2.0
"""What one sees through: a layer for each block, put together in the order in which they stand behind each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid
from forebay._mpi.communicator import Intracomm
from forebay._mpi.compositing import front_to_back
from forebay.viz.camera import View
from forebay.viz.scene import Box

Array = NDArray[Any]

# How many layers are put together at once: so many pictures a worker may hold.
_AT_ONCE = 8


def put_together(
    boxes: list[Box],
    view: View,
    draw: Callable[[Box], Array],
    comm: Intracomm,
    root: int,
    size: tuple[int, int],
) -> Array | None:
    """All layers of all workers as one, at the root: colours, multiplied with alpha; None where there is no layer.

    `boxes` are this worker's, `draw` draws one of them. All workers call it. `Invalid` if boxes overlap, or no order is right.
    """
    mine = np.array(boxes, "f8").reshape(-1, 6)
    counts = np.zeros(comm.Get_size(), "i8")
    comm.Allgather(np.array([len(mine)]), counts)
    every = np.empty((int(counts.sum()), 6))
    comm.Allgatherv(mine, [every, counts * 6])
    if not len(every):
        return None
    order = _order(every, view)
    first = int(counts[: comm.Get_rank()].sum())
    own = {first + number: box for number, box in enumerate(boxes)}
    whole: Array | None = None
    for begin in range(0, len(order), _AT_ONCE):
        batch = enumerate(order[begin : begin + _AT_ONCE])
        layers = [(position, draw(own[number])) for position, number in batch if number in own]
        into = np.zeros((size[1], size[0], 4), "u1")
        comm.Composite_over(layers, into, root)
        if comm.Get_rank() == root:
            whole = into if whole is None else over(whole, into)
    return whole


def _order(boxes: Array, view: View) -> list[int]:
    """From front to back; of boxes in one place the first one first, as all workers see it."""
    corners = [(tuple(box[:3]), tuple(box[3:])) for box in boxes]
    try:
        if view.parallel:
            return front_to_back(corners, direction=tuple(-view.back))
        return front_to_back(corners, eye=tuple(view.eye))
    except Invalid as error:
        raise Invalid(f"blocks of what is seen through have no order: {error}") from None


def over(front: Array, back: Array) -> Array:
    """What is seen of two pictures of 8 bits whose colours are multiplied with alpha."""
    through = 255 - front[..., 3:].astype("u2")
    return np.asarray(front + (back * through + 127) // 255, "u1")
