# SPDX-License-Identifier: Apache-2.0
"""What VTK draws: one thing for each layer, set up once."""

from __future__ import annotations

from typing import Any

import numpy as np
import vtkmodules.vtkRenderingVolumeOpenGL2  # noqa: F401 - VTK finds its implementations by such imports
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
from vtkmodules.vtkCommonCore import vtkLookupTable, vtkPoints
from vtkmodules.vtkCommonDataModel import (
    vtkCellArray,
    vtkImageData,
    vtkPiecewiseFunction,
    vtkPlane,
    vtkPolyData,
)
from vtkmodules.vtkRenderingCore import vtkActor, vtkColorTransferFunction, vtkPolyDataMapper, vtkVolume
from vtkmodules.vtkRenderingOpenGL2 import vtkOpenGLSphereMapper
from vtkmodules.vtkRenderingVolume import vtkGPUVolumeRayCastMapper

from forebay.viz import colors
from forebay.viz.domain import Domain
from forebay.viz.layers import Layer, Volume
from forebay.viz.parts import Balls, Solid
from forebay.viz.surface import Surface

Array = NDArray[Any]
Span = tuple[float, float] | None
"""The values at the two ends of a layer's colours."""

# vtkOpenGLVertexBufferObject::DISABLE_SHIFT_SCALE, which Python does not have.
DISABLE_SHIFT_SCALE = 0
_MISSING = (0.55, 0.55, 0.55)
# What lies on a plane that cuts is not cut away by it: so far is the plane moved, in a domain that is 1 long.
_NUDGE = 1e-5
# The distance that a volume's density is told for, and between two places where it is looked at, in elements.
_UNIT = 0.01
_SAMPLES = 0.5


class SurfaceProp:
    """A layer of triangles."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._mapper = vtkPolyDataMapper()
        # Each block's points would be moved by another amount, and neighbours would no longer meet.
        self._mapper.SetVBOShiftScaleMethod(DISABLE_SHIFT_SCALE)
        self._mapper.InterpolateScalarsBeforeMappingOn()
        self.prop = vtkActor()
        self.prop.SetMapper(self._mapper)
        set_colors(self._mapper, self.prop, layer)

    def show(self, surface: Surface, span: Span, domain: Domain) -> None:
        """Shows these, in the colours of these values."""
        self.prop.SetVisibility(len(surface.triangles) > 0)
        if not len(surface.triangles):
            self._mapper.SetInputData(vtkPolyData())
            return
        data, cells = _points(surface.points), vtkCellArray()
        cells.SetData(
            3, numpy_to_vtkIdTypeArray(np.ascontiguousarray(surface.triangles).reshape(-1), deep=True)
        )
        data.SetPolys(cells)
        data.GetPointData().SetNormals(numpy_to_vtk(np.ascontiguousarray(surface.normals, "f4"), deep=True))
        self._mapper.SetScalarVisibility(span is not None)
        if span is not None:
            data.GetPointData().SetScalars(numpy_to_vtk(_shares(surface.values, span), deep=True))
        self._mapper.SetInputData(data)
        set_planes(self._mapper, self._layer, domain)


class SpheresProp:
    """A layer of spheres."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._mapper = vtkOpenGLSphereMapper()
        self._mapper.SetVBOShiftScaleMethod(DISABLE_SHIFT_SCALE)
        self.prop = vtkActor()
        self.prop.SetMapper(self._mapper)
        set_colors(self._mapper, self.prop, layer)

    def show(self, balls: Balls, span: Span) -> None:
        """Shows these, in the colours of these values."""
        self.prop.SetVisibility(len(balls.points) > 0)
        data, cells = _points(balls.points), vtkCellArray()
        count = len(balls.points)
        cells.SetData(1, numpy_to_vtkIdTypeArray(np.arange(count, dtype="i8"), deep=True))
        data.SetVerts(cells)
        self._mapper.SetScalarVisibility(span is not None or balls.light is not None)
        if balls.light is not None:
            shades = numpy_to_vtk(_shaded(self._layer, balls.values, balls.light, span), deep=True)
            data.GetPointData().SetScalars(shades)
            self._mapper.SetColorModeToDirectScalars()
        elif span is not None:
            data.GetPointData().SetScalars(numpy_to_vtk(_shares(balls.values, span), deep=True))
        self._mapper.SetRadius(balls.radius)
        self._mapper.SetInputData(data)


