"""Expressions while servers die, stand still and come, amid an evaluation; and what an evaluation takes of a server's memory."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.deaths import kill_servers, stopped_server
from support.groups import pid_of_server, server_numbers, stream_coordinated_by
from support.sessions import open_ranks
from support.waiting import wait_until

import forebay

SHAPE = (96, 160, 160)
RANKS = 4
STEPS = 6
TEXT = "p = percentile(sqrt(abs(U)), 99); n = count(gradient_magnitude(U) > 1.5); p > 0 and n >= 0"
"""In several rounds along the tree, with neighbours that other servers hold."""


def field(number: int) -> NDArray[np.float64]:
    return np.random.default_rng(number).normal(size=SHAPE)


def expected(array: NDArray[np.float64]) -> tuple[float, int]:
    slopes = np.sqrt(sum(slope**2 for slope in np.gradient(array)))
    return float(np.percentile(np.sqrt(np.abs(array)), 99)), int((slopes > 1.5).sum())


def put(ranks: list[forebay.Producer], number: int) -> None:
    rows = SHAPE[0] // RANKS
    with contextlib.ExitStack() as stack:
        for rank, sim in enumerate(ranks):
            step = stack.enter_context(sim.step(number))
            step.put("U", field(number)[rows * rank : rows * (rank + 1)], offset=(rows * rank, 0, 0))


def status(group: forebay.LocalGroup, watch: forebay.Subscription) -> dict[str, Any]:
    """What the group says of a subscription."""
    all_of_them = forebay.Admin(group=group.path).subscriptions()
    return next(one for one in all_of_them if one["name"] == watch.name)


@pytest.mark.parametrize(
    "what",
    ["coordinator dies", "another dies", "coordinator stands still", "another stands still", "two join"],
)
def test_what_happens_amid_an_evaluation_changes_no_value(what: str) -> None:
    """Whichever server it hits: the root of the tree, a leaf, or the one that coordinates."""
    with forebay.local(servers=4) as group:
        stream = stream_coordinated_by(group, 1)
        others = [number for number in server_numbers(group) if number != 1]
        watch = forebay.subscribe(TEXT, stream=stream, group=group.path, timeout=60)
        with watch, open_ranks(group, stream, RANKS, replicas=2, timeout=60) as ranks:
            for sim in ranks:
                sim.array("U", dtype="f8", shape=SHAPE)
            watch.wait_active()
            for number in range(STEPS):
                put(ranks, number)
                if number not in (1, 3):
                    continue
                # The one before was evaluated: this one is being.
                wait_until(lambda number=number: status(group, watch)["evaluated"] >= number)
                hit = 1 if what.startswith("coordinator") else others[number % len(others)]
                if what.endswith("dies") and number == 1:
                    kill_servers(group, hit)
                elif what.endswith("stands still"):
                    with stopped_server(group, hit), forebay.Admin(group=group.path, timeout=1) as admin:
                        # For as long as others need to notice.
                        wait_until(lambda: any("error" in server for server in admin.status()["servers"]))
                elif what == "two join" and number == 1:
                    group.add_servers(2)
            for number in range(STEPS):
                with watch.next(timeout=60) as event:
                    assert event.step == number
                    assert (event.values["p"], event.values["n"]) == expected(field(number))
            watch.remove()


SLOW = """
import pathlib, time
import forebay

here = pathlib.Path(__file__).parent

