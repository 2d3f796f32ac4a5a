"""Arrays of the space that take the place of others, and what there is in it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.commands import FOREBAY
from support.deaths import kill_servers
from support.groups import is_given_back, server_ids
from support.waiting import wait_until

import forebay

SMALL, LARGE = (3, 5), (512, 300)
"""Of one tile, and of tiles that several servers own."""


def opened(group: forebay.LocalGroup, transport: str = "auto", **options: object) -> forebay.Space:
    return forebay.Space(group=group.path, timeout=20, transport=transport, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("before", [SMALL, LARGE])
@pytest.mark.parametrize("after", [SMALL, LARGE])
def test_an_array_takes_the_place_of_another(
    three: forebay.LocalGroup, transport: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """Whether that one was put in parts, by others, with another shape or dtype, or was not there; again and again."""
    with opened(three, transport) as mine, opened(three, transport) as other:
        mine.put("new", reference(after), step=1, replace=True)
        np.testing.assert_array_equal(other.get("new", step=1), reference(after))
        whole = reference(before)
        for begin, end in cut(before[0], 3):
            other.put("T", whole[begin:end], step=1, offset=(begin, 0), shape=before)
        np.testing.assert_array_equal(mine.get("T", step=1, timeout=0.0), whole)
        for number in range(5):
            put = reference(after, np.dtype("f4" if number % 2 else "f8")) + number
            (mine, other)[number % 2].put("T", put, step=1, replace=True)
            for reader in (mine, other):
                np.testing.assert_array_equal(reader.get("T", step=1, timeout=0.0), put, strict=True)
                np.testing.assert_array_equal(reader.get("T", step=1, region=np.s_[1:3, ::2]), put[1:3, ::2])
        with pytest.raises(forebay.Conflict, match="`replace`"):
            other.put("T", put, step=1)
        mine.remove("T", step=1)
        with pytest.raises(forebay.Timeout):
            other.get("T", step=1, timeout=0.0)
        other.put("T", whole, step=1)
        np.testing.assert_array_equal(mine.get("T", step=1), whole)
        for name in ("T", "new"):
            mine.remove(name, step=1)
    wait_until(lambda: is_given_back(three))


def test_only_a_whole_array_is_replaced(two: forebay.LocalGroup) -> None:
    with opened(two) as mine:
        mine.put("T", np.ones((4, 4)), step=0)
        for options in ({"offset": (1, 0)}, {"shape": (8, 4)}, {"offset": (0, 0), "shape": (4, 5)}):
            with pytest.raises(forebay.OutOfBounds, match="only a whole array can be replaced"):
                mine.put("T", np.zeros((4, 4)), step=0, replace=True, **options)  # type: ignore[arg-type]
        assert mine.get("T", step=0).sum() == 16
        mine.put("n", 3, step=0, replace=True)
        mine.put("n", 4, step=0, replace=True)
        assert mine.get("n", step=0) == 4


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_readers_see_one_or_the_other(
    three: forebay.LocalGroup, child: Callable[..., Child], transport: str, shape: tuple[int, int]
) -> None:
    """While it is replaced again and again nobody waits for it, or gets bytes of two; first it was put in parts."""
    writer = child(
        """
        stop = []
        threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
        shape = tuple(json.loads(sys.argv[2]))
        with forebay.Space(group=sys.argv[1], transport=sys.argv[3], timeout=20) as space:
            for row in range(shape[0]):
                space.put("T", np.zeros((1, shape[1])), step=0, offset=(row, 0), shape=shape)
            print("put")
            value = 1
            while not stop:
                space.put("T", np.full(shape, float(value)), step=0, replace=True)
                if value == 3:
                    print("runs")
                value += 1
        print(value - 1)
        """,
        three.path,
        json.dumps(shape),
        transport,
    )
    writer.expect("put")
    seen: set[float] = set()
    with opened(three, transport) as mine:
        for _ in range(150):
            found = mine.get("T", step=0, timeout=0.0)
            assert found.shape == shape
            assert found.min() == found.max()
            seen.add(float(found[0, 0]))
        writer.expect("runs")
        writer.say()
        last = float(writer.line())
        assert mine.get("T", step=0)[0, 0] == last
        mine.remove("T", step=0)
    writer.ended()
    wait_until(lambda: is_given_back(three))


def test_the_whole_array_is_read_whatever_shape_it_has_now(three: forebay.LocalGroup) -> None:
    """It is replaced by one of another shape and back, while it is read: the region was never one that the reader named."""
    stop = threading.Event()

    def keep_replacing() -> None:
        with opened(three) as space:
            while not stop.is_set():
                for shape in ((200_000,), (10,)):
                    space.put("T", np.zeros(shape), step=0, replace=True)

    with opened(three) as mine:
        mine.put("T", np.zeros(10), step=0, replace=True)
        writer = threading.Thread(target=keep_replacing)
        writer.start()
        try:
            seen = {mine.get("T", step=0).shape for _ in range(3000)}
        finally:
            stop.set()
            writer.join()
        assert seen == {(10,), (200_000,)}


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_several_replace_one_array_at_once(three: forebay.LocalGroup, shape: tuple[int, int]) -> None:
    """One of those put last stays, whole, and the memory of the others is free."""

    def keep_replacing(which: int) -> None:
        with opened(three) as space:
            for number in range(50):
                space.put("T", np.full(shape, 10.0 * number + which), step=0, replace=True)

    threads = [threading.Thread(target=keep_replacing, args=[which]) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(three) as mine:
        found = mine.get("T", step=0)
        assert found.min() == found.max()
        assert found[0, 0] in {490, 491, 492, 493}
        (listed,) = mine.list()
        wait_until(lambda: mine.list()[0].blocks == 1)
        assert listed.shape == shape
        mine.remove("T", step=0)
    wait_until(lambda: is_given_back(three))


def test_what_was_replaced_outlives_servers(own_place: Path, transport: str) -> None:
    """With copies: while it is replaced servers die, one after the other, and others come. What was acknowledged is read."""
    with forebay.local(servers=4, budget_bytes=256 << 20) as group:
        over = threading.Event()
        done = [0.0]

        def keep_replacing() -> None:
            with opened(group, transport, replicas=2) as space:
                while not over.is_set():
                    for name, shape in (("small", SMALL), ("large", LARGE)):
                        space.put(name, np.full(shape, done[0] + 1), step=0, replace=True)
                    done[0] += 1

        replacing = threading.Thread(target=keep_replacing)
        replacing.start()
        try:
            with opened(group, transport) as reader:
                for _ in range(4):
                    before = done[0]
                    wait_until(lambda before=before: done[0] > before + 10)
                    kill_servers(group, min(server_ids(group)))
                    for name in ("small", "large"):
                        acknowledged = done[0]
                        found = reader.get(name, step=0)
                        assert found.min() == found.max()
                        assert found.min() >= acknowledged
                    group.add_servers()
        finally:
            over.set()
            replacing.join()
        with opened(group, transport) as reader:
            for name in ("small", "large"):
                assert reader.get(name, step=0).max() == done[0]
                reader.remove(name, step=0)
        wait_until(lambda: is_given_back(group))


# ---- lists --------------------------------------------------------------------------------------


def test_the_space_is_listed(three: forebay.LocalGroup, transport: str) -> None:
    """Name, step, dtype, shape, blocks and bytes of each array, whichever servers hold and describe it."""
    with opened(three, transport) as mine:
        assert mine.list() == []
        for step in range(4):
            for begin, end in cut(LARGE[0], 3):
                mine.put(
                    "temperature", np.zeros((end - begin, 300)), step=step, offset=(begin, 0), shape=LARGE
                )
        mine.put("n", np.int32(4), step=2**64 - 1)
        mine.put("control", np.zeros(7, "?"), step=0, replace=True)
        mine.put("control", np.zeros((2, 2), "c8"), step=0, replace=True)
        expected = [
            ("control", 0, np.dtype("c8"), (2, 2), 1, 32),
            ("n", 2**64 - 1, np.dtype("i4"), (), 1, 4),
            *(("temperature", step, np.dtype("f8"), LARGE, 3, 8 * 512 * 300) for step in range(4)),
        ]
        wait_until(lambda: mine.list() == expected)
        assert [found.step for found in mine.list("temp*")] == [0, 1, 2, 3]
        assert mine.list("[a-c]*") == expected[:1]
        mine.remove("temperature", step=1)
        assert [found.step for found in mine.list("temperature")] == [0, 2, 3]


def test_long_lists_come_whole(two: forebay.LocalGroup) -> None:
    """More arrays than a server tells of at once."""
    with opened(two) as mine:
        for step in range(2500):
            mine.put("T", np.int8(0), step=step)
        assert [found.step for found in mine.list()] == list(range(2500))


def test_the_command_lists_the_space(two: forebay.LocalGroup) -> None:
    def ls(*arguments: str, code: int = 0) -> str:
        command = [str(FOREBAY), "ls", "--space", "--group", two.path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    with opened(two) as mine:
        mine.put("temperature", np.zeros((3, 5)), step=12)
        mine.put("n", 4, step=0)
    assert ls().splitlines() == [
        "ARRAY        STEP  DTYPE    SHAPE   BLOCKS   SIZE",
        "n               0  int64    ()           1    8 B",
        "temperature    12  float64  (3, 5)       1  120 B",
    ]
    assert len(ls("t*").splitlines()) == 2
    assert json.loads(ls("--json", "n")) == [
        {"name": "n", "step": 0, "dtype": "int64", "shape": [], "blocks": 1, "bytes": 8}
    ]
    assert "pattern" in ls("[", code=1)
