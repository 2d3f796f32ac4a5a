# SPDX-License-Identifier: Apache-2.0
"""What a picture shows, each thing a layer: described once, drawn by each worker of the blocks that lie beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from forebay._errors import Invalid
from forebay.viz import colors as _colors
from forebay.viz.camera import Point


def is_count(value: float) -> bool:
    """Whether it is a whole number, 1 or more."""
    return math.isfinite(value) and int(value) == value >= 1


def _freeze(described: object, *names: str) -> None:
    """Lists become tuples: what is described once does not change."""
    for name in names:
        given = getattr(described, name)
        if given is not None and not isinstance(given, str):
            object.__setattr__(described, name, tuple(given))


@dataclass(frozen=True)
class Plane:
    """A plane through a point: what lies in the direction of its normal is kept, the other side is cut away.

    Both are x, y, z in the units of the data: the last dimension of an array is x.
    """

    normal: Point
    point: Point

    def __post_init__(self) -> None:
        _freeze(self, "normal", "point")
        for name, given in (("normal", self.normal), ("point", self.point)):
            if len(given) != 3 or not all(map(math.isfinite, given)):
                raise Invalid(f"plane: {name} is {given}: give x, y and z")
        if not any(self.normal):
            raise Invalid("plane: a normal of 0 has no direction")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What all layers have in common.

    Parameters
    ----------
    color
        The field that colours it; without one it has the colour `tint`.
    colors
        The colour map, by its name, or two or more colours ("#rrggbb") from low to high.
    range
        The values at the two ends of the colour map. By default from the lowest to the highest that was drawn, at this and all earlier
        steps, by any worker.
    tint
        The colour where no field colours it; what is NaN is gray.
    clip
        Planes that cut parts of it away.
    opacity
        Below 1 one sees through it to what is behind.
    label
        What the legend says of the colours; by default the field's name and its units.
    """

    color: str | None = None
    colors: _colors.Colors = "lagoon"
    range: tuple[float, float] | None = None
    tint: str = "#63b2d2"
    clip: Sequence[Plane] = ()
    opacity: float = 1.0
    label: str | None = None

    def __post_init__(self) -> None:
        _freeze(self, "clip", "colors", "range")
        _colors.table(self.colors)
        _colors.rgb(self.tint)
        if not 0 < self.opacity <= 1:
            raise Invalid(
                f"{type(self).__name__.lower()}: opacity is {self.opacity}: give more than 0, at most 1"
            )
        if self.range is not None and not (
            len([*self.range]) == 2 and all(map(math.isfinite, self.range)) and self.range[0] <= self.range[1]
        ):
            raise Invalid(
                f"{type(self).__name__.lower()}: range is {self.range}: give the lowest value, then the highest"
            )

    light: ClassVar[float] = 1.0
    """How much of its brightness comes from lights; the rest is its own, so that colours can be read."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that it is drawn of."""
        raise NotImplementedError

    @property
    def is_colored(self) -> bool:
        """Whether values colour it."""
        return self.color is not None

    @property
    def what_colors(self) -> str:
        """What these values are."""
        return self.color or ""

    @property
    def is_seen_through(self) -> bool:
        """Whether one sees what is behind it."""
        return self.opacity < 1

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that it needs."""
        own = () if self.color is None else (self.color,)
        return tuple(dict.fromkeys((*self.needs, *own)))


@dataclass(frozen=True)
class _OfField(Layer):
    """What shows one field."""

    field: str
    colors_itself: ClassVar[bool] = True
    """Whether it is coloured by the field unless `color` says else."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.color is None and self.colors_itself:
            object.__setattr__(self, "color", self.field)

    @property
    def needs(self) -> tuple[str, ...]:
        """The field."""
        return (self.field,)


