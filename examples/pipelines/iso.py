# SPDX-License-Identifier: Apache-2.0
"""Draws an isosurface of a three-dimensional field: one picture of the blocks of all servers.

    forebay pipeline create iso examples/pipelines/iso.py:Isosurface --config '{"output": "pictures"}'

Every worker cuts the surface out of the blocks that its own server holds (iso_surface.py); worker 0 gathers
the triangles, which are few, and draws them (iso_scene.py).  Blocks should carry ghosts of one: they close
the gaps between blocks.  The field and the one that colours it must be put in the same blocks.

The configuration, all of it optional:

    field          the field to draw ("U")
    color          the field that colours it ("V")
    every          draw every so many steps (10)
    isovalues      the values to draw surfaces of ([0.5])
    range          [low, high] of the colours (what the step's surface has)
    colors         two or more, from low to high
    background     two, from bottom to top
    output         the directory for the pictures (".")
    width, height  in pixels (1200 x 900)
    camera         {"azimuth": 30, "elevation": 22, "zoom": 1, "spin": 0}; degrees, spin for each step
    title          in the corner, above step and time ("")
"""

from pathlib import Path

import numpy as np
from iso_scene import Scene, warm_up
from iso_surface import Grid, Surface, cut

import forebay
from forebay import MPI


class Isosurface(forebay.Pipeline):
    stream = "grayscott"
    fields = {"U": forebay.every(10), "V": forebay.every(10)}

    def __init__(self, config):
        super().__init__(config)
        self.field = config.get("field", "U")
        self.color = config.get("color", "V")
        self.fields = {name: forebay.every(config.get("every", 10)) for name in (self.field, self.color)}
        self.isovalues = config.get("isovalues", [0.5])
        self.output = Path(config.get("output", "."))
        self.scene = None

    def warm_up(self):
        warm_up(self.config)

    def execute(self, step, comm):
        field = step.field(self.field)
        if len(field.shape) != 3:
            raise ValueError(f"{self.field} has {len(field.shape)} dimensions; an isosurface needs 3")
        grid = Grid.of(field)
        outside = self.outside(step, comm)
        colors = {tuple(block.offset): block for block in step.blocks(self.color)}
        mine = []
        for block in step.blocks(self.field):
            color_block = colors.get(tuple(block.offset))
            if color_block is None:
                raise LookupError(f"{self.color} has no block here at {block.offset}, but {self.field} has")
            mine.append(cut(block, color_block, grid, self.isovalues, outside))
        surface = Surface.join(mine).gather(comm)
        if comm.rank == 0:
            surface.smooth_seams()
            if self.scene is None:
                values = ", ".join(f"{value:g}" for value in self.isovalues)
                label = f"{self.field} = {values}"
                # A surface of one value has one colour if that is what colours it.
                plain = self.color == self.field and len(self.isovalues) == 1
                if not plain:
                    label = f"{self.color} where {label}"
                self.scene = Scene(self.config, grid, label, legend=not plain)
            self.scene.show(surface, step)
            self.scene.write(self.output / f"{self.field}-{step.number:06d}.png")

    def outside(self, step, comm):
        """On which side of the first isovalue most of the domain lies: 1 above, -1 below."""
        blocks = [np.asarray(block.data) for block in step.blocks(self.field)]
        counts = np.zeros(2, "i8")  # above it, and all
        for data in blocks:
            counts += (data > self.isovalues[0]).sum(), data.size
        comm.Allreduce(MPI.IN_PLACE, counts)
        return 1 if 2 * counts[0] >= counts[1] else -1
