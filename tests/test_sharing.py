"""Readers of one name that share the steps of a stream: each step is given to one of them."""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.deaths import kill_servers
from support.groups import BUDGET, is_given_back, stream_coordinated_by, stream_status
from support.sessions import consumer, producer
from support.waiting import wait_until

import forebay

# Travels with what is told of a step; and lies in memory that is shared.
SMALL, LARGE = (8, 6), (60, 50)

SHARER = """
    share, *more = sys.argv[2:]
    reader = consumer(sys.argv[1], "s", name="w", share=share, timeout=20, window=2)
    print("open")
    held = []
    for line in sys.stdin:
        try:
            step = reader.next()
            print(step.number, step.attempt, float(step["U"][0, 0]))
            if line == "next\\n":
                step.release()
            else:
                held.append(step)
        except forebay.Error as error:
            print(type(error).__name__, error)
"""


def sharer(group: Any, share: str = "on-demand", stream: str = "s", **options: Any) -> forebay.Consumer:
    options.setdefault("name", "w")
    return consumer(group, stream, share=share, **options)


@contextlib.contextmanager
def simulation(
    group: Any, stream: str = "s", shape: tuple[int, ...] = SMALL, **options: Any
) -> Iterator[forebay.Producer]:
    options.setdefault("policy", "block")
    with producer(group, stream, **options) as sim:
        sim.array("U", dtype="f8", shape=shape)
        yield sim


def put(sim: forebay.Producer, *numbers: int, shape: tuple[int, ...] = SMALL) -> None:
    for number in numbers:
        with sim.step(number) as step:
            step.put("U", reference(shape, "f8", number))


def read(reader: forebay.Consumer, shape: tuple[int, ...] = SMALL) -> tuple[int, int]:
    """The next step, checked and released: its number, and for the how manieth time it was given."""
    with reader.next() as step:
        np.testing.assert_array_equal(step["U"][...], reference(shape, "f8", step.number))
        return step.number, step.attempt


def readers_of(group: forebay.LocalGroup, stream: str = "s") -> list[dict[str, Any]]:
    found = stream_status(group, stream)
    return [] if found is None else list(found["readers"])


def test_each_step_is_given_to_one(group: forebay.LocalGroup, transport: str) -> None:
    """All are read, by whoever asks; others of the stream are given all of them."""
    seen: list[list[int]] = [[], [], []]

    def work(found: list[int], reader: forebay.Consumer) -> None:
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference((8, 6), "f8", step.number))
            found.append(step.number)

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(sharer(group, transport=transport)) for _ in seen]
        alone = stack.enter_context(consumer(group, transport=transport, window=40))
        threads = [threading.Thread(target=work, args=pair) for pair in zip(seen, readers, strict=True)]
        for thread in threads:
            thread.start()
        with simulation(group, transport=transport) as sim:
            put(sim, *range(40))
        for thread in threads:
            thread.join(30)
        assert sorted(number for numbers in seen for number in numbers) == list(range(40))
        assert [step.number for step in alone] == list(range(40))
    gc.collect()
    wait_until(lambda: is_given_back(group))


def test_in_turn(group: forebay.LocalGroup, transport: str) -> None:
    with contextlib.ExitStack() as stack:
        first, second, third = (
            stack.enter_context(sharer(group, "round-robin", transport=transport)) for _ in range(3)
        )
        sim = stack.enter_context(simulation(group, transport=transport))
        put(sim, *range(6))
        assert [read(reader)[0] for reader in (third, second, first) * 2] == [2, 1, 0, 5, 4, 3]
        [told] = readers_of(group)
        assert (told["ranks"], told["name"]) == (3, "w")
        # One that closes gives back what it has not looked at; a new one has its turn after the others.
        put(sim, 6, 7, 8)
        wait_until(lambda: (stream_status(group, "s") or {}).get("last_closed") == 8)
        second.close()
        assert [read(first), read(third)] == [(6, 0), (8, 0)]
        fourth = stack.enter_context(sharer(group, "round-robin", transport=transport))
        put(sim, 9, 10, 11)
        assert [read(reader) for reader in (first, third, fourth, first)] == [
            (7, 0),
            (9, 0),
            (10, 0),
            (11, 0),
        ]


