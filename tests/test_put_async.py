"""Puts whose answer is not waited for: one journey for many, and nothing is silent."""

from __future__ import annotations

import contextlib
import os
import signal

import numpy as np
import pytest
from support.arrays import reference
from support.groups import is_given_back
from support.processes import stand_still
from support.waiting import wait_until

import forebay

ROWS, COLUMNS = 40, 300  # a row is more than what travels inside a message


def test_what_is_put_is_what_is_read(two: forebay.LocalGroup, transport: str) -> None:
    """Dense, strided and small arrays, with and without statistics, on both transports."""
    with (
        forebay.Consumer(
            "s", fields={"U": forebay.every(1, stats=True), "small": 1}, group=two.path, timeout=20
        ) as reader,
        forebay.Producer("s", group=two.path, timeout=20, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        sim.array("small", dtype="i4", shape=(7,))
        for number in range(3):
            whole = reference((ROWS, COLUMNS), "f8", number)
            with sim.step(number) as step:
                for row in range(0, ROWS, 2):
                    assert step.put("U", whole[row : row + 1], offset=(row, 0), number=row, wait=False)
                odd = np.asfortranarray(whole)
                for row in range(1, ROWS, 2):
                    assert step.put("U", odd[row : row + 1], offset=(row, 0), number=row, wait=row % 3 == 0)
                assert step.put("small", reference((7,), "i4"), wait=False)
                if number != 1:  # else the step's end waits
                    assert step.wait()
                    assert step.wait()
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole)
                np.testing.assert_array_equal(found["small"][...], reference((7,), "i4"))
                blocks = found["U"].blocks()
                assert {block.stats[3] for block in blocks if block.stats} == {COLUMNS}
                assert len(blocks) == ROWS
                del blocks
    wait_until(lambda: is_given_back(two))


def test_the_array_is_the_callers_again_on_return(two: forebay.LocalGroup, transport: str) -> None:
    """Also one that is larger than what sockets hold, and although no answer has come."""
    whole = reference((4, 1 << 19))
    with (
        forebay.Consumer("s", group=two.path, timeout=20) as reader,
        forebay.Producer("s", group=two.path, timeout=20, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=whole.shape)
        row = np.empty((1, whole.shape[1]))
        with sim.step(0) as step:
            for number in range(4):
                row[...] = whole[number]
                assert step.put("U", row, offset=(number, 0), number=number, wait=False)
                row[...] = -1
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_no_answer_is_waited_for(one: forebay.LocalGroup) -> None:
    """A server that answers nothing takes them all the same, until somebody waits."""
    whole = reference((ROWS, COLUMNS))
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        forebay.Producer("s", group=one.path, timeout=1, transport="tcp") as sim,
        contextlib.ExitStack() as stack,
    ):
        sim.array("U", dtype="f8", shape=whole.shape)
        with sim.step(0) as step:
            stack.callback(os.kill, one.servers[0].pid, signal.SIGCONT)
            stand_still(one.servers[0].pid)
            for row in range(ROWS):
                assert step.put("U", whole[row : row + 1], offset=(row, 0), number=row, wait=False)
            with pytest.raises(forebay.Timeout, match="to hold a block"):
                step.wait()
            os.kill(one.servers[0].pid, signal.SIGCONT)
            assert step.wait(), "after a time-out it can be asked again"
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_more_than_may_be_outstanding(one: forebay.LocalGroup) -> None:
    count = 700
    whole = reference((count, 150), "i8")
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        forebay.Producer("s", group=one.path, timeout=20, transport="tcp") as sim,
    ):
        sim.array("U", dtype="i8", shape=whole.shape)
        with sim.step(0) as step:
            for row in range(count):
                assert step.put("U", whole[row : row + 1], offset=(row, 0), number=row, wait=False)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


