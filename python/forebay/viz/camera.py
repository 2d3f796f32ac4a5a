# SPDX-License-Identifier: Apache-2.0
"""From where a picture is taken."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid

Vector = NDArray[np.float64]
Point = Sequence[float]
"""x, y, z: the last dimension of an array is x."""

# What is seen before and behind the domain, which is 1 long.
_ROOM = 0.02

# Right, up, and towards the camera, by which axis is up.
_AXES: dict[str, tuple[tuple[float, float, float], ...]] = {
    "y": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "z": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "x": ((0, 1, 0), (1, 0, 0), (0, 0, -1)),
}


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A camera that looks at the whole domain from a side, or one at a place of its own. Angles are in degrees.

    Parameters
    ----------
    azimuth, elevation
        From which side: around the axis that is up, and above the horizon.
    roll
        How far it is turned around the direction in which it looks.
    up
        Which axis is up.
    zoom
        2 shows everything twice as large; at 1 the whole domain fits.
    spin
        How far it goes around for each step: pictures become a film.
    parallel
        Whether what is far is as large as what is near.
    angle
        How much it sees, from the lowest to the highest, in perspective.
    eye, look_at
        Its own place, and the one that it looks at (by default the middle of the domain), as x, y, z in the units of the
        data: then it is as it stands there, and azimuth, elevation and spin do not matter. It may be in the data.
    """

    azimuth: float = 30.0
    elevation: float = 22.0
    roll: float = 0.0
    up: Literal["x", "y", "z"] = "y"
    zoom: float = 1.0
    spin: float = 0.0
    parallel: bool = False
    angle: float = 24.0
    eye: Point | None = None
    look_at: Point | None = None

    def __post_init__(self) -> None:
        if self.up not in _AXES:
            raise Invalid(f"camera: up is '{self.up}', not 'x', 'y' or 'z'")
        numbers = (self.azimuth, self.elevation, self.roll, self.zoom, self.spin, self.angle)
        if not all(map(math.isfinite, numbers)) or self.zoom <= 0 or not 0 < self.angle < 170:
            raise Invalid(
                f"camera: {self}: numbers are finite, zoom is above 0, angle between 0 and 170 degrees"
            )
        for name, point in (("eye", self.eye), ("look_at", self.look_at)):
            if point is not None and (len(point) != 3 or not all(map(math.isfinite, point))):
                raise Invalid(f"camera: {name} is {point}: give x, y and z")
        if self.eye is None and self.look_at is not None:
            raise Invalid(
                f"camera: look_at is {tuple(self.look_at)}, but it has no eye: give both, or azimuth and elevation"
            )
        if self.eye is not None and self.look_at is not None and tuple(self.eye) == tuple(self.look_at):
            raise Invalid(f"camera: eye and look_at are one point, {tuple(self.eye)}")


def orbit(count: int, *, elevations: Sequence[float] = (22.0,), camera: Camera | None = None) -> list[Camera]:
    """Cameras all around: `count` at each elevation, at equal distances. As `camera`, but for azimuth and elevation."""
    if count < 1:
        raise Invalid(f"an orbit has one camera or more, not {count}")
    first = camera or Camera()
    return [
        replace(first, azimuth=first.azimuth + 360 * i / count, elevation=elevation)
        for elevation in elevations
        for i in range(count)
    ]


@dataclass(frozen=True)
class View:
    """A camera where it stands, in the scene's coordinates."""

    eye: Vector
    right: Vector
    up: Vector
    back: Vector
    """From what it looks at to the eye."""
    parallel: bool
    half: float
    """In perspective the tangent of half the angle from bottom to top; else half of the height that is seen."""
    center: tuple[float, float]
    """Where the middle of what is seen lies on the picture, which goes from -1 to 1."""
    near: float
    far: float

    def depth_of(self, points: Vector) -> Vector:
        """How far points are ahead of the eye."""
        return (self.eye - points) @ self.back

    def distances(self, depths: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far ahead of the eye what has these depths in the picture is."""
        span = self.far - self.near
        if self.parallel:
            return self.near + span * depths
        return self.far * self.near / (self.far - span * depths)


def view_of(camera: Camera, corners: Vector, to_scene: Any, number: int, aspect: float, room: float) -> View:
    """The camera at a step: `corners` are those of the domain, `room` is what words at the bottom take of the picture's height, of 2."""
    right, up, back = (np.array(axis, "f8") for axis in _AXES[camera.up])
    middle = corners.mean(axis=0)
    if camera.eye is None:
        azimuth = math.radians(camera.azimuth + camera.spin * number)
        elevation = math.radians(camera.elevation)
        level = math.sin(azimuth) * right + math.cos(azimuth) * back
        back = math.cos(elevation) * level + math.sin(elevation) * up
        right = math.cos(azimuth) * right - math.sin(azimuth) * np.array(_AXES[camera.up][2], "f8")
        up = np.cross(back, right)
        # All of the domain is in a ball of this radius.
        eye = middle + back * 0.5 / math.sin(math.radians(camera.angle) / 2)
    else:
        eye = np.asarray(to_scene(np.array(camera.eye, "f8")))
        aim = middle if camera.look_at is None else np.asarray(to_scene(np.array(camera.look_at, "f8")))
        back = _unit(eye - aim, back)
        # Seen from straight above nothing is up: then what is towards the camera elsewhere.
        level = np.cross(up, back)
        right = _unit(level, right) if np.linalg.norm(level) > 1e-6 else right
        up = np.cross(back, right)
    roll = math.radians(camera.roll)
    right, up = math.cos(roll) * right - math.sin(roll) * up, math.cos(roll) * up + math.sin(roll) * right
    ahead = (eye - corners) @ back
    # With some room: what lies at the end of it would be taken for the background.
    far = max(float(ahead.max()), 1e-3) + _ROOM
    near = max(float(ahead.min()) - _ROOM, far * 1e-3)
    half = 0.5 if camera.parallel else math.tan(math.radians(camera.angle) / 2)
    view = View(eye, right, up, back, camera.parallel, half, (0.0, 0.0), near, far)
    if camera.eye is not None:
        return replace(view, half=half / camera.zoom)
    return _fitted(view, corners, camera.zoom, aspect, room)


def _fitted(view: View, corners: Vector, zoom: float, aspect: float, room: float) -> View:
    """As large as fits above the words."""
    depth = 1.0 if view.parallel else view.depth_of(corners)
    places = [(corners - view.eye) @ axis / (view.half * depth) for axis in (view.right, view.up)]
    seen = np.stack([places[0] / aspect, places[1]], axis=1)
    low, high = seen.min(axis=0), seen.max(axis=0)
    size = np.maximum(high - low, 1e-6)
    fit = zoom * float(min(1.84 / size[0], (1.88 - room) / size[1]))
    x, y = fit * (low + high) / 2
    return replace(view, half=view.half / fit, center=(float(x), float(y) - room / 2))


def _unit(vector: Vector, otherwise: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else otherwise


def corners_of(low: Vector, high: Vector) -> Vector:
    """The eight corners of a box."""
    return np.array(list(itertools.product(*zip(low, high, strict=True))), "f8")