class VolumeProp:
    """A layer that is a cloud."""

    def __init__(self, layer: Volume) -> None:
        self._layer = layer
        self._mapper = vtkGPUVolumeRayCastMapper()
        # Where it is looked at must not depend on how long that takes, nor on chance.
        self._mapper.AutoAdjustSampleDistancesOff()
        self._mapper.UseJitteringOff()
        self.prop = vtkVolume()
        self.prop.SetMapper(self._mapper)
        cloud = self.prop.GetProperty()
        cloud.ShadeOff()
        cloud.SetInterpolationTypeToLinear()
        cloud.SetScalarOpacityUnitDistance(_UNIT)
        map_, densities = colors.table(layer.colors), vtkPiecewiseFunction()
        shades = vtkColorTransferFunction()
        for value, color in zip(np.linspace(0, 1, len(map_)), map_, strict=True):
            shades.AddRGBPoint(value, *color)
        for value, density in zip(np.linspace(0, 1, len(layer.density)), layer.density, strict=True):
            densities.AddPoint(value, density * layer.opacity)
        cloud.SetColor(shades)
        cloud.SetScalarOpacity(densities)

    def show(self, solid: Solid | None, span: Span, domain: Domain) -> None:
        """Shows this one, or nothing."""
        self.prop.SetVisibility(solid is not None)
        if solid is None:
            return
        shares = np.nan_to_num(_shares(solid.values, span or (0.0, 1.0)), nan=0.0)
        image = vtkImageData()
        image.SetDimensions(*shares.shape[::-1])
        image.SetSpacing(solid.spacing)
        image.SetOrigin(solid.origin)
        image.GetPointData().SetScalars(numpy_to_vtk(shares.reshape(-1), deep=True))
        self._mapper.SetInputData(image)
        self._mapper.SetSampleDistance(_SAMPLES * float(np.abs(solid.spacing).min()))
        set_planes(self._mapper, self._layer, domain)


def set_planes(mapper: Any, layer: Layer, domain: Domain) -> None:
    """Cuts away what lies on the other sides of a layer's planes."""
    mapper.RemoveAllClippingPlanes()
    for plane in layer.clip:
        normal = np.asarray(plane.normal, "f8") / np.linalg.norm(plane.normal)
        cutting = vtkPlane()
        cutting.SetNormal(normal)
        cutting.SetOrigin(domain.to_scene(plane.point) - _NUDGE * normal)
        mapper.AddClippingPlane(cutting)


def set_colors(mapper: Any, actor: vtkActor, layer: Layer) -> None:
    """How values become colours, and how light falls on them."""
    mapper.SetScalarModeToUsePointData()
    mapper.SetColorModeToMapScalars()
    table = vtkLookupTable()
    table.SetNumberOfTableValues(256)
    for i, color in enumerate(colors.table(layer.colors)):
        table.SetTableValue(i, *color, 1)
    table.SetNanColor(*_MISSING, 1)
    mapper.SetLookupTable(table)
    mapper.UseLookupTableScalarRangeOff()
    mapper.SetScalarRange(0, 1)
    surface = actor.GetProperty()
    surface.SetColor(colors.rgb(layer.tint))
    surface.SetAmbient(1 - 0.85 * layer.light)
    surface.SetDiffuse(0.9 * layer.light)
    surface.SetSpecular(0.25 * layer.light)
    surface.SetSpecularPower(35)
    surface.SetLighting(layer.light > 0)
    surface.SetOpacity(layer.opacity)


def _shares(values: Array, span: tuple[float, float]) -> Array:
    """Where values lie between two, from 0 to 1, as float32: what that cannot tell apart, as a pressure's small changes, is so."""
    low, high = span
    with np.errstate(invalid="ignore", over="ignore"):
        return ((values.astype("f8") - low) / (high - low)).clip(0, 1).astype("f4")


def _shaded(layer: Layer, values: Array, light: Array, span: Span) -> Array:
    """Colours of so much light, (n, 3) in 8 bits."""
    if span is None:
        found = np.broadcast_to(np.array(colors.rgb(layer.tint)), (len(values), 3))
    else:
        shares = np.rint(255 * np.nan_to_num(_shares(values, span), nan=0.0)).astype("i8")
        found = np.where(np.isnan(values)[:, None], _MISSING, colors.table(layer.colors)[shares])
    return np.asarray(np.rint(255 * found * light[:, None]), "u1")


def _points(places: Array) -> vtkPolyData:
    data, points = vtkPolyData(), vtkPoints()
    points.SetData(numpy_to_vtk(np.ascontiguousarray(places, "f4"), deep=True))
    data.SetPoints(points)
    return data
