"""Pictures of what a simulation computes, drawn by all workers of a pipeline together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pictures import CUTS, draw_flow, draw_here, draw_steps, flow, gyroid
from support.sessions import consumer, producer

import forebay
from forebay import viz
from forebay.viz import occlusion, words

OPAQUE = """
viz.Picture(name="contour", layers=[viz.Contour("U", [0.4, 0.9], color="V")], **small),
viz.Picture(name="closed", layers=[viz.Contour("U", [0.4], closed=True)], camera=viz.Camera(parallel=True), **small),
viz.Picture(name="axis", layers=[viz.Contour("U", [0.2], color="U")], camera=viz.Camera(azimuth=0, elevation=90), **small),
viz.Picture(name="inside", layers=[viz.Contour("U", [0.2], color="V")],
            camera=viz.Camera(eye=(8, 6, 7), look_at=(9, 6, 8), angle=70), **small),
viz.Picture(name="clip", layers=[viz.Clip("U", clip=[viz.Plane((-1, 0.3, -1), (8, 6, 7))])], **small),
viz.Picture(name="cut", layers=[viz.Contour("U", [0.1, 0.6], color="U", clip=[viz.Plane((0, 0, -1), (0, 0, 7))])], **small),
viz.Picture(name="slices", layers=[viz.Slice("U", "x"), viz.Slice("U", "y", 6.5), viz.Slice("U", "z", 4.5)], **small),
viz.Picture(name="threshold", layers=[viz.Threshold("U", 0.3, color="V")], camera=viz.Camera(up="z"), **small),
viz.Picture(name="orbit", layers=[viz.Contour("U", [0.4])], camera=viz.orbit(3), size=(80, 60), samples=2),
"""
THROUGH = """
viz.Picture(name="cloud", layers=[viz.Volume("U", density=(0.5, 0.1, 0, 0, 0.1, 0.5))], **small),
viz.Picture(name="cloud-axis", layers=[viz.Volume("U"), viz.Slice("V", "x")], camera=viz.Camera(azimuth=90, elevation=0, parallel=True), **small),
viz.Picture(name="cloud-inside", layers=[viz.Volume("U", density=(0, 0, 0.2))],
            camera=viz.Camera(eye=(8, 6, 7), look_at=(9, 6, 8), angle=70), **small),
viz.Picture(name="glass", layers=[viz.Contour("U", [0.4], color="V", opacity=0.4), viz.Contour("U", [0.9])], **small),
viz.Picture(name="glass-cloud", layers=[viz.Contour("U", [0.4], opacity=0.4, clip=[viz.Plane((0, 0, -1), (0, 0, 8))]),
            viz.Volume("U", density=(0.2, 0, 0))], camera=viz.Camera(azimuth=-50, elevation=-30), **small),
"""
NAMES = [
    "axis-000000.png",
    "clip-000000.png",
    "closed-000000.png",
    "cloud-000000.png",
    "cloud-axis-000000.png",
    "cloud-inside-000000.png",
    "contour-000000.png",
    "cut-000000.png",
    "glass-000000.png",
    "glass-cloud-000000.png",
    "inside-000000.png",
    "orbit-000000-0.png",
    "orbit-000000-1.png",
    "orbit-000000-2.png",
    "slices-000000.png",
    "threshold-000000.png",
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What one worker draws."""
    return draw_steps(tmp_path_factory.mktemp("alone"), 1, OPAQUE + THROUGH)


@pytest.mark.parametrize("servers", [2, 3, 4, 7, 8])
def test_many_workers_draw_what_one_does(alone: dict[str, np.ndarray], own_place: Path, servers: int) -> None:
    """To the last bit, wherever the blocks lie, also if they have no ghosts; of what one sees through within 2 of 255."""
    assert list(alone) == NAMES
    found = draw_steps(own_place, servers, OPAQUE + THROUGH, seed=servers, ghosts=servers % 3)
    assert list(found) == NAMES
    for name, picture in found.items():
        tolerance = 2 if name.startswith(("cloud", "glass")) else 0
        far = np.abs(picture.astype("i2") - alone[name]).max(axis=2) > tolerance
        assert not far.any(), f"{name}: {far.sum()} pixels, {np.argwhere(far)[:5].tolist()}"


