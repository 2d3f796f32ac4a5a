"""Servers that leave their group: ranks, readers and pipelines go on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.commands import FOREBAY
from support.deaths import kill_servers
from support.groups import (
    BUDGET,
    group_status,
    is_given_back,
    pid_of_server,
    server_ids,
    steps_lacking_copies,
    stream_coordinated_by,
    total,
)
from support.many_ranks import RANKS, many_ranks, write_large
from support.many_ranks import SHAPE as LARGE
from support.pipelines import HELD_SUMS, SUMS
from support.processes import stand_still
from support.ranks import RANK, READER, check_steps, end_ranks, put_steps, start_ranks
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def leave(group: forebay.LocalGroup, number: int, **options: Any) -> None:
    """Has the server of this number leave."""
    group.remove_server(number, **options)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("coordinator", [0, 1, 2])
def test_a_server_leaves(
    own_place: Path, child: Callable[..., Child], transport: str, coordinator: int, replicas: int
) -> None:
    """The home of a rank, whether it coordinates the stream or not; then another one, of other steps as well."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        ranks = start_ranks(child, group.path, stream, replicas, transport=transport)
        put_steps(ranks, range(20))
        leave(group, 0)
        assert server_ids(group) == [1, 2]
        check_steps(group, stream, range(20), transport=transport)
        put_steps(ranks, range(20, 30))
        check_steps(group, stream, range(30), transport=transport)
        leave(group, 1)
        put_steps(ranks, range(30, 40))
        check_steps(group, stream, range(40), transport=transport)
        status = group_status(group)
        assert status["lost"] == []
        assert status["streams"][0]["server"] == 2
        end_ranks(ranks)
        check_steps(group, stream, range(40))
        assert steps_lacking_copies(group) == (40 if replicas == 2 else 0)


def test_servers_leave_and_join_while_a_simulation_runs(
    two: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """One reader sees every step, whole; the servers that were there first are long gone."""
    ranks = start_ranks(child, two.path, "s", 1, rows=60)
    with consumer(two, "s", timeout=20) as reader:
        for start in range(0, 60, 10):
            put_steps(ranks, range(start, start + 10))
            two.add_servers()
            leave(two, min(server_ids(two)))
            for number in range(start, start + 10):
                with reader.next() as step:
                    assert (step.number, step.missed, step.torn) == (number, 0, False)
                    np.testing.assert_array_equal(step["U"][...], reference((60, 50), "f8", number))
        assert server_ids(two) == [6, 7]
        end_ranks(ranks)
        with pytest.raises(StopIteration):
            next(iter(reader))


def test_a_server_waits_for_a_rank_to_end_its_step(two: forebay.LocalGroup) -> None:
    """Until the deadline: then it stays, says what it waited for, and all goes on."""
    stream = stream_coordinated_by(two, 1)
    with consumer(two, stream) as reader, producer(two, stream) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(3) as step:
            step.put("U", reference(SHAPE, "f8", 3))
            with pytest.raises(forebay.Timeout, match=rf"rank 0 of stream '{stream}' to end its step"):
                forebay.Admin(group=two, timeout=0.3).remove_server(0)
            assert server_ids(two) == [0, 1]
        with sim.step(4) as step:
            step.put("U", reference(SHAPE, "f8", 4))
        for number in (3, 4):
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
        leave(two, 0)
        with sim.step(5) as step:
            step.put("U", reference(SHAPE, "f8", 5))
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", 5))
        assert sim.lost is None


@pytest.mark.parametrize("on_loss", ["skip", "fail"])
def test_nothing_is_raised_in_the_simulation(two: forebay.LocalGroup, transport: str, on_loss: str) -> None:
    """Whatever it calls next, after its home has left."""
    options: dict[str, Any] = {"transport": transport, "on_loss": on_loss}

    def one_step(sim: forebay.Producer, number: int) -> None:
        with sim.step(number) as step:
            assert step.put("U", reference(SHAPE, "f8", number))
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))

    with consumer(two, "s") as reader, producer(two, "s", **options) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        two.add_servers(3)
        one_step(sim, 0)
        leave(two, 0)
        one_step(sim, 1)
        leave(two, 2)
        sim.array("V", dtype="f8", shape=SHAPE)
        one_step(sim, 2)
        leave(two, 1)
        sim.attr("a", 5)
        one_step(sim, 3)
        home = [
            server["server"]
            for server in group_status(two)["servers"]
            if server["connections"].get("producers")
        ]
        leave(two, home[0])
        sim.close()
        assert sim.lost is None
        with pytest.raises(forebay.Ended):
            reader.next()
    assert len(server_ids(two)) == 1


