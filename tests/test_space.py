"""The space: what was put by anybody is got by name, step and region."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.groups import is_given_back
from support.waiting import wait_until

import forebay

SHAPE = (37, 23, 5)


def space(group: forebay.LocalGroup, **options: object) -> forebay.Space:
    options.setdefault("timeout", 20)
    return forebay.Space(group=group.path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["f8", "?", "c8", ">i4", "f2"])
def test_regions_across_blocks_and_servers(two: forebay.LocalGroup, transport: str, dtype: str) -> None:
    native = np.dtype(dtype).newbyteorder("=")
    whole = reference(SHAPE, native)
    with space(two, transport=transport) as mine:
        for a, b in cut(37, 4):
            for c, d in cut(23, 3):
                mine.put("T", whole[a:b, c:d].astype(dtype), step=7, offset=(a, c, 0), shape=SHAPE)
        for region in (
            np.s_[...],
            np.s_[3:30, 2:20, 1:4],
            np.s_[::4, 1::3, ::2],
            np.s_[36, :, -1],
            np.s_[::-1, ::-5, 2],
            np.s_[5:5, :, :],
            np.s_[10:12],
            np.s_[-4:, ..., 0],
        ):
            found = mine.get("T", step=7, region=region)
            np.testing.assert_array_equal(found, whole[region], strict=True)
            out = np.zeros(found.shape, native)
            assert mine.get("T", step=7, region=region, out=out) is out
            np.testing.assert_array_equal(out, whole[region])
        turned = np.zeros((5, 23, 37), native).transpose(2, 1, 0)
        mine.get("T", step=7, out=turned)
        np.testing.assert_array_equal(turned, whole)


def test_an_expression_of_what_is_put(two: forebay.LocalGroup, transport: str) -> None:
    """It waits for the regions that it names, whoever holds them, and for nothing else."""
    shape = (240, 190, 17)  # of several tiles, so that several servers own it
    u, v = reference(shape, "f8"), reference(shape, "f4", 1)
    with space(two, transport=transport) as mine, space(two) as other:
        mine.put("V", v, step=3)
        for begin, end in cut(240, 5)[:3]:
            mine.put("U", u[begin:end], step=3, offset=(begin, 0, 0), shape=shape)
        first = np.s_[: cut(240, 5)[2][1]]
        for text, expected in {
            f"max(U[:{first.stop}])": u[first].max(),
            f"count(U[:{first.stop}] > V[:{first.stop}])": (u[first] > v[first]).sum(),
            "percentile(V, 99)": np.percentile(v, 99),
            "std(V) > 1": bool(v.std() > 1),
        }.items():
            assert mine.evaluate(text, step=3) == pytest.approx(expected, rel=1e-6), text
        with pytest.raises(forebay.NotCovered, match=r"'U' at step 3: nothing was put at"):
            mine.evaluate("sum(U)", step=3, timeout=0.1)
        with pytest.raises(forebay.Timeout, match="W"):
            mine.evaluate("sum(W)", step=3, timeout=0.1)
        found: list[object] = []
        waiting = threading.Thread(
            target=lambda: found.append(mine.evaluate("max(gradient_magnitude(U))", step=3))
        )
        waiting.start()
        for begin, end in cut(240, 5)[3:]:
            other.put("U", u[begin:end], step=3, offset=(begin, 0, 0), shape=shape)
        waiting.join(20)
        steepest = np.sqrt(sum(part * part for part in np.gradient(u))).max()
        assert found == [pytest.approx(steepest)]
        place = mine.evaluate("argmax(U)", step=3)
        assert isinstance(place, forebay.Place)
        assert place.index == np.unravel_index(u.argmax(), shape)
        assert mine.evaluate("sum(U)", step=3) == pytest.approx(u.sum())
        for text, kind, message in [
            ("maxx(U)", forebay.NotFound, "Did you mean 'max'"),
            ("max(s.U)", forebay.Invalid, "names no streams"),
            ("max(U[0:241])", forebay.OutOfBounds, "outside the shape"),
            ("covered(U[0:9]) and max(delta(max(U))) > 1", forebay.Error, "column"),
        ]:
            with pytest.raises(kind, match=message):
                mine.evaluate(text, step=3)


def test_two_processes_put_on_two_servers(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """Each process puts to a server of its own choice; a third reads across both."""
    whole = reference((90, 40))
    putters = [
        child(
            """
            path, transport, begin, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
            with forebay.Space(group=path, transport=transport) as space:
                whole = reference((90, 40))
                space.put("T", whole[begin:end, ::-1][:, ::-1], step=1, offset=(begin, 0), shape=(90, 40))
            """,
            two.path,
            transport,
            *part,
        )
        for part in cut(90, 3)
    ]
    with space(two, transport=transport) as mine:
        # Waits for those that have not put yet.
        np.testing.assert_array_equal(mine.get("T", step=1), whole)
        np.testing.assert_array_equal(mine.get("T", step=1, region=np.s_[7::9, ::-4]), whole[7::9, ::-4])
    for putter in putters:
        putter.ended()


def test_a_get_waits_for_its_region(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    whole = reference((12, 6))
    getter = child(
        """
        with forebay.Space(group=sys.argv[1]) as space:
            print("waits")
            found = space.get("T", step=3, region=np.s_[2:9, 1:5])
            np.testing.assert_array_equal(found, reference((12, 6))[2:9, 1:5])
            print("got")
        """,
        two.path,
    )
    getter.expect("waits")
    with space(two) as mine:
        mine.put("T", whole[:4], step=3, offset=(0, 0), shape=(12, 6))
        mine.put("T", whole, step=4)
        mine.put("T", whole[8:], step=3, offset=(8, 0), shape=(12, 6))
        assert getter.process.poll() is None
        mine.put("T", whole[4:8], step=3, offset=(4, 0), shape=(12, 6))
    getter.expect("got")
    getter.ended()


def test_a_covered_region_of_a_field_that_is_not(two: forebay.LocalGroup, transport: str) -> None:
    """Only what is asked for must be there, however the region is written."""
    whole = reference((30, 8))
    with space(two, transport=transport, timeout=2) as mine:
        mine.put("T", whole[10:20], step=0, offset=(10, 0), shape=(30, 8))
        for region in (
            np.s_[10:20, 0:8],
            np.s_[12:20, 3:5],
            np.s_[11, 2],
            np.s_[10:20, :],
            np.s_[10:20],
            np.s_[10:20:3, ::2],
            np.s_[np.int64(12) : np.int64(14), 0:8],
            np.s_[-20:-10, :],
            np.s_[19:9:-2, 1],
            np.s_[15, ...],
        ):
            np.testing.assert_array_equal(
                mine.get("T", step=0, region=region), whole[region], err_msg=str(region)
            )


def test_the_deadline_names_what_is_missing(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference((30, 8))
    with space(two, transport=transport) as mine:
        mine.put("T", whole[:10], step=0, offset=(0, 0), shape=(30, 8))
        mine.put("T", whole[20:], step=0, offset=(20, 0), shape=(30, 8))
        started = time.monotonic()
        with pytest.raises(forebay.NotCovered, match=r"\[10:20, 0:8\]"):
            mine.get("T", step=0, timeout=0.2)
        with pytest.raises(forebay.NotCovered, match=r"\[10:20, 3:5\]"):
            mine.get("T", step=0, region=np.s_[5:25, 3:5], timeout=0.2)
        with pytest.raises(forebay.Timeout, match=r"'T'.*step 1"):
            mine.get("T", step=1, timeout=0.2)
        with pytest.raises(forebay.Timeout, match="'never'"):
            mine.get("never", step=0, timeout=0.2)
        assert time.monotonic() - started < 10
        out = np.full((30, 8), 7.0)
        with pytest.raises(forebay.NotCovered):
            mine.get("T", step=0, timeout=0.2, out=out)
        assert (out == 7).all(), "memory was partly filled"


def test_regions_outside_are_treated_as_a_reader_treats_them(two: forebay.LocalGroup) -> None:
    """NumPy's slices end at the array's end."""
    whole = reference((30, 8))
    with space(two, timeout=2) as mine:
        mine.put("T", whole, step=0)
        for region in (np.s_[25:100, 0:8], np.s_[0:30, 6:9], np.s_[40:50, 0:8]):
            np.testing.assert_array_equal(mine.get("T", step=0, region=region), whole[region])
        for region in (np.s_[30, 0], np.s_[0, 8], np.s_[-31, 0], np.s_[0:1, 0:1, 0:1]):
            with pytest.raises(forebay.OutOfBounds):
                mine.get("T", step=0, region=region)


def test_remove(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference((100, 40))
    with space(two, transport=transport) as mine:
        for step in range(4):
            mine.put("T", whole + step, step=step)
        mine.remove("T", step=2)
        mine.remove("T", step=2)
        mine.remove("never", step=2)
        with pytest.raises(forebay.Timeout):
            mine.get("T", step=2, timeout=0.1)
        np.testing.assert_array_equal(mine.get("T", step=1), whole + 1)
        mine.put("T", whole[:, ::-1], step=2)
        np.testing.assert_array_equal(mine.get("T", step=2), whole[:, ::-1])
        for step in range(4):
            mine.remove("T", step=step)
    wait_until(lambda: is_given_back(two))


def test_overlap_is_refused(two: forebay.LocalGroup) -> None:
    whole = reference((30, 8))
    with space(two, timeout=2) as mine:
        mine.put("T", whole[:20], step=0, offset=(0, 0), shape=(30, 8))
        # The advice is one that the space can take: a put has no ghosts.
        with pytest.raises(
            forebay.Conflict, match=r"overlaps.*\[0:20, 0:8\]; put each element once, or remove"
        ):
            mine.put("T", whole[19:] * 0, step=0, offset=(19, 0), shape=(30, 8))
        with pytest.raises(
            forebay.Conflict, match=r"float64 of shape \[30, 8\] in the space, not .*\[31, 8\]"
        ):
            mine.put("T", whole[20:], step=0, offset=(20, 0), shape=(31, 8))
        with pytest.raises(forebay.Conflict, match="int32"):
            mine.put("T", whole[20:].astype("i4"), step=0, offset=(20, 0), shape=(30, 8))
        np.testing.assert_array_equal(mine.get("T", step=0, region=np.s_[0:20, 0:8]), whole[:20])
        mine.put("T", whole[20:], step=0, offset=(20, 0), shape=(30, 8))
        np.testing.assert_array_equal(mine.get("T", step=0), whole)
        mine.remove("T", step=0)
    wait_until(lambda: is_given_back(two))


def test_a_refused_put_costs_no_memory(own_place: object) -> None:
    with forebay.local(servers=1, budget_bytes=4 << 20) as group, space(group, timeout=2) as mine:
        whole = reference((256, 512))
        mine.put("T", whole, step=0)
        for _ in range(20):
            with pytest.raises(forebay.Conflict):
                mine.put("T", whole, step=0)
        mine.put("T", whole, step=1)
        mine.put("T", whole, step=2)
        mine.put("T", whole, step=3)
        with pytest.raises(forebay.Full, match="remove"):
            mine.put("T", whole, step=4)
        with pytest.raises(forebay.OverBudget):
            mine.put("T", np.zeros(1 << 20), step=9)
        mine.remove("T", step=0)
        mine.put("T", whole + 1, step=10)
        np.testing.assert_array_equal(mine.get("T", step=10), whole + 1)


def test_what_is_got_while_others_remove_and_put_is_whole(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """A reader that found blocks reads their bytes, though they are removed and their memory used again."""
    churn = child(
        """
        stop = []
        threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
        with forebay.Space(group=sys.argv[1]) as space:
            value = 0
            while not stop:
                space.put("T", np.full((512, 1024), float(value)), step=0)
                space.remove("T", step=0)
                value += 1
                if value == 3:
                    print("runs")
        """,
        one.path,
    )
    churn.expect("runs")
    with space(one) as mine:
        for _ in range(150):
            found = mine.get("T", step=0)
            low, high = found.min(), found.max()
            assert low == high, f"bytes of two puts in one array: {low} and {high}"
    churn.say()
    churn.ended()


def test_numbers_without_dimensions(two: forebay.LocalGroup, transport: str) -> None:
    with space(two, transport=transport) as mine:
        mine.put("e", np.float32(2.5), step=0)
        found = mine.get("e", step=0)
        assert found.dtype == np.float32
        assert float(found) == 2.5
        mine.put("none", np.zeros((0, 4)), step=0)
        assert mine.get("none", step=0).shape == (0, 4)


@pytest.mark.parametrize("shape", [(7, 300), (12, 40), (90,)])
def test_a_shape_that_is_another_at_another_step(two: forebay.LocalGroup, shape: tuple[int, ...]) -> None:
    """A reader remembers a field's shape, and looks again where a region or an array does not fit it."""
    with forebay.Space(group=two) as space:
        first, second = reference((9, 40)), reference(shape, step=1)
        space.put("T", first, step=0)
        space.put("T", second, step=1)
        for out in (None, np.empty(shape)):
            assert np.array_equal(space.get("T", step=0, region=np.s_[:, :]), first)
            region = tuple(slice(0, n) for n in shape)
            assert np.array_equal(space.get("T", step=1, region=region, out=out), second)
        with pytest.raises(forebay.OutOfBounds, match="out has shape"):
            space.get("T", step=1, out=np.empty((3, 3)))