FLOW = """
viz.Picture(name="arrows", layers=[viz.Arrows(("u", "v", "w"), every=5)], **small),
viz.Picture(name="stream", layers=[viz.Streamlines(("u", "v", "w"), color="u", seeds=(4, 3, 4))], **small),
viz.Picture(name="stars", layers=[viz.Spheres("stars", 0.2, color="mass", reach=0.9, clip=[viz.Plane(normal=(0, 1, 1), point=(0, 0, -1))])], camera=viz.Camera(eye=(0, 0, 0), look_at=(1, 0, 0), angle=90),
            **small),
viz.Picture(name="mesh", layers=[viz.Mesh("mesh/x", "cells/corners", color="mesh/heat")], **small),
"""


def test_many_workers_draw_flows_stars_and_meshes(own_place: Path) -> None:
    one, many = (draw_flow(own_place / str(servers), servers, FLOW, seed=servers) for servers in (1, 3))
    assert list(one) == list(many) == [f"{name}-000000.png" for name in ("arrows", "mesh", "stars", "stream")]
    for name, picture in one.items():
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 200, f"{name} shows something"
        different = (picture != many[name]).any(axis=2)
        assert not different.any(), f"{name}: {different.sum()} pixels, {np.argwhere(different)[:5].tolist()}"


# ---- what one process draws -------------------------------------------------------------------------------


def picture(*layers: viz.Layer, **options: Any) -> viz.Picture:
    """A small one, without words."""
    given = {"size": (120, 90), "samples": 1, "caption": False, "legend": False, "outline": False, **options}
    return viz.Picture(layers=layers, **given)


def is_background(drawn: viz.Drawn) -> bool:
    """Whether nothing is seen: each row has one colour."""
    return bool((drawn.pixels == drawn.pixels[:, :1]).all())


def test_a_step_without_the_field_is_background(one: forebay.LocalGroup) -> None:
    u, v = gyroid()
    shown = [viz.Contour("U", [0.4], color="V"), viz.Slice("U"), viz.Clip("U"), viz.Threshold("U", 0)]
    pictures = [picture(layer, name=str(number)) for number, layer in enumerate(shown)]
    found = draw_here(one, pictures, [{}, {"V": v}, {"U": u}, {"U": u, "V": v}])
    told = [is_background(drawn) for drawn in found]
    # Of the third step, what the missing field would colour is not drawn.
    assert told == [True] * 4 + [True] * 4 + [True, False, False, False] + [False] * 4


def test_a_value_that_nothing_has_is_background(one: forebay.LocalGroup) -> None:
    u = gyroid()[0]
    layers = [viz.Contour("U", [99.0]), viz.Contour("U", [99.0], closed=True), viz.Threshold("U", 99)]
    found = draw_here(one, [picture(layer, name=f"n{n}") for n, layer in enumerate(layers)], [{"U": u}])
    assert all(map(is_background, found))


def test_what_is_no_number_leaves_a_hole(one: forebay.LocalGroup) -> None:
    u = gyroid()[0]
    broken = u.copy()
    broken[20:, 4:20, 10:30] = np.nan
    broken[20:, 22, 5:9] = np.inf
    broken[22:, 23, 5:9] = -np.inf
    layers = [viz.Contour("U", [0.4], color="U"), viz.Contour("U", [0.4], closed=True), viz.Slice("U", "x")]
    layers += [viz.Clip("U"), viz.Threshold("U", 0.4)]
    pictures = [picture(layer, name=f"n{n}") for n, layer in enumerate(layers)]
    whole, holes = draw_here(one, pictures, [{"U": u}]), draw_here(one, pictures, [{"U": broken}])
    for before, after in zip(whole, holes, strict=True):
        assert not is_background(after)
        differ = (before.pixels != after.pixels).any(axis=2).mean()
        assert 0 < differ < 0.7


