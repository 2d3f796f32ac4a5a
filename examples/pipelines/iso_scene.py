# SPDX-License-Identifier: Apache-2.0
"""Draws a surface into a picture, off screen."""

import ctypes.util
import itertools
import os
from types import SimpleNamespace

import numpy as np
import vtkmodules.vtkRenderingFreeType  # VTK finds its implementations by such imports
import vtkmodules.vtkRenderingOpenGL2  # noqa: F401
from iso_surface import Grid, Surface
from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
from vtkmodules.vtkCommonCore import vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkFiltersSources import vtkOutlineSource
from vtkmodules.vtkIOImage import vtkPNGWriter
from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkColorTransferFunction,
    vtkLight,
    vtkPolyDataMapper,
    vtkRenderer,
    vtkRenderWindow,
    vtkTextActor,
    vtkWindowToImageFilter,
)

COLORS = ("#2b3f8c", "#2f8fc4", "#63d2b4", "#f7efb2", "#f79256")
BACKGROUND = ("#0d121b", "#263143")
LIGHTS = (  # where, seen by the camera; colour; strength
    ((-0.6, 1.0, 0.9), "#fff4e3", 0.75),
    ((0.8, 0.1, 0.9), "#dbe8ff", 0.45),
    ((-0.4, -0.4, 1.0), "#ffffff", 0.35),
    ((0.3, 0.5, -1.0), "#ffffff", 0.3),
)


