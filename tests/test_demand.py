"""Who wants what, from when and how often: nothing else moves."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.groups import is_given_back, stream_status, total
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay


def test_periods_multiply(two: forebay.LocalGroup) -> None:
    """A field offered every 3 steps and needed every 2 of those is staged at multiples of 6."""
    with (
        consumer(two, fields={"U": forebay.every(2), "V": 4}, window=64) as reader,
        consumer(two, fields={"U": forebay.every(1, dtype="f8")}, window=64) as all_of_it,
    ):
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=(3, 2), every=3)
            sim.array("V", dtype="f8", shape=(3, 2), every=1)
            for number in range(1, 26):
                with sim.step(number) as step:
                    assert step.put("U", reference((3, 2), "f8", number)) == (number % 3 == 0)
                    assert step.put("V", reference((3, 2), "f8", number)) == (number % 4 == 0)
        seen = {step.number: step.fields for step in reader}
        assert [n for n, fields in seen.items() if "U" in fields] == [6, 12, 18, 24]
        assert [n for n, fields in seen.items() if "V" in fields] == [4, 8, 12, 16, 20, 24]
        assert [step.number for step in all_of_it] == [3, 6, 9, 12, 15, 18, 21, 24]


def test_an_undemanded_field_is_not_staged(two: forebay.LocalGroup) -> None:
    with producer(two) as sim, consumer(two, "other"):
        sim.array("U", dtype="f8", shape=(1000, 300))
        for number in range(5):
            with sim.step(number) as step:
                assert not step.demanded("U")
                assert not step.put("U", np.zeros((1000, 300)))
                assert step.alloc("U", (1000, 300), number=1) is None
        assert total(two, "peak_staged_bytes") == 0
        sim.array("V", dtype="f8", shape=(2,))
        with consumer(two, fields=["V"]), consumer(two, fields={"U": 1000}):
            for number in range(5, 9):
                with sim.step(number) as step:
                    assert not step.put("U", np.zeros((1000, 300)))
        assert total(two, "peak_staged_bytes") == 0


def test_two_readers_with_different_fields(two: forebay.LocalGroup, transport: str) -> None:
    with (
        consumer(two, fields=["U"], transport=transport) as first,
        consumer(two, fields={"V": forebay.every(2)}, transport=transport, window=8) as second,
        open_ranks(two, "s", 2, transport=transport) as sim,
    ):
        for rank in sim:
            for name in "UVW":
                rank.array(name, dtype="i4", shape=(40, 30))
        for number in range(4):
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(40, 2), strict=True):
                for name in "UVW":
                    whole = reference((40, 30), "i4", 10 * number + ord(name))
                    staged = step.put(name, whole[a:b], offset=(a, 0))
                    assert staged == (name == "U" or (name == "V" and number % 2 == 0))
            for step in steps:
                step.__exit__(None, None, None)
            with first.next() as found:
                assert found.fields == ["U"]
                assert "V" not in found
                np.testing.assert_array_equal(
                    found["U"][...], reference((40, 30), "i4", 10 * number + ord("U"))
                )
                with pytest.raises(forebay.NotFound, match="'V'"):
                    found["V"]
        for number in (0, 2):
            with second.next() as found:
                assert (found.number, found.fields) == (number, ["V"])
                np.testing.assert_array_equal(
                    found["V"][...], reference((40, 30), "i4", 10 * number + ord("V"))
                )


def test_fields_that_only_some_ranks_offer(two: forebay.LocalGroup) -> None:
    """A number that rank 0 alone writes does not keep a step from closing."""
    with consumer(two, fields=["energy"], timeout=5) as reader, open_ranks(two, "s", 3) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(9, 4))
        sim[0].array("energy", dtype="f8", shape=(1,))
        for number in range(3):
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(9, 3), strict=True):
                step.put("U", np.zeros((b - a, 4)), offset=(a, 0))
            steps[0].put("energy", np.array([number + 0.5]))
            for step in steps:
                step.__exit__(None, None, None)
            with reader.next() as found:
                assert (found.number, found.torn) == (number, False)
                assert found["energy"][0] == number + 0.5


def test_attaching_in_the_middle(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """A reader that comes late sees whole steps only, from some step on, and no gap."""
    sim = child(
        """
        path, transport = sys.argv[1:]
        stop = []
        threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
        with open_ranks(path, "s", 5, transport=transport) as ranks:
            for rank in ranks:
                rank.array("U", dtype="f8", shape=(31, 12))
            number = 1000
            while not stop:
                write_steps(ranks, [number], lambda n: reference((31, 12), "f8", n))
                number += 1
                if number == 1010:
                    print("running")
        print(number)
        """,
        two.path,
        transport,
    )
    sim.expect("running")
    for _ in range(4):
        with consumer(two, transport=transport, window=8) as reader:
            numbers = []
            for step in itertools.islice(reader, 12):
                np.testing.assert_array_equal(step["U"][...], reference((31, 12), "f8", step.number))
                assert not step.torn
                assert len(step["U"].blocks()) == 5
                numbers.append(step.number)
            assert numbers == list(range(numbers[0], numbers[0] + 12))
            assert numbers[0] >= 1000
    sim.say()
    sim.ended()
    wait_until(lambda: is_given_back(two))


def test_all_ranks_agree_on_the_first_step(two: forebay.LocalGroup) -> None:
    """Readers come and go while ranks are in different steps: every rank stages the same steps."""
    with open_ranks(two, "s", 4) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(8, 3))
        whole = reference((8, 3))
        staged: dict[int, set[bool]] = {}
        readers: list[forebay.Consumer] = []

        def write(tick: int) -> None:
            """Rank r is r steps behind rank 0."""
            for index, rank in enumerate(sim):
                number = tick - index
                if number >= 0:
                    with rank.step(number) as step:
                        wanted = step.put("U", whole[2 * index : 2 * index + 2], offset=(2 * index, 0))
                    staged.setdefault(number, set()).add(wanted)

        # Readers attach and leave in between.
        for tick in range(40):
            if tick % 5 == 1:
                readers.append(consumer(two, window=64))
            if tick % 10 == 9:
                readers.pop(0).close()
            write(tick)
        # The last ones wait for a step that was not begun anywhere when they came.
        ticks = itertools.count(40)
        for reader in readers:
            found = None
            while found is None:
                write(next(ticks))
                with contextlib.suppress(forebay.Timeout):
                    found = reader.next(timeout=0.05)
            np.testing.assert_array_equal(found["U"][...], whole)
            assert not found.torn
            found.release()
            reader.close()
        assert all(len(answers) == 1 for answers in staged.values()), staged
        assert {True} in staged.values()


def test_detaching_ends_the_demand(two: forebay.LocalGroup) -> None:
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        numbers = itertools.count()

        def staged() -> bool:
            with sim.step(next(numbers)) as step:
                return step.put("U", np.ones((100, 30)))

        assert not staged()
        reader = consumer(two)
        wait_until(staged)
        reader.close()
        wait_until(lambda: not staged())
        wait_until(lambda: is_given_back(two))
        with pytest.raises(forebay.Closed):
            reader.next()
        reader.close()


@pytest.mark.parametrize("keep", ["step", "array"])
def test_closing_a_reader_ends_its_demand(two: forebay.LocalGroup, keep: str) -> None:
    """What a closed reader may still hold is an array, not the stream; after a loop its last step is still there."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        numbers = itertools.count()

        def staged() -> bool:
            with sim.step(next(numbers)) as step:
                return step.put("U", np.full((100, 30), float(step.number)))

        array = np.empty(0)
        with consumer(two) as reader:
            wait_until(staged)
            for found in reader:
                array = found["U"].blocks()[0].data if keep == "array" else found["U"][...]
                value = float(found.number)
                break
        if keep == "array":
            del found
        wait_until(lambda: not staged(), 5, "the closed reader still demands the field")
        assert (array == value).all()