def test_two_servers_leave_at_once(own_place: Path, child: Callable[..., Child]) -> None:
    with forebay.local(servers=4, budget_bytes=BUDGET) as group:
        ranks = start_ranks(child, group.path, "s", 2, size=4)
        put_steps(ranks, range(20))
        program = "forebay.Admin(group=sys.argv[1], timeout=20).remove_server(int(sys.argv[2]))"
        leaving = [child(program, group.path, number) for number in (0, 2)]
        for one in leaving:
            one.ended()
        assert server_ids(group) == [1, 3]
        put_steps(ranks, range(20, 30))
        check_steps(group, "s", range(30), size=4)
        wait_until(lambda: steps_lacking_copies(group) == 0)
        end_ranks(ranks)


def test_of_two_servers_that_both_leave_one_stays(
    two: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    ranks = start_ranks(child, two.path, "s", 1)
    put_steps(ranks, range(20))
    program = """
try:
    forebay.Admin(group=sys.argv[1], timeout=20).remove_server(int(sys.argv[2]))
    print("left")
except forebay.Conflict as refused:
    assert "is the last server" in str(refused), refused
    print("refused")
"""
    leaving = [child(program, two.path, number) for number in (0, 1)]
    assert sorted(one.line() for one in leaving) == ["left", "refused"]
    for one in leaving:
        one.ended()
    put_steps(ranks, range(20, 30))
    check_steps(two, "s", range(30))
    end_ranks(ranks)


@pytest.mark.parametrize("servers", [3, 4])
@pytest.mark.parametrize("when", ["just before", "meanwhile"])
def test_the_backup_dies_as_the_home_leaves(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, servers: int, when: str
) -> None:
    """One death costs nothing: what a dead server keeps is not elsewhere, and one copy is not enough to go."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    with forebay.local(servers=servers, budget_bytes=BUDGET) as group:
        with producer(group, "s", replicas=2, keep=1000) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], range(400), lambda number: reference(SHAPE, "f8", number))
            backup = pid_of_server(group, 1)
            if when == "just before":
                os.kill(backup, signal.SIGKILL)
                leave_surely(group, 0)
            else:
                leaving = threading.Thread(target=leave_surely, args=[group, 0])
                leaving.start()
                wait_until(lambda: "leaves the group" in group.output())
                os.kill(backup, signal.SIGKILL)
                leaving.join()
            wait_until(lambda: server_ids(group) == list(range(2, servers)))
        with consumer(group, "s", start="oldest") as reader:
            for number in range(400):
                with reader.next() as step:
                    assert (step.number, step.torn) == (number, False)
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


def has_all_copies(group: forebay.LocalGroup, servers: list[int]) -> bool:
    """Whether these servers, and no other ones, are members as each of them says, and no step lacks a copy."""
    status = group_status(group)["servers"]
    same = all(server.get("members") == len(servers) for server in status)
    return same and [server["server"] for server in status] == servers and steps_lacking_copies(group) == 0


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stays after all"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_copies_are_made_again_when_those_that_a_leave_made_die(
    own_place: Path, replicas: int, leaves: bool
) -> None:
    """Several hold what the one that leaves, or tried to, had others hold: whoever of them is left sees to copies."""
    servers = 4 + replicas
    count = 20
    with (
        forebay.local(servers=servers, budget_bytes=BUDGET) as group,
        producer(group, stream_coordinated_by(group, servers - 1), replicas=replicas, keep=1000) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        write_steps([sim], range(count), lambda number: reference(SHAPE, "f8", number))
        if leaves:
            leave_surely(group, 0)
        else:
            with sim.step(count) as step:
                step.put("U", reference(SHAPE, "f8", count))
                with pytest.raises(forebay.Timeout, match="to end its step"):
                    forebay.Admin(group=group.path, timeout=0.2).remove_server(0)
        members = list(range(1 if leaves else 0, servers))
        wait_until(lambda: has_all_copies(group, members))
        # As many as leave enough servers for all copies.
        for _ in range(len(members) - replicas):
            kill_servers(group, members.pop(0))
            wait_until(lambda: has_all_copies(group, members))
        with consumer(group, sim.stream, start="oldest") as reader:
            for number in range(count):
                with reader.next() as step:
                    assert (step.number, step.torn) == (number, False)
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


@pytest.mark.parametrize("dies", ["while the other leaves", "when the other has stayed"])
def test_who_tries_to_leave_keeps_copies_that_nobody_else_can(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, transport: str, dies: str
) -> None:
    """Of two servers one is held up by a rank as it leaves: what the other one acknowledges meanwhile outlives that one."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    meanwhile = dies == "while the other leaves"
    options: dict[str, Any] = {"replicas": 2, "keep": 100, "transport": transport}
    ended: list[type] = []

    def leave_in_vain() -> None:
        try:
            forebay.Admin(group=group.path, timeout=20 if meanwhile else 2).remove_server(0)
        except forebay.Error as error:
            ended.append(type(error))

    with (
        forebay.local(servers=2, budget_bytes=BUDGET) as group,
        consumer(group, "held"),
        producer(group, "held", on_loss="fail") as holds,
        open_ranks(group.path, "s", 2, **options) as sim,
    ):
        holds.array("U", dtype="f8", shape=SHAPE)
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
        with holds.step(0):
            leaving = threading.Thread(target=leave_in_vain)
            leaving.start()
            wait_until(lambda: "leaves the group" in group.output())
            # Rank 0 of this one has gone to server 1 by the second step.
            write_steps(sim, range(10), lambda number: reference(SHAPE, "f8", number))
            assert not ended
            if not meanwhile:
                leaving.join()
                wait_until(lambda: steps_lacking_copies(group) == 0)
            kill_servers(group, 1)
        leaving.join()
        assert ended
        with consumer(group, "s", start="oldest") as reader:
            for number in range(10):
                with reader.next() as step:
                    assert (step.number, step.torn) == (number, False)
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_server_leaves_though_copies_will_lack(own_place: Path, transport: str, replicas: int) -> None:
    """Ranks put without a pause, at each of the two others: nobody waits for copies that only the leaver could hold."""
    over = threading.Event()
    put: list[int] = []

    def simulate(ranks: list[forebay.Producer]) -> None:
        while not over.is_set():
            write_steps(ranks, [len(put)], lambda number: reference(SHAPE, "f8", number))
            put.append(ranks[0].skipped)

    def puts_go_on() -> None:
        before = len(put)
        wait_until(lambda: len(put) > before + 20)

    options: dict[str, Any] = {"replicas": replicas, "keep": 5, "transport": transport, "on_loss": "fail"}
    with (
        forebay.local(servers=3, budget_bytes=BUDGET) as group,
        open_ranks(group.path, "s", 2, **options) as ranks,
    ):
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        simulating = threading.Thread(target=simulate, args=[ranks])
        simulating.start()
        try:
            puts_go_on()
            leave(group, 2)
            assert server_ids(group) == [0, 1]
            puts_go_on()
            leave(group, 1)
            assert server_ids(group) == [0]
            puts_go_on()
        finally:
            over.set()
            simulating.join()
        assert put == [0] * len(put)


def test_one_that_hears_late_of_a_leave_hears_that_it_was_called_off(own_place: Path) -> None:
    """It stood still when it was told: afterwards it gives the one that stays copies again."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET) as group,
        open_ranks(group.path, "s", 2, replicas=3, keep=50) as ranks,
    ):
        for rank in ranks:
            rank.array("U", dtype="f8", shape=SHAPE)
        # The home of rank 1.
        late = pid_of_server(group, 1)
        stand_still(late)
        try:
            with pytest.raises(forebay.Timeout, match="server1 to know that it leaves"):
                forebay.Admin(group=group.path, timeout=2).remove_server(2)
        finally:
            os.kill(late, signal.SIGCONT)
        write_steps(ranks, range(5), lambda number: reference(SHAPE, "f8", number))
        wait_until(lambda: has_all_copies(group, [0, 1, 2]))


def test_what_is_handed_over_again_and_again_is_held_once(own_place: Path) -> None:
    """A server comes and another one leaves, ten times: the same memory is not held, or counted, more than before."""
    with (
        forebay.local(servers=4, budget_bytes=BUDGET) as group,
        producer(group, "s", replicas=2, keep=20) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        write_steps([sim], range(20), lambda number: reference(SHAPE, "f8", number))
        wait_until(lambda: has_all_copies(group, [0, 1, 2, 3]))
        staged = total(group, "staged_bytes")
        for gone in range(10):
            group.add_servers()
            leave_surely(group, gone)
            wait_until(lambda gone=gone: has_all_copies(group, list(range(gone + 1, gone + 5))))
        # On one host two servers hold it now, of which one counted before.
        assert total(group, "staged_bytes") <= 2 * staged
        write_steps([sim], range(20, 23), lambda number: reference(SHAPE, "f8", number))
        # What is free by now is given back, and nothing else.
        wait_until(lambda: total(group, "arena_bytes") <= 3 * staged)
        with consumer(group, "s", start="oldest") as reader:
            for number in range(3, 23):
                with reader.next() as step:
                    assert step.number == number
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


def leave_surely(group: forebay.LocalGroup, number: int) -> None:
    """Has a server leave, whatever befalls the others; one that has left may not be there to be asked again."""
    forebay.Admin(group=group.path, timeout=30).remove_server(number)


def test_of_servers_that_all_leave_one_stays_for_the_ranks(two: forebay.LocalGroup) -> None:
    """Nothing is held when they do, and the rank may be on its way from one to the other."""
    admin = forebay.Admin(group=two.path, timeout=20)
    over, refused, put = threading.Event(), [], []

    def simulate() -> None:
        with producer(two, "s", replicas=2, on_loss="fail") as sim:
            sim.array("U", dtype="f8", shape=(100,))
            while not over.wait(0.002):
                with sim.step(len(put)) as step:
                    step.put("U", np.full(100, float(len(put))))
                put.append(sim.skipped)

    def leave(number: int) -> None:
        try:
            admin.remove_server(number)
        except forebay.Conflict as error:
            refused.append(str(error))

    def puts_go_on() -> None:
        before = len(put)
        wait_until(lambda: len(put) > before + 20)

    threads = [threading.Thread(target=simulate), *(threading.Thread(target=leave, args=[n]) for n in (0, 1))]
    with consumer(two, "s"):
        threads[0].start()
        puts_go_on()
        for thread in threads[1:]:
            thread.start()
        for thread in threads[1:]:
            thread.join()
        assert len(refused) == 1
        assert "ranks of stream 's' use it" in refused[0]
        puts_go_on()
        over.set()
        threads[0].join()
    assert put == [0] * len(put)


def test_the_last_server_does_not_leave_with_data(one: forebay.LocalGroup) -> None:
    admin = forebay.Admin(group=one)
    with producer(one, "s", keep=10) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with pytest.raises(forebay.Conflict, match="is the last server, and ranks of stream 's' use it"):
            admin.remove_server(0)
        with consumer(one, "s") as reader:
            with sim.step(3) as step:
                step.put("U", reference(SHAPE))
            with reader.next():
                pass
    wait_until(lambda: group_status(one)["servers"][0]["connections"]["producers"] == 0)
    with pytest.raises(forebay.Conflict, match=r"it holds 1 steps, of 24576 bytes: .* --discard"):
        admin.remove_server(0)
    with pytest.raises(forebay.NotFound, match=r"no server7; there are server0"):
        admin.remove_server(7)
    admin.remove_server(0, discard=True)
    one.servers[0].process.wait(10)
    assert not Path(one.path).exists()


def test_discard_gives_up_only_what_finds_no_room(own_place: Path) -> None:
    """Servers leave one after the other while a rank ends step after step, of which there is one copy."""
    over, put = threading.Event(), [0]
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:

        def simulate() -> None:
            with producer(group, "s", keep=100_000, on_loss="fail") as sim:
                sim.array("U", dtype="f8", shape=SHAPE)
                while not over.is_set():
                    with sim.step(put[0]) as step:
                        step.put("U", reference(SHAPE, "f8", put[0]))
                    put[0] += 1

        thread = threading.Thread(target=simulate)
        thread.start()
        admin = forebay.Admin(group=group.path, timeout=30)
        try:
            for _ in range(8):
                before = put[0]
                wait_until(lambda before=before: put[0] > before + 10)
                group.add_servers()
                admin.remove_server(min(server_ids(Path(group.path))), discard=True)
        finally:
            over.set()
            thread.join()
        with consumer(group, "s", start=(1, 0)) as reader:
            for number in range(put[0]):
                with reader.next() as step:
                    assert (step.number, step.torn) == (number, False)
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", number))


def test_a_server_whose_steps_find_no_room_stays(
    own_place: Path, hosts: list[str], child: Callable[..., Child]
) -> None:
    """Nothing is lost; with `discard` it leaves, and what found no room is told to be lost."""
    group = own_place / "g.json"
    inside = [["ip", "netns", "exec", name] for name in hosts]
    servers = []
    try:
        for number, budget in enumerate(("32M", "4M")):
            serve = [
                FOREBAY,
                "serve",
                "--group",
                group,
                "--budget",
                budget,
                "--bind",
                f"10.99.0.{number + 1}",
            ]
            servers.append(subprocess.Popen([*inside[number], *map(str, serve)]))
            wait_until(lambda number=number: group.exists() and len(server_ids(group)) == number + 1)
        ranks = [
            child(RANK, group, "auto", "s", rank, 2, 1, "local", 6000, inside=inside[0]) for rank in range(2)
        ]
        for rank in ranks:
            rank.expect("open")
        put_steps(ranks, range(5))
        leave = [*inside[1], FOREBAY, "leave", "0", "--group", group]
        told = subprocess.run(
            [*leave, "--timeout", "2"], capture_output=True, text=True, timeout=60, check=False
        )
        assert told.stderr.startswith(
            "forebay: server0 cannot leave in time, and stays. It waited for another server"
        )
        assert "there is no room for a copy of" in told.stderr
        assert (told.returncode, server_ids(group)) == (1, [0, 1])
        put_steps(ranks, range(5, 6))
        reader = child(READER, group, 0, 6, 6000, inside=inside[1])
        reader.expect("whole")
        reader.ended()
        subprocess.run([*leave, "--discard"], check=True, timeout=60)
        assert server_ids(group) == [1]
        reader = child(READER, group, 0, 6, 6000, inside=inside[1])
        assert reader.line() == "Lost"
        reader.ended()
        end_ranks(ranks)
    finally:
        for server in servers:
            server.terminate()
            server.wait()


def test_arrays_that_are_held_outlive_the_server(two: forebay.LocalGroup) -> None:
    stream = stream_coordinated_by(two, 1)
    with consumer(two, stream) as reader, producer(two, stream) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        held = []
        for number in range(5):
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))
            with reader.next() as found:
                held.append(found["U"][...])
        leave(two, 0)
        for number in range(5, 40):
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
        for number, array in enumerate(held):
            np.testing.assert_array_equal(array, reference(SHAPE, "f8", number))
        del held, array
    wait_until(lambda: is_given_back(two))


def test_blocks_that_were_to_go_there_go_elsewhere(own_place: Path, transport: str) -> None:
    """The placement of a rank names a server that leaves: its home takes what was to go there."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET) as group,
        consumer(group, "s", transport=transport) as reader,
        producer(group, "s", transport=transport, placement="by-block", policy="block") as sim,
    ):
        sim.array("U", dtype="f8", shape=(60, 50))
        for number in range(30):
            whole = reference((60, 50), "f8", number)
            with sim.step(number) as step:
                for block in range(6):
                    rows = slice(10 * block, 10 * block + 10)
                    step.put("U", whole[rows], offset=(10 * block, 0), number=block)
            with reader.next() as found:
                assert (found.number, found.torn) == (number, False)
                np.testing.assert_array_equal(found["U"][...], whole)
            if number in (10, 20):
                leave(group, max(server_ids(group)))
        assert sim.lost is None


