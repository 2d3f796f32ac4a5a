# SPDX-License-Identifier: Apache-2.0
"""What a worker draws of a picture: its layers, lights, and the edges of the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkRenderingCore import vtkActor, vtkLight, vtkPolyDataMapper, vtkRenderer

from forebay.viz import colors
from forebay.viz.camera import View, corners_of
from forebay.viz.domain import Domain
from forebay.viz.layers import Layer, Spheres, Volume
from forebay.viz.parts import Balls, Part, Solid
from forebay.viz.props import DISABLE_SHIFT_SCALE, Span, SpheresProp, SurfaceProp, VolumeProp
from forebay.viz.surface import Surface

Array = NDArray[Any]
Box = tuple[tuple[float, float, float], tuple[float, float, float]]
"""The lowest and the highest corner, in the scene."""

_LIGHTS = (  # where, seen by the camera; colour; strength
    ((-0.6, 1.0, 0.9), "#fff4e3", 0.75),
    ((0.8, 0.1, 0.9), "#dbe8ff", 0.45),
    ((-0.4, -0.4, 1.0), "#ffffff", 0.35),
    ((0.3, 0.5, -1.0), "#ffffff", 0.3),
)
_EDGES = ((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7))
# How much larger than the domain its edges are drawn: they stand before what fills it.
_OUTSIDE = 1.002
# How many surfaces behind each other are seen through each other within one block.
_PEELS = 64


class Scene:
    """The layers of a picture, set up once; each step puts in what is to be drawn."""

    def __init__(self, layers: Sequence[Layer], lines: colors.Rgb) -> None:
        self.renderer = vtkRenderer()
        self.renderer.SetBackground(0, 0, 0)
        self.renderer.SetBackgroundAlpha(0)
        self.renderer.SetUseDepthPeeling(any(layer.is_seen_through for layer in layers))
        self.renderer.SetUseDepthPeelingForVolumes(any(isinstance(layer, Volume) for layer in layers))
        self.renderer.SetMaximumNumberOfPeels(_PEELS)
        self.renderer.SetOcclusionRatio(0)
        self._layers = layers
        self._props = [_prop(layer) for layer in layers]
        for prop in self._props:
            self.renderer.AddViewProp(prop.prop)
        self._parts: list[list[Part]] = [[] for _ in layers]
        self._spans: list[Span] = [None for _ in layers]
        self._is_shown = False
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

    def put(self, parts: Sequence[list[Part]], spans: Sequence[Span]) -> None:
        """What there is of each layer at a step, in the colours of these values."""
        self._parts, self._spans, self._is_shown = list(parts), list(spans), False

    def show_opaque(self, domain: Domain, outline: float | None) -> None:
        """Shows what hides what is behind it, and the edges of the domain in lines of this width."""
        self.renderer.PreserveDepthBufferOff()
        shown = zip(self._layers, self._props, self._parts, self._spans, strict=True)
        # Other cameras look at what is there already.
        for layer, prop, parts, span in () if self._is_shown else shown:
            _show(prop, [] if layer.is_seen_through else [part.shape for part in parts], span, domain)
        self._is_shown = True
        self._outline.SetVisibility(outline is not None)
        if outline is not None:
            points = vtkPoints()
            corners = corners_of(*domain.scene_box) * _OUTSIDE
            points.SetData(numpy_to_vtk(corners.astype("f4"), deep=True))
            self._outline.GetMapper().GetInput().SetPoints(points)
            self._outline.GetMapper().GetInput().Modified()
            self._outline.GetProperty().SetLineWidth(outline)

    def boxes(self) -> list[Box]:
        """The boxes in which this worker has something that is seen through."""
        shown = zip(self._layers, self._parts, strict=True)
        return list(
            dict.fromkeys(_box(part) for layer, parts in shown if layer.is_seen_through for part in parts)
        )

    def show_box(self, box: Box, domain: Domain) -> None:
        """Shows what one sees through in this box, and nothing else, before the depths that the window has."""
        self.renderer.PreserveDepthBufferOn()
        self._outline.SetVisibility(False)
        self._is_shown = False
        for layer, prop, parts, span in zip(self._layers, self._props, self._parts, self._spans, strict=True):
            here = [part.shape for part in parts if layer.is_seen_through and _box(part) == box]
            _show(prop, here, span, domain)

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


def _prop(layer: Layer) -> SurfaceProp | SpheresProp | VolumeProp:
    match layer:
        case Volume():
            return VolumeProp(layer)
        case Spheres():
            return SpheresProp(layer)
    return SurfaceProp(layer)


def _show(
    prop: SurfaceProp | SpheresProp | VolumeProp,
    shapes: Sequence[Surface | Solid | Balls],
    span: Span,
    domain: Domain,
) -> None:
    """Shows all of these."""
    match prop:
        case VolumeProp():
            # There is one in a box.
            prop.show(next((shape for shape in shapes if isinstance(shape, Solid)), None), span, domain)
        case SpheresProp():
            prop.show(Balls.join([shape for shape in shapes if isinstance(shape, Balls)]), span)
        case SurfaceProp():
            prop.show(Surface.join([shape for shape in shapes if isinstance(shape, Surface)]), span, domain)


def _box(part: Part) -> Box:
    return tuple(map(float, part.low)), tuple(map(float, part.high))  # type: ignore[return-value]


def _outline(color: colors.Rgb) -> vtkActor:
    data, lines = vtkPolyData(), vtkCellArray()
    for edge in _EDGES:
        lines.InsertNextCell(2, edge)
    data.SetLines(lines)
    mapper = vtkPolyDataMapper()
    mapper.SetVBOShiftScaleMethod(DISABLE_SHIFT_SCALE)
    mapper.SetInputData(data)
    actor = vtkActor()
    actor.SetMapper(mapper)
    actor.GetProperty().SetColor(color)
    actor.GetProperty().LightingOff()
    return actor
