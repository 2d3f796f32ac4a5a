"""Beginning together, coming late, and wanting only the newest step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.children import Child
from support.commands import run
from support.groups import (
    group_status,
    pid_of_server,
    server_ids,
    server_numbers,
    stream_coordinated_by,
    stream_status,
)
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay


def put(sim: forebay.Producer, number: int) -> None:
    """The step is closed when this returns."""
    with sim.step(number) as step:
        step.put("U", np.full(4, float(number)))
    sim.flush()


def simulation(group: Any, **options: Any) -> forebay.Producer:
    sim = producer(group, **options)
    sim.array("U", dtype="f8", shape=(4,))
    return sim


WAITING = """
    with producer(sys.argv[1], "s", rank=int(sys.argv[2]), size=2, wait_for_readers=2) as sim:
        sim.array("U", dtype="f8", shape=(2,))
        print("waits")
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", np.full(1, float(number)), offset=(int(sys.argv[2]),))
        print("ends")
"""


def test_the_first_step_begins_when_its_readers_are_there(
    two: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """Ranks in processes of their own, readers that come one after the other: each sees all steps."""
    ranks = [child(WAITING, two.path, rank) for rank in range(2)]
    for rank in ranks:
        rank.expect("waits")
    with consumer(two, name="one") as one:
        with pytest.raises(forebay.Timeout):
            one.next(timeout=0.2)
        with consumer(two, name="one"), pytest.raises(forebay.Timeout):
            one.next(timeout=0.2)
        with consumer(two, name="two") as two_:
            for reader in (one, two_):
                assert [step.number for step in reader] == [0, 1, 2]
    for rank in ranks:
        assert rank.ended() == ["ends"]


WAITS_ALONE = """
    with producer(sys.argv[1], "s", wait_for_readers=1) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        print("waits")
        with sim.step(0) as step:
            print(step.put("U", np.full(4, 7.0)))
"""


def test_a_field_that_an_ended_run_never_had_is_named(one: forebay.LocalGroup) -> None:
    """Beside one that it had, or alone; by readers of what is left. Who waits for the next run may know better."""
    with simulation(one, keep=2) as sim:
        put(sim, 0)
    for start in ("next", "oldest", "latest", "held"):
        for fields in (["U", "V"], ["V"]):
            with pytest.raises(forebay.NotFound, match="has no field 'V'; it offers U"):
                consumer(one, fields=fields, start=start)
    with consumer(one, fields=["V"], start="run"), consumer(one, fields=["V"], follow=True):
        pass


def test_the_status_says_that_readers_are_awaited(one: forebay.LocalGroup) -> None:
    with simulation(one, wait_for_readers=1) as sim:
        assert (stream_status(one, "s") or {}).get("awaited_readers") == 1
        assert (
            "its first step waits for a reader with a name (1)" in run("status", "--group", one.path).stdout
        )
        with consumer(one, name="one"):
            put(sim, 0)
            assert (stream_status(one, "s") or {})["awaited_readers"] is None


def test_it_waits_for_readers_at_its_next_home(
    three: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """The rank's home dies while it waits; nobody reads yet."""
    rank = child(WAITS_ALONE, three.path)
    rank.expect("waits")
    wait_until(lambda: (stream_status(three, "s") or {}).get("ranks") == {"size": 1, "open": 1})
    (home,) = (s["pid"] for s in group_status(three)["servers"] if s["connections"].get("producers"))
    os.kill(home, signal.SIGKILL)
    wait_until(lambda: len(server_ids(three)) == 2)
    with consumer(three, name="one") as reader:
        found = reader.next()
        assert (found.number, found["U"][...].tolist()) == (0, [7.0] * 4)
        found.release()
    assert rank.ended() == ["True"]