def test_a_slow_one_is_not_waited_for_on_demand(group: forebay.LocalGroup, transport: str) -> None:
    with (
        sharer(group, transport=transport, window=1) as slow,
        sharer(group, transport=transport) as quick,
        simulation(group, transport=transport) as sim,
    ):
        put(sim, 0)
        with slow.next() as step:
            assert step.number == 0
            put(sim, *range(1, 6))
            assert [read(quick)[0] for _ in range(5)] == [1, 2, 3, 4, 5]
            assert quick.poll() is None
            with pytest.raises(forebay.Timeout, match="holds 1 of 1 steps"):
                slow.next(timeout=0.1)
        put(sim, 6, 7)
        # Who has asked first is given it first: what was asked for in vain counts.
        assert {read(quick)[0], read(slow)[0]} == {6, 7}


@pytest.mark.parametrize("share", ["on-demand", "round-robin"])
def test_one_that_dies_loses_nothing(
    group: forebay.LocalGroup, child: Callable[..., Child], share: str
) -> None:
    with simulation(group) as sim, sharer(group, share, window=8) as reader:
        dying = child(SHARER, group.path, share)
        assert dying.line() == "open"
        if share == "on-demand":
            dying.say("hold")
            wait_until(lambda: readers_of(group)[0]["ranks"] == 2)
            put(sim, 0)
        else:
            put(sim, 0, 1)
            dying.say("hold")
        number, attempt, value = dying.line().split()
        assert (attempt, float(value)) == ("0", reference((8, 6), "f8", int(number))[0, 0])
        put(sim, 2, 3)
        dying.kill(signal.SIGKILL)
        wait_until(lambda: readers_of(group)[0]["ranks"] == 1)
        count = 3 if share == "on-demand" else 4
        found = [read(reader) for _ in range(count)]
        assert sorted(number for number, _ in found) == ([0, 2, 3] if share == "on-demand" else [0, 1, 2, 3])
        assert dict(found)[int(number)] == 1
        assert Counter(attempt for _, attempt in found)[0] >= 1
    wait_until(lambda: is_given_back(group))


def test_what_one_had_released_before_it_died_is_not_given_again(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    with simulation(one) as sim, sharer(one) as reader:
        dying = child(SHARER, one.path, "on-demand")
        assert dying.line() == "open"
        put(sim, 0, 1)
        for number in (0, 1):
            dying.say("next" if number == 0 else "hold")
            # When it asks for the second, it has released the first.
            assert dying.line() == f"{number} 0 {reference((8, 6), 'f8', number)[0, 0]}"
        dying.kill(signal.SIGKILL)
        put(sim, 2)
        assert sorted(read(reader) for _ in range(2)) == [(1, 1), (2, 0)]


@pytest.mark.parametrize("share", ["on-demand", "round-robin"])
def test_an_error_gives_the_step_back(group: forebay.LocalGroup, transport: str, share: str) -> None:
    """Another one is given it, though arrays of it live; these stay as they were."""
    with (
        sharer(group, share, transport=transport) as failing,
        sharer(group, share, transport=transport) as reader,
        simulation(group, transport=transport) as sim,
    ):
        put(sim, 0)
        with contextlib.suppress(ArithmeticError), failing.next() as step:
            array = step["U"][...]
            views = [block.data for block in step.blocks("U")]
            raise ArithmeticError
        if share == "round-robin":
            # It is the next one's turn; the one after that has nothing to do.
            assert failing.poll() is None
        assert read(reader) == (0, 1)
        put(sim, 1, 2)
        found = [read(reader), read(failing)] if share == "on-demand" else [read(failing), read(reader)]
        assert sorted(found) == [(1, 0), (2, 0)]
        np.testing.assert_array_equal(array, reference((8, 6), "f8", 0))
        np.testing.assert_array_equal(views[0], reference((8, 6), "f8", 0))
        # With nobody else it is given the step again.
        reader.close()
        put(sim, 3)
        failing.next().give_back()
        assert read(failing) == (3, 1)
        del array, views, step
    gc.collect()
    wait_until(lambda: is_given_back(group))


@pytest.mark.parametrize("share", ["on-demand", "round-robin"])
def test_nobody_is_given_a_step_of_which_it_holds_arrays(one: forebay.LocalGroup, share: str) -> None:
    with sharer(one, share) as reader, simulation(one, shape=LARGE) as sim:
        put(sim, 0, shape=LARGE)
        step = reader.next()
        view = step["U"].blocks()[0].data
        step.give_back()
        with pytest.raises(
            forebay.Timeout, match="step 0 was given back, and waits until no arrays of it live"
        ):
            reader.next(timeout=0.6)
        put(sim, 1, shape=LARGE)
        assert read(reader, LARGE) == (1, 0)
        np.testing.assert_array_equal(view, reference(LARGE, "f8", 0))
        del view, step
        assert read(reader, LARGE) == (0, 1)
        put(sim, 2, 3, shape=LARGE)
        assert [read(reader, LARGE), read(reader, LARGE)] == [(2, 0), (3, 0)]
    wait_until(lambda: is_given_back(one))


def test_threads_give_steps_back(one: forebay.LocalGroup, transport: str) -> None:
    """While arrays of them live: each is finished with once, and holds what was put."""
    finished: Counter[int] = Counter()
    wrong: list[Any] = []
    counting = threading.Lock()

    def work(reader: forebay.Consumer, seed: int) -> None:
        chance = random.Random(seed)
        for step in iter(reader.next, None):
            view = step["U"].blocks()[0].data
            is_right = np.array_equal(view, reference(LARGE, "f8", step.number))
            if not is_right:
                wrong.append((step.number, step.attempt, view.copy()))
            if chance.random() < 0.3:
                step.give_back()
                del view
                continue
            del view
            with counting:
                finished[step.number] += 1
            step.release()

    def until_the_end(reader: forebay.Consumer, seed: int) -> None:
        with contextlib.suppress(forebay.Ended):
            work(reader, seed)

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(sharer(one, transport=transport, window=3)) for _ in range(2)]
        sim = stack.enter_context(simulation(one, shape=LARGE, transport=transport))
        threads = [
            threading.Thread(target=until_the_end, args=(readers[seed % 2], seed)) for seed in range(6)
        ]
        for thread in threads:
            thread.start()
        put(sim, *range(100), shape=LARGE)
        sim.close()
        for thread in threads:
            thread.join(40)
    assert wrong == []
    assert finished == Counter(range(100))