def test_nothing_but_what_is_no_number(one: forebay.LocalGroup) -> None:
    nothing = np.full((8, 9, 10), np.nan)
    layers = [viz.Contour("U", [0.4], closed=True, color="U"), viz.Threshold("U", 0), viz.Slice("U")]
    found = draw_here(one, [picture(layer, name=f"n{n}") for n, layer in enumerate(layers)], [{"U": nothing}])
    assert [is_background(drawn) for drawn in found] == [True, True, False]
    # A slice shows that there is something, in gray.
    middle = found[2].pixels[45, 60].astype(int)
    assert np.ptp(middle) <= 2


def test_one_value_everywhere_has_a_colour(one: forebay.LocalGroup) -> None:
    flat = np.full((8, 9, 10), 3.0)
    found = draw_here(one, [picture(viz.Slice("U"), legend=True)], [{"U": flat}])
    assert not is_background(found[0])


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 9), (2, 2, 2), (1, 1, 9)])
def test_fields_of_few_elements(one: forebay.LocalGroup, shape: tuple[int, ...]) -> None:
    few = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    layers = [viz.Contour("U", [0.4]), viz.Contour("U", [0.4], closed=True), viz.Slice("U"), viz.Clip("U")]
    layers += [viz.Threshold("U", 0)]
    found = draw_here(one, [picture(layer, name=f"n{n}") for n, layer in enumerate(layers)], [{"U": few}])
    assert len(found) == 5
    assert is_background(found[4]) is False


def test_a_field_of_two_dimensions_is_a_slice(one: forebay.LocalGroup) -> None:
    plane = gyroid()[0][0]
    front = viz.Camera(azimuth=0, elevation=0)
    found = draw_here(
        one, [picture(viz.Slice("U"), camera=front)], [{"U": plane}], cuts=[(0, 11, 26), (0, 17, 34)]
    )
    assert not is_background(found[0])


@pytest.mark.parametrize(
    "layer", [viz.Contour("U", [1]), viz.Clip("U"), viz.Threshold("U", 0), viz.Slice("U")]
)
def test_a_field_of_too_few_dimensions_is_refused(one: forebay.LocalGroup, layer: viz.Layer) -> None:
    line = np.arange(9.0)
    with pytest.raises(forebay.Invalid, match=r"'U' has 1 dimensions: .* needs"):
        draw_here(one, [picture(layer)], [{"U": line}])


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "f2", "f8", "?"])
def test_elements_of_any_type(one: forebay.LocalGroup, dtype: str) -> None:
    values = (40 * gyroid()[0]).clip(0, 100).astype(dtype)
    found = draw_here(one, [picture(viz.Contour("U", [0.5], color="U"))], [{"U": values}])
    assert not is_background(found[0])


def test_complex_elements_are_refused(one: forebay.LocalGroup) -> None:
    with pytest.raises(forebay.Invalid, match="'U' is complex: put its magnitude"):
        draw_here(one, [picture(viz.Slice("U"))], [{"U": np.zeros((3, 4, 5), "c8")}])


def test_fields_that_do_not_belong_together_are_refused(one: forebay.LocalGroup) -> None:
    with pytest.raises(forebay.Invalid, match=r"'V' has shape \(3, 4, 6\), 'U' \(3, 4, 5\)"):
        draw_here(
            one, [picture(viz.Slice("U", color="V"))], [{"U": np.zeros((3, 4, 5)), "V": np.zeros((3, 4, 6))}]
        )


def test_more_workers_than_pixels_and_other_sizes(one: forebay.LocalGroup) -> None:
    u = gyroid()[0]
    sizes = [(1, 1), (3, 500), (700, 2)]
    pictures = [
        picture(viz.Slice("U"), name=f"n{n}", size=size, samples=3, caption=True, legend=True)
        for n, size in enumerate(sizes)
    ]
    found = draw_here(one, pictures, [{"U": u}])
    assert [drawn.pixels.shape for drawn in found] == [(height, width, 3) for width, height in sizes]


