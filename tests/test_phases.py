"""A server stands still amid a step, and is killed or stands still amid a drain or a join: no byte is lost, none is wrong.

What is killed amid a step is in `test_open_steps`, what befalls pipelines in `test_driving` and `test_elastic`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.commands import FOREBAY
from support.deaths import kill_servers
from support.groups import (
    BUDGET,
    is_given_back,
    pid_of_server,
    server_ids,
    server_numbers,
    stream_coordinated_by,
)
from support.processes import stand_still
from support.ranks import end_ranks, put_steps, start_ranks
from support.row_blocks import SHAPE, check_rows, declare_rows, put_rows
from support.sessions import consumer, producer
from support.waiting import wait_until

import forebay

# What a busy machine needs to answer.
SILENCE = 4


@contextlib.contextmanager
def wakes(pid: int, when: Callable[[], bool]) -> Iterator[None]:
    """A process stands still from now on, until it is so that it is to wake."""
    stand_still(pid)

    def wake() -> None:
        try:
            wait_until(when)
        finally:
            os.kill(pid, signal.SIGCONT)

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        yield
    finally:
        waker.join()


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@pytest.mark.parametrize("until", ["for a moment", "until it is given up"])
@pytest.mark.parametrize("when", ["begun", "put", "allocated", "all put", "ended"])
def test_the_home_stands_still_amid_a_step(own_place: Path, transport: str, when: str, until: str) -> None:
    if transport == "tcp" and when == "allocated":
        pytest.skip("there is no memory to write to")
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE))
        home = pid_of_server(group, 0)
        stream = stream_coordinated_by(group, 1)
        reader = stack.enter_context(consumer(group, stream, transport=transport, timeout=60))
        sim = stack.enter_context(
            producer(
                group,
                stream,
                transport=transport,
                on_loss="fail",
                replicas=2,
                # Over TCP what was put is only at the home until the step has ended, unless it is to wait for its copies.
                durability="replicated" if transport == "tcp" else "local",
                timeout=60,
            )
        )
        declare_rows(sim)

        def stop() -> None:
            short = until == "for a moment"
            stack.enter_context(wakes(home, after(0.5) if short else lambda: 0 not in server_numbers(group)))

        for number in range(6):
            stops = number == 3
            whole = reference(SHAPE, "f8", number)
            with sim.step(number) as step:
                if stops and when == "begun":
                    stop()
                put_rows(step, number, range(2))
                if stops and when == "put":
                    stop()
                if transport == "tcp":
                    step.put("U", whole[40:], offset=(40, 0), number=2)
                else:
                    room = step.alloc("U", shape=(20, 50), offset=(40, 0), number=2)
                    if stops and when == "allocated":
                        stop()
                    room[...] = whole[40:]
                    step.commit(room)
                step.put("small", np.full(2, number + 2 / 8), offset=(4,), number=2)
                if stops and when == "all put":
                    stop()
            if stops and when == "ended":
                stop()
            with reader.next() as found:
                check_rows(found, number)
        assert sim.lost is None
        if until != "for a moment":
            # It is a member again.
            wait_until(lambda: server_numbers(group) == [1, 2, 3])
        sim.close()
        wait_until(lambda: is_given_back(group))


def test_a_coordinator_that_wakes_tells_nothing_that_is_old(
    own_place: Path, child: Callable[..., Child], transport: str
) -> None:
    """A rank whose home it was, too, is gone from there, and a reader is busy elsewhere: no step is torn for that."""
    last, done = 40, threading.Event()
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group:
        stream = stream_coordinated_by(group, 0)
        with consumer(group, stream, transport=transport, timeout=60) as reader:
            ranks = start_ranks(child, group.path, stream, 2)

            def check(numbers: range) -> None:
                for number in numbers:
                    with reader.next() as step:
                        assert (step.number, step.torn) == (number, False)
                        np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))

            put_steps(ranks, range(5))
            check(range(5))
            with wakes(pid_of_server(group, 0), done.is_set):
                for rank in ranks:
                    rank.say(f"5 {last}")
                wait_until(lambda: 0 not in server_numbers(group))
                for rank in ranks:
                    rank.expect(str(last))
                done.set()
            wait_until(lambda: server_numbers(group) == [1, 2, 3])
            check(range(5, last))
        end_ranks(ranks)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1, 2], ids=["it", "the coordinator", "another one"])
def test_a_server_is_harmed_while_one_drains(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, victim: int, how: signal.Signals
) -> None:
    """A rank keeps its step open, so that its home cannot leave yet."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(forebay.local(servers=4, budget_bytes=BUDGET, silence=SILENCE))
        stream = stream_coordinated_by(group, 1)
        reader = stack.enter_context(consumer(group, stream, timeout=60))
        sim = stack.enter_context(producer(group, stream, on_loss="fail", replicas=2, timeout=60))
        declare_rows(sim)
        outcome: list[Exception] = []

        def leave() -> None:
            try:
                forebay.Admin(group=group.path, timeout=40).remove_server(0)
            except forebay.Error as error:
                outcome.append(error)

        leaving = threading.Thread(target=leave)
        for number in range(6):
            with sim.step(number) as step:
                put_rows(step, number, range(2))
                if number == 3:
                    leaving.start()
                    wait_until(lambda: "server0 leaves the group" in group.output())
                    pid = pid_of_server(group, victim)
                    if how == signal.SIGKILL:
                        kill_servers(group, victim)
                    else:
                        stack.enter_context(wakes(pid, lambda: victim not in server_numbers(group)))
                put_rows(step, number, range(2, 3))
            with reader.next() as found:
                check_rows(found, number)
        leaving.join()
        # Whether it had left when it was harmed, or is told that it could not.
        told = (forebay.Unreachable, forebay.Timeout, forebay.Lost)
        assert all(isinstance(error, told) for error in outcome), outcome
        assert sim.lost is None
        wait_until(lambda: 0 not in server_numbers(group))


