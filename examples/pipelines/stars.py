# SPDX-License-Identifier: Apache-2.0
"""A database of pictures of the stars of examples/mn: from 80 cameras all around, at every tenth step.

    forebay pipeline create stars examples/pipelines/stars.py:Orbit --config '{"output": "pictures"}'
    mpiexec -n 2 ./simulation            # examples/mn/simulation.c says how it is compiled

Each worker puts one picture together while the others put together theirs: eight workers make eight pictures at a time. The
configuration may have `output`, the directory in which `stars.cdb` is made, `cameras`, `every`, `size`, `samples` and `radius`.
"""

from forebay import viz

REACH = 0.02  # as far as the simulation's ghosts do


class Orbit(viz.Pictures):
    stream = "stars"

    def describe(self, config):
        stars = viz.Spheres(
            "stars",
            config.get("radius", 0.008),
            color="v",
            colors="plasma",
            range=(0, 1),
            reach=REACH,
            label="velocity",
            clip=[
                viz.Plane(normal=(0, 0, -1), point=(0.5, 0.5, 0.5))
            ],  # without the half that hides the middle
        )
        return [
            viz.Picture(
                name="stars",
                every=config.get("every", 10),
                layers=[stars],
                camera=viz.orbit(config.get("cameras", 80)),
                size=tuple(config.get("size", (800, 600))),
                samples=config.get("samples", 2),
                shade=0.3,
                title="stars",
                servers=True,
                cinema=True,
            )
        ]
