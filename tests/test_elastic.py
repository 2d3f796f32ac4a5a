"""Servers that join, and servers that die, while everything else goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.commands import FOREBAY, command
from support.deaths import kill_servers
from support.groups import BUDGET, group_status, is_given_back, server_ids, stream_coordinated_by
from support.pipelines import HELD_SUMS, SUMS
from support.processes import stand_still
from support.sessions import check_it_works, consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)

SIMULATION = """
path = sys.argv[1]
with forebay.Producer("s", group=path, timeout=20, policy="block") as sim:
    sim.array("U", dtype="f8", shape=(60, 50))
    print("open")
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
    number = 0
    while not asked.is_set() or number < 50:
        with sim.step(number) as step:
            step.put("U", reference((60, 50), "f8", number))
        number += 1
    sim.flush()
    print(number)
"""


def try_streams(group: Any, names: list[str]) -> set[int]:
    """Whether a step of each of these streams comes whole; the servers that coordinate them."""
    for name in names:
        with consumer(group, name, start="run") as reader, producer(group, name) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], [3], lambda number: reference(SHAPE, "f8", number))
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", 3))
    return {stream["server"] for stream in group_status(group)["streams"] if stream["name"] in names}


def test_servers_join_while_a_simulation_runs(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """No step is missed by a reader, none is wrong, and what comes later is spread over all servers."""
    simulation = child(SIMULATION, one.path)
    simulation.expect("open")
    with consumer(one) as reader:
        read = 0
        for _ in range(2):
            one.add_servers()
            for _ in range(20):
                with reader.next() as step:
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
                    assert step.missed == 0
                    read += 1
        assert server_ids(one) == [0, 1, 2]
        simulation.say()
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
            assert step.missed == 0
    assert int(simulation.line()) >= 50
    simulation.ended()
    assert try_streams(one, [f"stream{number}" for number in range(24)]) == {0, 1, 2}
    status = group_status(one)
    assert status["epoch"] == 3
    assert status["lost"] == []
    wait_until(lambda: is_given_back(one))


def test_local_servers_are_in_the_order_of_their_numbers(own_place: Path) -> None:
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        group.add_servers(2)
        assert [server["pid"] for server in group_status(group)["servers"]] == [
            server.pid for server in group.servers.values()
        ]


def test_streams_stay_where_they_are(one: forebay.LocalGroup) -> None:
    """Readers and ranks find a stream that was there before the servers joined among which it would be otherwise."""
    names = [f"stream{number}" for number in range(12)]
    whole = reference(SHAPE)
    with open_ranks(one, "first", 1):
        opened = [producer(one, name, rank=0, size=2) for name in names]
        one.add_servers(2)
        for name, first in zip(names, opened, strict=True):
            with first, producer(one, name, rank=1, size=2) as second, consumer(one, name) as reader:
                for rank in (first, second):
                    rank.array("U", dtype="f8", shape=SHAPE)
                write_steps([first, second], [0], lambda _: whole)
                with reader.next() as found:
                    np.testing.assert_array_equal(found["U"][...], whole)
        found = {stream["name"]: stream["server"] for stream in group_status(one)["streams"]}
        assert {found[name] for name in names} == {0}


def test_a_server_that_dies_is_given_up(two: forebay.LocalGroup) -> None:
    """Of two, the other one and the witness are enough; new streams go on, and others can join."""
    names = [f"stream{number}" for number in range(12)]
    assert try_streams(two, names) == {0, 1}
    (pid,) = kill_servers(two, 0)
    wait_until(lambda: server_ids(two) == [1])
    status = group_status(two)
    assert status["lost"] == [{"server": 0, "pid": pid, "epoch": status["epoch"], "back_as": None}]
    assert [server["gone"] for server in status["servers"]] == [[]]
    assert try_streams(two, [f"other{number}" for number in range(12)]) == {1}
    two.add_servers()
    assert server_ids(two) == [1, 2]
    assert try_streams(two, [f"third{number}" for number in range(12)]) == {1, 2}
    # Those whose server died are known to the one that was left then: how they ended is not forgotten.
    assert try_streams(two, names) == {1}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_run_that_had_ended_is_not_waited_for(two: forebay.LocalGroup, victim: int) -> None:
    """Its ranks had their homes on both servers; the one that is left knows only of some that they have gone."""
    check_it_works(two)
    wait_until(lambda: group_status(two)["streams"][0]["phase"] == "finished")
    kill_servers(two, victim)
    wait_until(lambda: server_ids(two) == [1 - victim])
    for _ in range(2):
        check_it_works(two)
    wait_until(lambda: is_given_back(two))


def test_half_of_four_servers_die_at_once(own_place: Path) -> None:
    with forebay.local(servers=4, budget_bytes=BUDGET) as group:
        kill_servers(group, 1, 3)
        wait_until(lambda: server_ids(group) == [0, 2])
        check_it_works(group)
        assert try_streams(group, [f"stream{number}" for number in range(12)]) == {0, 2}


def test_more_than_half_die_at_once(own_place: Path) -> None:
    """Nobody can know what those decided: the group stays as it is, and says who does not answer."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        pids = kill_servers(group, 0, 2)
        wait_until(lambda: sum("error" in server for server in group_status(group)["servers"]) == 2)
        assert server_ids(group) == [0, 1, 2]
        silent = [server["pid"] for server in group_status(group)["servers"] if "error" in server]
        assert silent == pids
        with pytest.raises(forebay.Timeout, match="not up"):
            group.add_servers(timeout=1)