def test_the_command(own_place: Path, two: forebay.LocalGroup, child: Callable[..., Child]) -> None:

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [str(FOREBAY), "leave", "--group", two.path, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    assert command("server9").stderr == "forebay: the group has no server9; there are server0, server1\n"
    assert command("server1").stdout == "server1 has left; the group has 1 server.\n"
    assert command("0").stdout == "server0 has left; it was the last one of the group.\n"
    assert command("0").returncode == 3


@pytest.mark.parametrize("which", ["coordinator", "another one"])
def test_a_pipeline_goes_on(own_place: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """Each step is run once, by all workers that were there when it began: no execution is cut short."""
    monkeypatch.setenv("FOREBAY_LOG", "info")
    (own_place / "sum.py").write_text(HELD_SUMS)
    out, wait = own_place / "sums", own_place / "sums.wait"
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)
        with producer(group, stream, policy="block", keep=100) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], range(5), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["last_step"] == 4)
            wait.touch()
            write_steps([sim], range(5, 20), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["running_step"] == 5)
            leaving = threading.Thread(target=leave, args=[group, 2 if which == "coordinator" else 1])
            leaving.start()
            wait_until(lambda: "leaves the group" in group.output())
            assert leaving.is_alive()
            wait.unlink()
            write_steps([sim], range(20, 40), lambda number: reference(SHAPE, "f8", number))
            leaving.join()

            def lines() -> list[list[str]]:
                return [line.split() for line in out.read_text().splitlines()] if out.exists() else []

            wait_until(lambda: group_status(group)["pipelines"][0]["last_step"] == 39)
        (status,) = group_status(group)["pipelines"]
        counts = [status[count] for count in ("executed", "failed", "repeated", "missed")]
        assert counts == [40, 0, 0, 0]
        assert status["workers_ready"] == status["workers_expected"] == 2
        assert [int(number) for number, _, _ in lines()] == list(range(40))
        assert [size for _, size, _ in lines()] == sorted((size for _, size, _ in lines()), reverse=True)
        assert [size for number, size, _ in lines() if int(number) <= 5] == ["3"] * 6
        assert lines()[-1][1] == "2"
        for number, _, total in lines():
            assert float(total) == pytest.approx(reference(SHAPE, "f8", int(number)).sum())
        admin.destroy_pipeline("sum")


