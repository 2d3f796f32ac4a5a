# SPDX-License-Identifier: Apache-2.0
"""What becomes of colours and depths once they are put together: hollows are darkened, samples become pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.viz import colors
from forebay.viz.camera import View
from forebay.viz.picture import Picture

Array = NDArray[Any]

# How far around a point something may stand that takes light from it, in a domain that is 1 long, and in how many directions and
# distances that is looked at.
_REACH = 0.05
_DIRECTIONS = 6
_DISTANCES = (0.35, 0.7, 1.0)


def finished(
    picture: Picture, view: View, drawn: Array, depths: Array, through: Array | None = None
) -> Array:
    """The picture (height, width, 3) in 8 bits, from the highest row on, of what was drawn (from the lowest row on).

    `through` is what one sees through, before all that.
    """
    pixels = _averaged(drawn, picture.samples_drawn)
    alpha = pixels[..., 3:].astype("u2")
    seen = pixels[..., :3].astype("u2")
    if picture.darkening > 0:
        light = openness(_farthest(depths, picture.samples_drawn), view, picture.darkening)
        seen = (seen * (256 * light[..., None]).astype("u2")) >> 8
    behind = _background(picture)[:, None, :] * (255 - alpha)
    whole = (255 * seen + behind + 127) // 255
    if through is not None:
        front = _averaged(through, picture.samples_drawn).astype("u2")
        whole = np.minimum(front[..., :3] + (whole * (255 - front[..., 3:]) + 127) // 255, 255)
    return np.asarray(whole, "u1")[::-1]


def _background(picture: Picture) -> Array:
    """Each row's colour."""
    bottom, top = (np.array(colors.rgb(color)) for color in picture.background)
    share = np.linspace(0, 1, picture.size[1])[:, None]
    return np.asarray(np.rint(255 * (bottom + share * (top - bottom))), "u2")


def _averaged(drawn: Array, samples: int) -> Array:
    """The mean of all samples of each pixel, where nothing was drawn counts as black and transparent."""
    if samples == 1:
        return drawn
    height, width = drawn.shape[0] // samples, drawn.shape[1] // samples
    # Two channels at once: a sum of up to 16 of 8 bits fits into 16.
    words = np.ascontiguousarray(drawn).view("u4")[..., 0]
    even, odd = np.zeros((height, width), "u4"), np.zeros((height, width), "u4")
    for row in range(samples):
        for column in range(samples):
            sample = words[row::samples, column::samples]
            even += sample & np.uint32(0x00FF00FF)
            odd += (sample >> np.uint32(8)) & np.uint32(0x00FF00FF)
    count = samples * samples
    if count & (count - 1):
        channels = np.stack([even & 0xFFFF, odd & 0xFFFF, even >> 16, odd >> 16], axis=-1)
        return ((channels + count // 2) // count).astype("u1")
    shift, half = np.uint32(count.bit_length() - 1), np.uint32((count // 2) * 0x00010001)
    even = ((even + half) >> shift) & np.uint32(0x00FF00FF)
    odd = ((odd + half) >> shift) & np.uint32(0x00FF00FF)
    return (even | (odd << np.uint32(8))).view("u1").reshape(height, width, 4)


def openness(depths: Array, view: View, strength: float) -> Array:
    """How much light comes to each pixel, from 0 to 1: less where what is around it stands nearer to who looks.

    Ambient occlusion in the space of the screen (Mittring, 2007), of the depths that all workers have put together. Points are looked at
    in pairs on both sides, so that a slope takes no light from itself.
    """
    half = _farthest(depths, 2)
    far = np.float32(view.far * 4)
    away = np.where(half < 1, view.distances(half), far).astype("f4")
    height = half.shape[0]
    nearest = float(away.min()) if away.size else 1.0
    if nearest >= far:
        return np.ones(depths.shape, "f4")
    ahead = 1.0 if view.parallel else float(np.median(away[away < far]))
    reach = max(2.0, _REACH / (2 * view.half * ahead) * height)
    taken = np.zeros_like(away)
    for direction in range(_DIRECTIONS):
        angle = np.pi * (direction + 0.5) / _DIRECTIONS
        for distance in _DISTANCES:
            # Directions are turned from distance to distance, so that fewer are needed.
            turned = angle + distance
            x, y = (round(float(reach * distance * part)) for part in (np.cos(turned), np.sin(turned)))
            pair = _nearer(away, x, y) + _nearer(away, -x, -y)
            taken += np.maximum(pair, 0) / (1 + distance)
    share = taken / (_DIRECTIONS * sum(1 / (1 + distance) for distance in _DISTANCES))
    light = (1 - strength + strength * np.exp(-3.0 * np.maximum(share - 0.02, 0))).astype("f4")
    return _smoothed(_spread(_smoothed(light), depths.shape))


def _farthest(depths: Array, samples: int) -> Array:
    """Of each so many by so many the farthest: lines, which stand before everything, do not count."""
    found = depths[::samples, ::samples].copy()
    for row in range(samples):
        for column in range(samples):
            beside = depths[row::samples, column::samples]
            there = found[: beside.shape[0], : beside.shape[1]]
            np.maximum(there, beside, out=there)
    return found


def _nearer(away: Array, x: int, y: int) -> Array:
    """How much nearer what is so far beside each point is, from -1 to 1; what is much nearer stands for itself and takes no light."""
    beside = _shifted(away, x, y)
    nearer = (away - beside) * np.float32(1 / _REACH)
    return np.where(nearer > 2, np.float32(0), nearer.clip(-1, 1))


def _shifted(plane: Array, x: int, y: int) -> Array:
    """Each point's value at another one; at the border that of the border."""
    height, width = plane.shape
    rows = np.arange(y, y + height).clip(0, height - 1)
    columns = np.arange(x, x + width).clip(0, width - 1)
    return np.asarray(plane[rows][:, columns])


def _smoothed(plane: Array) -> Array:
    """Each value with those of its neighbours, of which each counts half."""
    for _ in range(2):
        padded = np.pad(plane, ((1, 1), (0, 0)), "edge")
        # First one way, then, turned around, the other one.
        plane = ((padded[:-2] + padded[2:]) / 4 + padded[1:-1] / 2).T
    return plane


def _spread(plane: Array, shape: tuple[int, ...]) -> Array:
    """Each value for two by two."""
    return plane.repeat(2, axis=0).repeat(2, axis=1)[: shape[0], : shape[1]]
