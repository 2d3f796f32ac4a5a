# SPDX-License-Identifier: Apache-2.0
"""Pictures of a step: each worker draws what lies beside it, and all together put it into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._mpi.communicator import Intracomm
from forebay._mpi.constants import IN_PLACE
from forebay._mpi.operations import MAX
from forebay._step import Step
from forebay.viz import words
from forebay.viz.camera import View, corners_of, view_of
from forebay.viz.domain import Domain
from forebay.viz.facts import agree
from forebay.viz.finishing import finished
from forebay.viz.layers import Layer, Spheres, Volume
from forebay.viz.parts import Balls, Part, Solid
from forebay.viz.picture import Picture
from forebay.viz.scene import Box, Scene
from forebay.viz.seen_through import put_together
from forebay.viz.shapes import boxes, can_be_drawn, shape
from forebay.viz.surface import Surface
from forebay.viz.window import Window

Array = NDArray[Any]

_Parts = dict[tuple[Layer, Domain], list[Part]]
"""What this worker has of each layer: once for all pictures that have the same domain."""

# What words take of a picture's height, of 2, at the bottom.
_ROOM = 0.24


@dataclass(frozen=True)
class Drawn:
    """A picture that is whole."""

    picture: Picture
    camera: int
    """Which of the picture's cameras it is from."""
    step: int
    pixels: Array
    """(height, width, 3) in 8 bits, the highest row first."""

    @property
    def file_name(self) -> str:
        """What its file is called."""
        return self.picture.file_name(self.step, self.camera)


@dataclass(frozen=True)
class _Whole:
    """All workers' parts of a picture, put together."""

    which: int
    camera: int
    view: View
    colors: Array
    depths: Array
    through: Array | None
    """What one sees through, before them."""


