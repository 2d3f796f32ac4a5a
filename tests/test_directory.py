"""The directory on several servers: large fields are cut into tiles, each with an owner of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import BUDGET, Child, cut, is_given_back, reference, total, wait_until

import forebay

SHAPE = (211, 190, 17)
"""Large enough for tiles on each of three servers, with unequal extents."""


@pytest.fixture
def three(own_place: Path) -> Iterator[forebay.LocalGroup]:
    """A private group of three servers."""
    with forebay.local(servers=3, budget=BUDGET) as group:
        yield group


def space(group: forebay.LocalGroup, **options: object) -> forebay.Space:
    options.setdefault("timeout", 20)
    return forebay.Space(group=group.path, **options)  # type: ignore[arg-type]


def servers(group: forebay.LocalGroup) -> list[dict[str, Any]]:
    with forebay.Admin(group=group.path, timeout=10) as admin:
        found: list[dict[str, Any]] = admin.status()["servers"]
    return found


def known(group: forebay.LocalGroup) -> list[int]:
    """How many blocks the directory's part on each server knows."""
    return [server["blocks"] for server in servers(group)]


def put_all(mine: forebay.Space, whole: np.ndarray[Any, Any], step: int) -> int:
    blocks = [(a, b, c, d) for a, b in cut(SHAPE[0], 5) for c, d in cut(SHAPE[1], 4)]
    for a, b, c, d in blocks:
        mine.put("T", whole[a:b, c:d], step=step, offset=(a, c, 0), shape=SHAPE)
    return len(blocks)


PUTTER = """
path, transport = sys.argv[1:]
with forebay.Space(group=path, transport=transport, timeout=20) as space:
    while line := sys.stdin.readline():
        a, b, step, shape = json.loads(line)
        try:
            space.put("T", reference(shape, "f8", step)[a:b], step=step, offset=(a, 0, 0), shape=shape)
            print("put")
        except forebay.Error as error:
            print(type(error).__name__, *str(error).splitlines())
"""


