# SPDX-License-Identifier: Apache-2.0
"""Pictures that ranks have drawn, put together into one: what is nearest, or layers one behind the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from forebay import _forebay
from forebay._errors import Invalid

Box = tuple[Sequence[float], Sequence[float]]
"""The lowest and the highest corner of a box along the axes."""


class Compositing:
    """What a communicator does with pictures. All ranks call it, with pictures of one size."""

    @property
    def _core(self) -> _forebay.Comm:
        raise NotImplementedError

    def Composite_nearest(
        self,
        colors: Any,
        depths: Any,
        root: int | None = 0,
        *,
        far: float = 1.0,
        with_depths: bool = False,
    ) -> None:
        """Puts pictures with depth together: of each pixel what is nearest; of equal depths the lowest rank's.

        The result stands in the root's own `colors` (and `depths`, if `with_depths`), or in every rank's if `root` is None; pixels that
        nobody has stay as they are there. What the others' arrays hold afterwards is of no use. Nothing is copied on the way from
        Python. Pixels with a depth of `far`, beyond it or NaN are background, and are not sent. Waits for all ranks.

        Parameters
        ----------
        colors
            uint8, four for each pixel, in any shape; contiguous and writable.
        depths
            float32, one for each pixel, as a z-buffer has them: less is nearer.
        root
            Which rank gets the picture; None: all.
        far
            The depth of the background, the same on all ranks.
        with_depths
            Whether the depths of the result are wanted, too.

        Raises
        ------
        Invalid
            Sizes, `far` or the root differ between ranks, or arrays are of other types.
        Unreachable, Timeout
            As of all collectives: a rank has died, or did not come.

        Notes
        -----
        Radix-k (Peterka et al., 2009), which for two ranks is binary swap (Ma et al., 1994); only pixels that count are sent.
        """
        self._core.composite_nearest(root, colors, depths, far, with_depths)

    def Composite_over(
        self, layers: Iterable[tuple[int, Any]], into: Any = None, root: int | None = 0
    ) -> None:
        """Puts layers together that one sees through, from front to back in the order of their positions.

        A rank gives none, one or several; `front_to_back` says which position a layer has. The root, or every rank if `root` is None,
        has the result in `into`; others may leave it out, if they have a layer. Layers are only read. Waits for all ranks.

        Parameters
        ----------
        layers
            Pairs of a position, which no other layer of any rank has, and an array: red, green and blue, each multiplied with alpha,
            and alpha of each pixel, all uint8 or all float32. Pixels whose alpha is 0 are not sent.
        into
            An array of the same size and type.
        root
            Which rank gets the picture; None: all.

        Raises
        ------
        Invalid
            Two layers have one position, or sizes, types or the root differ.
        Unreachable, Timeout
            As of all collectives: a rank has died, or did not come.

        Notes
        -----
        The operator is *over* of Porter and Duff (1984), on colours that are multiplied with alpha. uint8 is rounded in each round: of n
        ranks by up to log2(n)/2 of 255.
        """
        self._core.composite_over(root, list(layers), into)


def front_to_back(
    boxes: Iterable[Box], *, eye: Sequence[float] | None = None, direction: Sequence[float] | None = None
) -> list[int]:
    """The order in which boxes stand behind each other, as indices: no box hides a part of one that comes before it.

    For a camera in perspective give its place, `eye`; for a parallel projection the `direction` in which it looks. Where either order
    is right, the lower index comes first. Compares each box with each other one.

    Parameters
    ----------
    boxes
        Pairs of the lowest and the highest corner, three numbers each. They must not overlap, but may touch: so give the boxes of
        blocks without ghosts.

    Raises
    ------
    Invalid
        Boxes overlap, or hide parts of each other in a ring, so that no order is right; numbers are not finite.

    Examples
    --------
    >>> left, right = ((0, 0, 0), (1, 1, 1)), ((1, 0, 0), (2, 1, 1))
    >>> forebay.front_to_back([left, right], eye=(5, 0, 0))
    [1, 0]
    """
    if (eye is None) == (direction is None):
        raise Invalid("give either the camera's place as eye=, or the direction in which it looks")
    corners = [(tuple(map(float, low)), tuple(map(float, high))) for low, high in boxes]
    point = tuple(map(float, direction if eye is None else eye))  # type: ignore[arg-type]
    return _forebay.front_to_back(corners, point, eye is None)