def test_levels_of_refinement_are_drawn(one: forebay.LocalGroup) -> None:
    """A finer block in the middle of a coarse one. One sees through neither: they are in one place."""
    coarse, fine = gyroid()[0][:20, :20, :20], gyroid()[0][:12, :12, :12]
    layers = [viz.Contour("U", [0.4], color="U"), viz.Slice("U"), viz.Clip("U"), viz.Threshold("U", 0.4)]
    opaque = viz.Drawing([picture(layer, name=f"n{n}") for n, layer in enumerate(layers)])
    cloud = viz.Drawing([picture(viz.Volume("U"))])
    with (
        producer(one) as sim,
        consumer(one) as reader,
        forebay.Comm("levels", rank=0, size=1, group=one.path) as comm,
    ):
        sim.array("U", dtype="f4", shape=coarse.shape, origin=(0, 0, 0), spacing=1, refinement=2)
        with sim.step(0) as step:
            step.put("U", coarse, offset=(0, 0, 0))
            step.put("U", fine, offset=(10, 12, 14), level=1, number=1)
        with reader.next() as shown:
            assert not any(map(is_background, opaque.draw(shown, comm)))
            with pytest.raises(
                forebay.Invalid, match=r"blocks of what is seen through have no order: .* overlap"
            ):
                cloud.draw(shown, comm)


@pytest.mark.parametrize("turned", [(0,), (1, 2), (0, 1, 2)])
def test_spacings_below_0_show_the_same(one: forebay.LocalGroup, turned: tuple[int, ...]) -> None:
    """Also of blocks, and of what needs more than these."""
    given = {**dict(zip("UV", gyroid(), strict=True)), **flow()}
    vector = ("u", "v", "w")
    layers: list[viz.Layer] = [
        viz.Contour("U", [0.4], color="V"),
        viz.Contour("U", [0.4], closed=True),
        viz.Contour("U", [0.4], opacity=0.4),
        viz.Slice("U", plane=viz.Plane((1, 2, 3), (0, 0, 0))),
        viz.Slice("U", "y", 2.25),
        viz.Clip("U", clip=[viz.Plane((-1, 0.3, -1), (0, 0, 0))]),
        viz.Threshold("U", 0.3, color="V"),
        viz.Arrows(vector, every=4),
    ]
    pictures = [picture(layer, name=f"n{n}") for n, layer in enumerate(layers)]
    spacing, origin = np.array([0.5, 0.25, 1.0]), np.array([-7.0, -3.0, -16.0])
    shape = np.array(given["U"].shape)
    signs = np.array([-1 if axis in turned else 1 for axis in range(3)])
    ends = np.where(signs < 0, origin + (shape - 1) * spacing, origin)
    back = {name: np.ascontiguousarray(np.flip(array, turned)) for name, array in given.items()}
    # Clouds and lines begin anew in each block, and blocks are cut elsewhere in what is turned.
    anew = [viz.Volume("U"), viz.Streamlines(vector, seeds=(3, 3, 3))]
    others = [picture(layer, name=f"n{n}") for n, layer in enumerate(anew)]
    for shown, cuts in ((pictures, CUTS), (others, None)):
        straight = draw_here(one, shown, [given], cuts=cuts, spacing=tuple(spacing), origin=tuple(origin))
        both = draw_here(one, shown, [back], cuts=cuts, spacing=tuple(signs * spacing), origin=tuple(ends))
        for before, after in zip(straight, both, strict=True):
            (layer,) = before.picture.layers
            assert not is_background(before)
            tolerance = 2 if layer.is_seen_through else 0
            far = np.abs(before.pixels.astype("i2") - after.pixels).max(axis=2) > tolerance
            assert not far.any(), f"{layer}: {far.sum()} pixels"


def test_elements_that_lie_nowhere_are_refused(one: forebay.LocalGroup) -> None:
    u = gyroid()[0]
    for spacing in ((1.0, 0.0, 1.0), (1.0, np.inf, 1.0)):
        with pytest.raises(
            forebay.Invalid, match=r"'U' has spacing .* it cannot be drawn; give finite numbers"
        ):
            draw_here(one, [picture(viz.Slice("U"))], [{"U": u}], spacing=spacing)


