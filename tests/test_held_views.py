"""What a reader holds stays as it is, whatever happens to the servers and connections behind it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back, server_status
from support.sessions import consumer, producer
from support.waiting import wait_until

import forebay

SHAPE = (60, 500)
BOXES = [(0, 20), (20, 60)]


def take_all(reader: forebay.Consumer) -> None:
    while True:
        reader.next()


def test_the_coordinator_dies(own_place: Path) -> None:
    """The blocks are on another server, where ranks go on: neither views nor reads change."""
    with forebay.local(servers=3, budget_bytes=16 << 20) as group:
        reader = consumer(group, timeout=5)
        ranks = [
            forebay.Producer("s", rank=rank, size=3, group=group.path, timeout=5, on_loss="skip")
            for rank in range(3)
        ]
        other = forebay.Producer("other", group=group.path, timeout=5)
        watching = consumer(group, "other", timeout=5)
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(90, 500))
        other.array("V", dtype="f8", shape=(40, 500))

        def steps(numbers: range) -> None:
            for number in numbers:
                for rank, sim in enumerate(ranks):
                    with contextlib.suppress(forebay.Error), sim.step(number) as step:
                        step.put("U", np.full((30, 500), float(number)), offset=(30 * rank, 0))

        steps(range(1))
        held = reader.next()
        blocks = {block.server: block for block in held["U"].blocks()}
        status = forebay.Admin(group=group.path).status()
        coordinator = next(stream["server"] for stream in status["streams"] if stream["name"] == "s")
        dead = next(server for server in status["servers"] if server["server"] == coordinator)
        left = [block for number, block in blocks.items() if number != dead["server"]]
        assert len(left) == 2
        # One of them is mapped only now: that its server is alive is enough.
        assert (left[0].data == 0).all()
        os.kill(dead["pid"], signal.SIGKILL)
        with contextlib.suppress(forebay.Error):
            for number in range(20):
                with other.step(number) as step:
                    step.put("V", np.full((40, 500), 5.0))
        steps(range(1, 20))
        for block in left:
            assert (block.data == 0).all()
            begin = block.offset[0]
            assert (held["U"][begin : begin + 30] == 0).all()
        del block, blocks, left
        held.release()
        with contextlib.suppress(forebay.Error):
            reader.close()
        del held, reader
        for sim in [*ranks, other]:
            with contextlib.suppress(forebay.Error):
                sim.close()
        with contextlib.suppress(forebay.Error):
            watching.close()
        del watching
        alive = [s["server"] for s in status["servers"] if s["server"] != dead["server"]]

        def staged() -> int:
            found = forebay.Admin(group=group.path, timeout=3).status()["servers"]
            return sum(s.get("staged_bytes", 0) for s in found if s["server"] in alive)

        wait_until(lambda: staged() == 0, what="memory of orphaned steps is free once their readers are gone")


def test_a_server_runs_out_of_descriptors(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """Nobody is taken for dead, and what a reader looks at is not used again."""
    pid = one.servers[0].pid
    with consumer(one, window=2) as reader, consumer(one, window=1) as quick, producer(one) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)

        def one_step(number: int) -> None:
            with sim.step(number) as step:
                step.put("U", np.full(SHAPE, float(number)))
            with quick.next() as found:
                assert (found["U"][...] == number).all()

        one_step(0)
        held = reader.next()
        (block,) = held["U"].blocks()
        in_use = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 3, in_use + 3))
        address = next(
            address
            for server in json.loads(Path(one.path).read_text())["servers"]
            for address in server["addresses"]
            if address.startswith("tcp")
        )
        host, port = address[4:].rsplit(":", 1)
        strangers = [socket.create_connection((host.strip("[]"), int(port)), timeout=5) for _ in range(20)]
        try:
            wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) >= in_use + 3)
            for number in range(1, 200):
                one_step(number)
                assert (block.data == 0).all()
        finally:
            for stranger in strangers:
                stranger.close()
        assert sim.lost is None
        held.release()
    del held, block
    wait_until(lambda: is_given_back(one))


def test_a_reader_that_is_cut_off(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """It does not take what it is told, until the server gives it up: its views stay as they are."""
    writer = child(
        """
        sim = forebay.Producer("s", group=sys.argv[1], timeout=20)
        sim.array("U", dtype="f8", shape=(60, 500))
        sim.array("p", dtype="u1", ndim=1)
        small = np.ones(1000, "u1")
        for number in range(24):
            with sim.step(number) as step:
                step.put("U", np.full((60, 500), float(number)))
                for box in range(9000 if number > 0 else 1):
                    step.put("p", small, number=box)
            if number == 0:
                print("first")
                sys.stdin.readline()
        print("told")
        sys.stdin.readline()
        for number in range(24, 60):
            with sim.step(number) as step:
                step.put("U", np.full((60, 500), float(number)))
        sim.flush()
        print("end")
        sys.stdin.readline()
        """,
        one.path,
    )
    with consumer(one, fields=["U"], window=1) as quick:
        reader = consumer(one, window=32)
        writer.expect("first")
        held = reader.next()
        (block,) = held["U"].blocks()
        writer.say()

        def follow(last: int) -> None:
            number = -1
            while number < last:
                with quick.next() as found:
                    number = found.number
                    assert (found["U"][...] == number).all()
                    assert (block.data == 0).all()

        follow(23)
        writer.expect("told", 60)
        writer.say()
        follow(59)
        writer.expect("end")
        with pytest.raises(forebay.Unreachable):
            take_all(reader)
        assert (block.data == 0).all()
        writer.say()
        with contextlib.suppress(forebay.Error):
            reader.close()


def test_an_address_space_that_is_too_small(own_place: Path, child: Callable[..., Child]) -> None:
    """Arenas are large and every rank has one: a reader that cannot map them whole maps its blocks."""
    with forebay.local(servers=2, budget_bytes=64 << 30) as group:
        reader = child(
            """
            import resource
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), used + (2 << 30)))
            with forebay.Consumer("s", group=sys.argv[1], timeout=20) as reader:
                print("attached")
                kept = []
                for step in reader:
                    whole = reference((60, 500), "f8", step.number)
                    np.testing.assert_array_equal(step["U"][...], whole)
                    np.testing.assert_array_equal(step["U"][7:58:3, ::-7], whole[7:58:3, ::-7])
                    for block in step["U"].blocks():
                        begin = block.offset[0]
                        np.testing.assert_array_equal(block.data, whole[begin : begin + len(block.data)])
                        kept.append((block.data, block.data.copy()))
                for view, copy in kept:
                    np.testing.assert_array_equal(view, copy)
                print(len(kept))
            """,
            group.path,
        )
        reader.expect("attached")
        ranks = [forebay.Producer("s", rank=rank, size=2, group=group.path) for rank in range(2)]
        for sim in ranks:
            sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(5):
            for sim, (begin, end) in zip(ranks, BOXES, strict=True):
                with sim.step(number) as step:
                    step.put("U", reference(SHAPE, "f8", number)[begin:end], offset=(begin, 0))
        for sim in ranks:
            sim.close()
        reader.expect("10")
        reader.ended()
        wait_until(lambda: is_given_back(group))


def test_readers_that_are_killed_while_they_wait(
    one: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """However long they would have waited, the server lets go of what they had."""
    pid = one.servers[0].pid
    before = len(os.listdir(f"/proc/{pid}/fd"))
    code = """
        space = forebay.Space(group=sys.argv[1], transport=sys.argv[2], timeout=86400)
        print("waits")
        space.get("never", step=1, region=(slice(0, 1),))
    """
    waiting = [child(code, one.path, transport) for _ in range(4)]
    for reader in waiting:
        reader.expect("waits")
    wait_until(lambda: server_status(one)["connections"].get("spaces", 0) >= 4)
    for reader in waiting:
        reader.kill()
        reader.code()
    wait_until(lambda: server_status(one)["connections"].get("spaces", 0) == 0)
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before + 2)


def test_closed_handles_keep_no_connections(two: forebay.LocalGroup, transport: str) -> None:
    """Though they are not freed yet, as in a notebook. An array that lives keeps its step's."""

    def descriptors() -> int:
        return sum(len(os.listdir(f"/proc/{server.pid}/fd")) for server in two.servers.values())

    sim = forebay.Producer("s", group=two.path, keep=1, transport=transport)
    sim.array("U", dtype="f8", shape=SHAPE)
    first = consumer(two, transport=transport)
    with sim.step(0) as step:
        step.put("U", reference(SHAPE, "f8", 0))
    data = first.next().blocks("U")[0].data
    before = descriptors()
    others = [consumer(two, transport=transport, start="oldest") for _ in range(5)]
    assert all(other.next()["U"][0, 0] == data[0, 0] for other in others)
    assert descriptors() > before
    for other in others:
        other.close()
    wait_until(lambda: descriptors() <= before)
    first.close()
    sim.close()
    assert np.array_equal(data, reference(SHAPE, "f8", 0))
    wait_until(lambda: server_status(two)["connections"].get("producers", 0) == 0)
