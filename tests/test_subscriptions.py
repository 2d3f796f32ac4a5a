"""Subscriptions: what the servers watch for from step to step, against what NumPy says of the same arrays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.children import Child
from support.commands import run, told
from support.deaths import kill_servers
from support.groups import is_given_back, server_numbers, stream_coordinated_by
from support.sessions import consumer, open_ranks, producer
from support.subscriptions import (
    SHAPE,
    events,
    field,
    nothing_comes,
    of_name,
    put,
    simulation,
    subscribe,
)
from support.waiting import wait_until

import forebay

# ---- what is told -----------------------------------------------------------------------------------


def test_each_event_is_what_numpy_says(three: forebay.LocalGroup, transport: str) -> None:
    """With the values, the places of extrema, and the step itself."""
    text = "m = max(s.U[:, 2:9, ::3]); m > 1.5 and mean(s.U) > 0.3"
    with (
        subscribe(three, text, transport=transport) as watch,
        simulation(three, transport=transport) as ranks,
    ):
        assert watch.wait_active() == (1, 0)
        for number in range(12):
            put(ranks, number, field(number))
        expected = []
        for number in range(12):
            part = field(number)[:, 2:9, ::3]
            if part.max() > 1.5 and field(number).mean() > 0.3:
                expected.append(number)
        assert 2 < len(expected) < 11
        for number in expected:
            with watch.next(timeout=20) as event:
                whole = field(number)
                part = whole[:, 2:9, ::3]
                z, y, x = np.unravel_index(part.argmax(), part.shape)
                assert (event.step, event.time, event.run, event.stream) == (number, number / 4, 1, "s")
                assert event.values["m"] == part.max()
                assert event.values["mean(s.U)"] == pytest.approx(whole.mean(), rel=1e-14)
                assert event.places["m"].index == (z, y + 2, 3 * x)
                np.testing.assert_array_equal(event["U"][z, :, :], whole[z])
        assert nothing_comes(watch)
        assert of_name(three, watch.name)["evaluated"] == 12


def test_when_there_are_events(two: forebay.LocalGroup) -> None:
    holds = [n % 5 in (2, 3) for n in range(20)]
    rises = [n for n in range(20) if holds[n] and not (n and holds[n - 1])]
    falls = [n for n in range(20) if not holds[n] and n and holds[n - 1]]
    text = "max(s.U) > 0"
    with contextlib.ExitStack() as stack:
        watches = {
            on: stack.enter_context(subscribe(two, text, on=on)) for on in ("each", "rise", "fall", "both")
        }
        every = stack.enter_context(subscribe(two, text, every=3))
        limited = stack.enter_context(subscribe(two, text, limit=3))
        ranks = stack.enter_context(simulation(two, size=2))
        every.wait_active()
        limited.wait_active()
        for number in range(20):
            put(ranks, number, np.full(SHAPE, 1.0 if holds[number] else -1.0))
        each = [n for n in range(20) if holds[n]]
        assert [step for step, _ in events(watches["each"], len(each))] == each
        assert events(watches["rise"], len(rises)) == [(n, "rose") for n in rises]
        assert events(watches["fall"], len(falls)) == [(n, "fell") for n in falls]
        both = sorted([(n, "rose") for n in rises] + [(n, "fell") for n in falls])
        assert events(watches["both"], len(both)) == both
        third = [n for n in range(0, 20, 3) if holds[n]]
        assert [step for step, _ in events(every, len(third))] == third
        assert all(nothing_comes(watch) for watch in watches.values())
        found = [event.step for event in limited]
        assert found == each[:3], "the loop ends with the subscription"


def test_time_is_remembered(two: forebay.LocalGroup) -> None:
    """`for`, `until`, what was before, and episodes."""
    values = [0, 3, 3, 3, 1, 3, 3, 3, 3, -1, -1, 2, 3, 3, 3, 3]
    with (
        subscribe(two, "max(s.U) > 2 for 3 steps until max(s.U) < 0") as held,
        subscribe(two, "m = max(s.U); delta(m) < 0") as falling,
        subscribe(two, "max(s.U) > 2 for 0.5 time", on="rise") as long,
        simulation(two, size=1) as ranks,
    ):
        for watch in (held, falling, long):
            watch.wait_active()
        for number, value in enumerate(values):
            put(ranks, number, np.full(SHAPE, float(value)))
        assert events(held, 6) == [(3, "rose"), *[(n, "holds") for n in (4, 5, 6, 7, 8)]]
        second = held.next(timeout=20)
        assert (second.step, second.turn, second.episode, second.first) == (14, "rose", 2, 14)
        falls = [n for n in range(1, len(values)) if values[n] < values[n - 1]]
        assert [step for step, _ in events(falling, len(falls))] == falls
        # A quarter of a second a step: two steps after it began to hold.
        assert events(long, 3) == [(3, "rose"), (7, "rose"), (14, "rose")]


def test_what_is_not_known_is_told_once_and_counted(two: forebay.LocalGroup) -> None:
    text = "max(s.U[0:64]) > 0"
    with subscribe(two, text, name="whole") as watch, simulation(two, size=2) as ranks:
        watch.wait_active()
        put(ranks, 0, np.ones(SHAPE))
        for number in (1, 2):
            with ranks[0].step(number) as step, ranks[1].step(number):
                step.put("U", np.ones((32, *SHAPE[1:])), offset=(0, 0, 0))
        put(ranks, 3, np.ones(SHAPE))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = events(watch, 2)
        assert [step for step, _ in found] == [0, 3]
        assert [
            str(one.message).count("of 38400 elements of field 'U' 19200 were put") for one in caught
        ] == [1]
        assert all(one.category is forebay.UnknownWarning for one in caught)
        told_of = of_name(two, "whole")
        assert (told_of["unknown"], told_of["unknown_why"]) == ({"not covered": 2}, None)
        assert (told_of["evaluated"], told_of["held"], told_of["events"]) == (4, 2, 2)


def test_a_field_of_another_kind_and_one_that_is_missing(two: forebay.LocalGroup) -> None:
    """A subscription may come before its stream: what is wrong is told when that is known."""
    with subscribe(two, "max(s.W) > 0 and any(s.U > 0)", name="w") as watch:
        with simulation(two, size=1) as ranks:
            watch.wait_active()
            put(ranks, 0, np.ones(SHAPE))
            wait_until(lambda: of_name(two, "w")["unknown"] == {"not offered": 1})
            assert "no field 'W'" in of_name(two, "w")["unknown_why"]
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            sim.array("W", dtype="f8", shape=(3,))
            with sim.step(0) as step:
                step.put("U", np.ones(SHAPE))
                step.put("W", np.arange(3.0))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with watch.next(timeout=20) as event:
                    assert (event.run, event.step, event.values["max(s.W)"]) == (2, 0, 2.0)


def test_a_run_that_goes_on_forgets_what_came_after(two: forebay.LocalGroup) -> None:
    with subscribe(two, "max(s.U) > 0 for 3 steps", on="rise") as watch:
        with simulation(two, size=1) as ranks:
            watch.wait_active()
            for number in range(6):
                put(ranks, number, np.full(SHAPE, 1.0 if number >= 4 else -1.0))
        with simulation(two, size=1, continues=(1, 4)) as ranks:
            # Step 4 is still true, and 5 is put again.
            for number in range(5, 9):
                put(ranks, number, np.ones(SHAPE))
            event = watch.next(timeout=20)
            assert (event.run, event.step) == (2, 6)


# ---- who listens ------------------------------------------------------------------------------------


def test_a_subscriber_goes_on_where_it_was(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """One that is kept goes on without anybody, also when its process has died."""
    made = child(
        """
        sub = forebay.subscribe("max(s.U) > 0", name="hot", keep=True, group=sys.argv[1], timeout=20)
        print(sub.wait_active())
        while True:
            with sub.next() as event:
                pass
            print(event.number, event.step)
        """,
        two.path,
    )
    with simulation(two, size=1) as ranks:
        made.expect("(1, 0)")
        for number in range(3):
            put(ranks, number, np.ones(SHAPE))
            made.expect(f"{number + 1} {number}")
        made.kill()
        for number in range(3, 6):
            put(ranks, number, np.ones(SHAPE))
        with subscribe(two, "max(s.U) > 0", name="hot", keep=True) as again:
            assert [step for step, _ in events(again, 3)] == [3, 4, 5]
            cursor = again.cursor
            assert cursor == 6
        with subscribe(two, "max(s.U) > 0", name="hot", keep=True, start="first") as first:
            event = first.next(timeout=20)
            assert (event.number, event.step) == (1, 0)
        put(ranks, 6, np.ones(SHAPE))
        after = subscribe(two, "max(s.U) > 0", name="hot", keep=True, start=cursor)
        with after, after.next(timeout=20) as event:
            assert (event.number, event.step, event["U"][0, 0, 0]) == (7, 6, 1.0)
        with pytest.raises(forebay.Conflict, match=r"watches for: max\(s.U\) > 0"):
            subscribe(two, "max(s.U) > 1", name="hot")


def test_what_a_subscriber_left_behind_is_held_for_the_next(two: forebay.LocalGroup) -> None:
    """It was told of two events, took one, and is gone: the step of the other one waits for whoever comes."""
    with simulation(two, size=1) as ranks:
        with subscribe(two, "max(s.U) > 0", name="hot", keep=True) as first:
            first.wait_active()
            for number in range(2):
                put(ranks, number, np.ones(SHAPE))
            assert events(first, 1) == [(0, "rose")]
            wait_until(lambda: of_name(two, "hot")["events"] == 2)
        with subscribe(two, "max(s.U) > 0", name="hot") as then, then.next(timeout=20) as event:
            assert (event.step, event["U"][0, 0, 0]) == (1, 1.0)
        forebay.Admin(group=two.path).remove_subscription("hot")


def test_several_listen_and_one_never_reads(two: forebay.LocalGroup) -> None:
    """It hinders nobody; and what it would have been told of is bounded."""
    with (
        subscribe(two, "max(s.U) > 0", name="n", window=2) as lazy,
        subscribe(two, "max(s.U) > 0", name="n") as keen,
        simulation(two, size=1, policy="block") as ranks,
    ):
        lazy.wait_active()
        put(ranks, 0, np.ones(SHAPE))
        first = lazy.next(timeout=20)
        assert (first.step, keen.next(timeout=20).step) == (0, 0)
        for number in range(1, 40):
            put(ranks, number, np.ones(SHAPE))
            with keen.next(timeout=20) as event:
                assert event.step == number
        np.testing.assert_array_equal(first["U"][0, 0], 1.0)
        first.release()
        assert events(lazy, 3) == [(n, "holds") for n in (1, 2, 3)]


def test_loops_futures_coroutines_and_callbacks(two: forebay.LocalGroup) -> None:
    raised = threading.Event()
    called: list[int] = []

    def callback(event: forebay.Event) -> None:
        called.append(event.step)
        if event.step == 1:
            raise RuntimeError("as it should")

    def hook(args: threading.ExceptHookArgs) -> None:
        if str(args.exc_value) == "as it should":
            raised.set()

    before, threading.excepthook = threading.excepthook, hook
    try:
        with (
            subscribe(two, "max(s.U) > 0", limit=4) as awaited,
            subscribe(two, "max(s.U) > 0", limit=4, callback=callback) as told_by_call,
            simulation(two, size=1) as ranks,
        ):
            awaited.wait_active()
            told_by_call.wait_active()
            future = awaited.next_async()
            for number in range(4):
                put(ranks, number, np.ones(SHAPE))

            async def rest() -> list[int]:
                return [event.step async for event in awaited]

            assert future.result(20).step == 0
            assert asyncio.run(rest()) == [1, 2, 3]
            wait_until(lambda: called == [0, 1, 2, 3])
            assert raised.is_set()
    finally:
        threading.excepthook = before


def test_an_event_holds_its_step_and_keeps_those_around(two: forebay.LocalGroup) -> None:
    with subscribe(two, "max(s.U) > 0", keep=True, name="k", keep_around=(2, 1)) as watch:
        with simulation(two, size=1) as ranks:
            watch.wait_active()
            for number in range(12):
                put(ranks, number, np.full(SHAPE, 1.0 if number == 6 else -1.0 - number))
            with watch.next(timeout=20) as event:
                assert event.step == 6
                assert event["U"].shape == SHAPE
            stream = forebay.Stream("s", group=two.path, timeout=20)
            # Of the latest ones the next may fire.
            wait_until(lambda: [step.number for step in stream.steps] == [4, 5, 6, 7, 10, 11])
            assert stream.evaluate("max(U)", step=4) == -5.0
        admin = forebay.Admin(group=two.path)
        admin.remove_subscription("k")
        wait_until(lambda: stream.steps == [])
        with pytest.raises(forebay.Ended, match="was removed"):
            watch.next(timeout=20)
        with pytest.raises(forebay.NotFound, match="there is no subscription 'k'; there are none"):
            admin.remove_subscription("k")


def test_paused_resumed_and_ended(two: forebay.LocalGroup) -> None:
    with (
        subscribe(two, "max(s.U) > 0", name="p") as watch,
        subscribe(two, "max(s.U) > 0", name="short", expires=1.5) as short,
        simulation(two, size=1) as ranks,
    ):
        admin = forebay.Admin(group=two.path)
        watch.wait_active()
        put(ranks, 0, np.ones(SHAPE))
        assert events(watch, 1) == [(0, "rose")]
        admin.pause_subscription("p")
        assert of_name(two, "p")["paused"] is True
        put(ranks, 1, np.ones(SHAPE))
        admin.resume_subscription("p")
        put(ranks, 2, np.ones(SHAPE))
        assert events(watch, 1) == [(2, "holds")]
        assert [event.step for event in short][:1] == [0]
        wait_until(lambda: [one["name"] for one in admin.subscriptions()] == ["p"])


@pytest.mark.parametrize("end", ["limit", "removed"])
def test_a_step_is_read_longer_than_its_subscription_lives(two: forebay.LocalGroup, end: str) -> None:
    """Of the last event, too: alone, and beside another subscription that goes on."""
    limit = 1 if end == "limit" else None
    with (
        subscribe(two, "max(s.U) > 0", name="last", limit=limit) as watch,
        subscribe(two, "max(s.U) > 1e9", name="beside"),
        simulation(two, size=1, policy="block") as ranks,
    ):
        watch.wait_active()
        put(ranks, 0, field(0))
        event = watch.next(timeout=20)
        if end == "removed":
            watch.remove()
        wait_until(
            lambda: [one["name"] for one in forebay.Admin(group=two.path).subscriptions()] == ["beside"]
        )
        for number in range(1, 12):
            put(ranks, number, field(number))
        np.testing.assert_array_equal(event["U"][...], field(0))
        event.release()
        with pytest.raises(forebay.Ended):
            watch.next(timeout=20)
        forebay.Admin(group=two.path).remove_subscription("beside")
    wait_until(lambda: is_given_back(two))


def test_who_knew_one_of_this_name_before_misses_nothing_of_the_new_one(two: forebay.LocalGroup) -> None:
    """Events of the new one are counted anew: who has had two of the old one is told the first."""
    with simulation(two) as ranks:
        with subscribe(two, "max(s.U) > 0", name="x") as first:
            first.wait_active()
            for number in range(2):
                put(ranks, number, np.ones(SHAPE))
            assert [step for step, _ in events(first, 2)] == [0, 1]
        knew = subscribe(two, "max(s.U) > 0", name="x", start=2)
        forebay.Admin(group=two.path).remove_subscription("x")
        with subscribe(two, "max(s.U) > 0", name="x") as again, knew:
            again.wait_active()
            put(ranks, 2, np.ones(SHAPE))
            assert [step for step, _ in events(again, 1)] == [2]
            assert [step for step, _ in events(knew, 1)] == [2]


def test_a_field_that_no_rank_offers_is_told_though_nothing_is_staged(two: forebay.LocalGroup) -> None:
    """The subscription came before its stream, and has a mistake in a name; a dimension is no field."""
    with (
        subscribe(two, "max(s.UU) > 0", name="wrong") as wrong,
        subscribe(two, "max(gradient(s.U, z)) >= 0", name="right") as right,
        simulation(two) as ranks,
    ):
        put(ranks, 0, np.ones(SHAPE))
        with pytest.warns(forebay.UnknownWarning, match="has no field 'UU'; it has U. Did you mean 'U'"):
            assert nothing_comes(wrong)
        assert events(right, 1)[0][1] == "rose"
        assert of_name(two, "wrong")["unknown"] == {"not offered": 1}
        assert of_name(two, "right")["unknown"] == {}


def test_one_that_was_removed_is_not_made_again(two: forebay.LocalGroup) -> None:
    """A handle that did not listen yet is told that it has ended."""
    with simulation(two) as ranks, subscribe(two, "max(s.U) > 0", name="x", keep=True) as watch:
        watch.wait_active()
        put(ranks, 0, np.ones(SHAPE))
        wait_until(lambda: of_name(two, "x")["events"] == 1)
        forebay.Admin(group=two.path).remove_subscription("x")
        with pytest.raises(forebay.Ended, match="subscription 'x' was removed"):
            watch.next(timeout=20)
        assert forebay.Admin(group=two.path).subscriptions() == []


def test_events_before_the_end_of_its_time_are_told_after_it(two: forebay.LocalGroup) -> None:
    with simulation(two) as ranks, subscribe(two, "max(s.U) > 0", name="x", expires=2) as watch:
        watch.wait_active()
        for number in range(2):
            put(ranks, number, np.ones(SHAPE))
        wait_until(lambda: of_name(two, "x")["events"] == 2)
        over = time.monotonic() + 2.5
        wait_until(lambda: time.monotonic() > over)
        put(ranks, 2, np.ones(SHAPE))
        assert [step for step, _ in events(watch, 2)] == [0, 1]
        with pytest.raises(forebay.Ended, match="subscription 'x' has expired"):
            watch.next(timeout=20)


def test_what_the_space_does_not_have_is_refused(two: forebay.LocalGroup) -> None:
    for text in ("time() > 1 and max(A) > 0", "rate(max(A)) > 1", "max(A) > 0 for 0.5 time"):
        with pytest.raises(forebay.Invalid, match="no physical time"):
            subscribe(two, text, space=True)
    with pytest.raises(
        forebay.Invalid, match=r"keep_around=3: give how many steps before and after, as \(2, 1\)"
    ):
        subscribe(two, "max(s.U) > 0", keep_around=3)


# ---- deaths, and servers that come and go ------------------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2])
def test_it_survives_the_server_that_coordinates_it(replicas: int) -> None:
    """Its counters, and what it remembers of steps before, too."""
    with forebay.local(servers=3) as group:
        stream = stream_coordinated_by(group, 1)
        text = f"max({stream}.U) > 0 for 3 steps"
        with (
            subscribe(group, text, name="x", on="both", timeout=30) as watch,
            simulation(group, stream, size=3, replicas=replicas, timeout=30) as ranks,
        ):
            watch.wait_active()
            values = [-1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0]
            for number in range(4):
                put(ranks, number, np.full(SHAPE, values[number]))
            # One event is told before, and is not told again.
            assert events(watch, 1) == [(3, "rose")]
            kill_servers(group, 1)
            for number in range(4, len(values)):
                put(ranks, number, np.full(SHAPE, values[number]))
            assert events(watch, 3) == [(5, "fell"), (8, "rose"), (9, "fell")]
            assert nothing_comes(watch)
            told_of = of_name(group, "x")
            assert (told_of["evaluated"], told_of["events"], told_of["server"]) == (10, 4, told_of["server"])
            assert told_of["server"] != 1


def test_the_group_grows_and_shrinks_meanwhile() -> None:
    with forebay.local(servers=2) as group:
        stream = stream_coordinated_by(group, 0)
        with (
            subscribe(group, f"max({stream}.U) > 0", name="g", timeout=60) as watch,
            simulation(group, stream, size=2, timeout=60) as ranks,
        ):
            watch.wait_active()
            put(ranks, 0, np.ones(SHAPE))
            group.add_servers(2)
            for number in (1, 2):
                put(ranks, number, np.ones(SHAPE))
            forebay.Admin(group=group.path, timeout=60).remove_server(0)
            for number in (3, 4):
                put(ranks, number, np.ones(SHAPE))
            assert [step for step, _ in events(watch, 5)] == [0, 1, 2, 3, 4]
            assert of_name(group, "g")["evaluated"] == 5
            assert 0 not in server_numbers(group)


# ---- from the command line --------------------------------------------------------------------------


def test_events_on_the_command_line(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    listening = child(
        """
        import subprocess
        done = subprocess.run(
            ["forebay", "subscribe", "max(s.U) > 0", "--name", "cli", "--group", sys.argv[1], "--json", "--limit", "2"],
            capture_output=True, text=True)
        print(done.stdout, end="")
        print(done.returncode, done.stderr)
        """,
        two.path,
    )
    with simulation(two, size=2) as ranks:
        wait_until(lambda: "cli" in run("subscriptions", "--group", two.path).stdout)
        subscribe(two, "max(s.U) > 0", name="cli", limit=2).wait_active()
        for number in range(3):
            put(ranks, number, field(number) + 10)
        for number in range(2):
            line = listening.line()
            assert f'"step":{number}' in line.replace(" ", ""), line
            assert '"max(s.U)"' in line, line
        assert "has had its 2 events" in listening.line()
    made = run("subscribe", "max(s.U) > 3", "--name", "kept", "--keep", "--detach", "--group", two.path)
    assert made.stdout.strip() == "kept"
    [one] = told("subscriptions", "--group", two.path)
    assert (one["name"], one["text"], one["keep"], one["events"]) == ("kept", "max(s.U) > 3", True, 0)
    run("subscriptions", "remove", "kept", "--group", two.path)
    assert run("subscriptions", "--group", two.path).stdout == "no subscriptions\n"
    wrong = run("subscribe", "max(s.U) > 3 ^ 2", "--group", two.path, code=1)
    assert "column 14" in wrong.stderr, wrong.stderr
    assert "**" in wrong.stderr, wrong.stderr


def test_what_is_refused_at_once(two: forebay.LocalGroup) -> None:
    with simulation(two, size=1), consumer(two):
        for text, options, kind, message in [
            ("max(s.U)", {}, forebay.TypeMismatch, "what is watched is a condition; this is a number"),
            ("s.U > 1", {}, forebay.TypeMismatch, "say any(...) or all(...)"),
            ("max(U) > 1", {}, forebay.Invalid, "of which stream?"),
            ("1 > 2", {}, forebay.Invalid, "the text names no field"),
            ("max(s.U[0:65]) > 1", {}, forebay.OutOfBounds, "65 in dimension 0 lies outside the shape"),
            (
                " + ".join(f"max(s{n}.U)" for n in range(9)) + " > 1",
                {},
                forebay.Invalid,
                "9 streams in one text: at most 8",
            ),
            ("max(s.U) > 1", {"every": 0}, forebay.Invalid, "every is 0"),
            ("max(s.U) > 1", {"limit": 0}, forebay.Invalid, "limit is 0"),
            ("max(s.U) > 1", {"on": "never"}, forebay.Invalid, "use each, rise, fall or both"),
            ("max(s.U) > 1", {"keep_around": (65, 0)}, forebay.Invalid, "at most 64"),
            ("max(s.U) > 1", {"start": "now"}, forebay.Invalid, "start is 'now'"),
            ("max(s.U) > 1", {"name": "\n"}, forebay.Invalid, "name"),
        ]:
            with pytest.raises(
                kind,
                match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?").replace(".", r"\."),
            ):
                subscribe(two, text, **options)


# ---- what follows from events ------------------------------------------------------------------------


def test_a_pipeline_runs_at_events_alone(two: forebay.LocalGroup, tmp_path: Path) -> None:
    """With what is watched and nothing else; a function of a step is called in one worker."""
    code = tmp_path / "acting.py"
    code.write_text(
        """