def test_a_step_of_a_dropped_future_is_given_to_another(one: forebay.LocalGroup) -> None:
    with sharer(one) as waiting, sharer(one) as reader, simulation(one) as sim:
        taken, dropped = waiting.next_async(), waiting.next_async()
        put(sim, 0, 1)
        step = taken.result(20)
        wait_until(dropped.done)
        del dropped
        assert read(reader) == (1, 1)
        later = waiting.next_async()
        wait_until(later.running)
        del later
        put(sim, 2)
        assert read(reader) == (2, 1)
        assert step.number == 0


@pytest.mark.parametrize("how", ["raises", "exits", "closes"])
def test_a_program_that_ends_in_a_step_has_not_finished_with_it(
    one: forebay.LocalGroup, child: Callable[..., Child], how: str
) -> None:
    with sharer(one) as reader, simulation(one) as sim:
        ending = child(
            """
            reader = consumer(sys.argv[1], "s", name="w", share="on-demand", timeout=20)
            print("open")
            for step in reader:
                print(step.number, float(step["U"][0, 0]))
                if sys.argv[2] == "raises":
                    raise ArithmeticError
                break
            if sys.argv[2] == "closes":
                reader.close()
                sys.stdin.readline()
                step = None
                sys.stdin.readline()
            """,
            one.path,
            how,
        )
        assert ending.line() == "open"
        wait_until(lambda: readers_of(one)[0]["ranks"] == 2)
        put(sim, 0)
        assert ending.line() == f"0 {reference((8, 6), 'f8', 0)[0, 0]}"
        if how == "closes":
            with pytest.raises(forebay.Timeout, match="has not finished with step 0"):
                reader.next(timeout=0.5)
            ending.say("forget the step")
        assert read(reader) == (0, 1)
        if how == "closes":
            ending.say("end")
        ending.process.wait(20)


