"""Arrays of the space that several servers hold: what a put has returned for outlives servers."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.deaths import kill_servers, stopped_server
from support.groups import BUDGET, is_given_back, pid_of_server, server_ids, steps_lacking_copies
from support.processes import stand_still
from support.waiting import wait_until

import forebay

SHAPE = (61, 50, 17)
SMALL = 7


def put(space: forebay.Space, step: int) -> None:
    """In four parts, and one that is small."""
    whole = reference(SHAPE, "f8", step)
    for begin in range(0, 60, 15):
        end = begin + 15 if begin < 45 else SHAPE[0]
        space.put("T", whole[begin:end], step=step, offset=(begin, 0, 0), shape=SHAPE)
    space.put("small", np.arange(SMALL) + step, step=step)


def check(space: forebay.Space, step: int) -> None:
    np.testing.assert_array_equal(space.get("T", step=step), reference(SHAPE, "f8", step))
    np.testing.assert_array_equal(space.get("small", step=step), np.arange(SMALL) + step)


def remove(space: forebay.Space, step: int) -> None:
    for name in ("T", "small"):
        space.remove(name, step=step)


def opened(group: forebay.LocalGroup, transport: str = "auto", replicas: int = 2) -> forebay.Space:
    return forebay.Space(group=group.path, transport=transport, timeout=20, replicas=replicas)


@pytest.mark.parametrize("replicas", [2, 3])
def test_what_was_put_outlives_servers(own_place: Path, transport: str, replicas: int) -> None:
    """One after the other is killed, with copies made again between them, until none of the first is left."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        with opened(group, transport, replicas) as mine:
            for step in range(3):
                put(mine, step)
            for step in range(3, 6):
                wait_until(lambda: steps_lacking_copies(group) == 0)
                kill_servers(group, min(server_ids(group)))
                for known in range(step):
                    check(mine, known)
                group.add_servers()
                put(mine, step)
                with opened(group, transport, 1) as other:
                    for known in range(step + 1):
                        check(other, known)
            for step in range(6):
                remove(mine, step)
        wait_until(lambda: is_given_back(group))


def test_two_of_three_servers_die_at_once(own_place: Path) -> None:
    with forebay.local(servers=5, budget_bytes=BUDGET) as group, opened(group, replicas=3) as space:
        put(space, 0)
        kill_servers(group, 0, 1)
        check(space, 0)


def test_puts_go_on_while_servers_die(own_place: Path, transport: str) -> None:
    """A put whose server dies is put to another one, once."""
    with forebay.local(servers=4, budget_bytes=BUDGET) as group:
        over = threading.Event()
        counts = [0, 0]

        def keep_putting(which: int) -> None:
            with opened(group, transport) as space:
                while not over.is_set():
                    step = 2 * counts[which] + which
                    put(space, step)
                    counts[which] += 1
                    # Those from far back go again.
                    if counts[which] > 20:
                        remove(space, step - 40)

        putting = [threading.Thread(target=keep_putting, args=[which]) for which in range(2)]
        for thread in putting:
            thread.start()
        try:
            for _ in range(4):
                before = sum(counts)
                wait_until(lambda before=before: sum(counts) > before + 40)
                wait_until(lambda: steps_lacking_copies(group) == 0)
                kill_servers(group, min(server_ids(group)))
                group.add_servers()
        finally:
            over.set()
            for thread in putting:
                thread.join()
        with opened(group, transport) as space:
            for which, count in enumerate(counts):
                for step in range(2 * max(0, count - 20) + which, 2 * count + which, 2):
                    check(space, step)
                    remove(space, step)
        wait_until(lambda: is_given_back(group))


def test_more_copies_than_servers_are_refused(two: forebay.LocalGroup) -> None:
    for replicas in (0, 9):
        with pytest.raises(forebay.Invalid, match=r"replicas"):
            opened(two, replicas=replicas)
    with pytest.raises(forebay.Invalid, match=r"replicas is 3, more than the group has servers \(2\)"):
        opened(two, replicas=3)


def test_puts_go_on_with_fewer_servers_than_copies(two: forebay.LocalGroup, transport: str) -> None:
    """As many copies are made as there are servers, and the others when those come."""
    with opened(two, transport) as space:
        put(space, 0)
        wait_until(lambda: steps_lacking_copies(two) == 0)
        kill_servers(two, 0)
        put(space, 1)
        two.add_servers()
        wait_until(lambda: steps_lacking_copies(two) == 0)
        kill_servers(two, 1)
        for step in range(2):
            check(space, step)
            remove(space, step)
    wait_until(lambda: is_given_back(two))


