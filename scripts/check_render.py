"""Draws a small sphere off screen with VTK, and fails if that does not work on this machine.

Run it as a process of its own: without a usable OpenGL, VTK ends the process with a segmentation fault.
"""

import os
import sys

# Unless told otherwise VTK tries X first, warns about the missing display, and crashes where X is missing.
os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")

import vtkmodules.vtkRenderingOpenGL2  # noqa: F401  (registers the OpenGL classes)
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkFiltersSources import vtkSphereSource
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkPolyDataMapper,
    vtkRenderer,
    vtkRenderWindow,
    vtkWindowToImageFilter,
)


def draw() -> tuple[str, int]:
    """Returns the window's class and how many pixels of the picture the sphere covers."""
    sphere = vtkSphereSource()
    mapper = vtkPolyDataMapper()
    mapper.SetInputConnection(sphere.GetOutputPort())
    actor = vtkActor()
    actor.SetMapper(mapper)
    renderer = vtkRenderer()
    renderer.AddActor(actor)
    window = vtkRenderWindow()
    window.SetOffScreenRendering(True)
    window.SetSize(64, 48)
    window.AddRenderer(renderer)
    window.Render()
    reader = vtkWindowToImageFilter()
    reader.SetInput(window)
    reader.ReadFrontBufferOff()
    reader.Update()
    pixels = vtk_to_numpy(reader.GetOutput().GetPointData().GetScalars())
    return window.GetClassName(), int((pixels.max(axis=1) > 0).sum())


def main() -> int:
    """Draws, says with what, and returns the exit status."""
    window, covered = draw()
    print(f"{window}: {covered} pixels drawn")
    return 0 if covered > 100 else 1


if __name__ == "__main__":
    sys.exit(main())