class Slow(forebay.Pipeline):
    def execute(self, step, comm):
        if comm.rank == 0:
            (here / "begun").touch()
        deadline = time.monotonic() + 60
        while not (here / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if comm.rank == 0:
            with open(here / "ran", "a") as out:
                print(step.number, step["U"][0], file=out)
"""


def test_a_pipeline_runs_at_events_before_its_coordinator_died(tmp_path: Path) -> None:
    """Subscribers have taken the events: the pipeline alone still waits for these steps."""
    (tmp_path / "slow.py").write_text(SLOW)
    with forebay.local(servers=3) as group:
        stream = stream_coordinated_by(group, 1)
        watch = forebay.subscribe("max(U) > 0", stream=stream, group=group.path, timeout=60, hold=0)
        with watch, open_ranks(group, stream, 1, replicas=2, timeout=60) as [sim]:
            sim.array("U", dtype="f8", shape=(8,))
            with forebay.Admin(group=group.path, timeout=60) as admin:
                admin.create_pipeline("slow", f"{tmp_path}/slow.py:Slow", stream=stream, on=watch.name)
            watch.wait_active()
            for number in range(6):
                with sim.step(number) as step:
                    step.put("U", np.full(8, float(number % 3)))
            for number in (1, 2, 4, 5):
                with watch.next(timeout=60) as event:
                    assert event.step == number
            wait_until((tmp_path / "begun").exists)
            kill_servers(group, 1)
            (tmp_path / "go").touch()
            ran = tmp_path / "ran"
            # What ran as its server died runs once more.
            wait_until(
                lambda: ran.exists() and {line[0] for line in ran.read_text().splitlines()} == set("1245")
            )
            assert {*ran.read_text().splitlines()} == {"1 1.0", "2 2.0", "4 1.0", "5 2.0"}
            watch.remove()


def no_event(watch: forebay.Subscription) -> bool:
    with pytest.raises(forebay.Timeout):
        watch.next(timeout=0.1)
    return True


def put_two(sim: forebay.Producer, length: int, value: float) -> None:
    for number in range(2):
        with sim.step(number) as step:
            step.put("U", np.full(length, value))


def test_a_layout_that_shrinks_under_a_region(two: forebay.LocalGroup) -> None:
    """In the next run it is not known there, and told once; it goes on where the region is there again."""
    watch = forebay.subscribe("max(U[4:8]) > 0", stream="shrinks", group=two.path, timeout=20)
    with watch:
        for run, length in enumerate((10, 6, 10)):
            with open_ranks(two, "shrinks", 1, timeout=20) as [sim]:
                sim.array("U", dtype="f8", shape=(length,))
                watch.wait_active()
                if run == 1:
                    put_two(sim, length, 2.0)
                    wait_until(lambda: status(two, watch)["unknown"] == {"not covered": 2})
                    with pytest.warns(forebay.UnknownWarning, match="outside") as told:
                        assert no_event(watch)
                    assert len(told) == 1, "it is the same at both steps"
                    continue
                put_two(sim, length, run + 1.0)
                for number in range(2):
                    with watch.next(timeout=20) as event:
                        assert (event.run, event.step, event.values["max(U[4:8])"]) == (
                            run + 1,
                            number,
                            run + 1.0,
                        )
        watch.remove()


def anonymous_bytes(pid: int) -> int:
    """The memory of a process that is not shared: no arenas."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def test_the_memory_of_evaluations_is_bounded(one: forebay.LocalGroup) -> None:
    """Many at once, with neighbours, of far more elements than may be in work."""
    shape = (64, 512, 256)  # 64 MiB
    pid = pid_of_server(one, 0)
    with open_ranks(one, "large", 1, timeout=60, keep=1) as [sim]:
        sim.array("U", dtype="f8", shape=shape)
        array = np.arange(np.prod(shape), dtype="f8").reshape(shape) % 1009
        with sim.step(0) as step:
            step.put("U", array)
        stream = forebay.Stream("large", group=one.path, timeout=60, transport="tcp")
        before, most, over = anonymous_bytes(pid), 0, threading.Event()
        found: list[object] = []

        def ask() -> None:
            found.append(stream.evaluate("sum(gradient_magnitude(U) * U)"))

        def look() -> None:
            nonlocal most
            while not over.wait(0.002):
                most = max(most, anonymous_bytes(pid))

        watcher = threading.Thread(target=look)
        askers = [threading.Thread(target=ask) for _ in range(8)]
        watcher.start()
        for thread in askers:
            thread.start()
        for thread in askers:
            thread.join()
        over.set()
        watcher.join()
        assert len(found) == 8
        assert len(set(map(str, found))) == 1
        assert most - before < 32 << 20, (
            f"{(most - before) >> 20} MiB for 8 evaluations of {array.nbytes >> 20} MiB"
        )
        wait_until(lambda: anonymous_bytes(pid) < most + (1 << 20))