def test_nothing_waits_for_a_server_that_was_given_up(own_place: Path, transport: str) -> None:
    """Though it stands still, so that its connections and its door are there, and was used by nobody before."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=2) as group,
        forebay.Space(group=group.path, transport=transport, timeout=600, replicas=2) as space,
    ):
        steps = range(12)
        for step in steps:
            space.put("T", np.arange(3000.0) + step, step=step)
        before = server_ids(group)
        with stopped_server(group, 1):
            # The first calls begin before it is given up.
            for step in steps[:6]:
                space.remove("T", step=step)
            wait_until(lambda: server_ids(group) != before)
            for step in steps[6:]:
                np.testing.assert_array_equal(space.get("T", step=step), np.arange(3000.0) + step)
                space.remove("T", step=step)
        wait_until(lambda: len(server_ids(group)) == 3)
        wait_until(lambda: is_given_back(group))


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_a_get_waits_no_longer_than_it_was_told_to(
    own_place: Path, transport: str, dead: int, known: bool
) -> None:
    """One of two servers is dead, and the other one, which would have to say so, stands still.

    Whoever of them owns what is got, and whether there is a connection to them already.
    """
    names = ["T", *(f"T{number}" for number in range(12))]
    with (
        forebay.local(servers=2, budget_bytes=BUDGET, silence=60) as group,
        forebay.Space(group=group.path, transport=transport, timeout=120, replicas=2) as space,
        forebay.Space(group=group.path, transport=transport, timeout=120) as other,
    ):
        pids = [pid_of_server(group, server) for server in (0, 1)]
        # One that both own.
        put(space, 7)
        for name in names[1:]:
            space.put(name, np.arange(1000.0), step=7)
        for name in names if known else []:
            other.get(name, step=7)
        stand_still(pids[1 - dead])
        pool = ThreadPoolExecutor(len(names))
        try:
            os.kill(pids[dead], signal.SIGKILL)
            got = [pool.submit(other.get, name, step=7, timeout=1) for name in names]
            # Far less than the handle's own timeout.
            wait(got, timeout=30)
            assert all(one.done() for one in got)
            assert all(isinstance(one.exception(), forebay.Timeout | forebay.Unreachable) for one in got)
        finally:
            os.kill(pids[1 - dead], signal.SIGCONT)
            pool.shutdown()


def test_a_get_waits_for_no_other_server_than_its_own(own_place: Path, transport: str) -> None:
    """Nor for a thread that waits for one that stands still, with the same handle."""
    with (
        forebay.local(servers=3, budget_bytes=BUDGET, silence=60) as group,
        forebay.Space(group=group.path, transport=transport) as space,
        forebay.Space(group=group.path, transport=transport) as other,
    ):
        admin = forebay.Admin(group=group.path)
        names: dict[int, list[str]] = {server: [] for server in server_ids(group)}
        known = dict.fromkeys(names, 0)
        for number in range(100):
            name = f"T{number}"
            # So small that it lies with who owns it.
            space.put(name, np.arange(10.0), step=0)
            now = {server["server"]: server["blocks"] for server in admin.status()["servers"]}
            owner = next(server for server in names if now[server] > known[server])
            known = now
            names[owner].append(name)
            if min(map(len, names.values())) > 0:
                break
        silent, *living = names
        pool = ThreadPoolExecutor(4)
        with stopped_server(group, silent):
            waiting = [pool.submit(other.get, names[silent][0], step=0) for _ in range(2)]
            got = [pool.submit(other.get, names[server][0], step=0) for server in living]
            for one in got:
                np.testing.assert_array_equal(one.result(), np.arange(10.0))
            assert not any(one.done() for one in waiting)
        for one in waiting:
            np.testing.assert_array_equal(one.result(), np.arange(10.0))
        pool.shutdown()


def test_what_is_found_too_late_is_not_held(own_place: Path, transport: str) -> None:
    """Nobody waits any more for what a server finds that stood still: it is free when it is removed."""
    with (
        forebay.local(servers=2, budget_bytes=BUDGET, silence=60) as group,
        opened(group, transport, 1) as space,
        opened(group, transport, 1) as other,
    ):
        put(space, 0)
        check(other, 0)
        pids = [pid_of_server(group, server) for server in (0, 1)]
        try:
            for pid in pids:
                stand_still(pid)
            for name in ("T", "small"):
                with pytest.raises(forebay.Timeout):
                    other.get(name, step=0, timeout=0.2)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        # The connections are good for more.
        check(other, 0)
        remove(space, 0)
        wait_until(lambda: is_given_back(group))


def test_what_is_just_put_outlives_who_knows_where_it_is(own_place: Path) -> None:
    """The server that owns a field dies while the one that holds an array of it waits for its copy."""
    with forebay.local(servers=5, budget_bytes=BUDGET, silence=60) as group:
        # It does not wait for long for a server that stands still.
        admin = forebay.Admin(group=group.path, timeout=0.5)

        def told(key: str) -> dict[int, int]:
            return {server["server"]: server.get(key, 0) for server in admin.status()["servers"]}

        with opened(group) as first, opened(group) as space:
            # Two that are opened one after the other put to servers that follow each other, as do their copies.
            owners: dict[str, int] = {}
            for number in range(30):
                before = told("blocks")
                first.put(f"T{number}", np.zeros(1000), step=0)
                owners[f"T{number}"] = next(
                    one for one, known in told("blocks").items() if known > before[one]
                )
                first.remove(f"T{number}", step=0)
                wait_until(lambda: not any(told("blocks").values()))
            first.put("T", np.zeros(1000), step=0)
            holder = (max(told("staged_bytes").items(), key=lambda one: one[1])[0] + 1) % 5
            backup, owner = (holder + 1) % 5, (holder + 2) % 5
            name = next(name for name, owned_by in owners.items() if owned_by == owner)
            known = told("blocks")[owner]
            pid = told("pid")[backup]
            putting = threading.Thread(target=space.put, args=[name, np.arange(1000.0)], kwargs={"step": 0})
            stand_still(pid)
            try:
                putting.start()
                wait_until(lambda: told("blocks")[owner] > known)
                assert putting.is_alive()
                kill_servers(group, owner, wait=True)
            finally:
                os.kill(pid, signal.SIGCONT)
            putting.join()
            np.testing.assert_array_equal(space.get(name, step=0), np.arange(1000.0))