def test_servers_that_die_while_they_join(one: forebay.LocalGroup) -> None:
    """At every point on their way: the group is soon without them, and nobody was kept waiting."""
    serve = [FOREBAY, "serve", "--group", one.path, "--budget", "32M"]
    for attempt in range(16):
        joiner = subprocess.Popen(list(map(str, serve)), stderr=subprocess.DEVNULL)
        time.sleep(attempt * 0.0015)
        joiner.kill()
        joiner.wait()
    wait_until(lambda: server_ids(one) == [0])
    check_it_works(one)
    one.add_servers()
    assert len(server_ids(one)) == 2
    check_it_works(one)


def test_servers_come_and_go_for_a_while(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """A server of its own holds what is read here: others that join and die at once do not disturb it."""
    simulation = child(SIMULATION, two.path)
    simulation.expect("open")
    stream = next(stream for stream in group_status(two)["streams"] if stream["name"] == "s")
    with consumer(two) as reader:
        for _ in range(4):
            two.add_servers(2)
            # Neither the stream's coordinator nor the rank's home.
            others = [number for number in server_ids(two) if number not in (0, 1)]
            assert stream["server"] not in others
            kill_servers(two, *others)
            for _ in range(5):
                with reader.next() as step:
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
        simulation.say()
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
    assert int(simulation.line()) >= 50
    simulation.ended()
    wait_until(lambda: server_ids(two) == [0, 1])
    assert len(group_status(two)["lost"]) == 8


def test_add_by_command(own_place: Path) -> None:
    group = own_place / "g.json"
    missing = command("add", "--group", group)
    assert missing.returncode == 3
    assert "start a group with `forebay up`" in missing.stderr
    assert command("up", "--group", group, "--budget", "32M").returncode == 0
    try:
        added = command("add", "-n", "2", "--group", group, "--budget", "32M")
        assert added.stdout == "server1, server2 have joined; the group has 3 servers.\n"
        assert forebay.Admin(group=group, timeout=20).add_servers() == [3]
        assert server_ids(group) == [0, 1, 2, 3]
        addresses = [server["addresses"] for server in json.loads(group.read_text())["servers"]]
        assert all(any(address.startswith("tcp:127.0.0.1:") for address in of_one) for of_one in addresses)
        check_it_works(str(group))
        assert command("add", "0", "--group", group).returncode == 2
        assert command("add", "2", "-n", "2", "--group", group).returncode == 2
        with pytest.raises(forebay.Invalid, match="count"):
            forebay.Admin(group=group).add_servers(0)
    finally:
        assert command("down", "--group", group).stdout == "4 servers ended.\n"
    assert list(own_place.glob("*g.json*")) == []


RANKS = """
path, transport, stream, rank = sys.argv[1:]
rank = int(rank)
begin, end = cut(60, 2)[rank]
with forebay.Producer(stream, rank=rank, size=2, group=path, transport=transport, timeout=20) as sim:
    sim.array("U", dtype="f8", shape=(60, 50))
    if rank == 0:
        sim.attr("n", 7)
    print("open")
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
    number = 0
    while not asked.is_set():
        with sim.step(number) as step:
            step.put("U", reference((60, 50), "f8", number)[begin:end], offset=(begin, 0))
        number += 1
        time.sleep(0.002)
    print("lost" if sim.lost else "kept")
"""


@pytest.mark.parametrize("coordinator", [0, 1], ids=["of all", "of a home"])
def test_a_simulation_goes_on_when_a_server_dies(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str, coordinator: int
) -> None:
    """Each server is the home of a rank; one of them also coordinates the stream. Whole steps come again soon."""
    stream = stream_coordinated_by(two, coordinator)
    ranks = [child(RANKS, two.path, transport, stream, rank) for rank in range(2)]
    for rank in ranks:
        rank.expect("open")
    with consumer(two, stream, transport=transport) as reader:
        for _ in range(5):
            with reader.next() as step:
                np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
        kill_servers(two, 0)
        whole, lost, last = 0, 0, -1
        deadline = time.monotonic() + 30
        while whole < 20:
            assert time.monotonic() < deadline, f"{whole} whole steps, {lost} lost"
            with reader.next() as step:
                assert step.number > last
                last = step.number
                try:
                    found = step["U"][...]
                except (forebay.Lost, forebay.Unreachable, forebay.NotCovered):
                    lost += 1
                    assert lost < 1500
                    continue
                np.testing.assert_array_equal(found, reference(SHAPE, "f8", step.number))
                assert step.attrs["n"] == 7
                whole += not step.torn
    for rank in ranks:
        rank.say()
        rank.expect("kept")
        rank.ended()
    assert server_ids(two) == [1]
    wait_until(lambda: is_given_back(two))


@pytest.mark.parametrize(("transport", "keeps"), [("shm", True), ("tcp", False)])
def test_a_reader_misses_nothing_when_a_coordinator_dies(
    own_place: Path, child: Callable[..., Child], transport: str, keeps: bool
) -> None:
    """The blocks are on another server, and that one tells the next coordinator of them. Steps go on in order."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        ranks = [child(RANKS, group.path, transport, stream, rank) for rank in range(2)]
        for rank in ranks:
            rank.expect("open")
        kept: list[tuple[int, int, Any]] = []
        with consumer(group, stream, transport=transport, window=3) as reader:
            last = -1
            for count in range(60):
                if count == 20:
                    kill_servers(group, 2)
                with reader.next() as step:
                    assert last in (-1, step.number - 1)
                    assert step.missed == 0
                    assert not step.torn
                    last = step.number
                    found = step["U"][...]
                    np.testing.assert_array_equal(found, reference(SHAPE, "f8", last))
                    assert step.attrs["n"] == 7
                    if keeps and count % 5 == 0:
                        kept.extend((last, block.offset[0], block.data) for block in step.blocks("U"))
            for number, begin, data in kept:
                whole = reference(SHAPE, "f8", number)
                np.testing.assert_array_equal(data, whole[begin : begin + len(data)])
                del data
            kept.clear()
            for rank in ranks:
                rank.say()
                rank.expect("kept")
                rank.ended()
            for step in reader:
                assert step.number == last + 1
                last = step.number
        wait_until(lambda: is_given_back(group))


# The same, but each execution lasts as long as there is a file beside its output.


def test_a_pipeline_goes_on_when_its_coordinator_dies(own_place: Path, child: Callable[..., Child]) -> None:
    """On the workers that are left, with the step after the last one that all have run."""
    (own_place / "sum.py").write_text(SUMS)
    out = own_place / "sums"
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)
        ranks = [child(RANKS, group.path, "auto", stream, rank) for rank in range(2)]
        for rank in ranks:
            rank.expect("open")

        def lines() -> list[list[str]]:
            return [line.split() for line in out.read_text().splitlines()] if out.exists() else []

        wait_until(lambda: len(lines()) > 10)
        kill_servers(group, 2)
        wait_until(lambda: sum(size == "2" for _, size, _ in lines()) > 10)
        for rank in ranks:
            rank.say()
            rank.expect("kept")
            rank.ended()
        wait_until(
            lambda: group_status(group)["pipelines"][0]["last_step"] == int(lines()[-1][0]), timeout=60
        )
        wait_until(lambda: group_status(group)["pipelines"][0]["running_step"] is None, timeout=60)
        numbers = [int(number) for number, _, _ in lines()]
        # Each was run once to its end; the one in which the server died may have been, and is run once more.
        assert sorted(set(numbers)) == list(range(numbers[-1] + 1))
        assert len(numbers) - len(set(numbers)) <= 1
        for number, _, total in lines():
            assert float(total) == pytest.approx(reference(SHAPE, "f8", int(number)).sum())
        (status,) = group_status(group)["pipelines"]
        assert status["failed"] == 0, status
        assert len(set(numbers)) <= status["executed"] <= len(numbers)
        admin.destroy_pipeline("sum")


def test_a_pipeline_runs_again_what_a_server_died_in(own_place: Path, child: Callable[..., Child]) -> None:
    """Its workers are amid a step, and wait for each other: those that are left run it once more, and no step is missed."""
    (own_place / "sum.py").write_text(HELD_SUMS)
    out, wait = own_place / "sums", own_place / "sums.wait"
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 0)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)
        with producer(group, stream, policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], [0], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["executed"] == 1)
            wait.touch()
            write_steps([sim], range(1, 3), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["running_step"] == 1)
            kill_servers(group, 2)
            wait_until(lambda: server_ids(group) == [0, 1])
            wait.unlink()
            write_steps([sim], range(3, 6), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["executed"] == 6)
        (status,) = group_status(group)["pipelines"]
        assert (status["failed"], status["missed"], status["repeated"]) == (0, 0, 1)
        assert status["workers_ready"] == 2
        lines = [line.split() for line in out.read_text().splitlines()]
        assert [int(number) for number, _, _ in lines] == list(range(6))
        admin.destroy_pipeline("sum")


@pytest.mark.parametrize("coordinator", [2, 0], ids=["elsewhere", "at home"])
@pytest.mark.parametrize("then", ["goes on", "leaves"])
def test_what_was_run_is_counted_when_the_coordinator_dies_between_two_steps(
    own_place: Path, then: str, coordinator: int
) -> None:
    """Nothing runs then: none is missed, also if the next coordinator leaves before it runs any. A step is run again only
    if it is put again, since the rank had its home there, too.
    """
    (own_place / "sum.py").write_text(SUMS)
    out = own_place / "sums"
    with forebay.local(servers=4, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)

        def pipeline() -> dict[str, Any]:
            found = [pipeline for pipeline in group_status(group)["pipelines"] if pipeline["ended"] is None]
            return found[0] if found else {"executed": None, "last_step": None}

        with producer(group, stream, policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], range(3), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: pipeline()["executed"] == 3)
            kill_servers(group, coordinator)
            wait_until(lambda: (pipeline()["executed"], pipeline()["last_step"]) == (3, 2))
            if then == "leaves":
                assert command("leave", pipeline()["server"], "--group", group.path).returncode == 0
                wait_until(lambda: (pipeline()["executed"], pipeline()["last_step"]) == (3, 2))
            write_steps([sim], range(3, 6), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: pipeline()["last_step"] == 5)
        status = pipeline()
        assert [status[name] for name in ("executed", "failed", "missed")] == [6, 0, 0], status
        numbers = [int(line.split()[0]) for line in out.read_text().splitlines()]
        assert sorted(set(numbers)) == list(range(6))
        assert status["repeated"] == len(numbers) - 6 <= (coordinator == 0), status
        admin.destroy_pipeline("sum")


def test_each_step_is_counted_once_that_has_no_room_when_the_coordinator_dies(own_place: Path) -> None:
    """A later one waits, so that the one that runs is dropped by the next coordinator: it is missed, or was run."""
    (own_place / "sum.py").write_text(HELD_SUMS)
    out, wait = own_place / "sums", own_place / "sums.wait"
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)

        def pipeline() -> dict[str, Any]:
            found = group_status(group)["pipelines"]
            return found[0] if found else {"last_step": None, "running_step": None, "workers_ready": 0}

        with producer(group, stream, policy="latest") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            write_steps([sim], [0], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: pipeline()["last_step"] == 0)
            wait.touch()
            write_steps([sim], [1], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: pipeline()["running_step"] == 1)
            write_steps([sim], [2], lambda number: reference(SHAPE, "f8", number))
            kill_servers(group, 2)
            wait_until(lambda: pipeline()["running_step"] is not None and pipeline()["workers_ready"] == 2)
            wait.unlink()
            wait_until(lambda: (pipeline()["last_step"], pipeline()["running_step"]) == (2, None))
            write_steps([sim], [3], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: pipeline()["last_step"] == 3)
        status = pipeline()
        assert (status["executed"] + status["missed"], status["failed"]) == (4, 0), status
        admin.destroy_pipeline("sum")


def test_a_pipeline_runs_again_what_failed_as_its_coordinator_died(own_place: Path) -> None:
    """A worker dies with its server, which coordinates the pipeline: the others fail before they know of that."""
    (own_place / "sum.py").write_text(SUMS)
    out = own_place / "sums"
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream=stream)

        def workers() -> list[dict[str, Any]]:
            return sorted(
                group_status(group)["pipelines"][0]["workers"], key=lambda worker: int(worker["server"])
            )

        def executing() -> list[int]:
            return [worker["server"] for worker in workers() if worker["executing"]]

        with producer(group, stream, policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            server = next(server["pid"] for server in group_status(group)["servers"] if server["server"] == 2)
            worker = workers()[2]["pid"]
            stand_still(worker)
            write_steps([sim], [0], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: executing() == [0, 1, 2])
            stand_still(server)
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: executing() == [])
            os.kill(server, signal.SIGKILL)
            write_steps([sim], range(1, 4), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: group_status(group)["pipelines"][0]["executed"] == 4)
        (status,) = group_status(group)["pipelines"]
        assert (status["failed"], status["missed"], status["repeated"]) == (0, 0, 1)
        assert [line.split()[:2] for line in out.read_text().splitlines()] == [
            [str(n), "2"] for n in range(4)
        ]
        admin.destroy_pipeline("sum")


def test_a_pipeline_gets_workers_on_servers_that_join(own_place: Path, child: Callable[..., Child]) -> None:
    """They take part when they are ready; nothing waits for them, and no step is missed."""
    (own_place / "sum.py").write_text(SUMS)
    out = own_place / "sums"
    with forebay.local(servers=1, budget_bytes=BUDGET) as group:
        admin = forebay.Admin(group=group.path, timeout=30)
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config={"out": str(out)}, stream="s")
        with producer(group, "s", policy="block") as sim:
            sim.array("U", dtype="f8", shape=SHAPE)

            def lines() -> list[list[str]]:
                return [line.split() for line in out.read_text().splitlines()] if out.exists() else []

            for number in range(2000):
                write_steps([sim], [number], lambda number: reference(SHAPE, "f8", number))
                if number == 5:
                    group.add_servers()
                if any(size == "2" for _, size, _ in lines()):
                    break
                time.sleep(0.01)
            wait_until(lambda: len(lines()) == number + 1)
        assert [int(number) for number, _, _ in lines()] == list(range(number + 1))
        assert lines()[-1][1] == "2"
        admin.destroy_pipeline("sum")


def test_a_worker_takes_part_when_it_has_warmed_up(own_place: Path) -> None:
    """Until then its server holds data already, and the others execute every step without it."""
    warm = (
        "    def warm_up(self):\n        while not os.path.exists(self.config['warm']): time.sleep(0.01)\n\n"
    )
    code = SUMS.replace("    def execute", f"{warm}    def execute", 1)
    (own_place / "sum.py").write_text(f"import os, time\n{code}")
    out, go = own_place / "sums", own_place / "warm"
    go.touch()
    with forebay.local(servers=1, budget_bytes=BUDGET) as group:
        admin = forebay.Admin(group=group.path, timeout=30)
        config = {"out": str(out), "warm": str(go)}
        admin.create_pipeline("sum", f"{own_place}/sum.py:Sum", config=config, stream="s")

        def ready() -> tuple[int, int]:
            """Workers that take part, and that are there."""
            (pipeline,) = group_status(group)["pipelines"]
            return pipeline["workers_ready"], len(pipeline["workers"])

        def sizes() -> list[int]:
            return [int(line.split()[1]) for line in out.read_text().splitlines()] if out.exists() else []

        with producer(group, "s", policy="block", placement=lambda block: block.number) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            go.unlink()
            group.add_servers()
            wait_until(lambda: ready() == (1, 2))
            write_steps([sim], range(3), lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: sizes() == [1, 1, 1])
            assert ready() == (1, 2)
            go.touch()
            wait_until(lambda: ready() == (2, 2))
            write_steps([sim], [3], lambda number: reference(SHAPE, "f8", number))
            wait_until(lambda: sizes() == [1, 1, 1, 2])
        admin.destroy_pipeline("sum")
