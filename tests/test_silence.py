"""Servers that stand still are given up by the others, and come back as new members."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.arrays import reference
from support.children import Child
from support.commands import FOREBAY, command
from support.deaths import kill_servers, stopped_server
from support.groups import (
    BUDGET,
    group_status,
    pid_of_server,
    server_ids,
    server_numbers,
    steps_lacking_copies,
    stream_coordinated_by,
    total,
)
from support.processes import is_alive, stand_still
from support.sessions import check_it_works, consumer, producer
from support.single_rank import SINGLE_RANK, put_steps, read_steps
from support.waiting import wait_until

import forebay

# What a busy machine needs to answer; the default is longer.
SILENCE = 4


@pytest.mark.parametrize("victim", ["coordinator", "home"])
def test_a_server_that_stands_still_is_given_up(
    own_place: Path, child: Callable[..., Child], transport: str, victim: str
) -> None:
    """No byte is lost, and what it says when it wakes is not believed. It comes back, and is used."""
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group:
        # The home of rank 0 is server 0, then the next one.
        stream = stream_coordinated_by(group, 2)
        rank = child(SINGLE_RANK, group.path, transport, stream, 2)
        rank.expect("open")
        number = 2 if victim == "coordinator" else 0
        with consumer(group, stream, transport=transport, window=3) as reader:
            put_steps(rank, 0, 3)
            read_steps(reader, 0, 1)
            with stopped_server(group, number):
                put_steps(rank, 3, 6)
                read_steps(reader, 1, 6)
                wait_until(lambda: len(server_numbers(group)) == 2)
            wait_until(lambda: len(server_numbers(group)) == 3)
            assert number not in server_numbers(group)
            assert 3 in server_numbers(group)
            put_steps(rank, 6, 9)
            read_steps(reader, 6, 9)
        rank.close_input()
        rank.ended()


@pytest.mark.parametrize("call", ["flush", "begin", "put", "end"])
def test_a_rank_that_is_to_skip_nothing_waits_for_a_home(own_place: Path, transport: str, call: str) -> None:
    """Its home is dead, and another server, which must be asked what it holds of that, stands still."""
    # What goes over TCP only the home has within a step, unless puts wait until others have it, too.
    durability = "replicated" if transport == "tcp" else "local"
    options = {"replicas": 3, "durability": durability, "keep": 9, "on_loss": "fail", "timeout": 60}
    with (
        forebay.local(servers=4, budget_bytes=BUDGET, silence=SILENCE) as group,
        producer(group, "s", transport=transport, **options) as sim,
    ):

        def lose_home(when: str) -> None:
            if when == call:
                kill_servers(group, 0)

        sim.array("U", dtype="f8", shape=(60, 50))
        with sim.step(0) as step:
            step.put("U", reference((60, 50), "f8", 0))
        with stopped_server(group, 1):
            lose_home("flush")
            sim.flush()
            lose_home("begin")
            with sim.step(1) as step:
                lose_home("put")
                step.put("U", reference((60, 50), "f8", 1))
                lose_home("end")
        assert sim.lost is None
        assert sim.skipped == 0
        with consumer(group, "s", start="oldest", transport=transport) as reader:
            read_steps(reader, 0, 2)


def test_a_rank_waits_for_a_home_among_those_that_leave_or_stand_still(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home is dead; of the others one stands still until it is given up, and one tries to leave: as the last it stays."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    refused: list[forebay.Error] = []

    def leave_in_vain() -> None:
        try:
            forebay.Admin(group=group.path, timeout=40).remove_server(1)
        except forebay.Conflict as error:
            refused.append(error)

    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group,
        consumer(group, "held"),
        producer(group, "held", rank=1, size=2) as holds,
        producer(group, "s", replicas=3, keep=9, on_loss="fail", timeout=60) as sim,
    ):
        for rank in (holds, sim):
            rank.array("U", dtype="f8", shape=(60, 50))
        with sim.step(0) as step:
            step.put("U", reference((60, 50), "f8", 0))
        with holds.step(0):
            leaving = threading.Thread(target=leave_in_vain)
            leaving.start()
            wait_until(lambda: "leaves the group" in group.output())
            kill_servers(group, 0)
            wait_until(lambda: server_ids(group) == [1, 2])
            with stopped_server(group, 2), sim.step(1) as step:
                step.put("U", reference((60, 50), "f8", 1))
        leaving.join()
        assert len(refused) == 1
        assert sim.lost is None
        assert sim.skipped == 0
        with consumer(group, "s", start="oldest") as reader:
            read_steps(reader, 0, 2)


@pytest.mark.parametrize(("servers", "long"), [(2, 2.5), (3, 9.0)])
def test_a_reader_waits_for_one_that_stands_still(
    own_place: Path, transport: str, servers: int, long: float
) -> None:
    """The server that coordinated its stream is dead. The others agree on who does now when that one goes on."""
    with forebay.local(servers=servers, budget_bytes=BUDGET, silence=30) as group:
        stream = stream_coordinated_by(group, 0)
        options = {
            "replicas": 2,
            "keep": 9,
            "durability": "replicated",
            "on_loss": "fail",
            "transport": transport,
        }
        with (
            producer(group, stream, **options) as sim,
            # What one call is given counts, not what the handle is.
            consumer(group, stream, transport=transport, timeout=2) as reader,
            ThreadPoolExecutor(1) as pool,
        ):
            sim.array("U", dtype="f8", shape=(60, 50))
            with sim.step(0) as step:
                step.put("U", reference((60, 50), "f8", 0))
            read_steps(reader, 0, 1)
            waits = pool.submit(reader.next, 60)
            coordinator = pid_of_server(group, 0)
            with stopped_server(group, 1):
                os.kill(coordinator, signal.SIGKILL)
                with pytest.raises(TimeoutError):
                    waits.result(timeout=long)
            with sim.step(1) as step:
                step.put("U", reference((60, 50), "f8", 1))
            with waits.result() as found:
                assert (found.number, found.missed, found.torn) == (1, 0, False)


def test_what_comes_back_has_copies_again(own_place: Path) -> None:
    """A server that was given up holds its steps once more. It sees to copies, when it is to hold them for another one, too."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group,
        producer(group, "s", replicas=2, keep=9) as sim,
    ):
        sim.array("U", dtype="f8", shape=(60, 50))
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference((60, 50), "f8", number))

        def whole() -> None:
            wait_until(lambda: steps_lacking_copies(group) == 0)
            with consumer(group, "s", start="oldest") as reader:
                read_steps(reader, 0, 3)

        with stopped_server(group, 0):
            wait_until(lambda: server_numbers(group) == [1, 2])
        wait_until(lambda: server_numbers(group) == [1, 2, 3])
        whole()
        for number in (1, 2, 3):
            # Of the first two, the one that holds copies for the other; then this one; then the one that came back.
            kill_servers(
                group, max(server_numbers(group)[:-1]) if number == 1 else min(server_numbers(group))
            )
            if number > 1:
                group.add_servers()
            whole()


