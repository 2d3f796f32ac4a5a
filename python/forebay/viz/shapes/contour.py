# SPDX-License-Identifier: Apache-2.0
"""Surfaces of equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D

from forebay._errors import Invalid
from forebay._step import Step
from forebay.viz.blocks import Piece, pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Contour
from forebay.viz.parts import Part
from forebay.viz.surface import Surface, unit

Array = NDArray[Any]


def contour(layer: Contour, step: Step, domain: Domain, facts: Facts) -> list[Part]:
    """The surfaces within this worker's blocks, each from its first element to the first of its neighbour.

    Flying edges (Schroeder, Maynard and Geveci, 2015). A normal is the slope of the field, by central differences, which need one
    element more on each side: so neighbours compute the same ones on their seam.
    """
    field = step.field(layer.field)
    if len(field.shape or ()) != 3:
        raise Invalid(f"field '{layer.field}' has {field.ndim} dimensions: a contour needs 3")
    found = pieces(step, layer.fields, domain, below=1, above=2)
    return [Part.of(piece, _within(piece, layer, facts.side)) for piece in found]


def _within(piece: Piece, layer: Contour, side: int) -> Surface:
    box, values = piece.box(above=1), piece.values[layer.field]
    inner = values[box]
    first = np.array(piece.begin)
    last = first + inner.shape - 1
    if min(inner.shape) < 2:
        return Surface.empty()
    # A layer around the domain that is far outside makes the lids.
    lids = [(0, 0)] * 3
    if layer.closed:
        edges = zip(first, last, piece.grid.shape, strict=True)
        lids = [(int(begin == 0), int(end == extent - 1)) for begin, end, extent in edges]
    image = vtkImageData()
    # Counted from the whole array's origin, so that blocks compute the very same points on their seams.
    low, high = first - [lid[0] for lid in lids], last + [lid[1] for lid in lids]
    image.SetExtent([int(end) for axis in (2, 1, 0) for end in (low[axis], high[axis])])
    image.SetSpacing(piece.grid.spacing)
    image.SetOrigin(piece.grid.origin)
    finite = np.abs(inner[np.isfinite(inner)])
    far = side * 1e4 * ((finite.max() if finite.size else 0) + max(map(abs, layer.each)) + 1)
    _attach(image, "values", np.pad(inner, lids, constant_values=far))
    _attach(image, "slopes", *(np.pad(slope, lids, "edge") for slope in _slopes(values, box, piece)))
    if layer.color is not None:
        _attach(image, "colors", np.pad(piece.values[layer.color][box], lids, "edge"))
    cut = _cut(image, layer)
    if cut.GetNumberOfPolys() == 0:
        return Surface.empty()
    arrays = cut.GetPointData()
    points = vtk_to_numpy(cut.GetPoints().GetData())
    colors = arrays.GetArray("colors")
    surface = Surface(
        points=points,
        normals=unit(side * vtk_to_numpy(arrays.GetArray("slopes"))),
        values=np.full(len(points), np.nan, "f4") if colors is None else vtk_to_numpy(colors),
        triangles=vtk_to_numpy(cut.GetPolys().GetConnectivityArray()).reshape(-1, 3).astype("i8")[:, ::-side],
    ).finite()
    return _with_lids(surface, piece) if layer.closed else surface


def _slopes(values: Array, box: tuple[slice, ...], piece: Piece) -> list[Array]:
    """Along x, y and z."""
    with np.errstate(invalid="ignore", over="ignore"):
        return [
            np.gradient(values, spacing, axis=axis)[box]
            for axis, spacing in zip((2, 1, 0), piece.grid.spacing, strict=True)
        ]


def _attach(image: vtkImageData, name: str, *components: Array) -> None:
    values = np.ascontiguousarray(np.stack(components, axis=-1)).reshape(-1, len(components))
    array = numpy_to_vtk(values, deep=True)
    array.SetName(name)
    image.GetPointData().AddArray(array)


def _cut(image: vtkImageData, layer: Contour) -> Any:
    cutter = vtkFlyingEdges3D()
    cutter.SetInputData(image)
    cutter.SetInputArrayToProcess(0, 0, 0, 0, "values")
    cutter.ComputeNormalsOff()
    cutter.ComputeScalarsOff()
    cutter.InterpolateAttributesOn()
    for i, value in enumerate(layer.each):
        cutter.SetValue(i, value)
    cutter.Update()
    return cutter.GetOutput()


def _with_lids(surface: Surface, piece: Piece) -> Surface:
    """Moves the lids onto the faces of the domain, and gives them points of their own with the face's normal: a sharp rim."""
    ends = piece.grid.places(0), piece.grid.places(np.array(piece.grid.shape[::-1]) - 1)
    low, high = (np.asarray(end, "f4") for end in ends)
    surface.points = surface.points.clip(low, high)
    parts = []
    for axis in range(3):
        for face, side in ((low, -1), (high, 1)):
            near = np.abs(surface.points[:, axis] - face[axis]) < 1e-3 * abs(piece.grid.spacing[axis])
            lid = near[surface.triangles].all(axis=1)
            corners = surface.triangles[lid].reshape(-1)
            normals = np.zeros((len(corners), 3), "f4")
            normals[:, axis] = side
            triangles = np.arange(len(corners)).reshape(-1, 3)
            parts.append(Surface(surface.points[corners], normals, surface.values[corners], triangles))
            surface.triangles = surface.triangles[~lid]
    return Surface.join([surface, *parts])
