# SPDX-License-Identifier: Apache-2.0
"""A window that nobody sees, in which a worker draws."""

from __future__ import annotations

import ctypes.util
import os
from typing import Any

import numpy as np
import vtkmodules.vtkRenderingOpenGL2  # noqa: F401 - VTK finds its implementations by such imports
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkFloatArray, vtkObject, vtkUnsignedCharArray
from vtkmodules.vtkRenderingCore import vtkRenderer, vtkRenderWindow

from forebay._errors import Unsupported

Array = NDArray[Any]

_REMEDY = "on Debian: apt install libegl1 libgl1-mesa-dri; or install OSMesa"


class Window:
    """Draws with EGL, else with OSMesa: no display is needed. `Unsupported` says what is missing where neither is there."""

    def __init__(self) -> None:
        # VTK tries X first if there seems to be a display: a worker may have inherited one that it must not use.
        if not os.environ.get("VTK_DEFAULT_OPENGL_WINDOW"):
            os.environ["VTK_DEFAULT_OPENGL_WINDOW"] = "vtkEGLRenderWindow"
        warns = vtkObject.GetGlobalWarningDisplay()
        vtkObject.GlobalWarningDisplayOff()
        try:
            self._window = self._opened()
        finally:
            vtkObject.SetGlobalWarningDisplay(warns)
        self._colors, self._depths = vtkUnsignedCharArray(), vtkFloatArray()

    @staticmethod
    def _opened() -> Any:
        window = vtkRenderWindow()
        kind = window.GetClassName()
        if kind == "vtkOSOpenGLRenderWindow" and not ctypes.util.find_library("OSMesa"):
            raise Unsupported(f"VTK can draw neither with EGL nor with OSMesa on this host; {_REMEDY}")
        window.SetOffScreenRendering(1)
        # Each point has one colour and one depth: pictures of many workers are put together by these.
        window.SetMultiSamples(0)
        window.SetAlphaBitPlanes(1)
        window.SetSize(8, 8)
        if not window.SupportsOpenGL():
            raise Unsupported(f"{kind} finds no OpenGL that VTK can use on this host; {_REMEDY}")
        return window

    def add(self, renderer: vtkRenderer) -> None:
        """Shows this renderer in it."""
        self._window.AddRenderer(renderer)

    def draw(self, size: tuple[int, int]) -> tuple[Array, Array]:
        """Colours (height, width, 4) in 8 bits, and depths (height, width) in float32, from the lowest row on.

        Both are of this window, and hold until it draws again.
        """
        width, height = size
        self.render(size)
        self._window.GetRGBACharPixelData(0, 0, width - 1, height - 1, 0, self._colors)
        self._window.GetZbufferData(0, 0, width - 1, height - 1, self._depths)
        colors = vtk_to_numpy(self._colors).reshape(height, width, 4)
        depths = vtk_to_numpy(self._depths).reshape(height, width)
        if not np.isfinite(depths[0, 0]):
            raise Unsupported("VTK gave no depths of what it has drawn")
        return colors, depths

    def render(self, size: tuple[int, int]) -> None:
        """Draws, and reads nothing back."""
        self._window.SetSize(*size)
        self._window.Render()

    def set_depths(self, depths: Array) -> None:
        """What is drawn next is hidden behind these, if its renderer preserves them."""
        height, width = depths.shape
        self._window.SetZbufferData(0, 0, width - 1, height - 1, numpy_to_vtk(depths.reshape(-1)))

    def draw_over(self, size: tuple[int, int]) -> Array:
        """Colours, multiplied with alpha, of what is before the depths that were set. They are the caller's."""
        self.render(size)
        return self.read(size)

    def read(self, size: tuple[int, int]) -> Array:
        """The colours of what it shows. They are the caller's."""
        width, height = size
        self._window.GetRGBACharPixelData(0, 0, width - 1, height - 1, 0, self._colors)
        return np.array(vtk_to_numpy(self._colors).reshape(height, width, 4))
