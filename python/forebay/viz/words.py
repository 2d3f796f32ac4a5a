# SPDX-License-Identifier: Apache-2.0
"""What is written on a picture: title, step and time, and what the colours mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import vtkmodules.vtkRenderingFreeType  # noqa: F401 - VTK finds its implementations by such imports
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkRenderingCore import vtkTextProperty, vtkTextRenderer

from forebay.viz import colors
from forebay.viz.picture import Picture

Array = NDArray[Any]
Side = Literal["left", "center", "right"]


@dataclass(frozen=True)
class Legend:
    """What the colours of a layer mean."""

    label: str
    colors: colors.Colors
    range: tuple[float, float]


def ink_of(picture: Picture) -> tuple[colors.Rgb, colors.Rgb]:
    """The colours of words and of lines: light on what is dark."""
    dark = sum(colors.rgb(picture.background[0])) < 1.5
    return colors.rgb("#dfe5ee" if dark else "#2a3038"), colors.rgb("#aeb9cb" if dark else "#6b7480")


def write(pixels: Array, picture: Picture, caption: str, legends: Sequence[Legend]) -> None:
    """Writes on a picture (height, width, 3), which has its highest row first: the caption on the left, legends on the right."""
    height, width = pixels.shape[:2]
    ink, margin = ink_of(picture)[0], round(0.03 * height)
    _put(pixels, caption, (margin, margin), max(height // 36, 6), ink, "left")
    bar, right = round(0.24 * width), width - margin
    for number, legend in enumerate(legends):
        left = right - bar - number * (bar + margin)
        if left < margin:
            break  # no room for more
        places: tuple[tuple[int, Side], ...] = (
            (left, "left"),
            (left + bar // 2, "center"),
            (left + bar, "right"),
        )
        for (x, side), text in zip(places, _ticks(*legend.range), strict=True):
            _put(pixels, text, (x, margin), max(height // 48, 6), ink, side)
        top, thick = height - round(0.062 * height) - round(0.025 * height), max(round(0.025 * height), 1)
        ramp = np.rint(255 * colors.table(legend.colors)).astype("u1")
        at = np.linspace(0, len(ramp) - 1, bar).astype(int)
        pixels[top : top + thick, left : left + bar] = ramp[at]
        _put(pixels, legend.label, (left, round(0.1 * height)), max(height // 40, 6), ink, "left")


def _ticks(low: float, high: float) -> list[str]:
    """The two ends and what is between them, with as many digits as tell them apart."""
    middle = low / 2 + high / 2
    for digits in range(3, 17):
        texts = [f"{value:.{digits}g}" for value in (low, middle, high)]
        if len(set(texts)) == 3:
            return texts
    return [repr(low), repr(middle), repr(high)]


def _put(pixels: Array, text: str, at: tuple[int, int], size: int, ink: colors.Rgb, side: Side) -> None:
    """Writes a text with its lower corner on this side here, counted from the lower left."""
    mask = _mask(text, size)
    if not mask.size:
        return
    height = len(pixels)
    left = at[0] - {"left": 0, "center": mask.shape[1] // 2, "right": mask.shape[1]}[side]
    top = height - at[1] - mask.shape[0]
    rows, columns = slice(max(top, 0), top + mask.shape[0]), slice(max(left, 0), left + mask.shape[1])
    under = pixels[rows, columns]
    cut = mask[max(-top, 0) :, max(-left, 0) :][: under.shape[0], : under.shape[1], None].astype("u2")
    color = np.rint(255 * np.array(ink)).astype("u2")
    under[:] = ((color * cut + under * (255 - cut) + 127) // 255).astype("u1")


@lru_cache(maxsize=256)
def _mask(text: str, size: int) -> Array:
    """How much of each pixel a text covers, from 0 to 255, its highest row first."""
    style = vtkTextProperty()
    style.SetFontFamilyToArial()
    style.SetFontSize(size)
    style.SetColor(1, 1, 1)
    style.SetLineSpacing(1.25)
    image, extent = vtkImageData(), [0, 0]
    done = text.strip() and vtkTextRenderer.GetInstance().RenderString(style, text, image, extent, 72)
    if not done or image.GetPointData().GetScalars() is None:
        return np.zeros((0, 0), "u1")
    width, height, _ = image.GetDimensions()
    mask = vtk_to_numpy(image.GetPointData().GetScalars()).reshape(height, width, -1)[..., -1][::-1]
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        return np.zeros((0, 0), "u1")
    return np.array(mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