@pytest.mark.parametrize(
    ("scale", "ends"), [(1e45, (0, 2)), (1e-50, (0, 2)), (1e-3, (101_325_000, 101_325_002))]
)
def test_values_that_32_bits_do_not_hold_have_their_colours(
    one: forebay.LocalGroup, scale: float, ends: tuple[int, int]
) -> None:
    """Large ones, small ones, and small changes of large ones look as numbers between 0 and 2 do."""
    x = np.linspace(0, 2, 34) * np.ones((6, 26, 1))
    front = viz.Camera(azimuth=0, elevation=0)
    layers: list[viz.Layer] = [viz.Slice("U"), viz.Slice("U", plane=viz.Plane((0, 0.1, 1), (0, 0, 3)))]
    layers += [viz.Clip("U"), viz.Threshold("U", -np.inf), viz.Volume("U")]
    pictures = [picture(layer, name=f"n{n}", camera=front) for n, layer in enumerate(layers)]
    large = scale * (ends[0] + x)
    for before, after in zip(
        draw_here(one, pictures, [{"U": x}]), draw_here(one, pictures, [{"U": large}]), strict=True
    ):
        assert len(np.unique(after.pixels.reshape(-1, 3), axis=0)) > 30
        assert np.abs(before.pixels.astype(int) - after.pixels).max() <= 2


def test_numbers_beside_colours_can_be_told_apart() -> None:
    assert words._ticks(0, 1) == ["0", "0.5", "1"]
    assert words._ticks(-2e45, 2e45) == ["-2e+45", "0", "2e+45"]
    assert words._ticks(101_325, 101_326) == ["101325", "101325.5", "101326"]
    assert len(set(words._ticks(1.0, float(np.nextafter(1.0, 2))))) >= 2


def test_lines_are_as_long_beside_finer_blocks(one: forebay.LocalGroup) -> None:
    """A finer block anywhere makes no line longer or shorter."""
    coarse = {
        "u": np.ones((8, 8, 64), "f4"),
        "v": np.zeros((8, 8, 64), "f4"),
        "w": np.zeros((8, 8, 64), "f4"),
    }
    lines = viz.Streamlines(("u", "v", "w"), seeds=(1, 1, 1), length=0.1, width=0.05)
    front = viz.Camera(azimuth=0, elevation=0)
    seen = []
    for number, levels in enumerate([(), (1,), (1, 2)]):
        with (
            producer(one, f"s{number}") as sim,
            consumer(one, f"s{number}") as reader,
            forebay.Comm(f"lines{number}", rank=0, size=1, group=one.path) as comm,
        ):
            for name, array in coarse.items():
                sim.array(name, dtype="f4", shape=array.shape, refinement=2)
            with sim.step(0) as step:
                for name, array in coarse.items():
                    step.put(name, array, offset=(0, 0, 0))
                    for level in levels:
                        part = array[:4, :4, :4]
                        step.put(name, part, offset=(0, 0, 0), level=level, number=level)
            with reader.next() as shown:
                drawn = viz.Drawing([picture(lines, camera=front)]).draw(shown, comm)[0]
        columns = (drawn.pixels != drawn.pixels[:, :1]).any(axis=(0, 2))
        seen.append(int(columns.sum()))
    assert seen[0] > 10
    assert max(seen) - min(seen) <= 1, seen


def test_a_flow_that_stands_still_or_is_no_number(one: forebay.LocalGroup) -> None:
    vector = ("u", "v", "w")
    pictures = [picture(viz.Arrows(vector)), picture(viz.Streamlines(vector), name="lines")]
    still = {name: np.zeros_like(part) for name, part in flow().items()}
    broken = flow()
    broken["u"][10:20] = np.nan
    found = draw_here(one, pictures, [still, broken])
    assert [is_background(drawn) for drawn in found] == [True, True, False, False]


