"""Steps out of order, contracts and options that cannot be: a clear error, and everybody else goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.groups import is_given_back
from support.sessions import consumer, open_ranks, producer, steps_until_crash, trouble
from support.waiting import wait_until

import forebay

SHAPE = (8, 6)


# ---- steps --------------------------------------------------------------------------------------


def test_step_numbers_grow(two: forebay.LocalGroup) -> None:
    with consumer(two, window=16) as reader, producer(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)

        def one_step(number: int) -> None:
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))

        one_step(5)
        for number in (5, 4, 0):
            with pytest.raises(forebay.StepOrder, match=f"step {number} after step 5"):
                one_step(number)
        for number in (-1, 2**64):
            with pytest.raises(forebay.Invalid):
                one_step(number)
        with sim.step(6) as step:
            with pytest.raises(forebay.StepOrder, match="6"):
                one_step(7)
            step.put("U", reference(SHAPE, "f8", 6))
        with pytest.raises(forebay.StepOrder):
            step.put("U", reference(SHAPE))
        with pytest.raises(forebay.StepOrder):
            sim.step(7).put("U", reference(SHAPE))
        one_step(8)
        for number in (5, 6, 8):
            with reader.next() as found:
                assert found.number == number
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
    with pytest.raises(forebay.Closed):
        one_step(9)
    sim.close()


def test_a_step_left_by_an_exception(two: forebay.LocalGroup) -> None:
    """Readers are told that it is torn once the producer closes."""
    with consumer(two) as reader:

        def simulation() -> None:
            with producer(two) as sim:
                sim.array("U", dtype="f8", shape=SHAPE)
                for number in range(3):
                    with sim.step(number) as step:
                        step.put("U", reference(SHAPE))
                        if number == 1:
                            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            simulation()
        seen = []
        for found in steps_until_crash(reader):
            np.testing.assert_array_equal(found["U"][...], reference(SHAPE))
            seen.append((found.number, found.torn))
        assert seen == [(0, False), (1, True)]
    wait_until(lambda: is_given_back(two))


def test_ranks_that_disagree(two: forebay.LocalGroup) -> None:
    with producer(two, rank=0, size=2) as sim:
        sim.array("U", dtype="f8", shape=SHAPE, units="m")
        with pytest.raises(forebay.Conflict, match="already open"):
            producer(two, rank=0, size=2)
        with pytest.raises(forebay.Conflict, match=r"3 ranks, .*before it with 2 ranks, .*agree"):
            producer(two, rank=1, size=3)
        with pytest.raises(
            forebay.Conflict, match=r"policy block, .*before it .*policy drop-oldest, .*agree"
        ):
            producer(two, rank=1, size=2, policy="block")
        with pytest.raises(forebay.Conflict, match="continuing run 1 from step 5; the ranks before it"):
            producer(two, rank=1, size=2, continues=(1, 5))
        for rank, size in ((2, 2), (-1, 2), (0, 0), (2**32, 2)):
            with pytest.raises(forebay.Invalid):
                producer(two, rank=rank, size=size)
        with producer(two, rank=1, size=2) as other:
            assert other.run == sim.run
            for options in ({"dtype": "f4"}, {"every": 2}, {"dims": ("y", "x")}, {"shape": (8, 6, 1)}):
                with pytest.raises(forebay.Conflict, match="agree"):
                    other.array("U", **{"dtype": "f8", "shape": SHAPE, "units": "m", **options})  # type: ignore[arg-type]


def test_ranks_that_disagree_on_a_shape(two: forebay.LocalGroup) -> None:
    """A shape may change with the step, so that it is seen when the step closes."""
    with consumer(two) as reader, open_ranks(two, "s", 2) as sim:
        for rank, shape in zip(sim, ((8, 6), (9, 6)), strict=True):
            rank.array("U", dtype="f8", shape=shape)
        with contextlib.ExitStack() as stack:
            for number, rank in enumerate(sim):
                stack.enter_context(rank.step(0)).put("U", np.zeros((4, 6)), offset=(4 * number, 0))
        reader.next().release()
        problem = wait_until(lambda: trouble(sim))
        assert "field 'U' at step 0 another way than another rank: shape float64 of shape [" in problem
        assert "[9, 6]" in problem
        assert "[8, 6]" in problem


# ---- what nobody offers -------------------------------------------------------------------------


def test_contracts_that_cannot_be_met(two: forebay.LocalGroup) -> None:
    """Told when the reader attaches, if the offer is known, else as soon as it is."""
    early = [consumer(two, fields=["V"]), consumer(two, fields={"U": forebay.every(1, dtype="f4")})]
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0):
            pass
        for reader, error in zip(early, (forebay.NotFound, forebay.TypeMismatch), strict=True):
            for _ in range(2):
                with pytest.raises(error, match=r"'[UV]'"):
                    reader.next()
            reader.close()
        with pytest.raises(forebay.NotFound, match=r"'V'.*U"):
            consumer(two, fields=["V"])
        with pytest.raises(forebay.TypeMismatch, match="float64"):
            consumer(two, fields={"U": forebay.every(1, dtype="f4")})
        for fields in ([], "U", ["U", "U"], {"U": 0}, {"U": -3}):
            with pytest.raises(forebay.Invalid):
                consumer(two, fields=fields)
        with pytest.raises(forebay.Invalid):
            consumer(two, start="newest")
    for name in ("", "x" * 5000):
        with pytest.raises(forebay.Invalid):
            forebay.Consumer(name, group=two.path)
        with pytest.raises(forebay.Invalid):
            forebay.Producer(name, group=two.path)


def test_a_stream_that_nobody_opens(two: forebay.LocalGroup) -> None:
    with consumer(two, timeout=0.2) as reader:
        for _ in range(2):
            with pytest.raises(forebay.Timeout, match="stream 's'"):
                reader.next()


def test_options_that_cannot_be(two: forebay.LocalGroup) -> None:
    for options in ({"transport": "pigeon"}, {"policy": "hope"}, {"on_loss": "cry"}, {"keep": -1}):
        with pytest.raises(forebay.Invalid):
            producer(two, **options)
    for timeout in (-1, float("nan"), 0):
        with pytest.raises(ValueError, match="timeout"):
            producer(two, timeout=timeout)


def test_steps_that_are_left_do_not_use_up_the_budget(own_place: Path) -> None:
    """A handle that is closed gives all of its memory back, also what was granted for a step that failed."""
    array = np.ones(1 << 17)
    with forebay.local(servers=1, budget_bytes=8 << 20) as group, consumer(group, follow=True) as reader:

        def attempt() -> None:
            with producer(group, policy="block", timeout=5) as sim:
                sim.array("U", dtype="f8", shape=array.shape)
                with sim.step(0) as step:
                    assert step.put("U", array)
                with sim.step(1):
                    raise ZeroDivisionError

        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                attempt()
            with reader.next() as found:
                assert found.number == 0
        wait_until(lambda: is_given_back(group))


def test_a_group_is_not_waited_for_without_an_end() -> None:
    with pytest.raises(forebay.Invalid, match="timeout is nan"):
        forebay.local(timeout=float("nan"))
