"""Expressions, evaluated at a step: against what NumPy gives, of blocks that lie and are put in any way."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.arrays import reference
from support.commands import run
from support.many_ranks import RANKS, many_ranks, write_large
from support.many_ranks import SHAPE as LARGE
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

SHAPE = (12, 10, 8)
DIMS = ("z", "y", "x")
SPACING = (0.5, 1.0, 2.0)

Arrays = dict[str, NDArray[Any]]


def arrays(seed: int = 1) -> Arrays:
    """Fields of several types."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=SHAPE), rng.normal(size=SHAPE)
    return {
        "u": u,
        "v": v,
        "w": rng.normal(size=SHAPE).astype("f4"),
        "k": rng.integers(-1000, 1000, SHAPE, dtype="i4"),
        "n": rng.integers(0, 2**63, SHAPE, dtype="u8"),
        "m": u > 0,
        "c": u + 1j * v,
        "h": u.astype("f2"),
    }


@contextlib.contextmanager
def step_of(
    group: forebay.LocalGroup, transport: str, given: Arrays, *, size: int = 3, other: str | None = None
) -> Iterator[forebay.Step]:
    """A step to which each rank puts its rows, with garbage as ghosts; of field `other` it puts columns."""
    with (
        consumer(group, transport=transport) as reader,
        open_ranks(group, "s", size, transport=transport) as ranks,
    ):
        for sim in ranks:
            for name, array in given.items():
                sim.array(name, dtype=array.dtype, shape=SHAPE, dims=DIMS, spacing=SPACING)
        with contextlib.ExitStack() as stack:
            for rank, sim in enumerate(ranks):
                step = stack.enter_context(sim.step(7, time=1.5))
                for name, array in given.items():
                    axis = 1 if name == other else 0
                    low = [0, 0, 0]
                    low[axis] = SHAPE[axis] * rank // size
                    high = list(SHAPE)
                    high[axis] = SHAPE[axis] * (rank + 1) // size
                    part = array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
                    garbage = np.full([n + 3 for n in part.shape], 77, array.dtype)
                    garbage[1:-2, 1:-2, 1:-2] = part
                    step.put(name, garbage, offset=low, ghost_low=1, ghost_high=2)
        with reader.next() as told:
            yield told


def percentile(values: NDArray[Any], q: float) -> Any:
    return np.percentile(values, q)


