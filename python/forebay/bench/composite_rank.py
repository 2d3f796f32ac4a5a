# SPDX-License-Identifier: Apache-2.0
"""One rank that measures how pictures are put together: SIDE TURNS."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from forebay import MPI
from forebay.bench.errors import WrongData

_Picture = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _drawn(rank: int, size: int, side: int, cover: str) -> _Picture:
    """A ball, or all of the picture, with a depth that makes every rank the nearest somewhere."""
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    angle = 2 * np.pi * rank / size
    depths = (0.5 + 0.2 * np.sin(9 * x + angle) * np.cos(7 * y + angle)).astype("f4")
    if cover == "half":
        # Half of the picture: a ball of that area, beside the others'.
        inside = (x - 0.08 * np.cos(angle)) ** 2 + (y - 0.08 * np.sin(angle)) ** 2 < 0.5 / np.pi
        depths[~inside] = 1
    colors = np.full((side, side, 4), 255, "u1")
    colors[..., 0], colors[..., 1], colors[..., 2] = 20 * rank, 255 * (x + 0.5), 255 * (y + 0.5)
    return colors, depths


def _gathered(comm: Any, colors: np.ndarray[Any, Any], depths: np.ndarray[Any, Any]) -> _Picture | None:
    """As whoever has no compositing does it."""
    all_colors = np.empty((comm.size, *colors.shape), "u1") if comm.rank == 0 else None
    all_depths = np.empty((comm.size, *depths.shape), "f4") if comm.rank == 0 else None
    comm.Gather(colors, all_colors)
    comm.Gather(depths, all_depths)
    if all_colors is None or all_depths is None:
        return None
    pixels = all_colors.view("u4")[..., 0]
    seen, depth = pixels[0], all_depths[0]
    for other, its_depth in zip(pixels[1:], all_depths[1:], strict=True):
        nearer = its_depth < depth
        np.copyto(seen, other, where=nearer)
        np.copyto(depth, its_depth, where=nearer)
    return all_colors[0], depth


def _seconds(comm: Any, turns: int, begin: Callable[[], Any], call: Callable[[Any], object]) -> float:
    """From the moment that all have drawn until this rank is done: the median."""
    times = []
    for _ in range(turns + 2):
        drawn = begin()
        comm.Barrier()
        began = time.perf_counter()
        call(drawn)
        times.append(time.perf_counter() - began)
    return float(np.median(times[2:]))


def _check(found: _Picture, wanted: _Picture | None) -> None:
    if wanted is None:
        return
    seen = wanted[1] < 1
    if not (np.array_equal(found[1], wanted[1]) and np.array_equal(found[0][seen], wanted[0][seen])):
        raise WrongData("what was put together is not what NumPy makes of it")


def main() -> None:
    """Prints a line for each: what, pixels, seconds of one call, how many calls."""
    side, turns = map(int, sys.argv[1:])
    comm = MPI.COMM_WORLD

    def tell(what: str, seconds: float) -> None:
        if comm.rank == 0:
            print(f"{what} {side * side} {seconds:.9f} {turns}", flush=True)

    for cover in ("half", "full"):
        colors, depths = _drawn(comm.rank, comm.size, side, cover)

        def again(colors: Any = colors, depths: Any = depths) -> _Picture:
            return colors.copy(), depths.copy()

        def put_together(drawn: _Picture, with_depths: bool) -> None:
            comm.Composite_nearest(*drawn, with_depths=with_depths)

        tell(cover, _seconds(comm, turns, again, partial(put_together, with_depths=False)))
        tell(f"{cover}-depths", _seconds(comm, turns, again, partial(put_together, with_depths=True)))
        found = again()
        put_together(found, True)
        _check(found, _gathered(comm, colors, depths))
        tell(f"gather-{cover}", _seconds(comm, turns, again, lambda drawn: _gathered(comm, *drawn)))
    layer = _drawn(comm.rank, comm.size, side, "half")
    colors = layer[0] // 2 * (layer[1] < 1)[..., None]
    into = np.empty_like(colors)
    given = [(comm.rank, colors)]
    tell("layers", _seconds(comm, turns, lambda: None, lambda _: comm.Composite_over(given, into)))


if __name__ == "__main__":
    main()
