"""A run of one rank as a process, and what reads its steps."""

from __future__ import annotations

import numpy as np

import forebay
from support.arrays import reference
from support.children import Child

SINGLE_RANK = """
path, transport, stream, replicas, timeout = [*sys.argv[1:], 20][:5]
with forebay.Producer(stream, group=path, transport=transport, timeout=float(timeout), policy="block",
                      replicas=int(replicas)) as sim:
    sim.array("U", dtype="f8", shape=(60, 50))
    print("open")
    for line in sys.stdin:
        first, last = map(int, line.split())
        for number in range(first, last):
            with sim.step(number) as step:
                step.put("U", reference((60, 50), "f8", number))
        print(last)
"""


def put_steps(rank: Child, first: int, last: int, timeout: float = 30.0) -> None:
    """The rank puts the steps from the first until before the last."""
    rank.say(f"{first} {last}")
    rank.expect(str(last), timeout)


def read_steps(reader: forebay.Consumer, first: int, last: int) -> None:
    """Takes the steps from the first until before the last, each of them whole."""
    for number in range(first, last):
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False)
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))


STEPS_READER = """
path, stream, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
with forebay.Consumer(stream, group=path, timeout=60) as reader:
    print("attached")
    for number in range(last):
        with reader.next() as step:
            assert (step.number, step.missed, step.torn) == (number, 0, False), step
            np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))
print("whole")
"""
