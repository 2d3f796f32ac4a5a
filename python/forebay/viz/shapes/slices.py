# SPDX-License-Identifier: Apache-2.0
"""Planes through a field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPlane
from vtkmodules.vtkFiltersCore import vtkFlyingEdgesPlaneCutter

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import Piece, pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Plane, Slice
from forebay.viz.parts import Part
from forebay.viz.surface import Surface

Array = NDArray[Any]


def slices(layer: Slice, step: Step, domain: Domain, _facts: Facts) -> list[Part]:
    """The plane within this worker's blocks: across an axis linear between two layers of elements, else by a cutter."""
    field = step.field(layer.field)
    dimensions = len(field.shape or ())
    if dimensions not in (2, 3):
        raise Invalid(f"field '{layer.field}' has {field.ndim} dimensions: a slice needs 2 or 3")
    assert layer.color is not None
    parts = []
    for piece in pieces(step, layer.fields, domain, below=0, above=1):
        values = piece.values[layer.color]
        if layer.plane is not None and dimensions == 3:
            parts.append(Part.of(piece, across(piece, values, layer.plane, domain)))
            continue
        axis = "xyz".index(layer.axis) if dimensions == 3 else 2
        parts.append(Part.of(piece, across_axis(piece, values, axis, _place(layer.at, axis, domain))))
    return parts


def _place(at: float | None, axis: int, domain: Domain) -> float:
    """Where it lies, in the scene."""
    middle = (domain.low + domain.high) / 2
    if at is not None:
        middle[axis] = at
    return float(domain.to_scene(middle)[axis])


def across_axis(piece: Piece, values: Array, axis: int, at: float, normal: int = 1) -> Surface:
    """The part of a plane across an axis that lies in a block: only one block has it, though two may touch it."""
    own = values[piece.box(above=1)]
    dimension = 2 - axis
    index = (at - piece.grid.origin[axis]) / piece.grid.spacing[axis]
    extent = piece.grid.shape[dimension]
    # Places at the end of the domain may be off by a rounding.
    index = min(max(index, 0.0), extent - 1.0) if -1e-6 < index < extent - 1 + 1e-6 else index
    layer = min(int(np.floor(index)), max(extent - 2, 0))
    if not 0 <= index <= extent - 1 or not piece.begin[dimension] <= layer < piece.end[dimension]:
        return Surface.empty()
    part = index - layer
    low = np.take(own, layer - piece.begin[dimension], dimension)
    high = np.take(own, min(layer - piece.begin[dimension] + 1, own.shape[dimension] - 1), dimension)
    with np.errstate(invalid="ignore"):  # between infinities there is no number
        plane = low if part == 0 else low * (1 - part) + high * part
    return _sheet(piece, plane, axis, at, normal)


def _sheet(piece: Piece, plane: Array, axis: int, at: float, normal: int) -> Surface:
    """Values of a plane as triangles: its dimensions are two of z, y, x."""
    if min(plane.shape) < 2:
        return Surface.empty()
    rows, columns = (other for other in (2, 1, 0) if other != axis)
    points = np.empty((*plane.shape, 3), "f8")
    points[..., axis] = at
    for place, along in ((0, rows), (1, columns)):
        first = piece.begin[2 - along]
        index = first + np.arange(plane.shape[place])
        line = piece.grid.origin[along] + index * piece.grid.spacing[along]
        points[..., along] = line[:, None] if place == 0 else line
    normals = np.zeros((plane.size, 3), "f4")
    normals[:, axis] = normal
    number = np.arange(plane.size).reshape(plane.shape)
    corners = number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]
    a, b, c, d = (corner.reshape(-1) for corner in corners)
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    sheet = Surface(points.reshape(-1, 3).astype("f4"), normals, plane.reshape(-1), triangles)
    return sheet.oriented()


def across(piece: Piece, values: Array, plane: Plane, domain: Domain) -> Surface:
    """The part of a plane that lies in a block."""
    own = values[piece.box(above=1)]
    if min(own.shape) < 2:
        return Surface.empty()
    image = vtkImageData()
    ends = [begin + n - 1 for begin, n in zip(piece.begin, own.shape, strict=True)]
    image.SetExtent([int(end) for axis in (2, 1, 0) for end in (piece.begin[axis], ends[axis])])
    image.SetSpacing(piece.grid.spacing)
    image.SetOrigin(piece.grid.origin)
    array = numpy_to_vtk(np.ascontiguousarray(own).reshape(-1), deep=True)
    array.SetName("values")
    image.GetPointData().SetScalars(array)
    flat, normal = vtkPlane(), np.asarray(plane.normal, "f8") / np.linalg.norm(plane.normal)
    flat.SetNormal(normal)
    flat.SetOrigin(domain.to_scene(plane.point))
    cutter = vtkFlyingEdgesPlaneCutter()
    cutter.SetInputData(image)
    cutter.SetPlane(flat)
    cutter.ComputeNormalsOff()
    cutter.Update()
    found = cutter.GetOutput()
    if found.GetNumberOfPolys() == 0:
        return Surface.empty()
    points = vtk_to_numpy(found.GetPoints().GetData())
    return Surface(
        points,
        np.repeat(normal[None].astype("f4"), len(points), axis=0),
        vtk_to_numpy(found.GetPointData().GetScalars()),
        vtk_to_numpy(found.GetPolys().GetConnectivityArray()).reshape(-1, 3).astype("i8"),
    ).oriented()