def test_a_reader_that_is_dropped_with_steps_unread_holds_nothing(two: forebay.LocalGroup) -> None:
    """Not closed, only forgotten, while its process lives on."""
    with producer(two) as sim:
        sim.array("U", dtype="f8", shape=(100, 30))
        reader = consumer(two)
        for number in range(6):
            with sim.step(number) as step:
                step.put("U", np.ones((100, 30)))
        wait_until(lambda: (status := stream_status(two, "s")) is not None and status["steps"]["closed"] > 0)
        del reader
        gc.collect()
        wait_until(lambda: (stream_status(two, "s") or {}).get("attached") == 0, 5, "it is still attached")
    wait_until(lambda: is_given_back(two), 5, "its steps are still held")


@pytest.mark.parametrize("stays", [True, False], ids=["the first stays", "the first has left"])
def test_a_rank_that_comes_late_sees_the_demand_of_the_others(two: forebay.LocalGroup, stays: bool) -> None:
    """A reader comes while one rank has not: what nobody wanted of the first steps is not wanted of it either."""
    whole = reference((20, 30))

    def write(rank: int, sim: forebay.Producer, number: int) -> bool:
        with sim.step(number) as step:
            return step.put("U", whole[10 * rank : 10 * rank + 10], offset=(10 * rank, 0))

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(producer(two, rank=0, size=2))
        first.array("U", dtype="f8", shape=whole.shape)
        assert not any(write(0, first, number) for number in range(5))
        if not stays:
            first.close()
        reader = stack.enter_context(consumer(two, window=64))
        wait_until(lambda: (stream_status(two, "s") or {}).get("attached") == 1)
        second = stack.enter_context(producer(two, rank=1, size=2))
        second.array("U", dtype="f8", shape=whole.shape)
        assert [write(1, second, number) for number in range(6)] == [False] * 5 + [True]
        if stays:
            assert write(0, first, 5)
        first.close()
        second.close()
        seen = [(step.number, step.torn) for step in reader]
    # Only what the first rank did not live to see is torn.
    assert seen == [(5, not stays)]
    wait_until(lambda: is_given_back(two))


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "watched no more"])
def test_steps_that_a_rank_leaves_out(two: forebay.LocalGroup, transport: str, watched: bool) -> None:
    """They are told as torn when the rank begins a later one, and hold no memory for ever."""
    whole = reference((20, 30))
    with (
        consumer(two, window=64) as reader,
        open_ranks(two, "s", 2, transport=transport) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f8", shape=whole.shape)
        for number in range(7):
            for rank, one in enumerate(sim):
                if rank == 1 and number % 3:
                    continue
                with one.step(number) as step:
                    assert step.put("U", whole[10 * rank : 10 * rank + 10], offset=(10 * rank, 0))
        for number in range(7):
            with reader.next() as found:
                assert (found.number, found.torn, found.missed) == (number, number % 3 > 0, 0)
                np.testing.assert_array_equal(found["U"][:10], whole[:10])
        # Rank 1 leaves out step 7 as well, and begins 8, at which nobody may want anything any more.
        with sim[0].step(7) as step:
            step.put("U", whole[:10], offset=(0, 0))
        sim[0].flush()
        if not watched:
            reader.close()
        with sim[1].step(8) as step:
            assert step.put("U", whole[10:], offset=(10, 0)) == watched
            if watched:
                assert reader.next().torn
                reader.close()
        with sim[0].step(8):
            pass
        wait_until(lambda: is_given_back(two))


def test_who_has_attached_gets_the_next_step_that_begins(two: forebay.LocalGroup, transport: str) -> None:
    """Wherever the ranks are at home: what changes for them is agreed when the reader is there."""
    with open_ranks(two, "s", 2, transport=transport) as ranks:
        for rank in ranks:
            rank.array("U", dtype="f8", shape=(2, 3))
        for number in range(40):
            with consumer(two, transport=transport) as reader:
                for index, rank in enumerate(ranks):
                    with rank.step(number) as step:
                        assert step.put("U", np.full((1, 3), float(number)), offset=(index, 0))
                with reader.next() as found:
                    assert found.number == number
                    assert (found["U"][...] == number).all()