def test_two_stand_still_at_once(own_place: Path) -> None:
    """One of them the rank's home: the others hold a copy of all, and the two take part again when they wake."""
    with (
        forebay.local(servers=5, budget_bytes=BUDGET, silence=SILENCE) as group,
        producer(group, "s", replicas=3, keep=9) as sim,
    ):
        sim.array("U", dtype="f8", shape=(60, 50))

        def write(numbers: range) -> None:
            for number in numbers:
                with sim.step(number) as step:
                    step.put("U", reference((60, 50), "f8", number))

        def whole(steps: int) -> None:
            wait_until(lambda: steps_lacking_copies(group) == 0)
            with consumer(group, "s", start="oldest") as reader:
                read_steps(reader, 0, steps)

        write(range(3))
        wait_until(lambda: steps_lacking_copies(group) == 0)
        with stopped_server(group, 0), stopped_server(group, 1):
            write(range(3, 6))
            wait_until(lambda: server_numbers(group) == [2, 3, 4])
            whole(6)
        wait_until(lambda: server_numbers(group) == [2, 3, 4, 5, 6])
        write(range(6, 9))
        whole(9)


def test_who_stands_still_for_a_moment_stays(own_place: Path) -> None:
    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=60) as group,
        consumer(group, "s") as reader,
        forebay.Producer("s", group=group.path, timeout=20) as sim,
    ):
        sim.array("U", dtype="f8", shape=(60, 50))
        pid = group_status(group)["servers"][0]["pid"]
        stand_still(pid)
        os.kill(pid, signal.SIGCONT)
        with sim.step(0) as step:
            step.put("U", reference((60, 50), "f8", 0))
        read_steps(reader, 0, 1)
        assert server_numbers(group) == [0, 1, 2]


