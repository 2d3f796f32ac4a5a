# SPDX-License-Identifier: Apache-2.0
"""A worker's blocks as VTK has them."""

from __future__ import annotations

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import Piece, pieces


def images(step: Step, *fields: str) -> list[vtkImageData]:
    """The blocks that lie beside this worker, each as an image with these fields at its points, in the units of the data.

    An image goes from its block's first element to the first one of the next block, and no farther: those of all workers fill the
    domain once, so that what is summed up over them is what the whole has. A worker has as many as blocks lie beside it, or none.
    Values are float32 or float64; what is missing is NaN. Where there are levels of refinement, coarse images are there where fine ones
    are.

    Copies the blocks. Reads what their ghosts lack from other servers, and waits for that. `Invalid` for fields that are no grid of 2 or 3
    dimensions, or lie on different ones; `NotFound` for those that the step has not.
    """
    if not fields:
        raise Invalid("images(step): name one field or several")
    return [_image(piece) for piece in pieces(step, fields, None, below=0, above=1)]


def _image(piece: Piece) -> vtkImageData:
    box = piece.box(above=1)
    made = vtkImageData()
    for number, (name, values) in enumerate(piece.values.items()):
        own = np.ascontiguousarray(values[box])
        if number == 0:
            ends = [begin + n - 1 for begin, n in zip(piece.begin, own.shape, strict=True)]
            made.SetExtent([int(end) for axis in (2, 1, 0) for end in (piece.begin[axis], ends[axis])])
            made.SetSpacing(piece.grid.spacing)
            made.SetOrigin(piece.grid.origin)
        array = numpy_to_vtk(own.reshape(-1), deep=True)
        array.SetName(name)
        made.GetPointData().AddArray(array)
        if number == 0:
            made.GetPointData().SetActiveScalars(name)
    return made
