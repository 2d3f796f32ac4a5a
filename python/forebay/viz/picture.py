# SPDX-License-Identifier: Apache-2.0
"""A picture: what it shows, from where, and what is written on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay._errors import Invalid, OverBudget
from forebay.viz import colors
from forebay.viz.camera import Camera
from forebay.viz.layers import Layer, Volume, is_count

# What a picture may take of each worker's memory, in bytes, and how much that is for each of its points.
_MEMORY = 2 << 30
_EACH = 24
# Larger than this no graphics library draws.
_SIDE = 16_384
_SHADE = 0.7


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture, or one from each of several cameras.

    Parameters
    ----------
    layers
        What is drawn, in any order.
    name
        The name of its files: `NAME-000010.png` at step 10, and `NAME-000010-3.png` from camera 3 of several, which count from 0.
    every
        It is drawn at steps whose number is a multiple of this.
    camera
        From where, or a list of cameras.
    size
        Width and height in pixels.
    samples
        How often each pixel is looked at, in each direction: 2 makes edges smooth, and four times the work; 1 does not. By default 2,
        but 1 where there is a volume, which has no edges and takes long.
    shade
        How much hollows are darkened, from 0 (not at all) to 1: it gives depth to what is shown. By default 0.7, but less where layers
        take little light, and 0 where none takes any, so that colours can be read.
    title
        In the corner, above step and time.
    caption, legend, outline
        Whether step and time, what the colours mean, and the edges of the domain are drawn.
    servers
        Whether the caption says how many servers drew it.
    background
        The colours at the bottom and at the top, as "#rrggbb".
    cinema
        Whether its files are a Cinema database, `NAME.cdb`: a directory of pictures with a table of step, time and camera of each, for
        those who look through them with Cinema's viewers (specification D).
    memory
        How many bytes of memory it may take of each worker: one that is too large is refused before anything is drawn.
    """

    layers: Sequence[Layer]
    name: str = "picture"
    every: int = 1
    camera: Camera | Sequence[Camera] = field(default_factory=Camera)
    size: tuple[int, int] = (1200, 900)
    samples: int | None = None
    shade: float | None = None
    title: str = ""
    caption: bool = True
    legend: bool = True
    outline: bool = True
    servers: bool = False
    background: tuple[str, str] = ("#0d121b", "#263143")
    cinema: bool = False
    memory: int = _MEMORY

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise Invalid(f"picture: '{self.name}' is no name: letters, digits, '_', '-' and '.'")
        if len([*self.size]) != 2 or not all(map(is_count, self.size)):
            raise Invalid(f"picture {self.name}: size is {self.size}: give width and height in pixels")
        if self.samples not in (None, 1, 2, 3, 4):
            raise Invalid(f"picture {self.name}: samples is {self.samples}, not 1 to 4")
        if self.shade is not None and not 0 <= self.shade <= 1:
            raise Invalid(f"picture {self.name}: shade is {self.shade}, not 0 to 1")
        if not is_count(self.every):
            raise Invalid(f"picture {self.name}: every is {self.every}: give 1 or more")
        if not self.cameras:
            raise Invalid(f"picture {self.name}: it has no camera")
        for color in self.background:
            colors.rgb(color)
        if not is_count(self.memory):
            raise Invalid(f"picture {self.name}: memory is {self.memory}: give how many bytes it may take")
        width, height = self.drawn_size
        if max(width, height) > _SIDE:
            raise Invalid(
                f"picture {self.name}: {width} x {height} pixels are drawn ({self.samples_drawn} samples in each direction):"
                f" a side has {_SIDE} at most"
            )
        if (needed := width * height * _EACH) > self.memory:
            raise OverBudget(
                f"picture {self.name}: {width} x {height} pixels take {needed >> 20} MiB of memory of each worker,"
                f" more than {self.memory >> 20}: make it smaller, take fewer samples, or allow more with memory="
            )

    @property
    def cameras(self) -> tuple[Camera, ...]:
        """All of them."""
        return (self.camera,) if isinstance(self.camera, Camera) else tuple(self.camera)

    def label(self, camera: int) -> str:
        """Its name, and which of its cameras it is from if there are several."""
        return f"{self.name}-{camera}" if len(self.cameras) > 1 else self.name

    def file_name(self, step: int, camera: int) -> str:
        """What the file of a picture is called."""
        which = f"-{camera}" if len(self.cameras) > 1 else ""
        return f"{self.name}-{step:06d}{which}.png"

    @property
    def drawn_size(self) -> tuple[int, int]:
        """Width and height as it is drawn, before samples become pixels."""
        return self.size[0] * self.samples_drawn, self.size[1] * self.samples_drawn

    @property
    def samples_drawn(self) -> int:
        """How often each pixel is looked at, in each direction."""
        return self.samples or (1 if any(isinstance(layer, Volume) for layer in self.layers) else 2)

    @property
    def darkening(self) -> float:
        """How much hollows are darkened."""
        light = max((layer.light for layer in self.layers), default=0.0)
        return _SHADE * light if self.shade is None else self.shade

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it needs."""
        return tuple(dict.fromkeys(name for layer in self.layers for name in layer.fields))
