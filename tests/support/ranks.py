"""The ranks of one run as processes: each puts its slab of a large field and its element of a small one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.arrays import reference
from support.children import Child
from support.sessions import consumer

RANK = """
path, transport, stream, rank, size, replicas, durability, rows = sys.argv[1:]
rank, size, rows = int(rank), int(size), int(rows)
begin, end = cut(rows, size)[rank]
with forebay.Producer(stream, rank=rank, size=size, group=path, transport=transport, timeout=20, policy="block",
                      keep=1000, replicas=int(replicas), durability=durability) as sim:
    sim.array("U", dtype="f8", shape=(rows, 50))
    sim.array("small", dtype="f8", shape=(size,))
    print("open")
    for line in sys.stdin:
        first, last = map(int, line.split())
        for number in range(first, last):
            with sim.step(number) as step:
                step.put("U", reference((rows, 50), "f8", number)[begin:end], offset=(begin, 0))
                step.put("small", np.full(1, number + rank / 8), offset=(rank,))
        print(last)
    print("lost" if sim.lost else "kept")
"""


def start_ranks(
    child: Callable[..., Child], path: Any, stream: str, replicas: int, **options: Any
) -> list[Child]:
    """Starts all ranks of a run; each has joined it when this returns."""
    transport, durability = options.get("transport", "auto"), options.get("durability", "local")
    size, rows = options.get("size", 2), options.get("rows", 60)
    ranks = [
        child(RANK, path, transport, stream, rank, size, replicas, durability, rows) for rank in range(size)
    ]
    for rank in ranks:
        rank.expect("open")
    return ranks


def put_steps(ranks: list[Child], numbers: range) -> None:
    """Every rank puts these steps; what has been said to be done is acknowledged."""
    for rank in ranks:
        rank.say(f"{numbers.start} {numbers.stop}")
    for rank in ranks:
        rank.expect(str(numbers.stop))


def end_ranks(ranks: list[Child]) -> None:
    """Every rank leaves the run, and has lost no step."""
    for rank in ranks:
        rank.close_input()
        rank.expect("kept")
        rank.ended()


READER = """
path, (first, last, rows) = sys.argv[1], map(int, sys.argv[2:])
with forebay.Consumer("s", group=path, start="oldest", timeout=20) as reader:
    for number in range(first, last):
        with reader.next() as step:
            assert step.number == number and not step.torn, step
            try:
                np.testing.assert_array_equal(step["U"][...], reference((rows, 50), "f8", number))
            except forebay.Lost:
                print("Lost")
                sys.exit()
            np.testing.assert_array_equal(step["small"][...], [number, number + 0.125])
print("whole")
"""


def check_steps(
    group: Any, stream: str, numbers: range, size: int = 2, rows: int = 60, **options: Any
) -> None:
    """All these steps are there, whole, and every byte is as it was put."""
    seen = []
    with consumer(group, stream, start="oldest", window=4, **options) as reader:
        while len(seen) < len(numbers):
            with reader.next() as step:
                assert not step.torn
                np.testing.assert_array_equal(step["U"][...], reference((rows, 50), "f8", step.number))
                small = [step.number + rank / 8 for rank in range(size)]
                np.testing.assert_array_equal(step["small"][...], small)
                seen.append(step.number)
    assert seen == list(numbers)