@dataclass(frozen=True)
class Contour(_OfField):
    """The surfaces on which a field of three dimensions has these values.

    `closed`: where a surface meets the faces of the domain, a flat lid shows what is inside of it. Inside is where values are higher than
    the first one of `values`, or lower: on that side of it which has less of the domain.
    """

    values: Sequence[float] | float
    closed: bool = False
    colors_itself: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [self.values] if isinstance(self.values, (int, float)) else self.values
        object.__setattr__(self, "values", tuple(given))
        if not self.each or not all(map(math.isfinite, self.each)):
            raise Invalid(f"contour of {self.field}: values are {list(self.each)}: give one or more numbers")

    @property
    def each(self) -> tuple[float, ...]:
        """All values."""
        return tuple(self.values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Slice(_OfField):
    """A plane through a field, which colours it unless `color` names another one. Of a field of two dimensions all of it.

    `axis` and `at` give a plane across an axis, at a place in the units of the data, by default in the middle; `plane` any other one.
    """

    axis: Literal["x", "y", "z"] = "z"
    at: float | None = None
    plane: Plane | None = None
    light: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axis not in ("x", "y", "z"):
            raise Invalid(f"slice of {self.field}: axis is '{self.axis}', not 'x', 'y' or 'z'")
        if self.at is not None and not math.isfinite(self.at):
            raise Invalid(f"slice of {self.field}: at is {self.at}")


@dataclass(frozen=True)
class Clip(_OfField):
    """The domain as a solid, in the colours of the field, cut open by one plane or several (`clip`)."""

    light: ClassVar[float] = 0.3


@dataclass(frozen=True)
class Threshold(_OfField):
    """The elements of a field whose values lie between two, both included, each as a box; coloured by the field unless `color` says else."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high:
            raise Invalid(f"threshold of {self.field}: from {self.low} to {self.high} there is nothing")


@dataclass(frozen=True)
class Volume(_OfField):
    """A field of three dimensions as a cloud: how dense it is where depends on the value there.

    `density` are numbers from 0 to 1: the first for the lowest value of `range`, the last for the highest, those between at equal distances.
    Each is the share of light that a way of a hundredth of the domain's diagonal takes away. What is no number is as the lowest value.
    """

    density: Sequence[float] = (0.0, 0.02, 0.2)
    light: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _freeze(self, "density")
        if len(self.density) < 2 or not all(0 <= density <= 1 for density in self.density):
            raise Invalid(
                f"volume of {self.field}: density is {list(self.density)}: give two or more numbers from 0 to 1"
            )
        if self.color != self.field:
            raise Invalid(f"volume of {self.field}: its own values colour it, not '{self.color}'")

    @property
    def is_seen_through(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class _Flow(Layer):
    """What shows a vector field: three fields are its components along x, y and z. Coloured by its length unless `color` says else."""

    vector: tuple[str, str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        _freeze(self, "vector")
        if len([*self.vector]) != 3 or not all(isinstance(name, str) for name in self.vector):
            raise Invalid(
                f"{type(self).__name__.lower()}: vector is {self.vector}: give the fields of its three components"
            )
        if self.opacity < 1:
            raise Invalid(
                f"{type(self).__name__.lower()}: one does not see through it: it has no order with others'"
            )

    @property
    def needs(self) -> tuple[str, ...]:
        """The components."""
        return self.vector

    @property
    def is_colored(self) -> bool:
        """Always."""
        return True

    @property
    def what_colors(self) -> str:
        """The field, or the length of the vector."""
        return self.color or f"|{', '.join(self.vector)}|"


@dataclass(frozen=True)
class Arrows(_Flow):
    """A vector field as arrows: one at each element whose indices are multiples of `every`.

    The longest that there has been at any step is as long as `every` elements, times `length`.
    """

    every: int = 4
    length: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_count(self.every) or not 0 < self.length < math.inf:
            raise Invalid(
                f"arrows: every is {self.every}, length {self.length}: give 1 or more, and more than 0"
            )


@dataclass(frozen=True)
class Streamlines(_Flow):
    """Lines along which a vector field flows, as tubes.

    `seeds` begin at equal distances along x, y and z, and go both ways; each is up to `length` long each way, and `width` thick: both in
    a domain whose diagonal is 1 long.
    """

    seeds: tuple[int, int, int] = (6, 6, 6)
    length: float = 0.5
    width: float = 0.006

    def __post_init__(self) -> None:
        super().__post_init__()
        _freeze(self, "seeds")
        if len([*self.seeds]) != 3 or not all(map(is_count, self.seeds)):
            raise Invalid(f"streamlines: seeds are {self.seeds}: give how many there are along x, y and z")
        if not (0 < self.length < math.inf and 0 < self.width < 1):
            raise Invalid(f"streamlines: length is {self.length}, width {self.width}: both are more than 0")


@dataclass(frozen=True)
class Spheres(Layer):
    """The particles of a species as spheres of a radius in the units of the data. `color` names a field of it; of vectors their length.

    With `reach`, a distance, each is darkened by those around it that are no farther away, by the share of the directions in which it sees
    them (ambient occlusion). A rank's ghosts count, so that no seam shows where they reach as far. `clip` takes away those whose middle is on
    the other side, whole.
    """

    species: str
    radius: float
    places: str = "x"
    """The species' field of where they are: x, y, z."""
    reach: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.radius < math.inf:
            raise Invalid(f"spheres of {self.species}: radius is {self.radius}: give more than 0")
        if not 0 <= self.reach < math.inf:
            raise Invalid(f"spheres of {self.species}: reach is {self.reach}: give 0 or more")
        if self.opacity < 1:
            raise Invalid(
                f"spheres of {self.species}: one does not see through them: they have no order with others'"
            )
        if self.color is not None and "/" not in self.color:
            object.__setattr__(self, "color", f"{self.species}/{self.color}")

    @property
    def places_field(self) -> str:
        """The field of where they are."""
        return f"{self.species}/{self.places}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Where they are."""
        return (self.places_field,)


@dataclass(frozen=True)
class Mesh(Layer):
    """The outer faces of a mesh: `points` is a field of x, y, z, `cells` one of indices of the points of the same rank and block.

    3 indices are a triangle, 4 a tetrahedron, 8 a hexahedron. `color` names a field with a value for each point, or for each cell.
    """

    points: str
    cells: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.opacity < 1:
            raise Invalid(f"mesh of {self.cells}: one does not see through it: it has no order with others'")

    @property
    def needs(self) -> tuple[str, ...]:
        """Points and cells."""
        return (self.points, self.cells)