import pathlib
import forebay

def act(step):
    with open(pathlib.Path(__file__).with_name("acted"), "a") as out:
        print(step.number, step.fields, step["U"][3, 4, 5], file=out)

class Act(forebay.Pipeline):
    def execute(self, step, comm):
        rows = comm.allgather([block.interior.shape[0] for block in step.blocks("U")])
        if comm.rank == 0:
            with open(pathlib.Path(__file__).with_name("class-acted"), "a") as out:
                print(step.number, step.fields, sum(sum(rows, [])), file=out)
"""
    )
    admin = forebay.Admin(group=two.path, timeout=60)
    with (
        subscribe(two, "max(s.U[0:10]) > 0", name="hot", on="rise") as watch,
        open_ranks(two, "s", 2) as ranks,
    ):
        for sim in ranks:
            sim.array("U", dtype="f8", shape=SHAPE, dims=("z", "y", "x"))
            sim.array("V", dtype="f8", shape=SHAPE)
        admin.create_pipeline("act", f"{code}:act", stream="s", on="hot")
        admin.create_pipeline("class", f"{code}:Act", stream="s", on="hot")
        watch.wait_active()
        for number in range(12):
            put(ranks, number, np.full(SHAPE, number % 4 - 2.5), also="V")
        acted = tmp_path / "acted"
        wait_until(lambda: acted.exists() and len(acted.read_text().splitlines()) == 3)
        assert [line.split()[0] for line in acted.read_text().splitlines()] == ["3", "7", "11"]
        assert acted.read_text().splitlines()[0] == "3 ['U'] 0.5"
        assert [event[0] for event in events(watch, 3)] == [3, 7, 11]
        acted = tmp_path / "class-acted"
        expected = [f"{number} ['U'] 10" for number in (3, 7, 11)]
        wait_until(lambda: acted.exists() and acted.read_text().splitlines() == expected)

        def is_counted() -> bool:
            [pipeline] = [one for one in admin.status()["pipelines"] if one["name"] == "act"]
            return (pipeline["on"], pipeline["executed"], pipeline["missed"]) == ("hot", 3, 0)

        wait_until(is_counted)
        admin.destroy_pipeline("act")
        with pytest.raises(forebay.NotFound, match="stream 's' has no subscription 'cold'; there are hot"):
            admin.create_pipeline("act", f"{code}:act", stream="s", on="cold")


def test_ten_thousand_subscriptions(one: forebay.LocalGroup) -> None:
    """Each on a region of its own, and all are evaluated; the simulation is not kept waiting for it, and they are removed by name."""
    count = 10_000
    with contextlib.ExitStack() as stack:
        sim = stack.enter_context(producer(one, "s"))
        sim.array("U", dtype="f8", shape=(count,))
        made = [
            stack.enter_context(subscribe(one, f"max(s.U[{place}]) > 0.5", name=f"{place:05d}"))
            for place in range(count)
        ]
        made[-1].wait_active()
        values = np.random.default_rng(3).random(count)
        with sim.step(0) as step:
            step.put("U", values)
        admin = forebay.Admin(group=one.path)

        def evaluated() -> bool:
            return all(one_of_them["evaluated"] == 1 for one_of_them in admin.subscriptions())

        wait_until(evaluated, 60)
        told_of = {one_of_them["name"]: one_of_them["events"] for one_of_them in admin.subscriptions()}
        assert told_of == {f"{place:05d}": int(values[place] > 0.5) for place in range(count)}
        fires = int(np.flatnonzero(values > 0.5)[-1])
        with made[fires].next(timeout=20) as event:
            assert event["U"][fires] == values[fires]
        made[fires].remove()
        assert len(admin.subscriptions()) == count - 1