def test_a_get_waits_for_many_blocks_in_any_order(two: forebay.LocalGroup, transport: str) -> None:
    """Readers of the whole and of a part wait while blocks come, among others of other fields and steps."""
    whole = reference((48, 30))
    order = np.random.default_rng(5).permutation(48)
    found: dict[str, np.ndarray] = {}
    with space(two, transport=transport) as mine, space(two, transport=transport) as theirs:

        def get(name: str, region: tuple[slice, ...]) -> None:
            with space(two, transport=transport) as own:
                found[name] = own.get("T", step=3, region=region)

        regions = {"whole": np.s_[:, :], "part": np.s_[5:40:2, 3:20], "row": np.s_[17:18, :]}
        threads = [threading.Thread(target=get, args=item) for item in regions.items()]
        for thread in threads:
            thread.start()
        for row in order:
            mine.put("T", whole[row : row + 1], step=3, offset=(int(row), 0), shape=whole.shape)
            theirs.put("T", -whole[row : row + 1], step=4, offset=(int(row), 0), shape=whole.shape)
            theirs.put("other", whole[row : row + 1], step=3, offset=(int(row), 0), shape=whole.shape)
        for thread in threads:
            thread.join(30)
        for name, region in regions.items():
            np.testing.assert_array_equal(found[name], whole[region])
        mine.put("T", whole[:7], step=5, offset=(0, 0), shape=whole.shape)
        with space(two, timeout=0.5) as hasty, pytest.raises(forebay.NotCovered, match=r"nothing was put at"):
            hasty.get("T", step=5, region=np.s_[3:9, :])
