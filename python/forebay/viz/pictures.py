# SPDX-License-Identifier: Apache-2.0
"""Pipelines that draw pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay._contract import every
from forebay._errors import Invalid
from forebay._mpi.named import Comm
from forebay._pipeline import Pipeline
from forebay._step import Step
from forebay.viz import cinema, files
from forebay.viz.drawing import Drawing, Drawn
from forebay.viz.latest import Latest
from forebay.viz.picture import Picture


class Pictures(Pipeline):
    """A pipeline that draws pictures of a stream, and writes them as PNG files.

    Say what they show in the class, or make them of the configuration in `describe`::

        class Look(viz.Pictures):
            stream = "grayscott"
            pictures = [viz.Picture(layers=[viz.Contour("U", [0.5], color="V")], every=10)]

    Each worker draws what lies beside its server; the pictures are put together by all of them, the more at once the more workers there
    are. Which fields it needs follows from what the pictures show. A step that lacks a field of a layer is drawn without that layer.
    The latest ones also lie in the space, where `forebay pipeline picture NAME -o x.png` finds them. The configuration has `output`, the
    directory for the files, counted from the one in which the pipeline is created; by default it is that.
    """

    pictures: Sequence[Picture] = ()

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.output = Path(config.get("output", "."))
        self.pictures = list(self.describe(config))
        if not self.pictures:
            raise Invalid(
                f"{type(self).__name__} has no pictures: set `pictures`, or define describe(config)"
            )
        names = [picture.name for picture in self.pictures]
        if twice := {name for name in names if names.count(name) > 1}:
            raise Invalid(
                f"{type(self).__name__}: two pictures are called '{min(twice)}': their files would be the same"
            )
        periods: dict[str, int] = {}
        for picture in self.pictures:
            for name in picture.fields:
                periods[name] = math.gcd(periods.get(name, 0), picture.every)
        self.fields = {name: every(period) for name, period in periods.items()}
        self._drawing, self._latest = Drawing(self.pictures), Latest()

    def describe(self, config: dict[str, Any]) -> Sequence[Picture]:  # noqa: ARG002 - for those who override it
        """The pictures, made of the configuration. By default `pictures`."""
        return self.pictures

    def warm_up(self) -> None:
        """Draws a frame that nobody sees."""
        self._drawing.warm_up()

    def execute(self, step: Step, comm: Comm) -> None:
        """Draws the pictures of a step, and writes those that this worker has put together."""
        self._drawing.draw_each(step, comm, self._write)
        databases = [picture for picture in self._drawing.shown_at(step.number) if picture.cinema]
        if databases:
            comm.Barrier()  # all files are there
        for picture in databases if comm.rank == 0 else ():
            rows = [
                cinema.Row(step.number, step.time, camera, picture.file_name(step.number, camera))
                for camera in range(len(picture.cameras))
            ]
            cinema.add(cinema.directory_of(self.output, picture), picture, rows)

    def _write(self, drawn: Drawn) -> None:
        content = files.png(drawn.pixels)
        files.write(cinema.directory_of(self.output, drawn.picture) / drawn.file_name, content)
        self._latest.show(drawn, content)

    def close(self) -> None:
        """Closes what it has opened."""
        self._latest.close()