def test_threads_of_one_reader_each_get_a_step(one: forebay.LocalGroup) -> None:
    with sharer(one, window=1) as reader, simulation(one) as sim:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(read(reader)[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        put(sim, 0, 1, 2)
        for thread in threads:
            thread.join(15)
        assert sorted(found) == [0, 1, 2]


def test_one_that_comes_at_the_end_is_told_so(one: forebay.LocalGroup) -> None:
    with sharer(one) as reader, simulation(one) as sim:
        put(sim, 0)
        assert read(reader) == (0, 0)
        sim.close()
        with pytest.raises(forebay.Ended):
            reader.next()
        with sharer(one) as late, pytest.raises(forebay.Ended):
            late.next()


def test_the_end_waits_for_what_may_be_given_again(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    with sharer(one) as reader:
        dying = child(SHARER, one.path, "on-demand")
        assert dying.line() == "open"
        dying.say("hold")
        with simulation(one) as sim:
            wait_until(lambda: readers_of(one)[0]["ranks"] == 2)
            put(sim, 0)
            assert dying.line() == f"0 0 {reference((8, 6), 'f8', 0)[0, 0]}"
        with pytest.raises(forebay.Timeout, match=r"is over; process \d+ on .* has not finished with step 0"):
            reader.next(timeout=1)
        dying.kill(signal.SIGKILL)
        assert read(reader) == (0, 1)
        with pytest.raises(forebay.Ended):
            reader.next()


@pytest.mark.parametrize("share", ["on-demand", "round-robin"])
def test_the_end_is_told_to_one_that_holds_the_last_steps(one: forebay.LocalGroup, share: str) -> None:
    """It waits for nobody but itself: as a reader that shares nothing. What it gives back all the same it is given once more."""
    with sharer(one, share) as reader, simulation(one) as sim:
        put(sim, 0, 1)
        sim.close()
        read(reader)
        step = reader.next()
        own = "this reader itself has not finished with step 1"
        with pytest.raises(forebay.Ended, match=own):
            reader.next()
        with pytest.raises(forebay.Ended, match=own):
            reader.next(timeout=1)
        with pytest.raises(forebay.Ended, match=own):
            reader.poll()
        step.give_back()
        assert read(reader) == (1, 1)
        with pytest.raises(forebay.Ended, match=r"has ended after 2 steps(?!.*itself)"):
            reader.next()


def test_at_the_end_others_are_waited_for(one: forebay.LocalGroup) -> None:
    """Longer than the time of the reader: but not where others may wait for what it holds itself."""
    with sharer(one, timeout=0.7) as slow, sharer(one, timeout=0.7) as reader, simulation(one) as sim:
        put(sim, 0)
        step = slow.next()
        sim.close()
        found: list[tuple[int, int]] = []
        waiting = threading.Thread(target=lambda: found.append(read(reader)))
        waiting.start()
        waiting.join(2)
        assert waiting.is_alive()
        step.give_back()
        waiting.join(20)
        assert found == [(0, 1)]
        with pytest.raises(forebay.Ended):
            reader.next()
    options: Any = {"stream": "t", "timeout": 0.7}
    with sharer(one, **options) as first, sharer(one, **options) as second, simulation(one, "t") as sim:
        put(sim, 0, 1)
        held = [first.next(), second.next()]
        sim.close()
        for reader, step in zip((first, second), held, strict=True):
            with pytest.raises(
                forebay.Timeout, match=f"this reader itself holds step {step.number}: release what"
            ):
                reader.next()


def test_those_that_come_when_all_are_gone_go_on(one: forebay.LocalGroup, transport: str) -> None:
    with simulation(one, transport=transport, keep=20) as sim:
        with sharer(one, transport=transport) as first, sharer(one, transport=transport) as second:
            put(sim, 0, 1, 2)
            assert {read(first)[0], read(second)[0]} == {0, 1}
        put(sim, 3)
        with sharer(one, transport=transport, start="resume") as third:
            assert [read(third)[0] for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("share", ["on-demand", "round-robin"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_their_coordinator_dies(own_place: Any, transport: str, share: str, replicas: int) -> None:
    """What they hold they go on holding, and each step that is safe is read, some of them twice at most."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        with contextlib.ExitStack() as stack:
            readers = [
                stack.enter_context(sharer(group, share, stream, transport=transport, timeout=30, window=2))
                for _ in range(2)
            ]
            sim = stack.enter_context(
                simulation(group, stream, transport=transport, replicas=replicas, timeout=30)
            )
            put(sim, *range(4))
            sim.flush()
            seen = [read(reader)[0] for reader in readers]
            held = readers[0].next()
            kill_servers(group, 2)
            put(sim, *range(4, 8))
            np.testing.assert_array_equal(held["U"][...], reference((8, 6), "f8", held.number))
            seen.append(held.number)
            found: list[list[int]] = [[], []]

            def work(reader: forebay.Consumer, found: list[int]) -> None:
                with contextlib.suppress(forebay.Ended):
                    while True:
                        found.append(read(reader)[0])

            threads = [threading.Thread(target=work, args=pair) for pair in zip(readers, found, strict=True)]
            for thread in threads:
                thread.start()
            held.release()
            sim.close()
            for thread in threads:
                thread.join(40)
            numbers = seen + found[0] + found[1]
            assert set(numbers) == set(range(8))
            assert max(Counter(numbers).values()) <= 2


def test_wrong_uses_are_told(one: forebay.LocalGroup) -> None:
    with pytest.raises(forebay.Invalid, match="the reader has no name"):
        sharer(one, name=None)
    with pytest.raises(forebay.Invalid, match="size is 2"):
        sharer(one, size=2)
    with pytest.raises(forebay.Invalid, match="take 'all'"):
        sharer(one, take="latest")
    with pytest.raises(forebay.Invalid, match="another start than 'held'"):
        sharer(one, start="held")
    with pytest.raises(forebay.Invalid, match="share 'fairly' is not known: use none, on-demand or"):
        sharer(one, "fairly")
    with sharer(one) as reader:
        with pytest.raises(forebay.Conflict, match="does not have the same share"):
            sharer(one, "round-robin")
        with pytest.raises(forebay.Conflict, match="does not have the same fields"):
            sharer(one, fields=["V"])
        with simulation(one) as sim:
            put(sim, 0)
            # What is needed changes for all of them.
            assert reader.need(fields={"U": forebay.every(2)}) == 1
            with sharer(one, fields={"U": forebay.every(2)}) as other:
                put(sim, 1, 2)
                assert sorted([read(reader)[0], read(other)[0]]) == [0, 2]
        with pytest.raises(forebay.Ended):
            reader.next()
    with pytest.raises(forebay.NotFound):
        sharer(one).next()


def test_static_fields_are_given_to_each(one: forebay.LocalGroup, transport: str) -> None:
    mesh = np.arange(300.0)
    with (
        sharer(one, "round-robin", transport=transport) as first,
        sharer(one, "round-robin", transport=transport) as second,
        simulation(one, transport=transport) as sim,
    ):
        sim.array("mesh", dtype="f8", shape=(300,), static=True)
        with sim.step(0) as step:
            step.put("U", reference((8, 6), "f8", 0))
            step.put("mesh", mesh)
        put(sim, 1, 2, 3)
        for reader in (first, second, first, second):
            with reader.next() as found:
                np.testing.assert_array_equal(found["mesh"][...], mesh)
    del found
    gc.collect()
    wait_until(lambda: is_given_back(one))


def test_static_fields_are_held_where_a_step_of_an_earlier_run_comes_again(one: forebay.LocalGroup) -> None:
    """One has been told of a step of the next run, when it is given one that another one could not do with what it wanted."""
    whole = (60, 50)

    def begin(run: int) -> forebay.Producer:
        sim = producer(one, policy="block")
        sim.array("U", dtype="f8", shape=whole)
        sim.array("mesh", dtype="f8", shape=whole, static=True)
        with sim.step(0) as step:
            step.put("mesh", reference(whole, "f8", 100 * run))
            step.put("U", reference(whole, "f8", 0))
        return sim

    def go_on(sim: forebay.Producer, number: int) -> None:
        with sim.step(number) as step:
            step.put("U", reference(whole, "f8", number))

    options: Any = {"follow": True, "window": 3}
    with sharer(one, "round-robin", **options) as reader:
        with sharer(one, "round-robin", **options) as failing:
            with begin(1) as sim:
                go_on(sim, 1)
                with reader.next() as step:
                    assert (step.run, step.number) == (1, 0)
                failed = failing.next()
                assert (failed.run, failed.number) == (1, 1)
            sim = begin(2)
            wait_until(lambda: readers_of(one)[0]["held"] == 2)
            failed.give_back()
        with reader.next() as step:
            assert (step.run, step.number) == (2, 0)
        with reader.next() as step:
            assert (step.run, step.number, step.attempt) == (1, 1, 1)
            view = step["mesh"].blocks()[0].data
        with sim:
            for number in range(1, 6):
                go_on(sim, number)
                with reader.next() as step:
                    np.testing.assert_array_equal(step["mesh"][...], reference(whole, "f8", 200))
        np.testing.assert_array_equal(view, reference(whole, "f8", 100))
    del view, step, failed
    gc.collect()
    wait_until(lambda: is_given_back(one))