@pytest.mark.parametrize("bad", [0, 0.5, -1, float("nan"), 1e9])
def test_bad_silence_is_refused(bad: float) -> None:
    with pytest.raises(forebay.Error, match="silence"):
        forebay.local(silence=bad)


def test_one_that_is_given_up_while_it_leaves_has_not_left(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wanted it to leave is told so, and it comes back with what nobody else had yet."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group:
        told_of_it = []

        def leave() -> None:
            try:
                forebay.Admin(group=group.path, timeout=40).remove_server(0)
            except forebay.Error as error:
                told_of_it.append(error)

        with producer(group, stream_coordinated_by(group, 2), keep=4, transport="tcp") as sim:
            sim.array("U", dtype="f8", shape=(60, 50))
            with sim.step(0) as step:
                step.put("U", reference((60, 50)))
            sim.flush()
            # It cannot go while one of its ranks is within a step.
            step = sim.step(1)
            step.__enter__()
            leaving = threading.Thread(target=leave)
            leaving.start()
            wait_until(lambda: "gives the others what it has" in group.output())
            with stopped_server(group, 0):
                wait_until(lambda: server_numbers(group) == [1, 2])
            wait_until(lambda: server_numbers(group) == [1, 2, 3])
            leaving.join()
            with contextlib.suppress(forebay.Error):
                step.__exit__(None, None, None)

            def is_whole() -> bool:
                with consumer(group, sim.stream, start="oldest") as reader, reader.next() as found:
                    try:
                        return found.number == 0 and bool((found["U"][...] == reference((60, 50))).all())
                    except forebay.Lost:
                        return False

            wait_until(is_whole)
        assert [type(error) for error in told_of_it] == [forebay.Lost], told_of_it


def test_a_server_that_wakes_offers_what_it_held(own_place: Path, transport: str) -> None:
    """Steps that had no copies: lost while it stands still, and there again, until they are let go of."""
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group:
        stream = stream_coordinated_by(group, 2)
        # The home of rank 0 is server 0. A rank that has put over TCP cannot put again.
        with forebay.Producer(stream, group=group.path, keep=4, timeout=20, transport="tcp") as sim:
            sim.array("U", dtype="f8", shape=(60, 50))

            def write(number: int) -> None:
                with sim.step(number) as step:
                    step.put("U", reference((60, 50), "f8", number))

            for number in range(4):
                write(number)
            sim.flush()
            with stopped_server(group, 0):
                wait_until(lambda: server_numbers(group) == [1, 2])
                with consumer(group, stream, start="oldest", transport=transport) as reader:
                    for number in range(4):
                        with reader.next() as step:
                            assert step.number == number
                            with pytest.raises(forebay.Lost, match="server0"):
                                step["U"][...]
            wait_until(lambda: server_numbers(group) == [1, 2, 3])

            def whole() -> bool:
                with consumer(group, stream, start="oldest", transport=transport) as reader:
                    for number in range(4):
                        with reader.next() as step:
                            assert step.number == number
                            try:
                                assert (step["U"][...] == reference((60, 50), "f8", number)).all()
                            except forebay.Lost:
                                return False
                return True

            wait_until(whole)
            offered = total(group, "staged_bytes")
            assert offered >= 4 * reference((60, 50), "f8").nbytes
            for number in range(4, 8):
                write(number)
            sim.flush()
            with consumer(group, stream, start="oldest", transport=transport) as reader:
                for number in range(4, 8):
                    with reader.next() as step:
                        assert step.number == number
                        assert (step["U"][...] == reference((60, 50), "f8", number)).all()
            # What it has offered is free now: as much is held as before, of the steps that came later.
            wait_until(lambda: total(group, "staged_bytes") == offered)


def test_what_was_offered_is_handed_over(own_place: Path) -> None:
    """A server that has come back leaves. Of the runs of the steps that it offered it was told nothing by any rank."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=SILENCE) as group,
        forebay.Producer("s", group=group.path, keep=4, timeout=20, transport="tcp") as sim,
    ):
        sim.array("U", dtype="f8", shape=(60, 50))
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference((60, 50), "f8", number))
        sim.flush()
        with stopped_server(group, 0):
            wait_until(lambda: server_numbers(group) == [1, 2])
            # At another home, for good.
            with sim.step(3) as step:
                step.put("U", reference((60, 50), "f8", 3))
        wait_until(lambda: server_numbers(group) == [1, 2, 3])
        wait_until(lambda: group_status(group)["servers"][2]["staged_bytes"] > 0)
        forebay.Admin(group=group.path, timeout=30).remove_server(3)
        with consumer(group, "s", start="oldest") as reader:
            read_steps(reader, 0, 4)


def test_one_that_wakes_when_its_group_has_ended_ends(own_place: Path) -> None:
    """It founds no group of its own, at the place of that one or another."""
    group = own_place / "g.json"
    servers = []
    try:
        for number in range(3):
            serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--silence", SILENCE]
            servers.append(subprocess.Popen(list(map(str, serve)), stderr=subprocess.PIPE, text=True))
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        stand_still(servers[1].pid)
        wait_until(lambda: server_ids(group) == [0, 2])
        subprocess.run([FOREBAY, "down", "--group", group], check=True, capture_output=True, timeout=60)
        servers[1].send_signal(signal.SIGCONT)
        _, said = servers[1].communicate(timeout=60)
        assert servers[1].returncode == 0
        assert "has ended without it" in said
        assert list(own_place.glob("*g.json*")) == []
    finally:
        for server in servers:
            server.kill()
            server.communicate()


@pytest.mark.parametrize(("servers", "still"), [(2, [1]), (3, [0, 2]), (4, [1, 3]), (5, [0, 1, 3])])
def test_those_that_stand_still_as_the_group_is_ended_end_when_they_wake(
    own_place: Path, servers: int, still: list[int]
) -> None:
    """Nobody has given them up yet, and together with nobody or each other they could go on."""
    group = own_place / "g.json"
    up = ["up", "--servers", servers, "--group", group, "--budget", "64M", "--silence", 60]
    assert command(*up).returncode == 0
    pids = [server["pid"] for server in json.loads(group.read_text())["servers"]]
    try:
        for number in still:
            stand_still(pids[number])
        down = command("down", "--group", group, "--timeout", 1)
        assert down.returncode != 0
        assert "ends when it goes on" in down.stderr
        assert all(f"(process {pids[number]})" in down.stderr for number in still)
        wait_until(
            lambda: not any(is_alive(pids[number]) for number in range(servers) if number not in still)
        )
        for number in still:
            os.kill(pids[number], signal.SIGCONT)
        wait_until(lambda: not any(is_alive(pid) for pid in pids))
        assert list(own_place.glob("*g.json")) == []
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_stands_still_with_the_witness_locked_keeps_nobody(own_place: Path) -> None:
    """As a server does that is stopped at that moment: the others need the witness, and tell of the new members."""
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        witness = Path(group.path).with_name(f".{Path(group.path).name}.witness")

        def generations() -> list[Path]:
            """All but those that are just being written."""
            files = witness.parent.glob(f"{witness.name}*")
            return [file for file in files if file.name.count(".") == witness.name.count(".")]

        for expected in ([1], [1, 2], [2]):
            with contextlib.ExitStack() as locked:
                for file in generations():
                    fcntl.flock(locked.enter_context(file.open("r+")), fcntl.LOCK_EX)
                if len(expected) == 2:
                    group.add_servers()
                else:
                    kill_servers(group, expected[0] - 1)
                wait_until(lambda expected=expected: server_ids(group) == expected)
                check_it_works(group)
        assert sum(file.stat().st_mode & 0o100 != 0 for file in generations()) >= 3
    assert list(own_place.glob("**/*witness*")) == []


def test_one_that_rests_when_its_group_ends_ends(own_place: Path) -> None:
    """Given up twice soon after it had joined, it waits before it joins again; meanwhile its group ends."""
    group = own_place / "g.json"
    serve = [FOREBAY, "serve", "--group", group, "--budget", "64M", "--silence", 2]
    servers = []
    try:
        for number in range(3):
            with (own_place / f"{number}.log").open("w") as log:
                servers.append(subprocess.Popen(list(map(str, serve)), stderr=log))
            wait_until(lambda count=number + 1: group.exists() and len(server_ids(group)) == count)
        for joins_again in (True, False):
            stand_still(servers[1].pid)
            wait_until(lambda: len(server_ids(group)) == 2)
            servers[1].send_signal(signal.SIGCONT)
            if joins_again:
                wait_until(lambda: len(server_ids(group)) == 3)
        wait_until(lambda: "joins again in 5s" in (own_place / "1.log").read_text())
        subprocess.run([FOREBAY, "down", "--group", group], check=True, capture_output=True, timeout=60)
        assert servers[1].wait(timeout=60) == 0
        assert list(own_place.glob("*g.json*")) == []
    finally:
        for server in servers:
            server.kill()
            server.wait()