@pytest.mark.parametrize("told_by", ["wait", "end", "flush"])
def test_failures_are_told_once(own_place: object, told_by: str) -> None:
    """A block that no server can ever hold: told by the wait, else by the step's end, and then by nobody."""
    with (
        forebay.local(budget_bytes=1 << 20) as small,
        forebay.Consumer("s", group=small.path, timeout=20) as reader,
        forebay.Producer("s", group=small.path, timeout=20, transport="tcp") as sim,
    ):
        sim.array("U", dtype="f8", shape=(3, 1 << 18))
        sim.array("V", dtype="f8", shape=(200,))
        row = np.zeros((1, 1 << 18))
        with contextlib.ExitStack() as stack:
            expected = pytest.raises(forebay.OverBudget, match=r"1 more") if told_by == "end" else None
            if expected is not None:
                stack.enter_context(expected)
            with sim.step(0) as step:
                for number in range(2):
                    assert step.put("U", row, offset=(number, 0), number=number, wait=False)
                assert step.put("V", np.arange(200.0), wait=False)
                if told_by != "end":
                    with pytest.raises(forebay.OverBudget, match=r"1 more"):
                        step.wait() if told_by == "wait" else sim.flush()
                    assert step.wait()
                    # It was not put: the same number may be used again.
                    assert step.put("U", row[:, :200], offset=(0, 0), number=0)
        with sim.step(1) as step:
            step.put("V", np.arange(200.0) + 1, wait=False)
        if told_by != "end":
            with reader.next() as found:
                assert (found.number, found.missed) == (0, 0)
                np.testing.assert_array_equal(found["V"][...], np.arange(200.0))
                assert len(found["U"].blocks()) == 1
        with reader.next() as found:
            # A step whose end told of a failure is not shown as if it were whole.
            assert (found.number, found.missed) == (1, 1 if told_by == "end" else 0)
            np.testing.assert_array_equal(found["V"][...], np.arange(200.0) + 1)


def test_no_room_is_a_gap(own_place: object) -> None:
    with (
        forebay.local(budget_bytes=1 << 20) as small,
        forebay.Consumer("s", group=small.path, timeout=20) as reader,
        forebay.Producer("s", group=small.path, timeout=20, transport="tcp") as sim,
    ):
        sim.array("U", dtype="u1", shape=(4, 400_000))
        with sim.step(0) as step:
            for number in range(4):
                step.put("U", np.zeros((1, 400_000), "u1"), offset=(number, 0), number=number, wait=False)
            assert not step.wait()
        with sim.step(1) as step:
            step.put("U", np.ones((1, 400_000), "u1"), wait=False)
            assert step.wait()
        with reader.next() as found:
            assert (found.number, found.missed) == (1, 1)


def test_a_server_that_dies(own_place: object) -> None:
    for on_loss in ("skip", "fail"):
        with (
            forebay.local() as group,
            forebay.Consumer("s", group=group.path, timeout=20),
            contextlib.ExitStack() as stack,
        ):
            sim = forebay.Producer("s", group=group.path, timeout=20, transport="tcp", on_loss=on_loss)  # type: ignore[arg-type]
            sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
            if on_loss == "fail":
                stack.enter_context(pytest.raises(forebay.Unreachable))
            with sim.step(0) as step:
                step.put("U", np.zeros((1, COLUMNS)), wait=False)
                step.wait()
                os.kill(group.servers[0].pid, signal.SIGKILL)
                group.servers[0].process.wait()
                for number in range(1, 5):
                    step.put("U", np.zeros((1, COLUMNS)), offset=(number, 0), number=number, wait=False)
                step.wait()
            assert sim.lost is not None
            with sim.step(1) as step:
                assert not step.put("U", np.zeros((1, COLUMNS)), wait=False)
                assert step.wait()
            sim.close()


def test_out_of_order(one: forebay.LocalGroup) -> None:
    with forebay.Producer("s", group=one.path, timeout=20, transport="tcp") as sim:
        sim.array("U", dtype="f8", shape=(COLUMNS,))
        with sim.step(0) as step:
            assert not step.put("U", np.zeros(COLUMNS), wait=False), "nobody wants it"
            assert step.wait()
            with pytest.raises(forebay.OutOfBounds):
                step.put("U", np.zeros(COLUMNS + 1), number=1, wait=False)
        with pytest.raises(forebay.StepOrder):
            step.wait()
