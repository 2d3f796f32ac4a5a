# SPDX-License-Identifier: Apache-2.0
"""What a worker draws of a picture: its triangles, lights, and the edges of the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
from vtkmodules.vtkCommonCore import vtkLookupTable, vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPlane, vtkPolyData
from vtkmodules.vtkRenderingCore import vtkActor, vtkLight, vtkPolyDataMapper, vtkRenderer

from forebay.viz import colors
from forebay.viz.camera import View, corners_of
from forebay.viz.domain import Domain
from forebay.viz.layers import Layer
from forebay.viz.surface import Surface

Array = NDArray[Any]

_LIGHTS = (  # where, seen by the camera; colour; strength
    ((-0.6, 1.0, 0.9), "#fff4e3", 0.75),
    ((0.8, 0.1, 0.9), "#dbe8ff", 0.45),
    ((-0.4, -0.4, 1.0), "#ffffff", 0.35),
    ((0.3, 0.5, -1.0), "#ffffff", 0.3),
)
# vtkOpenGLVertexBufferObject::DISABLE_SHIFT_SCALE, which Python does not have.
_DISABLE_SHIFT_SCALE = 0
_MISSING = (0.55, 0.55, 0.55)
# What lies on a plane that cuts is not cut away by it: so far is the plane moved, in a domain that is 1 long.
_NUDGE = 1e-5
_EDGES = ((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7))


class Scene:
    """The layers of a picture, set up once; each step puts its triangles in."""

    def __init__(self, layers: Sequence[Layer], lines: colors.Rgb) -> None:
        self.renderer = vtkRenderer()
        self.renderer.SetBackground(0, 0, 0)
        self.renderer.SetBackgroundAlpha(0)
        self._layers = [_Drawn(layer) for layer in layers]
        for drawn in self._layers:
            self.renderer.AddActor(drawn.actor)
        # The last one: where it lies on a surface it is seen, whoever has that.
        self._outline = _outline(lines)
        self.renderer.AddActor(self._outline)
        self.renderer.AutomaticLightCreationOff()
        for place, color, strength in _LIGHTS:
            light = vtkLight()
            light.SetLightTypeToCameraLight()
            light.SetPosition(place)
            light.SetFocalPoint(0, 0, 0)
            light.SetColor(colors.rgb(color))
            light.SetIntensity(strength)
            self.renderer.AddLight(light)

    def show(
        self, surfaces: Sequence[Surface], ranges: Sequence[tuple[float, float] | None], domain: Domain
    ) -> None:
        """Puts in what is to be drawn of each layer, in the colours of these values."""
        for drawn, surface, span in zip(self._layers, surfaces, ranges, strict=True):
            drawn.show(surface, span, domain)

    def outline(self, domain: Domain | None, width: float) -> None:
        """Shows the edges of the domain, or none."""
        self._outline.SetVisibility(domain is not None)
        if domain is not None:
            points = vtkPoints()
            points.SetData(numpy_to_vtk(corners_of(*domain.scene_box).astype("f4"), deep=True))
            self._outline.GetMapper().GetInput().SetPoints(points)
            self._outline.GetMapper().GetInput().Modified()
            self._outline.GetProperty().SetLineWidth(width)

    def look(self, view: View) -> None:
        """From here."""
        camera = self.renderer.GetActiveCamera()
        camera.SetPosition(view.eye)
        camera.SetFocalPoint(view.eye - view.back)
        camera.SetViewUp(view.up)
        camera.SetParallelProjection(view.parallel)
        if view.parallel:
            camera.SetParallelScale(view.half)
        else:
            camera.SetViewAngle(2 * math.degrees(math.atan(view.half)))
        camera.SetWindowCenter(*view.center)
        camera.SetClippingRange(view.near, view.far)


class _Drawn:
    """One layer."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._mapper = vtkPolyDataMapper()
        # Each block's points would be moved by another amount, and neighbours would no longer meet.
        self._mapper.SetVBOShiftScaleMethod(_DISABLE_SHIFT_SCALE)
        self._mapper.InterpolateScalarsBeforeMappingOn()
        self._mapper.SetScalarModeToUsePointData()
        self._mapper.SetColorModeToMapScalars()
        self._table = vtkLookupTable()
        self._table.SetNumberOfTableValues(256)
        for i, color in enumerate(colors.table(layer.colors)):
            self._table.SetTableValue(i, *color, 1)
        self._table.SetNanColor(*_MISSING, 1)
        self._mapper.SetLookupTable(self._table)
        self._mapper.UseLookupTableScalarRangeOff()
        self.actor = vtkActor()
        self.actor.SetMapper(self._mapper)
        surface = self.actor.GetProperty()
        surface.SetColor(colors.rgb(layer.tint))
        surface.SetAmbient(1 - 0.85 * layer.light)
        surface.SetDiffuse(0.9 * layer.light)
        surface.SetSpecular(0.25 * layer.light)
        surface.SetSpecularPower(35)
        surface.SetLighting(layer.light > 0)

    def show(self, surface: Surface, span: tuple[float, float] | None, domain: Domain) -> None:
        self.actor.SetVisibility(len(surface.triangles) > 0)
        if not len(surface.triangles):
            self._mapper.SetInputData(vtkPolyData())
            return
        data, points, cells = vtkPolyData(), vtkPoints(), vtkCellArray()
        points.SetData(numpy_to_vtk(np.ascontiguousarray(surface.points, "f4"), deep=True))
        data.SetPoints(points)
        cells.SetData(
            3, numpy_to_vtkIdTypeArray(np.ascontiguousarray(surface.triangles).reshape(-1), deep=True)
        )
        data.SetPolys(cells)
        data.GetPointData().SetNormals(numpy_to_vtk(np.ascontiguousarray(surface.normals, "f4"), deep=True))
        self._mapper.SetScalarVisibility(span is not None)
        if span is not None:
            data.GetPointData().SetScalars(
                numpy_to_vtk(np.ascontiguousarray(surface.values, "f4"), deep=True)
            )
            self._mapper.SetScalarRange(*span)
        self._mapper.SetInputData(data)
        self._mapper.RemoveAllClippingPlanes()
        for plane in self._layer.clip:
            normal = np.asarray(plane.normal, "f8") / np.linalg.norm(plane.normal)
            cutting = vtkPlane()
            cutting.SetNormal(normal)
            cutting.SetOrigin(domain.to_scene(plane.point) - _NUDGE * normal)
            self._mapper.AddClippingPlane(cutting)


def _outline(color: colors.Rgb) -> vtkActor:
    data, lines = vtkPolyData(), vtkCellArray()
    for edge in _EDGES:
        lines.InsertNextCell(2, edge)
    data.SetLines(lines)
    mapper = vtkPolyDataMapper()
    mapper.SetVBOShiftScaleMethod(_DISABLE_SHIFT_SCALE)
    mapper.SetInputData(data)
    actor = vtkActor()
    actor.SetMapper(mapper)
    actor.GetProperty().SetColor(color)
    actor.GetProperty().LightingOff()
    return actor
