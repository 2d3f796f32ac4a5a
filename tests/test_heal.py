"""A group that has lost half of its servers or more goes on when it is told to."""

from __future__ import annotations

import json
import os
import signal

import pytest
from support.arrays import reference
from support.commands import command
from support.groups import group_status
from support.processes import is_alive, stand_still
from support.sessions import consumer
from support.single_rank import read_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def pids(group: forebay.LocalGroup) -> list[int]:
    return [server["pid"] for server in group_status(group)["servers"]]


def put(sim: forebay.Producer, first: int, last: int) -> None:
    for number in range(first, last):
        with sim.step(number) as step:
            step.put("U", reference(SHAPE, "f8", number))


def test_who_is_left_goes_on_with_all_that_has_copies(
    patient_three: forebay.LocalGroup, transport: str
) -> None:
    with (
        consumer(patient_three, "s", transport=transport) as reader,
        forebay.Producer(
            "s", group=patient_three.path, transport=transport, timeout=60, replicas=3, on_loss="fail"
        ) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        put(sim, 0, 3)
        at_once = pids(patient_three)[:2]
        for pid in at_once:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, at_once)))

        status = command("--group", patient_three.path, "status")
        assert "Too few servers answer for the group to go on" in status.stdout
        shown = command("--group", patient_three.path, "heal")
        assert (shown.returncode, shown.stdout.splitlines()[0]) == (
            1,
            "Can go on: server2. Not reached by them: server0, server1.",
        )
        assert max(map(len, shown.stdout.splitlines())) <= 80
        assert len(group_status(patient_three)["servers"]) == 3
        healed = command("--group", patient_three.path, "heal", "--force", "--json")
        assert json.loads(healed.stdout) == {"kept": [2], "given_up": [0, 1], "healed": True}

        put(sim, 3, 6)
        read_steps(reader, 0, 6)
        patient_three.add_servers()
        assert [server["server"] for server in group_status(patient_three)["servers"]] == [2, 3]
        put(sim, 6, 9)
        read_steps(reader, 6, 9)


def test_who_was_given_up_but_runs_comes_back(patient_three: forebay.LocalGroup) -> None:
    admin = forebay.Admin(group=patient_three.path, timeout=5)
    silent = pids(patient_three)[1:]
    for pid in silent:
        stand_still(pid)
    assert admin.heal() == ([0], [1, 2])
    assert admin.heal(force=True) == ([0], [1, 2])
    with (
        consumer(patient_three, "s") as reader,
        forebay.Producer("s", group=patient_three.path, timeout=20) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        put(sim, 0, 2)
        sim.flush()
        for pid in silent:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: len(group_status(patient_three)["servers"]) == 3)
        assert [server["server"] for server in group_status(patient_three)["servers"]] == [0, 3, 4]
        put(sim, 2, 4)
        read_steps(reader, 0, 4)


def test_those_that_can_agree_are_not_healed(patient_three: forebay.LocalGroup) -> None:
    admin = forebay.Admin(group=patient_three.path, timeout=5)
    with pytest.raises(forebay.Conflict, match="3 of the group's 3 servers answer"):
        admin.heal(force=True)
    pid = pids(patient_three)[0]
    stand_still(pid)
    with pytest.raises(forebay.Conflict, match="2 of the group's 3 servers answer"):
        admin.heal(force=True)
    os.kill(pid, signal.SIGCONT)
    assert len(pids(patient_three)) == 3
