"""Subscriptions in the space: told at the put that completes what they watch, once each, whoever dies."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.arrays import cut, reference
from support.commands import run, told
from support.deaths import kill_servers
from support.groups import server_numbers
from support.subscriptions import nothing_comes
from support.waiting import wait_until

import forebay

SHAPE = (240, 190, 17)
"""Of several tiles, so that several servers own it."""


def space(group: forebay.LocalGroup, **options: object) -> forebay.Space:
    options.setdefault("timeout", 20)
    return forebay.Space(group=group.path, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def subscribe(group: forebay.LocalGroup, text: str, **options: object) -> Iterator[forebay.Subscription]:
    """One that is gone afterwards."""
    options.setdefault("timeout", 20)
    made = forebay.subscribe(text, space=True, group=group.path, **options)  # type: ignore[arg-type]
    with made:
        yield made
        with contextlib.suppress(forebay.NotFound):
            made.remove()


def events(subscription: forebay.Subscription, count: int) -> list[int]:
    return [subscription.next(timeout=20).step for _ in range(count)]


def put_parts(mine: forebay.Space, name: str, array: np.ndarray, step: int, parts: list[int]) -> None:
    """Some of six blocks."""
    for part, (begin, end) in enumerate(cut(SHAPE[0], 6)):
        if part in parts:
            mine.put(name, array[begin:end], step=step, offset=(begin, 0, 0), shape=SHAPE)


def test_the_put_that_completes_the_region_is_an_event(three: forebay.LocalGroup) -> None:
    """Before that there is none, whichever order the blocks come in; its values are what NumPy says."""
    array = reference(SHAPE, "f8")
    with (
        space(three) as mine,
        subscribe(three, "m = max(T[10:120, ::3]); covered(T[10:120]) and m > 0") as watch,
        subscribe(three, "covered(T)") as whole,
    ):
        assert watch.wait_active() is None
        assert whole.wait_active() is None
        assert watch.stream is None
        assert "the space" in repr(watch)
        put_parts(mine, "T", array, 7, [3, 0, 2])
        assert nothing_comes(watch)
        put_parts(mine, "T", array, 7, [1])
        event = watch.next(timeout=20)
        assert (event.step, event.run, event.stream) == (7, 0, None)
        assert event.values["m"] == array[10:120, ::3].max()
        assert nothing_comes(whole)
        assert event.data is None
        with pytest.raises(forebay.Dropped, match=r"Space\.get\('T', step=7\)"):
            event["T"]
        put_parts(mine, "T", array, 7, [4, 5])
        assert events(whole, 1) == [7]
        assert nothing_comes(watch)
        # Steps have no order: each is told when it is complete.
        for step in (9, 8, 2**40):
            put_parts(mine, "T", array, step, [5, 4, 3, 2, 1, 0])
            assert events(whole, 1) == [step]
            assert events(watch, 1) == [step]
        assert nothing_comes(watch)
        assert nothing_comes(whole)


def test_what_was_there_before_is_no_event_and_what_is_put_again_is_one(two: forebay.LocalGroup) -> None:
    ones = np.ones(SHAPE)
    with space(two) as mine:
        mine.put("A", ones, step=0)
        put_parts(mine, "A", ones, 1, [0, 1, 2, 3, 4])
        with subscribe(two, "sum(A)> 0") as watch:
            watch.wait_active()
            assert nothing_comes(watch)
            put_parts(mine, "A", ones, 1, [5])
            assert events(watch, 1) == [1]
            mine.remove("A", step=0)
            mine.put("A", 2 * ones, step=0)
            event = watch.next(timeout=20)
            assert (event.step, event.values["sum(A)"]) == (0, 2 * ones.size)
            mine.put("A", 3 * ones, step=2, replace=True)
            mine.put("A", 4 * ones, step=2, replace=True)
            seen = [watch.next(timeout=20).values["sum(A)"] for _ in range(2)]
            # The second may have come before the first was looked at.
            assert seen[-1] == 4 * ones.size
            mine.remove("A", step=1)
            with subscribe(two, "sum(A)> 0", name="later") as later:
                later.wait_active()
                assert nothing_comes(later)


def test_who_comes_back_misses_no_event_of_a_step_that_was_put_anew(two: forebay.LocalGroup) -> None:
    with space(two) as mine, subscribe(two, "max(R) > 0", name="r", keep=True) as watch:
        watch.wait_active()
        for number in range(3):
            mine.put("R", np.full(4, number + 1.0), step=5, replace=True)
            wait_until(lambda number=number: one(two, "r")["events"] == number + 1)
        first = watch.next(timeout=20)
        assert (first.number, watch.next(timeout=20).number) == (1, 2)
        # It has finished with the first alone.
        watch.close()
        with subscribe(two, "max(R) > 0", name="r", keep=True) as again:
            assert [again.next(timeout=20).values["max(R)"] for _ in range(2)] == [2.0, 3.0]


def test_one_that_takes_neighbours_waits_for_them_alone(two: forebay.LocalGroup) -> None:
    with (
        space(two) as mine,
        subscribe(two, "covered(N[0:40])") as part,
        subscribe(two, "max(gradient_magnitude(N[0:40])) > -1", name="g") as slope,
    ):
        part.wait_active()
        slope.wait_active()
        put_parts(mine, "N", np.ones(SHAPE), 3, [0, 1])
        assert events(part, 1) == [3]
        assert nothing_comes(slope)
        put_parts(mine, "N", np.ones(SHAPE), 3, [2, 3, 4, 5])
        wait_until(lambda: one(two, "g")["evaluated"] == 1)


def test_a_field_that_is_removed_while_another_is_waited_for(two: forebay.LocalGroup) -> None:
    """What was removed is not told of; what was put in its place is."""
    ones = np.ones(SHAPE)
    with space(two) as mine, subscribe(two, "m = max(P * Q); m > 0") as watch:
        watch.wait_active()
        mine.put("P", ones, step=1)
        put_parts(mine, "Q", ones, 1, [0, 1, 2])
        assert nothing_comes(watch)
        mine.remove("P", step=1)
        put_parts(mine, "Q", ones, 1, [3, 4, 5])
        assert nothing_comes(watch)
        mine.put("P", 3 * ones, step=1)
        assert watch.next(timeout=20).values["m"] == 3
        assert nothing_comes(watch)


def test_steps_in_any_order_are_one_episode(two: forebay.LocalGroup) -> None:
    """Functions of time count evaluations."""
    with (
        space(two) as mine,
        subscribe(two, "max(O) > 0", on="rise") as rise,
        subscribe(two, "max(O) > 0 for 3 steps", on="rise") as third,
    ):
        rise.wait_active()
        third.wait_active()
        for step in (9, 4, 7, 1):
            mine.put("O", np.ones(3), step=step)
            wait_until(
                lambda step=step: forebay.Admin(group=two.path).subscriptions()[0]["last_step"] == step
            )
        assert (events(rise, 1), events(third, 1)) == ([9], [7])
        assert nothing_comes(rise)


def test_several_fields_meet_at_their_step(three: forebay.LocalGroup) -> None:
    """In one expression, at every second step; some come late or never."""
    u, v = reference(SHAPE, "f8"), reference(SHAPE, "f4", 1)
    with space(three) as mine, subscribe(three, "m = max(u[:80] * v[:80]); m > -1e9", every=2) as watch:
        watch.wait_active()
        for step in range(6):
            put_parts(mine, "u", u + step, step, [0, 1, 2])
        assert nothing_comes(watch)
        for step in (4, 1, 0):
            put_parts(mine, "v", v, step, [2, 1, 0])
        for step in (4, 0):
            event = watch.next(timeout=20)
            assert event.step == step
            assert event.values["m"] == ((u + step) * v.astype("f8"))[:80].max()
        assert nothing_comes(watch)


def test_what_does_not_fit_is_told_and_refused(two: forebay.LocalGroup) -> None:
    for text, options, why in (
        ("max(s.A) > 0", {}, "names no streams"),
        ("max(A) > 0 for 0.5 time", {}, "no physical time"),
        ("max(A@1) > 0", {}, "at level 0"),
        ("max(A) > 0", {"keep_around": (1, 1)}, "kept until they are removed"),
        ("1 > 0", {}, "names no field"),
        ("max(A", {}, "expected"),
    ):
        with pytest.raises(forebay.Invalid, match=why):
            forebay.subscribe(text, space=True, group=two.path, **options)  # type: ignore[arg-type]
    with pytest.raises(forebay.Invalid, match="not both"):
        forebay.subscribe("max(A) > 0", space=True, stream="s", group=two.path)
    with space(two) as mine, subscribe(two, "max(B[0:9]) > 0", name="n") as watch:
        watch.wait_active()
        mine.put("B", np.ones(4), step=3)
        wait_until(lambda: one(two, "n")["evaluated"] == 1)
        mine.put("B", np.ones(12), step=4)
        with pytest.warns(
            forebay.UnknownWarning, match=r"step 3 of the space: not known: .*outside the shape"
        ):
            assert events(watch, 1) == [4]
    with space(two) as mine, subscribe(two, "max(C) > 0", name="n", limit=2) as watch:
        watch.wait_active()
        with pytest.raises(forebay.Conflict, match="of the space already"):
            forebay.subscribe("max(C) > 1", space=True, name="n", group=two.path)
        for step in range(4):
            mine.put("C", np.ones(4), step=step)
        assert len([event.step for event in watch]) == 2


def one(group: forebay.LocalGroup, name: str) -> dict[str, object]:
    return next(dict(one) for one in forebay.Admin(group=group.path).subscriptions() if one["name"] == name)


def test_the_command_line_tells_of_it(two: forebay.LocalGroup) -> None:
    watch = ("subscribe", "--space", "mean(D) > 1", "--name", "k", "--keep", "--group", two.path)
    with space(two) as mine:
        assert told(*watch, "--detach") == {"name": "k", "stream": None}
        assert "k of the space" in run("subscriptions", "--group", two.path).stdout
        with subscribe(two, "mean(D) > 1", name="k", keep=True) as same:
            same.wait_active()
            mine.put("D", np.full(5, 3.0), step=11)
            event = told(*watch, "--first", "--count", "1")
            assert (event["stream"], event["step"], event["values"]) == (None, 11, {"mean(D)": 3.0})
        assert run("subscriptions", "--group", two.path).stdout == "no subscriptions\n"
        assert not forebay.Admin(group=two.path).status()["streams"]


def test_servers_die_and_join_and_each_completion_is_told_once() -> None:
    """The server that coordinates, others, and new ones; blocks have copies. Values are compared with NumPy's."""
    rng = random.Random(29)
    steps = 60
    arrays = {step: np.full(SHAPE, float(step + 1)) for step in range(steps)}
    with (
        forebay.local(servers=4) as group,
        space(group, replicas=3, timeout=60) as mine,
        subscribe(group, "sum(E) > 0", name="e", timeout=60) as watch,
    ):
        watch.wait_active()
        order = list(range(steps))
        rng.shuffle(order)
        seen: dict[int, float] = {}

        def listen() -> None:
            while len(seen) < steps:
                event = watch.next(timeout=60)
                assert event.step not in seen, "told once"
                seen[event.step] = event.values["sum(E)"]

        thread = threading.Thread(target=listen)
        thread.start()
        for count, step in enumerate(order):
            parts = list(range(6))
            rng.shuffle(parts)
            put_parts(mine, "E", arrays[step], step, parts)
            if count == 20:
                kill_servers(group, int(str(one(group, "e")["server"])))
            if count == 30:
                group.add_servers(1)
            if count == 45:
                kill_servers(group, int(str(one(group, "e")["server"])))
        thread.join(timeout=90)
        assert sorted(seen) == list(range(steps))
        assert all(seen[step] == arrays[step].sum() for step in range(steps))
        with pytest.raises(forebay.Timeout):
            watch.next(timeout=0.5)
        assert len(server_numbers(group)) == 3