class Drawing:
    """Draws some pictures of each step that it is given, on all workers at once.

    What it keeps from step to step is the widest range of values of each layer and the widest box around the data, so that colours mean
    the same in all pictures, and these follow each other as a film.
    """

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self._pictures = list(pictures)
        # Layers that are in several pictures are cut out of the blocks once.
        self._layers: list[Layer] = list(
            dict.fromkeys(layer for picture in pictures for layer in picture.layers)
        )
        # What in one picture has the same colours for the same field has them for the same values.
        self._scales = list(
            dict.fromkeys(
                _scale_of(which, layer)
                for which, picture in enumerate(pictures)
                for layer in picture.layers
                if layer.is_colored
            )
        )
        self._ranges = np.full((len(self._scales), 2), -np.inf)
        """Of each the lowest value, negative, and the highest."""
        self._boxes = np.full((len(self._pictures), 6), -np.inf)
        """Of each picture the lowest corner, negative, and the highest."""
        self._longest = np.zeros(len(self._layers))
        self._window: Window | None = None
        self._scenes: list[Scene] = []

    def draw(self, step: Step, comm: Intracomm) -> list[Drawn]:
        """Draws all pictures, and returns those that this worker has put together. All workers call it at the same step.

        Copies what filters need of the blocks. Waits for the other workers. `Unsupported` where nothing can be drawn, `Invalid` for
        fields that a layer cannot show, and what `comm` raises.
        """
        drawn: list[Drawn] = []
        self.draw_each(step, comm, drawn.append)
        return drawn

    def draw_each(self, step: Step, comm: Intracomm, take: Callable[[Drawn], object]) -> None:
        """As `draw`, but gives each picture away as soon as it is whole: a worker has no more than one of them in its memory.

        As many pictures as there are workers are put together one after the other, each by another worker; then all of these workers
        shade theirs, and give it to `take`, at once.
        """
        shown = [which for which, picture in enumerate(self._pictures) if step.number % picture.every == 0]
        domains = self._domains(step, comm)
        facts = agree(self._layers, step, comm, self._longest)
        parts: _Parts = {}
        # In one order on all workers: some shapes exchange lines.
        for which in shown:
            for layer in self._pictures[which].layers:
                if (layer, domains[which]) not in parts:
                    known = facts[self._layers.index(layer)]
                    parts[layer, domains[which]] = shape(layer, step, domains[which], known)
        self._widen(parts, (shown, domains), comm)
        frames = [(which, camera) for which in shown for camera in range(len(self._pictures[which].cameras))]
        for first in range(0, len(frames), comm.Get_size()):
            batch = frames[first : first + comm.Get_size()]
            mine = self._mine_of(batch, (step, domains, parts), comm)
            if mine is not None:
                take(self._finished(mine, step, comm))
            del mine

    def _mine_of(
        self, batch: list[tuple[int, int]], given: tuple[Step, list[Domain], _Parts], comm: Intracomm
    ) -> _Whole | None:
        """Puts together a picture for each of the first workers, and returns this worker's."""
        step, domains, parts = given
        mine = None
        for root, (which, camera) in enumerate(batch):
            frame = self._put_together(which, camera, (step, domains[which], parts), comm, root)
            mine = frame or mine
        return mine

    def shown_at(self, number: int) -> list[Picture]:
        """The pictures that are drawn at a step of this number."""
        return [picture for picture in self._pictures if number % picture.every == 0]

    def warm_up(self) -> None:
        """Draws something that nobody sees: the first frame of a process opens what draws, and compiles its shaders."""
        domain = Domain.between(np.zeros(3), np.ones(3))
        for which, picture in enumerate(self._pictures):
            scene, view = self._scene(which), self._view(picture, picture.cameras[0], domain, 0)
            spans = [(0.0, 1.0) if layer.is_colored else None for layer in picture.layers]
            scene.put([[_something(layer, domain)] for layer in picture.layers], spans)
            scene.look(view)
            scene.show_opaque(domain, 1.0)
            colors, depths = self._draw(which)
            finished(picture, view, colors, depths)
            for box in scene.boxes():
                self._draw_box(which, box, domain)
            words.write(np.zeros((8, 8, 3), "u1"), picture, "0", [])

    def _domains(self, step: Step, comm: Intracomm) -> list[Domain]:
        """The box around all that each picture shows, at this and all earlier steps."""
        found = self._boxes.copy()
        for layer in self._layers:
            for low, high in boxes(layer, step) if can_be_drawn(layer, step) else ():
                for which, picture in enumerate(self._pictures):
                    if layer in picture.layers:
                        found[which] = np.maximum(found[which], np.concatenate([-low, high]))
        comm.Allreduce(IN_PLACE, found, MAX)
        self._boxes = found
        return [_domain_of(box) for box in found]

    def _widen(self, parts: _Parts, shown: tuple[list[int], list[Domain]], comm: Intracomm) -> None:
        """The colours mean what was drawn at this and all earlier steps, by any worker: also by those that are gone."""
        for which in shown[0]:
            picture, domain = self._pictures[which], shown[1][which]
            for layer in picture.layers:
                for part in parts[layer, domain] if layer.is_colored else ():
                    values = part.shape.values[np.isfinite(part.shape.values)]
                    if values.size:
                        number = self._scales.index(_scale_of(which, layer))
                        found = -float(values.min()), float(values.max())
                        self._ranges[number] = np.maximum(self._ranges[number], found)
        comm.Allreduce(IN_PLACE, self._ranges, MAX)

    def _span(self, which: int, layer: Layer) -> tuple[float, float] | None:
        """The values at the two ends of a layer's colours."""
        if not layer.is_colored:
            return None
        low, high = self._ranges[self._scales.index(_scale_of(which, layer))] * (-1, 1)
        if layer.range is not None:
            low, high = layer.range
        elif low > high:
            low, high = 0.0, 1.0  # nothing was drawn
        return (low, high) if low < high else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))

    def _put_together(
        self,
        which: int,
        camera: int,
        given: tuple[Step, Domain, _Parts],
        comm: Intracomm,
        root: int,
    ) -> _Whole | None:
        """One picture from one camera, whole at the root, where it is kept while others are drawn."""
        picture, (step, domain, parts) = self._pictures[which], given
        scene = self._scene(which)
        if camera == 0:
            spans = [self._span(which, layer) for layer in picture.layers]
            scene.put([parts[layer, domain] for layer in picture.layers], spans)
        view = self._view(picture, picture.cameras[camera], domain, step.number)
        scene.look(view)
        is_first = comm.Get_rank() == 0
        line = max(1.0, picture.drawn_size[1] / 750)
        scene.show_opaque(domain, line if picture.outline and is_first else None)
        colors, depths = self._draw(which)
        through, sees_through = None, any(layer.is_seen_through for layer in picture.layers)
        # What one sees through is hidden behind what others have drawn.
        to = None if sees_through else root
        comm.Composite_nearest(colors, depths, to, with_depths=sees_through or picture.darkening > 0)
        if sees_through:
            # Drawing again takes the memory of what was drawn before.
            colors, depths = colors.copy(), depths.copy()
            self._set_depths(depths)
            through = put_together(
                scene.boxes(),
                view,
                lambda box: self._draw_box(which, box, domain),
                comm,
                root,
                picture.drawn_size,
            )
        if comm.Get_rank() != root:
            return None
        if not sees_through:
            colors, depths = colors.copy(), depths.copy()
        return _Whole(which, camera, view, colors, depths, through)

    def _finished(self, whole: _Whole, step: Step, comm: Intracomm) -> Drawn:
        """Samples become pixels, hollows are darkened, words are written."""
        picture = self._pictures[whole.which]
        pixels = finished(picture, whole.view, whole.colors, whole.depths, whole.through)
        caption = _caption(picture, step, comm.Get_size()) if picture.caption else ""
        legends = self._legends(whole.which, step) if picture.legend else []
        words.write(pixels, picture, caption, legends)
        return Drawn(picture, whole.camera, step.number, pixels)

    def _legends(self, which: int, step: Step) -> list[words.Legend]:
        found: dict[Any, words.Legend] = {}
        for layer in self._pictures[which].layers:
            span = self._span(which, layer)
            if span is None or not can_be_drawn(layer, step):
                continue
            units = step.field(layer.color or layer.needs[0]).units
            name = layer.what_colors
            label = layer.label or (f"{name} ({units})" if units not in ("", "1") else name)
            found.setdefault((label, str(layer.colors), span), words.Legend(label, layer.colors, span))
        return list(found.values())

    def _view(self, picture: Picture, camera: Any, domain: Domain, number: int) -> View:
        width, height = picture.size
        room = _ROOM if picture.caption or picture.legend else 0.0
        return view_of(camera, corners_of(*domain.scene_box), domain.to_scene, number, width / height, room)

    def _scene(self, which: int) -> Scene:
        if not self._scenes:
            self._window = Window()
            self._scenes = [Scene(picture.layers, words.ink_of(picture)[1]) for picture in self._pictures]
            for scene in self._scenes:
                self._window.add(scene.renderer)
        return self._scenes[which]

    def _draw(self, which: int) -> tuple[Array, Array]:
        assert self._window is not None
        for number, scene in enumerate(self._scenes):
            scene.renderer.SetDraw(number == which)
        return self._window.draw(self._pictures[which].drawn_size)

    def _set_depths(self, depths: Array) -> None:
        assert self._window is not None
        self._window.set_depths(depths)

    def _draw_box(self, which: int, box: Box, domain: Domain) -> Array:
        assert self._window is not None
        self._scenes[which].show_box(box, domain)
        return self._window.draw_over(self._pictures[which].drawn_size)


