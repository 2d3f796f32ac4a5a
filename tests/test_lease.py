"""A server that most others do not answer acknowledges nothing: the group may go on without it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from support.arrays import reference
from support.groups import group_status, stream_coordinated_by
from support.processes import stand_still

import forebay

SHAPE = (60, 50)


@contextlib.contextmanager
def alone(group: forebay.LocalGroup) -> Iterator[None]:
    """Only the first server answers."""
    pids = [server["pid"] for server in group_status(group)["servers"][1:]]
    for pid in pids:
        stand_still(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def flush_until_refused(sim: forebay.Producer) -> None:
    """The lease of an earlier acknowledgement lasts for up to a second."""
    with pytest.raises(forebay.Timeout, match="too few of the 3 servers answer"):
        deque(iter(sim.flush, "never"), maxlen=0)


def test_a_flush_waits_for_a_lease(patient_three: forebay.LocalGroup, transport: str) -> None:
    stream = stream_coordinated_by(patient_three, 0)
    with (
        forebay.Consumer(stream, group=patient_three.path, timeout=20) as reader,
        forebay.Producer(
            stream, group=patient_three.path, transport=transport, timeout=3, on_loss="fail"
        ) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", reference(SHAPE, "f8", 0))
        sim.flush()
        with alone(patient_three):
            flush_until_refused(sim)
            # What is not waited for goes on, and is acknowledged later.
            with sim.step(1) as step:
                step.put("U", reference(SHAPE, "f8", 1))
        sim.flush()
        for number in range(2):
            step = reader.next(timeout=20)
            assert (step.number, step.torn) == (number, False)
            assert (step["U"][...] == reference(SHAPE, "f8", number)).all()


def test_a_put_to_the_space_waits_for_a_lease(patient_three: forebay.LocalGroup, transport: str) -> None:
    with contextlib.ExitStack() as stack:
        spaces = [
            stack.enter_context(forebay.Space(group=patient_three.path, transport=transport, timeout=3))
            for _ in range(8)
        ]
        for number, space in enumerate(spaces):
            space.put(f"before{number}", reference(SHAPE), step=0)

        def put(number: int) -> None:
            for step in count():
                spaces[number].put(f"T{number}", reference(SHAPE, "f8", step), step=step)

        # Each has an owner; some the server that answers.
        with alone(patient_three), ThreadPoolExecutor(len(spaces)) as pool:
            for told in [pool.submit(put, number) for number in range(len(spaces))]:
                with pytest.raises(forebay.Timeout):
                    told.result()
        spaces[0].put("after", reference(SHAPE), step=0)
        assert (spaces[0].get("after", step=0) == reference(SHAPE)).all()
