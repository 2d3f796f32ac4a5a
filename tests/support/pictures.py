"""Groups that draw pictures of a small field, however its blocks lie on however many servers."""

from __future__ import annotations

import contextlib
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import forebay
from forebay import viz
from support.groups import BUDGET
from support.pipelines import pipeline_status
from support.sessions import consumer, producer
from support.waiting import wait_until

Array = np.ndarray[Any, Any]
SHAPE = (30, 26, 34)
CUTS = ((0, 9, 30), (0, 13, 26), (0, 11, 20, 34))
"""Where the array is cut into blocks, in each dimension."""

CODE = """
import forebay
from forebay import viz
HEADER

class Look(viz.Pictures):
    stream = "s"

    def describe(self, config):
        small = {"size": (160, 120), "samples": 1}
        return [
            PICTURES
        ]
"""


def gyroid(time: float = 0.0, shape: Sequence[int] = SHAPE) -> tuple[Array, Array]:
    """A field whose isosurfaces go through every block, and one that colours it."""
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    u = np.sin(4 * x + time) * np.cos(4 * y) + np.sin(4 * y) * np.cos(4 * z) + np.sin(4 * z) * np.cos(4 * x)
    return u.astype("f4"), (x + 0.5 * y).astype("f4")


@contextlib.contextmanager
def drawing_group(
    place: Path, servers: int, pictures: str, header: str = "", **config: Any
) -> Iterator[forebay.LocalGroup]:
    """A group with a pipeline `look` that draws these pictures, which are written as in a list, after this code."""
    place.mkdir(parents=True, exist_ok=True)
    code = place / "look.py"
    shown = textwrap.indent(textwrap.dedent(pictures), " " * 12).strip()
    code.write_text(CODE.replace("PICTURES", shown).replace("HEADER", header))
    with (
        forebay.local(servers=servers, budget_bytes=BUDGET) as group,
        forebay.Admin(group=group.path) as admin,
    ):
        admin.create_pipeline("look", f"{code}:Look", config={"output": str(place / "out"), **config})
        yield group


def put_blocks(
    step: forebay.OpenStep, fields: dict[str, Array], ghosts: int, cuts: Sequence[Sequence[int]] = CUTS
) -> None:
    """All blocks of a step, with ghosts where the domain goes on."""
    boxes = itertools.product(*(itertools.pairwise(cut) for cut in cuts))
    for number, box in enumerate(boxes):
        for name, whole in fields.items():
            below = [min(ghosts, begin) for begin, _ in box]
            above = [min(ghosts, n - end) for (_, end), n in zip(box, whole.shape, strict=True)]
            sides = zip(box, below, above, strict=True)
            data = whole[tuple(slice(begin - low, end + high) for (begin, end), low, high in sides)]
            offset = [begin for begin, _ in box]
            step.put(name, data, number=number, offset=offset, ghost_low=below, ghost_high=above)


def placed(seed: int) -> Callable[[forebay.BlockToPlace], int]:
    """Blocks at random; those of one number lie together, and a server may get none."""
    places = np.random.default_rng(seed).integers(0, 1 << 16, 1 << 10)
    return lambda block: block.servers[int(places[block.number]) % len(block.servers)]


def drawn(out: Path) -> dict[str, Array]:
    """The pictures that were written, by the names of their files."""
    return {path.name: np.asarray(Image.open(path)) for path in sorted(out.glob("*.png"))}


def executed(group: forebay.LocalGroup, count: int, name: str = "look") -> dict[str, Any]:
    """Waits until the pipeline has drawn so many steps, all of them well."""

    def done() -> dict[str, Any] | None:
        status = pipeline_status(group, name)
        return status if status["executed"] + status["failed"] >= count else None

    status: dict[str, Any] = wait_until(done, timeout=60)
    assert status["failed"] == 0, status["last_error"]
    return status


