# SPDX-License-Identifier: Apache-2.0
"""What `bench pictures` draws."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import viz
from forebay.bench.grayscott import examples
from forebay.viz.camera import corners_of, view_of
from forebay.viz.domain import Domain
from forebay.viz.parts import Part
from forebay.viz.scene import Scene
from forebay.viz.surface import Surface
from forebay.viz.window import Window

Array = NDArray[Any]
PICTURE = (800, 600)
_CONFIG = {"size": PICTURE, "samples": 1, "plain": True}


@cache
def pipeline(name: str) -> Any:
    """The class of an example's pipeline, by the name of its stream."""
    path = examples() / "pipelines" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, {"mandelbulb": "Bulb", "grayscott": "Reaction"}[name])


def drawing(name: str) -> viz.Drawing:
    """What draws the pictures of an example's pipeline, all at each step."""
    pictures = pipeline(name)({**_CONFIG, "cut": 32}).pictures
    made = viz.Drawing(pictures)
    made.warm_up()
    return made


@cache
def mandelbulb(shape: tuple[int, int, int], *, power: float = 8.0, iterations: int = 12) -> Array:
    """The values of examples/mandelbulb, (z, y, x) in float32: after how many iterations a point has left."""
    places = [np.linspace(-1.2, 1.2, count) for count in shape]
    z, y, x = (axis.reshape(-1) for axis in np.meshgrid(*places, indexing="ij"))
    c = np.stack([x, y, z])
    found, inside, v = np.full(len(x), float(iterations)), np.arange(len(x)), c.copy()
    for i in range(iterations):
        r = np.linalg.norm(v, axis=0)
        left = r > 4
        found[inside[left]] = np.maximum(0, i - np.log(np.log(r[left]) / np.log(4)) / np.log(power))
        inside, v, r = inside[~left], v[:, ~left], r[~left]
        theta = power * np.arccos(np.divide(v[2], r, out=np.ones_like(r), where=r > 0))
        phi = power * np.arctan2(v[1], v[0])
        length = r**power
        v = length * np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)])
        v += c[:, inside]
    return found.astype("f4").reshape(shape)


def part_of_ball(rank: int, size: int, triangles: int) -> Surface:
    """A rank's part of a ball with bumps: a wedge, so that what it shows is behind and before others'."""
    rows = round((triangles / 4) ** 0.5)
    columns = triangles // (2 * rows) // size
    theta, phi = np.meshgrid(
        np.linspace(2 * np.pi * rank / size, 2 * np.pi * (rank + 1) / size, columns + 1),
        np.linspace(0.01, np.pi - 0.01, rows + 1),
    )
    radius = 0.45 + 0.03 * np.sin(9 * theta) * np.sin(7 * phi)
    points = np.stack(
        [radius * np.sin(phi) * np.cos(theta), radius * np.cos(phi), radius * np.sin(phi) * np.sin(theta)],
        axis=-1,
    ).reshape(-1, 3)
    corner = (np.arange(rows)[:, None] * (columns + 1) + np.arange(columns)).reshape(-1, 1)
    faces = corner + np.array([0, 1, columns + 1, 1, columns + 2, columns + 1])
    normals = points / np.linalg.norm(points, axis=1, keepdims=True)
    return Surface(
        points.astype("f4"),
        normals.astype("f4"),
        points[:, 1].astype("f4"),
        faces.reshape(-1, 3).astype("i8"),
    )


class Stage:
    """A surface in a window of its own, looked at from all around."""

    def __init__(self, surface: Surface, size: tuple[int, int]) -> None:
        self.window, self.scene = Window(), Scene([viz.Contour("f", [0.0], color="f")], (1.0, 1.0, 1.0))
        self.window.add(self.scene.renderer)
        self._domain, self._aspect = Domain.between(np.full(3, -0.5), np.full(3, 0.5)), size[0] / size[1]
        low, high = surface.points.min(axis=0), surface.points.max(axis=0)
        self.scene.put([[Part(low, high, surface)]], [(-0.5, 0.5)])
        self.scene.show_opaque(self._domain, None)

    def look(self, number: int) -> None:
        """From one of many sides."""
        corners = corners_of(*self._domain.scene_box)
        self.scene.look(
            view_of(viz.Camera(azimuth=12 * number), corners, self._domain.to_scene, 0, self._aspect, 0)
        )
