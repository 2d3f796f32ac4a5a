# SPDX-License-Identifier: Apache-2.0
"""The Mandelbulb: one surface of a fractal, drawn by the workers of all servers together.

    forebay pipeline create mandelbulb examples/pipelines/mandelbulb.py:Bulb --driven --config '{"output": "pictures"}'

The configuration may have `output`, the directory for the pictures, `size`, `samples`, `level`, the number of iterations after
which what the surface encloses has not left, and `plain`: true for one colour, so that one field of two is staged.
"""

from forebay import viz


class Bulb(viz.Pictures):
    stream = "mandelbulb"

    def describe(self, config):
        level = config.get("level", 4.0)
        if config.get("plain", False):
            surface = viz.Contour("escape", [level], tint="#d9a441")
        else:
            surface = viz.Contour(
                "escape",
                [level],
                color="trap",
                colors="magma",
                range=(0.3, 1.0),
                label="nearest to the middle",
            )
        return [
            viz.Picture(
                name="bulb",
                title="Mandelbulb",
                size=tuple(config.get("size", (1200, 900))),
                samples=config.get("samples", 2),
                servers=True,
                outline=False,
                layers=[surface],
                camera=viz.Camera(azimuth=30, elevation=25, zoom=1.4),
            )
        ]