def test_colours_mean_the_same_at_all_steps(one: forebay.LocalGroup) -> None:
    """The widest range until now counts; a given one always does."""
    ramp = np.linspace(0, 1, 16 * 16).reshape(16, 16)
    front = viz.Camera(azimuth=0, elevation=0)
    pictures = [
        picture(viz.Slice("U", colors="gray"), camera=front),
        picture(viz.Slice("U", colors="gray", range=(0, 4)), camera=front, name="given"),
    ]
    found = draw_here(one, pictures, [{"U": ramp}, {"U": 2 * ramp}, {"U": ramp}])
    middle = [int(drawn.pixels[45, 60, 0]) for drawn in found]
    assert middle[0] == middle[2]
    assert middle[4] < middle[0]
    assert middle[1] == middle[5] < middle[3]


def test_a_picture_is_drawn_at_its_own_steps(one: forebay.LocalGroup) -> None:
    u = gyroid()[0]
    pictures = [picture(viz.Slice("U"), name="all"), picture(viz.Slice("U"), name="some", every=2)]
    found = draw_here(one, pictures, [{"U": u}] * 4)
    told = [drawn.file_name for drawn in found]
    assert told == [
        *[f"all-{n:06d}.png" for n in range(4)][:1],
        "some-000000.png",
        "all-000001.png",
        "all-000002.png",
        "some-000002.png",
        "all-000003.png",
    ]