class Scene:
    """A window that nobody sees, set up once; each step puts its surface in."""

    def __init__(self, config, grid, label, legend=True):
        self.config = config
        self.legend = legend
        self.grid = grid
        self.bounds = np.stack([grid.low, grid.high], axis=1).reshape(-1)
        self.palette = vtkColorTransferFunction()
        self.palette.SetColorSpaceToLab()
        self.mapper = vtkPolyDataMapper()
        self.renderer = vtkRenderer()
        self.window = hidden_window()
        self.window.SetMultiSamples(8)
        self.window.SetSize(config.get("width", 1200), config.get("height", 900))
        self.window.AddRenderer(self.renderer)
        bottom, top = config.get("background", BACKGROUND)
        dark = sum(rgb(bottom)) < 1.5
        self.ink, self.lines = rgb("#dfe5ee" if dark else "#2a3038"), rgb("#aeb9cb" if dark else "#6b7480")
        self.renderer.GradientBackgroundOn()
        self.renderer.SetBackground(rgb(bottom))
        self.renderer.SetBackground2(rgb(top))
        self._add_surface()
        self._add_outline()
        self._add_text(label)
        self._add_lights()

    def _add_surface(self):
        actor = vtkActor()
        actor.SetMapper(self.mapper)
        surface = actor.GetProperty()
        surface.SetAmbient(0.15)
        surface.SetDiffuse(0.9)
        surface.SetSpecular(0.25)
        surface.SetSpecularPower(35)
        self.renderer.AddActor(actor)

    def _add_outline(self):
        box = vtkOutlineSource()
        box.SetBounds(self.bounds)
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(box.GetOutputPort())
        actor = vtkActor()
        actor.SetMapper(mapper)
        actor.GetProperty().SetColor(self.lines)
        actor.GetProperty().SetLineWidth(1.2)
        actor.GetProperty().LightingOff()
        self.renderer.AddActor(actor)

    def _add_text(self, label):
        """The caption at the bottom left, the colours and what they mean at the bottom right."""
        width, height = self.window.GetSize()
        margin, bar_width = 0.03 * height, 0.24 * width
        left = width - margin - bar_width
        self.caption = self._write_at(margin, margin, height // 36)
        if not self.legend:
            self._write_at(width - margin, margin, height // 40, "right").SetInput(label)
            return
        self._write_at(left, 0.1 * height, height // 40).SetInput(label)
        self.ticks = [
            self._write_at(left, margin, height // 48, "left"),
            self._write_at(left + bar_width / 2, margin, height // 48, "center"),
            self._write_at(left + bar_width, margin, height // 48, "right"),
        ]
        bar = vtkScalarBarActor()
        bar.SetLookupTable(self.palette)
        bar.SetMaximumNumberOfColors(256)
        bar.DrawTickLabelsOff()  # it places them anew in each picture
        bar.SetOrientationToHorizontal()
        bar.SetBarRatio(1)
        bar.SetPosition(left / width, 0.062)
        bar.SetWidth(bar_width / width)
        bar.SetHeight(0.025)
        self.renderer.AddViewProp(bar)

    def _write_at(self, x, y, size, justified="left"):
        text = vtkTextActor()
        text.SetPosition(x, y)
        style = text.GetTextProperty()
        style.SetFontFamilyToArial()
        style.SetFontSize(size)
        style.SetColor(self.ink)
        style.SetLineSpacing(1.25)
        style.SetJustification(("left", "center", "right").index(justified))
        self.renderer.AddViewProp(text)
        return text

    def _add_lights(self):
        for place, color, strength in LIGHTS:
            light = vtkLight()
            light.SetLightTypeToCameraLight()
            light.SetPosition(place)
            light.SetFocalPoint(0, 0, 0)
            light.SetColor(rgb(color))
            light.SetIntensity(strength)
            self.renderer.AddLight(light)

    def show(self, surface, step):
        data = vtkPolyData()
        points = vtkPoints()
        points.SetData(numpy_to_vtk(surface.points, deep=True))
        data.SetPoints(points)
        cells = vtkCellArray()
        cells.SetData(3, numpy_to_vtkIdTypeArray(surface.triangles.reshape(-1), deep=True))
        data.SetPolys(cells)
        data.GetPointData().SetNormals(numpy_to_vtk(surface.normals, deep=True))
        data.GetPointData().SetScalars(numpy_to_vtk(self._paint(surface), deep=True))
        self.mapper.SetInputData(data)
        title = self.config.get("title", "")
        time = "" if step.time is None else f"    t = {step.time:g}"
        self.caption.SetInput(f"{title}\n" * bool(title) + f"step {step.number}{time}")
        self._set_camera(step.number)

    def _paint(self, surface):
        """Red, green and blue of each point, darkened where little light comes in."""
        values = surface.colors if self.legend else np.zeros(len(surface.colors))
        colors = self.config.get("colors", COLORS)
        if self.legend:
            low, high = self.config.get("range") or (
                np.percentile(values, (1, 99)) if len(values) else (0, 1)
            )
            high = max(high, low + 1e-12)
        else:
            low, high = -1, 1  # the colour in the middle
        self.palette.RemoveAllPoints()
        for at, color in zip(np.linspace(low, high, len(colors)), colors, strict=True):
            self.palette.AddRGBPoint(at, *rgb(color))
        if self.legend:
            for text, value in zip(self.ticks, (low, (low + high) / 2, high), strict=True):
                text.SetInput(f"{value:.2g}")
        ramp = np.array([self.palette.GetColor(value) for value in np.linspace(low, high, 256)])
        shade = ((values - low) / (high - low) * 255).clip(0, 255).astype(int)
        return (255 * ramp[shade] * openness(surface, self.grid)[:, None]).astype("u1")

    def _set_camera(self, number):
        wish = {"azimuth": 30, "elevation": 22, "zoom": 1, "spin": 0} | self.config.get("camera", {})
        camera = self.renderer.GetActiveCamera()
        camera.SetViewAngle(24)
        camera.SetWindowCenter(0, 0)
        camera.SetPosition(0, 0, 1)
        camera.SetFocalPoint(0, 0, 0)
        camera.SetViewUp(0, 1, 0)
        camera.Azimuth(wish["azimuth"] + wish["spin"] * number)
        camera.Elevation(wish["elevation"])
        camera.OrthogonalizeViewUp()
        # The whole domain, not what there is of the surface: so pictures can follow each other as a film.
        self.renderer.ResetCamera(self.bounds)
        corners = np.array([(*point, 1) for point in itertools.product(*self.bounds.reshape(3, 2))])
        view = camera.GetCompositeProjectionTransformMatrix(self.renderer.GetTiledAspectRatio(), -1, 1)
        seen = corners @ np.array([[view.GetElement(i, j) for i in range(4)] for j in range(4)])
        seen = seen[:, :2] / seen[:, 3:]
        low, high = seen.min(axis=0), seen.max(axis=0)
        # As large as fits, and above the words, which take a tenth of the height (of 2, as the view counts).
        zoom = wish["zoom"] * min([1.84, 1.64] / (high - low))
        camera.Zoom(zoom)
        camera.SetWindowCenter(*(zoom * (low + high) / 2 - [0, 0.12]))
        self.renderer.ResetCameraClippingRange()

    def write(self, path):
        self.window.Render()
        shot = vtkWindowToImageFilter()
        shot.SetInput(self.window)
        shot.ReadFrontBufferOff()
        shot.ShouldRerenderOff()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when whole, so that whoever watches the directory never opens half a picture.
        partial = path.with_suffix(".partial")
        writer = vtkPNGWriter()
        writer.SetInputConnection(shot.GetOutputPort())
        writer.SetCompressionLevel(4)
        writer.SetFileName(str(partial))
        writer.Write()
        partial.replace(path)


def warm_up(config):
    """Draws a surface that nobody sees: the first frame of a process opens what draws, and compiles its shaders."""
    corners = np.eye(3, dtype="f4")
    triangle = Surface(corners, corners, corners[0], np.zeros(3, "?"), np.array([[0, 1, 2]]))
    scene = Scene(config, Grid((2, 2, 2), (1.0,) * 3, (0.0,) * 3), "")
    scene.show(triangle, SimpleNamespace(number=0, time=0.0))
    scene.window.Render()


def hidden_window():
    """VTK tries X, then EGL, then OSMesa; where there is no screen the first only costs a warning."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")
    window = vtkRenderWindow()
    if window.GetClassName() == "vtkOSOpenGLRenderWindow" and not ctypes.util.find_library("OSMesa"):
        raise RuntimeError(
            "VTK can draw neither with EGL nor with OSMesa here; on Debian: apt install libegl1 libgl1-mesa-dri"
        )
    window.SetOffScreenRendering(1)
    return window


def openness(surface, grid):
    """For each point, from 0 to 1, how much light comes past the rest of the surface.

    This gives the picture its depth. It is measured in a coarse grid: how much surface lies ahead.
    """
    cell, margin = grid.size / 100, 4  # the margin keeps the smoothing from coming round to the other side
    cells = np.ceil((grid.high - grid.low) / cell).astype(int) + 1 + 2 * margin
    filled = np.zeros(cells, "f4")
    filled[tuple(((surface.points - grid.low) / cell + margin + 0.5).astype(int).T)] = 1
    for axis in (0, 1, 2) * 3:
        filled = (np.roll(filled, 1, axis) + 2 * filled + np.roll(filled, -1, axis)) / 4
    ahead = np.zeros(len(surface.points), "f4")
    for reach in (3, 4.5, 6, 8):
        at = surface.points + reach * cell * surface.normals
        inside = ((at >= grid.low) & (at <= grid.high)).all(axis=1)
        index = ((at[inside] - grid.low) / cell + margin + 0.5).astype(int)
        ahead[inside] += filled[tuple(index.T)] * 3 / reach
    return np.exp(-1.1 * np.maximum(ahead - 0.1, 0))


def rgb(color):
    return tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