def test_a_rank_that_dies_while_it_waits_for_readers_is_gone(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    rank = child(WAITS_ALONE, one.path)
    rank.expect("waits")
    wait_until(lambda: (stream_status(one, "s") or {}).get("phase") == "running")
    rank.process.kill()
    wait_until(lambda: (stream_status(one, "s") or {}).get("phase") == "crashed")
    with producer(one) as again:
        assert again.run == 2


def test_a_reader_waits_for_ranks_that_never_come_no_longer_than_it_says(one: forebay.LocalGroup) -> None:
    """One of two ranks has closed, the other has not come: nobody lives."""
    with consumer(one, timeout=1) as reader:
        with producer(one, rank=0, size=2):
            pass
        with pytest.raises(forebay.Timeout, match="no rank is there, and not all have come"):
            reader.next()


@pytest.mark.parametrize("window", [1, 2])
def test_the_newest_is_the_newest_though_it_was_asked_for_in_vain(
    one: forebay.LocalGroup, window: int
) -> None:
    """A question that ended in a time-out is answered by the first step that closes, which may be an old one when it is
    asked again; it takes no place from the newest.
    """
    with simulation(one) as sim, consumer(one, take="latest", window=window) as reader:
        with pytest.raises(forebay.Timeout):
            reader.next(timeout=0.05)
        for first in (0, 10):
            for number in range(first, first + 10):
                put(sim, number)
            found = reader.next(timeout=0)
            assert (found.number, found.missed) == (first + 9, 9)
            found.release()
            with pytest.raises(forebay.Timeout):
                reader.next(timeout=0)


def test_who_has_come_is_named_at_the_deadline(one: forebay.LocalGroup, transport: str) -> None:
    with simulation(one, wait_for_readers=2, timeout=0.5, transport=transport) as sim:
        with pytest.raises(forebay.Timeout, match=r"2 different names.*: none with a name has come$"):
            put(sim, 0)
        with consumer(one, name="viewer"), consumer(one):
            with pytest.raises(
                forebay.Timeout, match=r"those that have come are 'viewer' \(process \d+ on \S+\)"
            ) as error:
                put(sim, 0)
            assert "without a name, and so not counted: process " in str(error.value)
            with consumer(one, name="archive"):
                put(sim, 0)
        put(sim, 1)


def test_only_the_first_step_of_a_run_waits(one: forebay.LocalGroup) -> None:
    with simulation(one, wait_for_readers=1) as sim:
        with consumer(one, name="brief") as reader:
            put(sim, 0)
            assert reader.next().number == 0
        put(sim, 1)


def test_two_codes_that_read_each_other_begin_together(one: forebay.LocalGroup) -> None:
    """In lockstep, in whichever order they open what they need."""
    seen: dict[str, list[float]] = {"a": [], "b": []}

    def run(mine: str, other: str) -> None:
        with (
            simulation(one, stream=mine, wait_for_readers=1) as sim,
            consumer(one, other, name=f"the code of {mine}", start="run") as reader,
        ):
            for number in range(5):
                put(sim, number)
                with reader.next() as step:
                    seen[mine].append(float(step["U"][0]))

    threads = [threading.Thread(target=run, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("first", ["reader", "simulation"])
def test_a_pair_is_started_in_either_order_again_and_again(one: forebay.LocalGroup, first: str) -> None:
    """With `start="run"` a reader waits for the run to come, whatever has ended before."""
    for _ in range(3):
        seen = []

        def read(seen: list[int] = seen) -> None:
            with consumer(one, name="viewer", start="run") as reader:
                seen.extend(step.number for step in reader)

        def simulate() -> None:
            with simulation(one, wait_for_readers=1) as sim:
                for number in range(3):
                    put(sim, number)

        works, waits_in = (read, simulate), "attached"
        if first == "simulation":
            works, waits_in = (simulate, read), "awaited_readers"
        early, late = (threading.Thread(target=work) for work in works)
        early.start()
        wait_until(lambda waits_in=waits_in: (stream_status(one, "s") or {}).get(waits_in) == 1)
        late.start()
        for thread in (early, late):
            thread.join(30)
        assert seen == [0, 1, 2]


def test_who_wants_whole_runs_waits_for_the_next_one(one: forebay.LocalGroup) -> None:
    with simulation(one) as sim:
        put(sim, 0)
        with consumer(one, start="run", timeout=0.5) as reader:
            put(sim, 1)
            with pytest.raises(forebay.Timeout, match="had begun when this reader came"):
                reader.next()
            sim.close()
            with simulation(one) as sim:
                put(sim, 7)
            assert [step.number for step in reader] == [7]


def test_the_newest_step_that_is_held_comes_first(one: forebay.LocalGroup, transport: str) -> None:
    with simulation(one, keep=5) as sim:
        for number in range(8):
            put(sim, number)
        wait_until(lambda: (stream_status(one, "s") or {}).get("latest") == 7)
        with consumer(one, start="latest", transport=transport) as reader:
            assert reader.next().number == 7
            put(sim, 8)
            assert reader.next().number == 8


@pytest.mark.parametrize("policy", ["block", "drop-oldest", "latest"])
def test_a_live_view_takes_the_newest_and_nobody_notices(
    one: forebay.LocalGroup, transport: str, policy: str
) -> None:
    """It looks now and then; another reader sees all that the policy lets it see."""
    with (
        consumer(one, take="latest", transport=transport) as live,
        simulation(one, policy=policy) as sim,
        consumer(one, window=64) as other,
    ):
        seen = []
        for number in range(30):
            put(sim, number)
            if number % 10 == 9:
                with live.next() as step:
                    seen.append((step.number, step.missed))
        assert seen == [(9, 9), (19, 9), (29, 9)]
        with pytest.raises(forebay.Timeout):
            live.next(timeout=0.05)
        put(sim, 30)
        put(sim, 31)
        # What it had asked for in vain is older than what is there now.
        with live.next() as step:
            assert (step.number, step.missed) == (31, 1)
        sim.close()
        with pytest.raises(forebay.Ended):
            live.next()
        assert [step.number for step in other] == list(range(32))


@pytest.mark.parametrize("how", ["killed", "leaves"])
@pytest.mark.parametrize("take, timeout", [("latest", None), ("latest", 0), ("all", 0)])
def test_a_live_view_goes_on_when_its_coordinator_is_gone(
    two: forebay.LocalGroup, take: str, timeout: float | None, how: str
) -> None:
    """However little time it gives each look."""
    gone, other = server_numbers(two)
    name = stream_coordinated_by(two, gone)
    with consumer(two, name, take=take) as live, simulation(two, stream=name, keep=3) as sim:
        put(sim, 0)
        assert live.next().number == 0
        if how == "killed":
            os.kill(pid_of_server(two, gone), signal.SIGKILL)
        else:
            forebay.Admin(group=two.path, timeout=30).remove_server(gone)
        wait_until(lambda: server_numbers(two) == [other])
        for number in range(1, 4):
            put(sim, number)
        seen: list[int] = []

        def has_seen_all() -> bool:
            with contextlib.suppress(forebay.Timeout), live.next(timeout=timeout) as step:
                seen.append(step.number)
            return seen[-1:] == [3]

        wait_until(has_seen_all)
        assert seen == sorted(set(seen))
        assert take == "latest" or seen == [1, 2, 3]


def test_a_live_view_of_a_group_that_is_gone_is_told(own_place: Any) -> None:
    with forebay.local(servers=1) as group, consumer(group, take="latest") as live, simulation(group) as sim:
        put(sim, 0)
        assert live.next().number == 0
        os.kill(pid_of_server(group, 0), signal.SIGKILL)

        def is_told() -> bool:
            try:
                live.next(timeout=0)
            except forebay.Timeout:
                return False
            except forebay.Unreachable:
                return True
            raise AssertionError("a step of nobody")

        wait_until(is_told)


def test_a_live_view_that_sleeps_takes_no_memory_that_is_needed(own_place: Any) -> None:
    """The simulation waits for room, but not for a step that only a live view has not looked at."""
    array = np.ones(1 << 18)
    with (
        forebay.local(servers=1, budget_bytes=5 << 20) as group,
        consumer(group, take="latest") as live,
        producer(group, policy="block", timeout=10) as sim,
    ):
        sim.array("U", dtype="f8", shape=array.shape)
        for number in range(6):
            with sim.step(number) as step:
                assert step.put("U", array)
        sim.flush()
        with live.next() as step:
            assert step.number == 5


def test_a_reader_that_holds_its_window_is_told_that_it_waits_for_itself(one: forebay.LocalGroup) -> None:
    with consumer(one, timeout=0.5) as reader, simulation(one) as sim:
        for number in range(6):
            put(sim, number)
        held = [reader.next() for _ in range(4)]
        for timeout in (None, 0.1):
            with pytest.raises(forebay.Timeout, match=r"holds 4 of 4 steps: 0, 1, 2, 3\. Release one"):
                reader.next(timeout=timeout)
        held[1].release()
        assert reader.next().number == 4


def test_a_loop_goes_on_though_its_steps_and_arrays_are_kept(one: forebay.LocalGroup) -> None:
    """As a notebook keeps what its cells have shown."""
    with consumer(one, timeout=2) as reader, simulation(one) as sim:
        for number in range(12):
            put(sim, number)
        sim.close()
        kept = [(step, step["U"][...], step.blocks("U")) for step in reader]
        assert [float(array[0]) for _, array, _ in kept] == list(range(12))
        assert [float(blocks[0].data[0]) for _, _, blocks in kept] == list(range(12))


def test_a_pause_of_the_simulation_ends_no_loop(one: forebay.LocalGroup, transport: str) -> None:
    """`timeout` bounds the wait for a run; one that runs may compute for longer between two steps."""
    with consumer(one, timeout=0.2, transport=transport) as reader:
        with pytest.raises(forebay.Timeout, match="it has had no run yet"):
            next(iter(reader))
        with simulation(one) as sim:
            pauses = threading.Thread(
                target=lambda: [(time.sleep(0.7), put(sim, number)) for number in range(2)]
            )
            pauses.start()
            with pytest.raises(forebay.Timeout, match=r"has come within 0\.1 s"):
                reader.next(timeout=0.1)
            assert [reader.next().number for _ in range(2)] == [0, 1]
            pauses.join()
        assert list(reader) == []


def test_a_reader_is_told_what_there_is_where_nothing_is_for_it(one: forebay.LocalGroup) -> None:
    with consumer(one, follow=True, timeout=0.3) as reader, open_ranks(one, "s", 1) as (sim,):
        sim.array("U", dtype="f8", shape=(4,))
        put(sim, 0)
        assert reader.next().number == 0
        sim.close()
        with pytest.raises(
            forebay.Timeout, match="the last one that came was step 0; its run 1 is over, and no other"
        ):
            reader.next()


def test_names_are_checked(one: forebay.LocalGroup) -> None:
    for bad in ("", "a\nb", "x" * 256):
        with pytest.raises(forebay.Invalid, match="name"):
            consumer(one, name=bad)