def test_a_server_that_stays_gets_its_worker_back(own_place: Path) -> None:
    """A rank is in a step for longer than the server is willing to wait."""
    (own_place / "sum.py").write_text(SUMS)
    out = own_place / "sums"
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream="s")
        with producer(group, "s", policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            with sim.step(0) as step:
                step.put("U", reference(SHAPE))
                with pytest.raises(forebay.Timeout, match="to end its step"):
                    forebay.Admin(group=group, timeout=0.2).remove_server(0)
            wait_until(lambda: group_status(group)["pipelines"][0]["workers_ready"] == 2)
            write_steps([sim], range(1, 4), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["executed"] == 4)
        assert out.read_text().splitlines()[-1].split()[:2] == ["3", "2"]
        admin.destroy_pipeline("sum")


def test_the_space_outlives_servers_that_leave(own_place: Path, transport: str) -> None:
    """What they hold and what they know of others' blocks; puts and reads go on meanwhile."""
    shape = (211, 190, 17)
    whole = reference(shape)
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        with forebay.Space(group=group.path, transport=transport, timeout=20) as mine:
            for step in range(3):
                for begin in range(0, 200, 50):
                    end = begin + 50 if begin < 150 else 211
                    mine.put("T", step + whole[begin:end], step=step, offset=(begin, 0, 0), shape=shape)
                mine.put("small", np.arange(7.0) * step, step=step)
            for step in range(3, 7):
                group.add_servers()
                leave(group, min(server_ids(group)))
                mine.put("T", step + whole, step=step)
                mine.put("small", np.arange(7.0) * step, step=step)
                with forebay.Space(group=group.path, transport=transport, timeout=20) as other:
                    for space in (mine, other):
                        for known in range(step + 1):
                            np.testing.assert_array_equal(space.get("T", step=known), known + whole)
                            np.testing.assert_array_equal(
                                space.get("small", step=known), np.arange(7.0) * known
                            )
            for step in range(7):
                mine.remove("T", step=step)
                mine.remove("small", step=step)
        # What a reader has mapped is used again when it is gone.
        wait_until(lambda: all(server["staged_bytes"] == 0 for server in group_status(group)["servers"]))


def test_a_get_waits_while_one_server_after_the_other_leaves(own_place: Path) -> None:
    """Each that goes ends the question at its own; it is asked again, for as long as the deadline allows."""
    with (
        forebay.local(servers=2, budget_bytes=BUDGET) as group,
        forebay.Space(group=group.path, timeout=60) as space,
    ):
        got: list[float] = []

        def get() -> None:
            with forebay.Space(group=group.path, timeout=60) as other:
                got.extend(other.get("T", step=3))

        getting = [threading.Thread(target=get) for _ in range(4)]
        for thread in getting:
            thread.start()
        for gone in range(4):
            # Longer than a group takes to do without one; who gave up would end now.
            getting[gone].join(timeout=1.5)
            assert all(thread.is_alive() for thread in getting)
            group.add_servers()
            leave_surely(group, gone)
        space.put("T", np.arange(5.0), step=3)
        for thread in getting:
            thread.join()
        assert got == [*np.arange(5.0)] * 4


def test_a_large_run_outlives_an_owner_that_leaves(own_place: Path) -> None:
    """Who knows blocks of its tiles, which other servers hold, and holds blocks that others know."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET) as group,
        forebay.Consumer("s", group=group.path, timeout=20, window=4) as reader,
        many_ranks(group) as sim,
    ):
        for number in range(2):
            write_large(sim, number)
        held = [reader.next(), reader.next()]
        coordinator = next(stream["server"] for stream in group_status(group)["streams"])
        leave(group, (coordinator + 1) % 3)
        for number, step in enumerate(held):
            np.testing.assert_array_equal(step["U"][...], reference(LARGE, "f8", number))
            assert {block.rank for block in step["U"].blocks()} == set(range(RANKS))
        write_large(sim, 2)
        with reader.next() as step:
            np.testing.assert_array_equal(step["U"][...], reference(LARGE, "f8", 2))
        del held, step