def draw_steps(
    place: Path,
    servers: int,
    pictures: str,
    *,
    seed: int = 0,
    ghosts: int = 1,
    steps: Sequence[dict[str, Array]] | None = None,
) -> dict[str, Array]:
    """The pictures of these steps (by default one of the gyroid), from so many servers."""
    given = [dict(zip("UV", gyroid(), strict=True))] if steps is None else steps
    with (
        drawing_group(place, servers, pictures) as group,
        producer(group, placement=placed(seed), policy="block") as sim,
    ):
        for name in sorted({name for fields in given for name in fields}):
            array = next(fields[name] for fields in given if name in fields)
            sim.array(name, dtype=array.dtype, shape=array.shape, spacing=(0.5,) * array.ndim, units="mol")
        for number, fields in enumerate(given):
            with sim.step(number, time=number / 2) as step:
                put_blocks(step, fields, ghosts)
        executed(group, len(given))
    return drawn(place / "out")


def flow(shape: Sequence[int] = SHAPE) -> dict[str, Array]:
    """The components of a vector field that turns."""
    z, y, x = np.meshgrid(*[np.linspace(-3, 3, n) for n in shape], indexing="ij")
    parts = np.sin(z) + 0.6 * np.cos(y), 0.8 * np.sin(x) + np.cos(z), 0.6 * np.sin(y) + 0.8 * np.cos(x)
    return dict(zip(("u", "v", "w"), (part.astype("f4") for part in parts), strict=True))


def tetrahedra(count: int, begin: float) -> tuple[Array, Array]:
    """Points and cells of a beam, which begins there and is 1 long."""
    axes = np.linspace(begin, begin + 1, count), np.linspace(0, 1, 4), np.linspace(0, 1, 4)
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    number = np.arange(count * 16).reshape(count, 4, 4)
    corner = [
        number[a : count - 1 + a, b : 3 + b, c : 3 + c].reshape(-1)
        for a in (0, 1)
        for b in (0, 1)
        for c in (0, 1)
    ]
    paths = ((0, 1, 3, 7), (0, 1, 5, 7), (0, 2, 3, 7), (0, 2, 6, 7), (0, 4, 5, 7), (0, 4, 6, 7))
    return points, np.concatenate([np.stack([corner[i] for i in path], axis=1) for path in paths])


def draw_flow(place: Path, servers: int, pictures: str, *, seed: int = 0) -> dict[str, Array]:
    """The pictures of a step of a flow, stars and a mesh, whose blocks lie on so many servers."""
    random = np.random.default_rng(5)
    with drawing_group(place, servers, pictures) as group, producer(group, placement=placed(seed)) as sim:
        for name in "uvw":
            sim.array(name, dtype="f4", shape=SHAPE)
        sim.particles("stars", {"x": ("f8", 3), "mass": "f4"})
        sim.particles("mesh", {"x": ("f8", 3), "heat": "f4"})
        sim.particles("cells", {"corners": ("i8", 4)})
        with sim.step(0) as step:
            put_blocks(step, flow(), 1)
            for number in range(6):
                stars = random.normal(0, 1, (50 * number, 3))
                step.put("stars/x", stars, number=number, ghost_high=(number, 0))
                step.put("stars/mass", stars[:, 0].astype("f4"), number=number, ghost_high=number)
                points, cells = tetrahedra(3 + number, float(number))
                step.put("mesh/x", points, number=number)
                step.put("mesh/heat", points.sum(axis=1).astype("f4"), number=number)
                step.put("cells/corners", cells, number=number)
        executed(group, 1)
    return drawn(place / "out")


def draw_here(
    group: forebay.LocalGroup,
    pictures: Sequence[viz.Picture],
    steps: Sequence[dict[str, Array]],
    *,
    cuts: Sequence[Sequence[int]] | None = None,
    **of_fields: Any,
) -> list[viz.Drawn]:
    """The same in this process, as the only worker: of all steps the pictures, in their order."""
    drawing, found = viz.Drawing(pictures), []
    names = sorted({name for fields in steps for name in fields})
    with (
        producer(group, "here", policy="block") as sim,
        consumer(group, "here", fields=names, window=len(steps)) as reader,
        forebay.Comm("drawing", rank=0, size=1, group=group.path) as comm,
    ):
        for name in names:
            array = next(fields[name] for fields in steps if name in fields)
            sim.array(name, dtype=array.dtype, shape=array.shape, **of_fields)
        for number, fields in enumerate(steps):
            with sim.step(number) as step:
                whole = [(0, n) for n in next(iter(fields.values())).shape] if fields else []
                put_blocks(step, fields, 1, cuts or whole)
            with reader.next() as shown:
                found += drawing.draw(shown, comm)
    return found
