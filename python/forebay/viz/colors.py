# SPDX-License-Identifier: Apache-2.0
"""Colours and colour maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid

Rgb = tuple[float, float, float]
Colors = str | Sequence[str]
"""The name of a colour map, or two or more colours from low to high."""

_STEPS = 256
# Colours at equal distances. The perceptual ones are those of matplotlib (CC0) at nine places.
_MAPS: dict[str, tuple[str, ...]] = {
    "lagoon": ("#2b3f8c", "#2f8fc4", "#63d2b4", "#f7efb2", "#f79256"),
    "viridis": ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"),
    "magma": ("#000004", "#1d1147", "#51127c", "#832681", "#b73779", "#e75263", "#fc8961", "#fec488", "#fcfdbf"),
    "inferno": ("#000004", "#210c4a", "#57106e", "#8a226a", "#bc3754", "#e45a31", "#f98e09", "#f9cb35", "#fcffa4"),
    "plasma": ("#0d0887", "#4c02a1", "#7e03a8", "#aa2395", "#cc4778", "#e66c5c", "#f89540", "#fdc527", "#f0f921"),
    "cividis": ("#00224e", "#213b6e", "#4c556c", "#6c6e72", "#8e8978", "#b2a570", "#d9c55c", "#fee838"),
    "gray": ("#000000", "#ffffff"),
    "cool-warm": ("#3b4cc0", "#7b9ff9", "#c0d4f5", "#dddcdc", "#f2cbb7", "#ee8468", "#b40426"),
}  # fmt: skip


def rgb(color: str) -> Rgb:
    """Red, green and blue, from 0 to 1, of "#rrggbb"."""
    digits = color.removeprefix("#")
    try:
        if len(digits) != 6 or not color.startswith("#"):
            raise ValueError
        red, green, blue = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    except ValueError:
        raise Invalid(f"'{color}' is no colour: give it as '#rrggbb'") from None
    return red, green, blue


def table(colors: Colors) -> NDArray[np.float64]:
    """The 256 colours of a map from low to high, each red, green and blue from 0 to 1."""
    if isinstance(colors, str):
        if colors not in _MAPS:
            raise Invalid(f"there is no colour map '{colors}': there are {', '.join(sorted(_MAPS))}")
        colors = _MAPS[colors]
    if len(colors) < 2:
        raise Invalid(f"a colour map has two or more colours, not {len(colors)}")
    stops = _to_lab(np.array([rgb(color) for color in colors]))
    at = np.linspace(0, len(colors) - 1, _STEPS)
    return _from_lab(np.stack([np.interp(at, range(len(colors)), channel) for channel in stops.T], axis=1))


# Oklab (Ottosson, 2020): between colours that are mixed in it nothing looks darker or of another hue.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _to_lab(colors: NDArray[Any]) -> NDArray[Any]:
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    return np.asarray(np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T)


def _from_lab(lab: NDArray[Any]) -> NDArray[Any]:
    linear = (lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_CONES).T
    linear = linear.clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).clip(0, 1)
