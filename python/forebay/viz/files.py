# SPDX-License-Identifier: Apache-2.0
"""Pictures as files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkIOImage import vtkPNGWriter

from forebay._errors import Internal

# More takes several times as long, and saves a tenth.
_COMPRESSION = 2


def png(pixels: NDArray[Any]) -> bytes:
    """A picture (height, width, 3 or 4) in 8 bits, its highest row first, as PNG."""
    height, width, channels = pixels.shape
    image = vtkImageData()
    image.SetDimensions(width, height, 1)
    rows = np.ascontiguousarray(pixels[::-1]).reshape(-1, channels)
    image.GetPointData().SetScalars(numpy_to_vtk(rows))
    writer = vtkPNGWriter()
    writer.SetInputData(image)
    writer.SetCompressionLevel(_COMPRESSION)
    writer.WriteToMemoryOn()
    writer.Write()
    made = writer.GetResult()
    if made is None:
        raise Internal("VTK made no PNG of a picture")
    return bytes(vtk_to_numpy(made))


def write(path: Path, content: bytes) -> None:
    """Writes a file as a whole: whoever watches the directory never opens half of it. `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