def test_each_server_owns_a_part(three: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with space(three, transport=transport) as mine:
        count = put_all(mine, whole, 3)
        parts = known(three)
        assert all(0 < part < count for part in parts), parts
        assert sum(parts) >= count
        assert sum(server["directory_bytes"] for server in servers(three)) < 256 * sum(parts) + 3 * 4096
        for region in (
            np.s_[...],
            np.s_[3:170, 2:188, 1:14],
            np.s_[::4, 1::3, ::2],
            np.s_[210, :, -1],
            np.s_[::-1, ::-5, 2],
            np.s_[5:5, :, :],
            np.s_[100:101, 77, 3],
        ):
            found = mine.get("T", step=3, region=region)
            np.testing.assert_array_equal(found, whole[region], strict=True)
        mine.remove("T", step=3)
        assert known(three) == [0, 0, 0], "when remove has returned nobody knows of it"
        mine.remove("T", step=3)
    wait_until(lambda: is_given_back(three))


def test_fields_of_one_tile_stay_with_one_owner(three: forebay.LocalGroup) -> None:
    with space(three) as mine:
        for step in range(30):
            mine.put("small", reference((33, 7)), step=step)
        assert sum(known(three)) == 30
        for step in range(30):
            np.testing.assert_array_equal(mine.get("small", step=step), reference((33, 7)))
            mine.remove("small", step=step)
        assert known(three) == [0, 0, 0]


def test_several_servers_hold_and_own(
    three: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """Three processes, most likely with different servers, put while a fourth waits for all of it."""
    slabs = cut(SHAPE[0], 6)
    putters = [child(PUTTER, three.path, transport) for _ in range(3)]
    getter = child(
        """
        with forebay.Space(group=sys.argv[1], transport=sys.argv[2], timeout=20) as space:
            print("waits")
            for step in range(3):
                found = space.get("T", step=step, region=np.s_[2:, 1:-1])
                np.testing.assert_array_equal(found, reference((211, 190, 17), "f8", step)[2:, 1:-1])
        """,
        three.path,
        transport,
    )
    getter.expect("waits")
    for step in range(3):
        for number, (a, b) in enumerate(slabs):
            putters[number % 3].say(f"[{a}, {b}, {step}, {list(SHAPE)}]")
        for number in range(len(slabs)):
            putters[number % 3].expect("put")
    getter.ended()
    with space(three) as mine:
        for step in range(3):
            mine.remove("T", step=step)
        assert known(three) == [0, 0, 0]
        wait_until(lambda: is_given_back(three))
        # All servers that had described it learn that it is another field now.
        other = (190, 17, 211)
        for number, (a, b) in enumerate(cut(other[0], 6)):
            putters[number % 3].say(f"[{a}, {b}, 1, {list(other)}]")
            putters[number % 3].expect("put")
        putters[0].say(f"[0, 10, 1, {list(SHAPE)}]")
        assert putters[0].line().startswith("Conflict field 'T' at step 1 is float64 of shape")
        np.testing.assert_array_equal(mine.get("T", step=1), reference(other, "f8", 1))
        mine.remove("T", step=1)
    wait_until(lambda: is_given_back(three))
    for putter in putters:
        assert putter.process.stdin is not None
        putter.process.stdin.close()
        putter.code()


def test_a_shape_is_believed_until_it_is_another(three: forebay.LocalGroup) -> None:
    """Whom a reader asks follows from the shape, which it may remember from another step."""
    shapes = [SHAPE, (5, 3, 2), (17, 211, 190), (1, 700, 300), SHAPE]
    with space(three) as mine:
        for step, shape in enumerate(shapes):
            mine.put("T", reference(shape), step=step)
        for _ in range(3):
            for step, shape in enumerate(shapes):
                np.testing.assert_array_equal(mine.get("T", step=step, timeout=5), reference(shape))
        for step, shape in enumerate(shapes):
            with space(three) as other:
                np.testing.assert_array_equal(
                    other.get("T", step=step, region=np.s_[-1:, ::2]), reference(shape)[-1:, ::2]
                )


def test_what_is_missing_is_named(three: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with space(three, transport=transport) as mine:
        with pytest.raises(forebay.Timeout, match="'T'"):
            mine.get("T", step=0, timeout=0.1)
        mine.put("T", whole[:, :100], step=0, offset=(0, 0, 0), shape=SHAPE)
        mine.put("T", whole[:, 101:], step=0, offset=(0, 101, 0), shape=SHAPE)
        for _ in range(2):
            with pytest.raises(forebay.NotCovered, match=r"\[\d+:\d+, 100:101, \d+:\d+\].*\[0:211, 0:190, 0:17\]"):
                mine.get("T", step=0, timeout=0.2)
            with pytest.raises(forebay.NotCovered, match=r"\[7:8, 100:101, 3:4\]"):
                mine.get("T", step=0, region=np.s_[7:8, 20:120, 3:4], timeout=0)
        np.testing.assert_array_equal(mine.get("T", step=0, region=np.s_[:, :90]), whole[:, :90])


def test_an_overlap_is_refused_everywhere(three: forebay.LocalGroup) -> None:
    whole = reference(SHAPE)
    with space(three) as mine:
        mine.put("T", whole[:20], step=0, offset=(0, 0, 0), shape=SHAPE)
        before = known(three)
        for _ in range(3):
            with pytest.raises(forebay.Conflict, match="overlap"):
                mine.put("T", whole[19:] * 0, step=0, offset=(19, 0, 0), shape=SHAPE)
        wait_until(lambda: known(three) == before)
        staged = total(three, "staged_bytes")
        mine.put("T", whole[20:], step=0, offset=(20, 0, 0), shape=SHAPE)
        assert total(three, "staged_bytes") > staged
        np.testing.assert_array_equal(mine.get("T", step=0), whole)
        mine.remove("T", step=0)
        assert known(three) == [0, 0, 0]
    wait_until(lambda: is_given_back(three))


def test_what_is_got_while_others_remove_and_put_is_of_one_put(
    three: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """All parts that a reader gets from several owners belong together, and their bytes stay."""
    churn = [
        child(
            """
            stop = []
            threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
            whole = np.empty((211, 190, 17))
            with forebay.Space(group=sys.argv[1], timeout=20) as space:
                value = 0.0
                while not stop:
                    whole[:] = value
                    space.put("T", whole, step=int(sys.argv[2]))
                    space.remove("T", step=int(sys.argv[2]))
                    value += 1
                    if value == 3:
                        print("runs")
            """,
            three.path,
            step,
        )
        for step in range(2)
    ]
    for process in churn:
        process.expect("runs")
    with space(three) as mine:
        for number in range(60):
            found = mine.get("T", step=number % 2)
            low, high = found.min(), found.max()
            assert low == high, f"bytes of two puts in one array: {low} and {high}"
    for process in churn:
        process.say()
        process.ended()
    wait_until(lambda: known(three) == [0, 0, 0])
    wait_until(lambda: is_given_back(three))


def test_two_put_and_remove_one_field(three: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """Whatever they do to each other is said, and nothing is left when all is removed."""
    rivals = [
        child(
            """
            begin, end = json.loads(sys.argv[2])
            part = reference((211, 190, 17))[begin:end]
            with forebay.Space(group=sys.argv[1], timeout=20) as space:
                for _ in range(40):
                    try:
                        space.put("T", part, step=0, offset=(begin, 0, 0), shape=(211, 190, 17))
                    except forebay.Conflict as error:
                        assert "overlap" in str(error), error
                    space.remove("T", step=0)
            """,
            three.path,
            f"[{begin}, {end}]",
        )
        for begin, end in ((0, 140), (70, 211), (100, 120))
    ]
    for rival in rivals:
        rival.ended(60)
    with space(three) as mine:
        mine.remove("T", step=0)
    assert known(three) == [0, 0, 0]
    wait_until(lambda: is_given_back(three))


def test_an_owner_that_is_gone_is_named(three: forebay.LocalGroup) -> None:
    whole = reference(SHAPE)
    with space(three) as mine:
        mine.put("T", whole, step=0)
        with space(three) as other:
            np.testing.assert_array_equal(other.get("T", step=0), whole)
        victim = servers(three)[2]
        os.kill(victim["pid"], signal.SIGKILL)
        failures = []
        for step in range(1, 4):
            try:
                mine.put("T", whole, step=step)
            except forebay.Error as error:
                failures.append(error)
        assert failures
        for failure in failures:
            assert isinstance(failure, (forebay.Unreachable, forebay.Lost)), failure
            assert "server2" in str(failure), failure