def expected(a: Arrays) -> dict[str, Any]:
    """Texts, and what NumPy gives: bit by bit where it does not round sums."""
    u, v, w, k, n, m, c, h = (a[name] for name in "uvwknmch")
    return {
        "max(u)": u.max(),
        "min(w)": float(w.min()),
        "max(u[2:5, ::3, -1])": u[2:5, ::3, -1].max(),
        "sum(k)": int(k.sum()),
        "max(n)": int(n.max()),
        "sum(n)": sum(int(x) for x in n.flat),
        "count(u > 0.1)": int((u > 0.1).sum()),
        "count(w > 0.1)": int((w > 0.1).sum()),
        "count(sqrt(u**2 + v**2) > 1 and not m)": int(((np.sqrt(u**2 + v**2) > 1) & ~m).sum()),
        "count(m) / size(u)": m.sum() / u.size,
        "percentile(u, 99)": percentile(u, 99),
        "percentile(w, 25)": float(percentile(w, 25)),
        "percentile(k, 50)": percentile(k, 50),
        "max(abs(c))": np.abs(c).max(),
        "min(imag(c) * real(c))": (c.imag * c.real).min(),
        "max(h * 2)": float((h.astype("f4") * 2).max()),
        "max(where(m, u, v) // 0.3)": (np.where(m, u, v) // np.float64(0.3)).max(),
        "min(k // 7 + k % 7)": int((k // 7 + k % 7).min()),
        "max(u, where=v > 1)": u[v > 1].max(),
        "any(isnan(u)) or all(u < 100)": True,
        "step() == 7 and time() == 1.5": True,
        "max(u) > max(v) or min(u) > 0": bool(u.max() > v.max() or u.min() > 0),
        "count(u > mean(u))": int((u > u.mean()).sum()),
        "covered(u[0:3])": True,
    }


@pytest.mark.parametrize("other", [None, "v"])
def test_values_are_those_of_numpy(two: forebay.LocalGroup, transport: str, other: str | None) -> None:
    given = arrays()
    with step_of(two, transport, given, other=other) as step:
        for text, value in expected(given).items():
            assert step.evaluate(text) == value, text
            assert isinstance(step.evaluate(text), type(value) if isinstance(value, bool | int) else float)
        u, v = given["u"], given["v"]
        for text, value in {
            "sum(u * v)": (u * v).sum(),
            "mean(u[x=0])": u[:, :, 0].mean(),
            "var(u)": u.var(),
            "std(u, where=v > 0)": u[v > 0].std(),
            "norm(v)": np.linalg.norm(v),
            "integral(u)": u.sum(),
        }.items():
            assert step.evaluate(text) == pytest.approx(value, rel=1e-13), text
        assert step.evaluate("argmax(u)") == forebay.Place(np.unravel_index(u.argmax(), SHAPE), 0, None, None)
        assert step.evaluate("argmin(u).at.x") == np.unravel_index(u.argmin(), SHAPE)[2] * 2.0


def test_neighbours_lie_in_other_blocks(two: forebay.LocalGroup, transport: str) -> None:
    """Ghosts that are there count as neighbours; where there are none, the neighbouring blocks' elements are fetched."""
    rng = np.random.default_rng(3)
    u, p = rng.normal(size=SHAPE), rng.normal(size=SHAPE)
    with (
        consumer(two, transport=transport) as reader,
        open_ranks(two, "s", 4, transport=transport) as ranks,
    ):
        for sim in ranks:
            sim.array("u", dtype="f8", shape=SHAPE, dims=DIMS, spacing=SPACING)
            sim.array("p", dtype="f8", shape=SHAPE, dims=DIMS, spacing=SPACING, periodic=(True, False, True))
        with contextlib.ExitStack() as stack:
            for rank, sim in enumerate(ranks):
                step = stack.enter_context(sim.step(0))
                rows = slice(3 * rank, 3 * rank + 3)
                for name, array in (("u", u), ("p", p)):
                    step.put(name, array[rows], offset=(3 * rank, 0, 0))
        with reader.next() as step:
            gradients = np.gradient(u, *SPACING)
            assert step.evaluate("max(gradient(u, z))") == gradients[0].max()
            assert step.evaluate("min(gradient(u, x))") == gradients[2].min()
            size = np.sqrt(gradients[0] ** 2 + gradients[1] ** 2 + gradients[2] ** 2)
            assert step.evaluate("percentile(gradient_magnitude(u), 90)") == np.percentile(size, 90)
            wrapped = (np.roll(p, -1, 0) - np.roll(p, 1, 0)) / (2 * SPACING[0])
            assert step.evaluate("max(gradient(p, z))") == wrapped.max()
            curl = np.gradient(u, 2.0, axis=2) - np.gradient(u, 1.0, axis=1)
            assert step.evaluate("max(curl_magnitude(y=u, x=u))") == np.abs(curl).max()
            inside = (u[2:, 4, 4] - 2 * u[1:-1, 4, 4] + u[:-2, 4, 4]) / 0.25
            around = (u[1:-1, 5, 4] - 2 * u[1:-1, 4, 4] + u[1:-1, 3, 4]) / 1.0
            beside = (u[1:-1, 4, 5] - 2 * u[1:-1, 4, 4] + u[1:-1, 4, 3]) / 4.0
            assert step.evaluate("max(laplacian(u[1:-1, 4, 4]))") == (inside + around + beside).max()


def test_blocks_without_a_place_and_levels(two: forebay.LocalGroup, transport: str) -> None:
    with (
        consumer(two, transport=transport) as reader,
        producer(two, transport=transport) as sim,
    ):
        sim.array("px", dtype="f8", shape=None, ndim=1)
        sim.array("py", dtype="f8", shape=None, ndim=1)
        sim.array("amr", dtype="f8", shape=(8, 8), dims=("y", "x"), refinement=(2, 2), spacing=(1.0, 1.0))
        sim.array("one", dtype="f8", shape=())
        x = [np.arange(5.0), np.arange(3.0) - 7, np.array([])]
        coarse, fine = np.arange(64.0).reshape(8, 8), -np.arange(16.0).reshape(4, 4)
        with sim.step(0) as step:
            for number, part in enumerate(x):
                step.put("px", part, number=number)
                step.put("py", part * 2, number=number)
            step.put("amr", coarse, offset=(0, 0))
            step.put("amr", fine, offset=(4, 4), level=1, number=1)
            step.put("one", np.array(4.5))
        with reader.next() as step:
            assert step.evaluate("max(px) + min(py)") == 4 - 14
            assert step.evaluate("count(px * 2 == py)") == 8
            assert step.evaluate("argmin(px)") == forebay.Place((0,), 0, 0, 1)
            assert step.evaluate("argmin(px).block") == 1
            assert step.evaluate("size(px)") == 8
            assert step.evaluate("min(amr@1)") == -15
            assert step.evaluate("min(amr@*)") == -15
            assert step.evaluate("min(amr)") == 0
            assert step.evaluate("argmin(amr@*)") == forebay.Place((7, 7), 1, None, None)
            assert step.evaluate("argmin(amr@1).at.x") == 3.25
            assert step.evaluate("max(one)") == 4.5
            for text, kind in [
                ("max(px[0:2])", forebay.Invalid),
                ("sum(amr@*)", forebay.Unsupported),
                ("max(amr@*[0:2])", forebay.Invalid),
                ("max(gradient(px, x))", forebay.Invalid),
            ]:
                with pytest.raises(kind):
                    step.evaluate(text)


def test_what_is_wrong_is_said_where_it_stands(two: forebay.LocalGroup) -> None:
    with step_of(two, "shm", {"u": arrays()["u"], "big": np.full(SHAPE, 2**62)}) as step:
        for text, kind, message in [
            ("max(u", forebay.Invalid, "column 6: found the end, expected an operator, ',' or ')'"),
            ("max(uu)", forebay.NotFound, "stream 's' has no field 'uu'; it has big, u. Did you mean 'u'?"),
            ("maxx(u)", forebay.NotFound, "there is no function 'maxx'. Did you mean 'max'?"),
            ("any(u)", forebay.TypeMismatch, "any() is of a condition, as any(U > 1)"),
            (
                "u > 1",
                forebay.TypeMismatch,
                "a condition for each element: say any(...), all(...) or count(...)",
            ),
            ("u + 1", forebay.TypeMismatch, "this has a value for each element"),
            ("max(u[0:13])", forebay.OutOfBounds, "13 in dimension 0 lies outside the shape [12, 10, 8]"),
            ("delta(max(u))", forebay.Invalid, "looks at steps before"),
            ("max(u[2:2])", forebay.OutOfBounds, "the region has no elements in dimension 0"),
            ("components(u > 1).count", forebay.Unsupported, "components() is not built yet"),
            (
                "max(big * 4)",
                forebay.Invalid,
                "an integer is beyond 64 bits, or was divided by 0, of the element at [0, 0, 0]",
            ),
            ("(" * 1000, forebay.Invalid, "more than 256 deep"),
            ("x" * 1_000_000, forebay.Invalid, "at most 65536"),
        ]:
            with pytest.raises(kind) as raised:
                step.evaluate(text)
            assert message in str(raised.value), raised.value
            assert "\n" in str(raised.value) or kind is forebay.Invalid


def test_a_stream_is_asked_by_name_and_from_the_command_line(two: forebay.LocalGroup, transport: str) -> None:
    """At steps that are held, without a reader that stays."""
    a = np.random.default_rng(3).normal(size=(400, 30))
    with open_ranks(two, "asked", 2, keep=3, transport=transport) as ranks:
        for sim in ranks:
            sim.array("U", dtype="f8", shape=a.shape, dims=("y", "x"))
        for number in range(3):
            with contextlib.ExitStack() as stack:
                for rank, sim in enumerate(ranks):
                    step = stack.enter_context(sim.step(number, time=number / 2))
                    step.put("U", a[200 * rank : 200 * (rank + 1)] + number, offset=(200 * rank, 0))
        stream = forebay.Stream("asked", group=two.path, timeout=20, transport=transport)
        # The ranks have handed over their last step; it closes in a moment.
        wait_until(lambda: stream.evaluate("max(U)") == (a + 2).max())
        assert stream.evaluate("max(gradient(U, y))", step=1) == np.gradient(a + 1, axis=0).max()
        with pytest.raises(forebay.NotFound):
            stream.evaluate("max(U)", step=7)

        def asked(*given: str) -> str:
            return run("eval", *given, "--group", two.path, "--transport", transport).stdout.strip()

        assert asked("max(asked.U[0:200]) > 100") == "false"
        assert float(asked("percentile(U, 99)", "--stream", "asked")) == np.percentile(a + 2, 99)
        place = json.loads(asked("argmin(asked.U)", "--json"))
        assert (place["step"], place["time"], place["value"]["index"]) == (
            2,
            1.0,
            list(np.unravel_index((a + 2).argmin(), a.shape)),
        )
        every = json.loads(asked("count(asked.U > 1)", "--step", "0:", "--json"))
        assert [told["value"] for told in every] == [int((a + n > 1).sum()) for n in range(3)]
        for text, why in [
            ("max(U)", "of which stream? Write stream.field"),
            ("max(asked.U) > max(other.V)", "fields of several streams (asked, other)"),
            ("max(asked.U", "found the end, expected an operator"),
            ("max(asked.W)", "stream 'asked' has no field 'W'; it has U"),
        ]:
            failed = run("eval", text, "--group", two.path, code=1)
            assert why in failed.stderr, failed.stderr


def test_what_was_not_put_is_not_covered(two: forebay.LocalGroup) -> None:
    with (
        consumer(two, fields={"u": forebay.every(1, region=np.s_[0:6])}) as reader,
        producer(two) as sim,
    ):
        sim.array("u", dtype="f8", shape=(12,))
        with sim.step(0) as step:
            step.put("u", np.arange(4.0), offset=(0,))
        with reader.next() as step:
            assert step.evaluate("max(u[0:4])") == 3
            assert step.evaluate("covered(u[1:4]) and not covered(u[0:6])") is True
            with pytest.raises(
                forebay.NotCovered, match="of 6 elements of field 'u' 4 were put and are held"
            ):
                step.evaluate("max(u[0:6])")
            with pytest.raises(forebay.NotCovered, match="outside what this reader needs"):
                step.evaluate("max(u)")


def test_blocks_of_runs_of_many_ranks(three: forebay.LocalGroup, transport: str) -> None:
    """Their places are asked from those who know them, at each step."""
    texts: dict[str, Any] = {
        "max(s.U[3:170, 2:188, 1:14])": lambda a: a[3:170, 2:188, 1:14].max(),
        "sum(s.U)": lambda a: a.sum(),
        "count(s.U[100:150] > 0)": lambda a: (a[100:150] > 0).sum(),
        "sum(s.e[:, 1])": lambda _: sum(range(RANKS)),
        "size(s.log)": lambda _: sum(range(RANKS)),
        "max(s.log)": lambda _: RANKS - 1,
    }
    watched = [f"m = {text}; m != -1" for text in texts]
    with (
        forebay.Consumer("s", group=three.path, transport=transport, timeout=20) as viewer,
        contextlib.ExitStack() as stack,
        many_ranks(three) as sim,
    ):
        watches = [
            stack.enter_context(forebay.subscribe(text, group=three.path, timeout=20)) for text in watched
        ]
        for watch in watches:
            watch.wait_active()
        for number in range(2):
            write_large(sim, number)
            step = viewer.next()
            whole = reference(LARGE, "f8", number)
            for (text, of), watch in zip(texts.items(), watches, strict=True):
                assert step.evaluate(text.replace("s.", "")) == pytest.approx(of(whole)), text
                with watch.next(timeout=20) as event:
                    assert (event.step, event.values["m"]) == (number, pytest.approx(of(whole))), text
        write_large(sim, 2, without=40)
        step = viewer.next()
        with pytest.raises(forebay.NotCovered):
            step.evaluate("sum(U)")
        with (
            pytest.warns(forebay.UnknownWarning, match="were put and are held"),
            pytest.raises(forebay.Timeout),
        ):
            watches[1].next(timeout=1)


def test_integers_with_and_without_sign_compare_exactly(one: forebay.LocalGroup) -> None:
    n = np.array([2**63, 2**53 + 1, 5, 0, 2**64 - 1], "u8")
    k = np.array([2**63 - 1, 2**53, 5, -1, -1], "i8")
    pairs = [(int(a), int(b)) for a, b in zip(n, k, strict=True)]
    with forebay.Producer("i", keep=1, group=one.path) as sim:
        for name, array in (("n", n), ("k", k)):
            sim.array(name, dtype=array.dtype, shape=array.shape)
        with sim.step(0) as put:
            put.put("n", n)
            put.put("k", k)
        step = forebay.Stream("i", group=one.path)
        assert step.evaluate("count(n > k)") == sum(a > b for a, b in pairs) == 4
        assert step.evaluate("count(k >= n)") == sum(b >= a for a, b in pairs) == 1
        assert step.evaluate("count(n == k)") == 1
        assert step.evaluate("count(n != k)") == 4


def test_ghosts_stand_in_for_nothing(one: forebay.LocalGroup) -> None:
    """The last element of b was put by nobody: a ghost lies in its place."""
    with forebay.Producer("g", keep=1, group=one.path) as sim:
        sim.array("a", dtype="f8", shape=(3,))
        sim.array("b", dtype="f8", shape=(3,))
        with sim.step(0) as step:
            step.put("a", np.arange(3.0))
            step.put("b", np.array([10.0, 11.0, 99.0]), ghost_high=1)
        stream = forebay.Stream("g", group=one.path)
        for text in ("max(a + b)", "max(b + a)", "max(b)", "sum(a, where=b > 50)"):
            with pytest.raises(forebay.NotCovered):
                stream.evaluate(text)
        assert stream.evaluate("max(a[0:2] + b[0:2])") == 12.0