def _scale_of(which: int, layer: Layer) -> tuple[Any, ...]:
    """By which values become colours, in this picture."""
    return which, layer.what_colors, layer.colors, layer.range


def _domain_of(box: Array) -> Domain:
    if not np.isfinite(box).all():
        return Domain.between(np.zeros(3), np.ones(3))  # nothing yet
    low, high = -box[:3], box[3:]
    if (low == high).all():
        return Domain.between(low - 0.5, high + 0.5)  # of one element
    return Domain.between(low, high)


def _something(layer: Layer, domain: Domain) -> Part:
    """Something of a layer that can be drawn."""
    low, high = domain.scene_box
    if isinstance(layer, Volume):
        return Part(low, high, Solid(np.zeros((2, 2, 2), "f4"), low, high - low))
    if isinstance(layer, Spheres):
        return Part(low, high, Balls(np.zeros((1, 3), "f4"), 0.1, np.zeros(1, "f4")))
    corners = np.eye(3, dtype="f4") / 4
    return Part(low, high, Surface(corners, corners, np.zeros(3, "f4"), np.array([[0, 1, 2]])))


def _caption(picture: Picture, step: Step, workers: int) -> str:
    time = "" if step.time is None else f"    t = {step.time:g}"
    servers = f"    {workers} server{'s' if workers > 1 else ''}" if picture.servers else ""
    return f"{picture.title}\n" * bool(picture.title) + f"step {step.number}{time}{servers}"
