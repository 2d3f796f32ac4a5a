"""Pictures of all ranks, put together into one: as NumPy would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.comms import comms, on_all, outcomes_on_all

import forebay

Array = np.ndarray[Any, Any]
HEIGHT, WIDTH = 37, 53


def drawn(rank: int, seed: int = 0) -> tuple[Array, Array]:
    """A picture of which about half is background."""
    random = np.random.default_rng(1000 * seed + rank)
    colors = random.integers(0, 256, (HEIGHT, WIDTH, 4), "u1")
    # Few depths, so that some are equal.
    depths = random.integers(1, 21, (HEIGHT, WIDTH)).astype("f4") / 10
    return colors, np.minimum(depths, 1).astype("f4")


def nearest(pictures: list[tuple[Array, Array]], own: tuple[Array, Array]) -> tuple[Array, Array]:
    colors, depths = (plane.copy() for plane in own)
    depth = np.stack([depths for _, depths in pictures])
    first, seen = depth.argmin(0), depth.min(0) < 1
    all_colors = np.stack([colors for colors, _ in pictures])
    colors[seen] = np.take_along_axis(all_colors, first[None, ..., None], 0)[0][seen]
    depths[seen] = depth.min(0)[seen]
    return colors, depths


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("root", [0, None], ids=["root", "all"])
def test_the_nearest_of_each_pixel(one: forebay.LocalGroup, size: int, root: int | None) -> None:
    pictures = [drawn(rank) for rank in range(size)]

    def work(comm: forebay.Comm) -> None:
        colors, depths = (plane.copy() for plane in pictures[comm.rank])
        comm.Composite_nearest(colors, depths, root, with_depths=True)
        if root is None or comm.rank == root:
            found, wanted = (colors, depths), nearest(pictures, pictures[comm.rank])
            for one_plane, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one_plane, other)

    with comms(one, size) as opened:
        on_all(opened, work)


def layer(number: int, dtype: str) -> Array:
    random = np.random.default_rng(number)
    alpha = random.random((HEIGHT, WIDTH, 1)) * (random.random((HEIGHT, WIDTH, 1)) < 0.6)
    made: Array = np.concatenate([random.random((HEIGHT, WIDTH, 3)) * alpha, alpha], axis=2)
    return np.rint(255 * made).astype("u1") if dtype == "u1" else made.astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("u1", 2.0), ("f4", 1e-6)])
@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_layers_in_their_order(
    one: forebay.LocalGroup, size: int, each: int, dtype: str, tolerance: float
) -> None:
    scale = 255 if dtype == "u1" else 1
    order = np.random.default_rng(size).permutation(size * each)
    wanted = np.zeros((HEIGHT, WIDTH, 4))
    for number in np.argsort(order):
        wanted += (1 - wanted[..., 3:]) * layer(int(number), dtype).astype("f8") / scale

    def work(comm: forebay.Comm) -> None:
        mine = range(each * comm.rank, each * (comm.rank + 1))
        into = np.full((HEIGHT, WIDTH, 4), 9, dtype)
        layers = [(int(order[number]), layer(number, dtype)) for number in mine]
        comm.Composite_over(layers, into if comm.rank == size - 1 else None, size - 1)
        if comm.rank == size - 1:
            assert np.abs(into.astype("f8") - scale * wanted).max() <= tolerance * each

    with comms(one, size) as opened:
        on_all(opened, work)


def test_ranks_without_a_layer_say_how_large_the_picture_is(one: forebay.LocalGroup) -> None:
    def work(comm: forebay.Comm) -> None:
        into = np.ones((HEIGHT, WIDTH, 4), "f4")
        comm.Composite_over([(0, layer(3, "f4"))] if comm.rank == 1 else [], into, None)
        np.testing.assert_array_equal(into, layer(3, "f4"))
        comm.Composite_over([], into, None)
        assert not into.any()

    with comms(one, 3) as opened:
        on_all(opened, work)


def test_boxes_from_front_to_back() -> None:
    boxes = [((x, y, 0), (x + 1, y + 1, 4)) for x in range(3) for y in range(2)]
    from_below = forebay.front_to_back(boxes, eye=(0.5, 0.5, -9))
    assert from_below[0] == 0
    assert sorted(from_below) == list(range(6))
    assert forebay.front_to_back(boxes, direction=(-1, -1, 0)) == [5, 3, 1, 4, 2, 0]
    assert forebay.front_to_back([], eye=(0, 0, 0)) == []
    bad: list[tuple[str, Any, Any]] = [
        ("overlap", [((0, 0, 0), (2, 2, 2)), ((1, 1, 1), (3, 3, 3))], {"eye": (9, 9, 9)}),
        ("lowest corner first", [((1, 0, 0), (0, 1, 1))], {"eye": (9, 9, 9)}),
        ("cannot be seen from", boxes, {"eye": (np.nan, 0, 0)}),
        ("direction of 0", boxes, {"direction": (0, 0, 0)}),
        ("either", boxes, {}),
        ("either", boxes, {"eye": (0, 0, 0), "direction": (0, 0, 1)}),
    ]
    for text, given, view in bad:
        with pytest.raises(forebay.Invalid, match=text):
            forebay.front_to_back(given, **view)


def test_what_is_no_picture_is_refused_before_anything_is_sent(one: forebay.LocalGroup) -> None:
    colors, depths = drawn(0)
    fixed = colors.copy()
    fixed.flags.writeable = False
    both = np.zeros(8 * HEIGHT * WIDTH, "u1")
    with comms(one, 2) as opened:
        comm = opened[0]
        bad: list[tuple[str, type[Exception], Any]] = [
            ("Float32, not Float64", forebay.Invalid, lambda: comm.Composite_nearest(colors, depths.astype("f8"))),
            ("UInt8, not Float32", forebay.Invalid, lambda: comm.Composite_nearest(depths, depths)),
            ("four bytes of colour", forebay.Invalid, lambda: comm.Composite_nearest(colors[:-1], depths)),
            ("read-only", ValueError, lambda: comm.Composite_nearest(fixed, depths)),
            ("contiguous", ValueError, lambda: comm.Composite_nearest(colors[:, ::2], depths[:, ::2])),
            ("no rank 2", forebay.Invalid, lambda: comm.Composite_nearest(colors, depths, 2)),
            ("share memory", forebay.Invalid, lambda: comm.Composite_over([(0, both[4:])], both[:-4])),
            ("no memory for it", forebay.Invalid, lambda: comm.Composite_over([(0, colors)])),
            ("how large", forebay.Invalid, lambda: comm.Composite_over([], None, 1)),
            ("of one size", forebay.Invalid, lambda: comm.Composite_over([(0, colors[1:].copy())], colors)),
            ("Float32, not UInt8", forebay.Invalid, lambda: comm.Composite_over([(0, layer(0, "f4"))], colors)),
        ]  # fmt: skip
        for text, kind, call in bad:
            with pytest.raises(kind, match=text):
                call()
        on_all(opened, lambda comm: comm.Barrier())


def test_ranks_that_differ_are_told_and_none_hangs(one: forebay.LocalGroup) -> None:
    colors, depths = drawn(0)

    def others_size(comm: forebay.Comm) -> None:
        cut = HEIGHT - comm.rank
        comm.Composite_nearest(colors[:cut].copy(), depths[:cut].copy())

    def other_background(comm: forebay.Comm) -> None:
        comm.Composite_nearest(colors.copy(), depths.copy(), far=1.0 + comm.rank)

    def other_root(comm: forebay.Comm) -> None:
        comm.Composite_nearest(colors.copy(), depths.copy(), comm.rank)

    def other_kind(comm: forebay.Comm) -> None:
        dtype = "f4" if comm.rank else "u1"
        comm.Composite_over([(comm.rank, layer(0, dtype))], np.zeros((HEIGHT, WIDTH, 4), dtype))

    def one_position(comm: forebay.Comm) -> None:
        comm.Composite_over([(4, colors)], np.zeros_like(colors))

    for text, work in (
        ("another size", others_size),
        ("another depth of the background", other_background),
        ("root", other_root),
        ("of another", other_kind),
        ("position 4", one_position),
    ):
        with comms(one, 2) as opened:
            for comm in opened:
                comm.set_timeout(20)
            told = outcomes_on_all(opened, work)
            assert any(text in str(error) for error in told), told
            for error in told:
                assert isinstance(error, (forebay.Invalid, forebay.Unreachable)), told
