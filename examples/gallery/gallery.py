# SPDX-License-Identifier: Apache-2.0
"""One picture of each kind that forebay.viz draws, of made-up fields: gallery.py DIRECTORY [--size 1200x900] [--sheet FILE]

A group of two servers starts, a pipeline draws one step, and all ends. With --sheet the pictures are also put on one sheet.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import forebay

HERE = Path(__file__).resolve().parent
SHAPE = (64, 60, 72)
CUTS = ((0, 30, 64), (0, 34, 60))  # where blocks end, along z and y
NAMES = ("contour", "nested", "clip", "slices", "glass", "volume", "streamlines", "arrows", "stars")


def fields():
    """Two scalars and a vector on a grid, in a box from -1 to 1."""
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, n) for n in SHAPE], indexing="ij")
    waves = np.sin(4 * x) * np.cos(4 * y) + np.sin(4 * y) * np.cos(4 * z) + np.sin(4 * z) * np.cos(4 * x)
    turn = np.pi
    flow = (
        np.sin(turn * z) + 0.6 * np.cos(turn * y),
        0.8 * np.sin(turn * x) + np.cos(turn * z),
        0.6 * np.sin(turn * y) + 0.8 * np.cos(turn * x),
    )
    made = {"density": waves * np.exp(-0.6 * (x**2 + y**2 + z**2)), "heat": x + 0.5 * y}
    made |= dict(zip("uvw", flow, strict=True))
    return {name: values.astype("f4") for name, values in made.items()}


def stars():
    """A disc that turns."""
    places = np.random.default_rng(1).normal(0, 1, (4000, 3)) * (0.3, 0.05, 0.3)
    radius = np.hypot(places[:, 0], places[:, 2])
    speed = np.stack([-places[:, 2], 0 * radius, places[:, 0]], axis=1) / (radius[:, None] + 0.06)
    return places, speed


def put(step):
    """Hands over four blocks of each field, with a layer of ghosts, and the stars in two parts."""
    number = 0
    for z in zip(CUTS[0], CUTS[0][1:], strict=False):
        for y in zip(CUTS[1], CUTS[1][1:], strict=False):
            low = [min(1, begin) for begin, _ in (z, y)]
            high = [min(1, n - end) for (_, end), n in zip((z, y), SHAPE, strict=False)]
            part = tuple(
                slice(begin - a, end + b) for (begin, end), a, b in zip((z, y), low, high, strict=True)
            )
            for name, values in fields().items():
                step.put(
                    name,
                    values[part],
                    number=number,
                    offset=(z[0], y[0], 0),
                    ghost_low=(*low, 0),
                    ghost_high=(*high, 0),
                )
            number += 1
    places, speed = stars()
    for number, half in enumerate((slice(0, 2000), slice(2000, 4000))):
        step.put("stars/x", places[half], number=number)
        step.put("stars/v", speed[half], number=number)


def sheet(pictures, path):
    """All pictures on one."""
    from PIL import Image

    shown = [Image.open(picture).resize((400, 300), Image.Resampling.LANCZOS) for picture in pictures]
    whole = Image.new("RGB", (3 * 400, (len(shown) + 2) // 3 * 300))
    for i, picture in enumerate(shown):
        whole.paste(picture, (i % 3 * 400, i // 3 * 300))
    whole.save(path, quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("output", type=Path, metavar="DIRECTORY")
    parser.add_argument("--size", default="1200x900", help="width and height in pixels (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="put all of them on one picture, too")
    options = parser.parse_args()
    output = options.output.resolve()
    config = {"output": str(output), "size": [int(side) for side in options.size.split("x")]}
    wanted = [output / f"{name}-000000.png" for name in NAMES]
    with forebay.local(servers=2) as group, forebay.Admin(group=group.path) as admin:
        admin.create_pipeline("gallery", f"{HERE / 'look.py'}:Gallery", stream="waves", config=config)
        with forebay.Producer("waves", group=group.path, policy="block") as sim:
            for name in fields():
                spacing = tuple(2 / (n - 1) for n in SHAPE)
                sim.array(name, dtype="f4", shape=SHAPE, origin=(-1, -1, -1), spacing=spacing)
            sim.particles("stars", {"x": ("f8", 3), "v": ("f8", 3)})
            with sim.step(0) as step:
                put(step)
            while not ended(admin):
                time.sleep(0.05)
    if options.sheet:
        sheet(wanted, options.sheet)
    print(json.dumps([str(path) for path in wanted if path.exists()], indent=1))


def ended(admin):
    """Whether the step was drawn. Raises if it could not be."""
    (pipeline,) = admin.status()["pipelines"]
    if pipeline["failed"]:
        raise SystemExit(pipeline["last_error"])
    return pipeline["executed"] > 0


if __name__ == "__main__":
    main()