def test_without_anything_to_draw_with_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No display is needed, but Mesa or a driver."""
    code = "from forebay.viz.window import Window; Window()"
    for missing in (
        {"VTK_DEFAULT_OPENGL_WINDOW": "vtkOSOpenGLRenderWindow"},
        {"__EGL_VENDOR_LIBRARY_DIRS": "/nonexistent", "LIBGL_DRIVERS_PATH": "/nonexistent"},
    ):
        with_nothing = {**os.environ, **missing}
        done = subprocess.run(
            [sys.executable, "-c", code], env=with_nothing, capture_output=True, text=True, check=False
        )
        assert "forebay.Unsupported: VTK" in done.stderr
        assert "apt install libegl1 libgl1-mesa-dri" in done.stderr
    code = "import sys; sys.modules['vtkmodules'] = None; import forebay.viz"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'forebay[viz]'" in done.stderr


def test_pictures_that_cannot_be_are_refused_when_they_are_described() -> None:
    layer = viz.Slice("U")
    vector = ("u", "v", "w")
    bad: list[tuple[str, type[Exception], Any]] = [
        ("its three components", forebay.Invalid, lambda: viz.Arrows(("u", "v"))),  # type: ignore[arg-type]
        ("give 1 or more", forebay.Invalid, lambda: viz.Arrows(vector, every=0)),
        ("give 1 or more", forebay.Invalid, lambda: viz.Arrows(vector, every=np.nan)),  # type: ignore[arg-type]
        ("along x, y and z", forebay.Invalid, lambda: viz.Streamlines(vector, seeds=(1, np.nan, 1))),  # type: ignore[arg-type]
        ("along x, y and z", forebay.Invalid, lambda: viz.Streamlines(vector, seeds=(1, 2, 0))),
        ("both are more than 0", forebay.Invalid, lambda: viz.Streamlines(vector, length=0)),
        ("does not see through", forebay.Invalid, lambda: viz.Streamlines(vector, opacity=0.5)),
        ("radius is 0", forebay.Invalid, lambda: viz.Spheres("stars", 0)),
        ("opacity is 0", forebay.Invalid, lambda: viz.Slice("U", opacity=0)),
        ("two or more numbers from 0 to 1", forebay.Invalid, lambda: viz.Volume("U", density=[2, 3])),
        ("its own values colour it", forebay.Invalid, lambda: viz.Volume("U", color="V")),
        ("there is no colour map 'jet': there are", forebay.Invalid, lambda: viz.Slice("U", colors="jet")),
        ("no colour: give it as", forebay.Invalid, lambda: viz.Contour("U", [1], tint="red")),
        ("two or more colours", forebay.Invalid, lambda: viz.Contour("U", [1], colors=["#ffffff"])),
        ("lowest value, then the highest", forebay.Invalid, lambda: viz.Slice("U", range=(2, 1))),
        ("one or more numbers", forebay.Invalid, lambda: viz.Contour("U", [])),
        ("one or more numbers", forebay.Invalid, lambda: viz.Contour("U", [np.nan])),
        ("there is nothing", forebay.Invalid, lambda: viz.Threshold("U", 2, 1)),
        ("axis is 't'", forebay.Invalid, lambda: viz.Slice("U", "t")),  # type: ignore[arg-type]
        ("give x, y and z", forebay.Invalid, lambda: viz.Plane((1, 0), (0, 0, 0))),
        ("no direction", forebay.Invalid, lambda: viz.Plane((0, 0, 0), (0, 0, 0))),
        ("zoom is above 0", forebay.Invalid, lambda: viz.Camera(zoom=0)),
        ("it has no eye", forebay.Invalid, lambda: viz.Camera(look_at=(1, 2, 3))),
        ("eye and look_at are one point", forebay.Invalid, lambda: viz.Camera(eye=(1, 2, 3), look_at=(1, 2, 3))),
        ("give x, y and z", forebay.Invalid, lambda: viz.Camera(eye=(1, 2))),
        ("one camera or more", forebay.Invalid, lambda: viz.orbit(0)),
        ("no camera", forebay.Invalid, lambda: picture(layer, camera=[])),
        ("give 1 or more", forebay.Invalid, lambda: picture(layer, every=0)),
        ("is no name", forebay.Invalid, lambda: picture(layer, name="../up")),
        ("give width and height", forebay.Invalid, lambda: picture(layer, size=(np.inf, 3))),
        ("give 1 or more", forebay.Invalid, lambda: picture(layer, every=np.nan)),
        ("how many bytes it may take", forebay.Invalid, lambda: picture(layer, memory=np.nan)),
        ("give width and height", forebay.Invalid, lambda: picture(layer, size=(0, 3))),
        ("not 1 to 4", forebay.Invalid, lambda: picture(layer, samples=9)),
        ("not 0 to 1", forebay.Invalid, lambda: picture(layer, shade=2)),
        ("a side has 16384 at most", forebay.Invalid, lambda: picture(layer, size=(16_384, 10), samples=2)),
        ("6144 MiB of memory", forebay.OverBudget, lambda: picture(layer, size=(16_384, 16_384))),
    ]  # fmt: skip
    for text, kind, make in bad:
        with pytest.raises(kind, match=text):
            make()


def test_light_between_spheres() -> None:
    """As whoever looks at all pairs counts it, in any order and in portions of any size."""
    random = np.random.default_rng(3)
    places = np.concatenate([random.uniform(0, 1, (300, 3)), np.full((2, 3), 0.5)]).astype("f4")
    radius, reach = 0.03, 0.2
    apart = places[None].astype("f8") - places[:, None].astype("f8")
    away = np.linalg.norm(apart, axis=2)
    sine = np.minimum(radius / np.maximum(away, radius), 1)
    counts = (away <= reach) & ~np.eye(len(places), dtype=bool)
    shares = np.where(counts, (1 - np.sqrt(1 - sine**2)) / 2, 0)
    octants = (apart > 0) @ np.array([1, 2, 4])
    taken = np.stack([np.where(octants == octant, shares, 0).sum(axis=1) for octant in range(8)], axis=1)
    wanted = np.sqrt(np.exp(-8 * taken).mean(axis=1))
    light = occlusion.light_of(places, radius, reach)
    np.testing.assert_allclose(light, wanted, atol=1e-5)
    assert 0.1 < light.min() < 0.9 < light.max() <= 1
    order = random.permutation(len(places))
    np.testing.assert_array_equal(occlusion.light_of(places[order], radius, reach), light[order])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occlusion, "_PAIRS", 7)
        np.testing.assert_array_equal(occlusion.light_of(places, radius, reach), light)
    assert len(occlusion.light_of(places[:0], radius, reach)) == 0
    with pytest.raises(forebay.Invalid, match="a reach of 1e-09 is too small for a domain from"):
        occlusion.light_of(places, radius, 1e-9)
    many = random.uniform(0, 1, (20_000, 3))
    with pytest.raises(
        forebay.Invalid, match=r"around 20000 particles there are some 4.0e.08 others: take a smaller one"
    ):
        occlusion.light_of(many, radius, 1.5)
