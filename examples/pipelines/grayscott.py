# SPDX-License-Identifier: Apache-2.0
"""Pictures of the Gray–Scott reaction, drawn by the workers of all servers together.

    forebay pipeline create pictures examples/pipelines/grayscott.py:Reaction --config '{"output": "pictures"}'

One shows where the two substances meet, from outside; the other one is cut open, and shows how much of the second one there is within.
The configuration may have `output`, the directory for the pictures, `size` and `samples`.
"""

from forebay import viz


class Reaction(viz.Pictures):
    stream = "grayscott"

    def describe(self, config):
        shared = {
            "title": "Gray–Scott",
            "size": tuple(config.get("size", (1200, 900))),
            "samples": config.get("samples", 2),
            "servers": True,
        }
        surface = viz.Contour("U", [0.5], color="V", range=(0.15, 0.38), closed=True, label="V where U = 0.5")
        front = viz.Plane(normal=(0, 0, -1), point=(0, 0, config.get("cut", 40)))
        shells = viz.Contour(
            "V", [0.1, 0.2, 0.3], color="V", colors="magma", range=(0, 0.4), closed=True, clip=[front]
        )
        inward = viz.Camera(azimuth=20, elevation=14)
        return [
            viz.Picture(name="surface", layers=[surface], every=10, **shared),
            viz.Picture(name="inside", layers=[shells], camera=inward, every=50, **shared),
        ]
