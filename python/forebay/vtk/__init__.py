# SPDX-License-Identifier: Apache-2.0
"""VTK's own parallel filters on a communicator of Forebay's, without MPI (docs/vtk.md)."""

from forebay.vtk.controller import Controller
from forebay.vtk.images import images

__all__ = ["Controller", "images"]