def test_servers_that_stand_still_while_they_join(one: forebay.LocalGroup) -> None:
    """At every point on their way: the simulation goes on, and each is a member in the end."""
    serve = [FOREBAY, "serve", "--group", one.path, "--budget", "32M"]
    with (
        contextlib.ExitStack() as stack,
        consumer(one, timeout=60) as reader,
        producer(one, timeout=60, on_loss="fail") as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(8):
            joiner = subprocess.Popen(list(map(str, serve)), stderr=subprocess.DEVNULL)
            stack.callback(joiner.wait)
            stack.callback(joiner.terminate)
            time.sleep(number * 0.002)
            with wakes(joiner.pid, after(0.5)):
                with sim.step(number) as step:
                    step.put("U", reference(SHAPE, "f8", number))
                with reader.next() as found:
                    np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
            wait_until(lambda count=number + 2: len(server_ids(one)) == count)
        assert sim.lost is None


@pytest.mark.parametrize("servers", [2, 4])
def test_the_next_home_stands_still_as_the_home_leaves(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, transport: str, servers: int
) -> None:
    """The rank goes to another server, or asks once more; what it has given up to wait for comes late, and harms nothing."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(forebay.local(servers=servers, budget_bytes=BUDGET))
        stream = stream_coordinated_by(group, servers - 1)
        sim = stack.enter_context(
            producer(group, stream, transport=transport, on_loss="fail", keep=1000, timeout=40)
        )
        declare_rows(sim)
        whole = reference(SHAPE)

        def write(numbers: range) -> None:
            for number in numbers:
                with sim.step(number) as step:
                    step.put("U", whole + number)

        write(range(5))
        # The first attempt to go on there takes a second.
        with wakes(pid_of_server(group, 1), after(1.5)):
            leaving = threading.Thread(
                target=forebay.Admin(group=group.path, timeout=40).remove_server, args=[0]
            )
            leaving.start()
            wait_until(lambda: "leaves the group" in group.output())
            write(range(5, 60))
        leaving.join()
        write(range(60, 80))
        assert sim.skipped == 0
        with consumer(group, stream, start="oldest", timeout=60) as reader:
            for number in range(80):
                with reader.next() as step:
                    assert (step.number, step.torn) == (number, False)
                    np.testing.assert_array_equal(step["U"][...], whole + number)
