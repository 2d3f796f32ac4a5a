# SPDX-License-Identifier: Apache-2.0
"""Pictures of what a simulation computes, drawn by all workers of a pipeline together. Needs VTK: `pip install forebay[viz]`."""

try:
    import vtkmodules.vtkCommonCore  # noqa: F401
except ImportError as error:
    raise ImportError(f"forebay.viz draws with VTK ({error}): pip install 'forebay[viz]'") from error

from forebay.viz.camera import Camera, orbit
from forebay.viz.drawing import Drawing, Drawn
from forebay.viz.layers import (
    Arrows,
    Clip,
    Contour,
    Layer,
    Mesh,
    Plane,
    Slice,
    Spheres,
    Streamlines,
    Threshold,
    Volume,
)
from forebay.viz.picture import Picture
from forebay.viz.pictures import Pictures

__all__ = [
    "Arrows",
    "Camera",
    "Clip",
    "Contour",
    "Drawing",
    "Drawn",
    "Layer",
    "Mesh",
    "Picture",
    "Pictures",
    "Plane",
    "Slice",
    "Spheres",
    "Streamlines",
    "Threshold",
    "Volume",
    "orbit",
]

for _name in __all__:
    globals()[_name].__module__ = "forebay.viz"
del _name
