# SPDX-License-Identifier: Apache-2.0
"""One rank of some that draw together.

frames TURNS                    240,000 triangles, put together by `comm`, and by VTK
pipeline GROUP STREAM TURNS     all that a pipeline does with a step: cut, draw, put together, shade; started by an MPI
"""

from __future__ import annotations

import importlib
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import MPI
from forebay.bench import pictures_scenes
from forebay.bench.errors import WrongData
from forebay.bench.over_messages import OverMessages, Share

_SIZE = (1024, 1024)
_TRIANGLES = 240_000
_WARM_UP = 3
_EYES = 30


def _tell(comm: Any, what: str, seconds: list[float]) -> None:
    if comm.rank == 0:
        print(f"{what} {comm.size} {float(np.median(seconds)):.9f} {len(seconds)}", flush=True)


def _frames(comm: Any, turns: int) -> None:
    """A frame each in turn, from other sides each time, from the begin of drawing until rank 0 has the picture."""
    from vtkmodules.vtkRenderingParallel import vtkCompositedSynchronizedRenderers, vtkTreeCompositer

    import forebay.vtk

    surface = pictures_scenes.part_of_ball(comm.rank, comm.size, _TRIANGLES)
    ours, theirs = (pictures_scenes.Stage(surface, _SIZE) for _ in range(2))
    with forebay.vtk.Controller(comm) as controller:
        together, compositer = vtkCompositedSynchronizedRenderers(), vtkTreeCompositer()
        compositer.SetController(controller)
        together.SetRenderer(theirs.scene.renderer)
        together.SetParallelController(controller)
        together.SetCompositer(compositer)
        together.SetRootProcessId(0)
        together.ParallelRenderingOn()

        def frame(number: int) -> NDArray[Any]:
            ours.look(number)
            colors, depths = ours.window.draw(_SIZE)
            comm.Composite_nearest(colors, depths, 0)
            return colors

        def frame_of_vtk(number: int) -> None:
            theirs.look(number)
            theirs.window.render(_SIZE)

        def picture_of_vtk(number: int) -> NDArray[Any]:
            frame_of_vtk(number)
            return theirs.window.read(_SIZE) if comm.rank == 0 else np.zeros((1, 1, 4), "u1")

        seen = frame(0)[..., :3].copy(), picture_of_vtk(0)[..., :3].copy()
        if comm.rank == 0 and (seen[0] != seen[1]).any(axis=2).mean() > 1e-3:
            raise WrongData("VTK's compositer shows something else")
        _in_turn(comm, turns, {"frame": frame, "frame-vtk": frame_of_vtk, "picture-vtk": picture_of_vtk})


def _turned(every: list[Any], by: int) -> list[Any]:
    return every[by % len(every) :] + every[: by % len(every)]


def _in_turn(comm: Any, turns: int, calls: dict[str, Callable[[int], object]]) -> None:
    times: dict[str, list[float]] = {what: [] for what in calls}
    for turn in range(turns + _WARM_UP):
        # None is always the one after the same other one.
        for what, call in _turned(list(calls.items()), turn):
            comm.Barrier()
            began = time.perf_counter()
            call(turn % _EYES)
            comm.Barrier()
            if turn >= _WARM_UP:
                times[what].append(time.perf_counter() - began)
    for what, seconds in times.items():
        _tell(comm, what, seconds)


def _pipeline(comm: Any, mpi: Any, group: str, stream: str, turns: int) -> None:
    """Steps in turn: by messages of MPI, by Forebay's with the same code, and with Forebay's own compositing."""
    import forebay

    drawing = pictures_scenes.drawing(stream)
    name = comm.bcast(str(uuid.uuid4()))
    with (
        forebay.Comm(name, rank=comm.rank, size=comm.size, group=group) as ours,
        forebay.Consumer(stream, group=group, start="held", timeout=60) as reader,
        reader.next() as step,
    ):
        share = Share(step, comm.rank, comm.size)

        def by(those: Any) -> Callable[[int], object]:
            return lambda _: drawing.draw(share, those)  # type: ignore[arg-type]

        messages = {"mpi": by(OverMessages(comm, mpi)), "forebay": by(OverMessages(ours, MPI))}
        _in_turn(comm, turns, {**messages, "own": by(ours)})


def main() -> None:
    """Prints a line for each: what, ranks, seconds of one frame or step, how many were drawn."""
    what, *words = sys.argv[1:]
    if what == "frames":
        _frames(MPI.COMM_WORLD, int(words[0]))
    else:
        module = importlib.import_module("mpi4py.MPI")
        _pipeline(module.COMM_WORLD, module, words[0], words[1], int(words[2]))


if __name__ == "__main__":
    main()
