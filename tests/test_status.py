"""What the status tells of streams: the step that runs, how fast it goes, and who reads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import FOREBAY
from support.groups import group_status, stream_coordinated_by, stream_status
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay


def of(group: forebay.LocalGroup) -> dict[str, Any]:
    found = stream_status(group, "s")
    assert found is not None
    return found


def put(sim: forebay.Producer, number: int) -> None:
    with sim.step(number) as step:
        step.put("U", np.ones(3))


def test_the_step_that_runs_is_told_though_nobody_looks(two: forebay.LocalGroup, transport: str) -> None:
    """Of the furthest rank, wherever its home is; and how fast they go on, once a second has passed."""
    with open_ranks(two, "s", 2, transport=transport) as (first, second):
        for rank in (first, second):
            rank.array("U", dtype="f8", shape=(3,))
        assert of(two)["running_step"] is None
        for number in range(0, 50, 10):
            put(first, number)
        put(second, 10)
        assert of(two)["running_step"] == 40
        assert of(two)["reached"] == 40
        last = 50

        def goes_on() -> bool:
            nonlocal last
            put(first, last)
            last += 10
            return (of(two)["steps_per_second"] or 0) > 1

        wait_until(goes_on)
        assert of(two)["running_step"] == last - 10
    assert of(two)["running_step"] is None
    assert of(two)["phase"] == "finished"


def test_readers_are_told(two: forebay.LocalGroup, own_place: Path) -> None:
    """Who they are, what they need, what they hold, what waits for them and what they have missed."""
    with producer(two, policy="latest") as sim:
        sim.array("U", dtype="f8", shape=(3,))
        with (
            consumer(two, name="slow", window=2, fields={"U": forebay.every(2)}) as slow,
            consumer(two, take="latest"),
        ):
            for number in range(11):
                put(sim, number)
            sim.flush()
            wait_until(lambda: of(two)["steps"]["closed"] == 11)
            status = of(two)
            assert (status["attached"], status["policy"]) == (2, "latest")
            told = {reader["name"]: reader for reader in status["readers"]}
            mine = told["slow"]
            assert (mine["kind"], mine["pid"], mine["host"]) == ("consumer", os.getpid(), os.uname().nodename)
            (need,) = mine["needs"]["fields"]
            assert (need["field"], need["every"], need["region"]) == ("U", 2, None)
            assert (mine["window"], mine["held"], mine["waiting"], mine["take"]) == (2, 2, 1, "all")
            assert (mine["last"], mine["missed"]) == (2, 3)
            other = told[None]
            assert (other["needs"], other["take"], other["held"]) == ({"every": 1}, "latest", 0)
            text = subprocess.run(
                [FOREBAY, "status", "--group", two.path], capture_output=True, text=True, check=True
            ).stdout
            assert (
                f"consumer 'slow' (process {os.getpid()} on {os.uname().nodename}): U every 2; holds 2 of 2"
                in text
            )
            slow.next().release()
            wait_until(lambda: [r["held"] for r in of(two)["readers"] if r["name"] == "slow"] == [2])
        wait_until(lambda: of(two)["attached"] == 0)
        code = own_place / "code.py"
        code.write_text(
            "import forebay\n\nclass P(forebay.Pipeline):\n    def execute(self, step, comm): pass\n"
        )
        forebay.Admin(group=two.path).create_pipeline("p", f"{code}:P", stream="s")
        wait_until(lambda: [reader["kind"] for reader in of(two)["readers"]] == ["pipeline"])


def test_every_handle_can_have_a_name(two: forebay.LocalGroup, transport: str) -> None:
    """The status tells which handles are connected, for programs and for people, until they are closed."""

    def named() -> set[tuple[str, str]]:
        servers = group_status(two)["servers"]
        mine = [told for server in servers for told in server["named"]]
        assert all((told["pid"], told["host"]) == (os.getpid(), os.uname().nodename) for told in mine)
        return {(told["role"], told["name"]) for told in mine}

    with (
        forebay.Space(group=two.path, name="checker", transport=transport) as space,
        producer(two, name="wave", transport=transport),
        consumer(two, name="viewer", transport=transport),
    ):
        space.put("U", np.ones(3), step=0)
        assert named() == {("spaces", "checker"), ("producers", "wave"), ("consumers", "viewer")}
        text = subprocess.run(
            [FOREBAY, "status", "--group", two.path], capture_output=True, text=True, check=True
        ).stdout
        assert f"    space 'checker' (process {os.getpid()} on {os.uname().nodename})\n" in text
        assert f"    producer 'wave' (process {os.getpid()} on {os.uname().nodename})\n" in text
        status = forebay.Admin(group=two.path, name="looker").status()
        told = {who["name"] for server in status["servers"] for who in server.get("named", [])}
        assert "looker" in told
    wait_until(lambda: named() == set())
    for handle in (forebay.Space, forebay.Admin):
        with pytest.raises(forebay.Invalid, match="name"):
            handle(group=two.path, name="n" * 1000)


def test_servers_tell_their_version(two: forebay.LocalGroup) -> None:
    assert {server["version"] for server in group_status(two)["servers"]} == {forebay.__version__}


def test_a_planned_leave_does_not_set_counters_back(two: forebay.LocalGroup) -> None:
    """Steps, and what readers have missed, go on being counted by the server that takes the place of the one that leaves."""
    name = stream_coordinated_by(two, 1)
    with producer(two, name, policy="latest", keep=2) as sim:
        sim.array("U", dtype="f8", shape=(3,))
        with consumer(two, name, window=1, name="slow") as slow:
            for number in range(30):
                put(sim, number)
            sim.flush()
            held = slow.next()
            before = stream_status(two, name)
            assert before is not None
            assert (before["server"], before["steps"]["closed"], before["last_closed"]) == (1, 30, 29)
            missed = before["readers"][0]["missed"]
            assert missed > 20
            forebay.Admin(group=two.path).remove_server(1)
            after = stream_status(two, name)
            assert after is not None
            assert (after["server"], after["counted_since_epoch"]) == (0, 0)
            assert (after["steps"], after["last_closed"]) == (before["steps"], 29)
            for number in range(30, 40):
                put(sim, number)
            sim.flush()
            wait_until(lambda: (stream_status(two, name) or {}).get("last_closed") == 39)
            # It attaches again for those; one that the other server has told may come before.
            while held.number < 30:
                held.release()
                held = slow.next()
            last = stream_status(two, name)
            assert last is not None
            assert last["steps"] == {**before["steps"], "closed": 40}
            assert last["readers"][0]["missed"] > missed
            held.release()
    wait_until(lambda: (stream_status(two, name) or {}).get("phase") == "finished")
    last = stream_status(two, name)
    assert last is not None
    assert last["steps"]["closed"] == 40
