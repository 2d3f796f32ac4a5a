"""Processes that are killed or stopped at every point: the others are told, or carry on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.groups import is_given_back, open_ranks_of, pid_of_server, stream_status, total
from support.processes import is_alive, stand_still
from support.sessions import open_ranks, steps_until_crash, write_steps
from support.waiting import wait_until, within

import forebay

SHAPE = (60, 50)

SIMULATION = """
path, transport, rank, size, on_loss, count = sys.argv[1:]
rank, size = int(rank), int(size)
begin, end = cut(60, size)[rank]
with forebay.Producer(
    "s", rank=rank, size=size, group=path, transport=transport, timeout=5, on_loss=on_loss
) as sim:
    sim.array("U", dtype="f8", shape=(60, 50))
    print("open")
    sys.stdin.readline()
    for number in range(int(count)):
        whole = reference((60, 50), "f8", number)
        with sim.step(number) as step:
            step.put("U", whole[begin:end], offset=(begin, 0))
        if number == 20:
            print("runs")
    print("lost" if sim.lost else "kept")
"""

FOREVER = 10**9


def reading(group: forebay.LocalGroup, **options: object) -> forebay.Consumer:
    options.setdefault("timeout", 10)
    return forebay.Consumer("s", group=group.path, **options)  # type: ignore[arg-type]


def coordinator(group: forebay.LocalGroup, stream: str = "s") -> int:
    """The server that coordinates a stream which somebody uses."""
    streams = forebay.Admin(group=group.path).status()["streams"]
    return next(int(known["server"]) for known in streams if known["name"] == stream)


# ---- servers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["coordinator", "other"])
def test_a_server_is_killed_while_a_simulation_runs(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str, whose: str
) -> None:
    """Its ranks go on with the other one; the reader gets whole steps or an error, until the simulation ends."""
    ranks = [child(SIMULATION, two.path, transport, rank, 4, "skip", 3000) for rank in range(4)]
    for rank in ranks:
        rank.expect("open")
    with reading(two, transport=transport) as reader:
        first = coordinator(two)
        victim = first if whose == "coordinator" else 1 - first
        pid = pid_of_server(two, victim)
        for rank in ranks:
            rank.say()
        for _ in range(15):
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
        os.kill(pid, signal.SIGKILL)
        whole = 0
        with within(60):
            for found in reader:
                with found:
                    try:
                        array = found["U"][...]
                    except (forebay.Lost, forebay.NotCovered, forebay.NotFound, forebay.Unreachable):
                        continue
                    np.testing.assert_array_equal(array, reference(SHAPE, "f8", found.number))
                    whole += 1
    assert whole > 20
    for rank in ranks:
        assert rank.ended(60)[-1] == "kept"


@pytest.mark.parametrize("on_loss", ["skip", "fail"])
def test_the_only_server_is_killed_within_a_step(
    one: forebay.LocalGroup, transport: str, on_loss: str
) -> None:
    with reading(one, transport=transport) as reader:
        sim = forebay.Producer("s", group=one.path, transport=transport, timeout=5, on_loss=on_loss)  # type: ignore[arg-type]
        sim.array("U", dtype="f8", shape=SHAPE)
        with sim.step(0) as step:
            step.put("U", reference(SHAPE))
        found = reader.next()
        view = found["U"].blocks()[0].data

        def go_on() -> None:
            with sim.step(1) as step:
                step.put("U", reference(SHAPE), number=0)
                os.kill(one.servers[0].pid, signal.SIGKILL)
                one.servers[0].process.wait()
                step.put("U", reference(SHAPE), number=1)
            for number in range(2, 5):
                with sim.step(number) as step:
                    step.put("U", reference(SHAPE))
            sim.flush()

        with within(15):
            if on_loss == "skip":
                go_on()
                assert sim.lost is not None
                assert "server0" in sim.lost[0]
                assert sim.lost[1] >= 3
                sim.close()
            else:
                with pytest.raises(forebay.Unreachable, match=r"server0 \(process \d+\)") as raised:
                    go_on()
                assert raised.value.server == 0
                with contextlib.suppress(forebay.Error):
                    sim.close()
            for _ in range(2):
                with pytest.raises(forebay.Unreachable, match=r"server0 \(process \d+\)") as raised:
                    list(iter(reader.next, None))
                assert raised.value.server == 0
            # What is mapped is there; what was fetched too.
            np.testing.assert_array_equal(view, reference(SHAPE))
            for use in (
                lambda: forebay.Consumer("s", group=one.path, timeout=3),
                lambda: forebay.Producer("s", group=one.path, timeout=3),
                lambda: forebay.Space(group=one.path, timeout=3).get("x", step=0),
            ):
                with pytest.raises(forebay.Unreachable, match="server0"):
                    use()
        with contextlib.suppress(forebay.Error):
            found.release()


def test_an_error_of_closing_hides_nothing(one: forebay.LocalGroup, transport: str) -> None:
    """What the body of a `with` raised is what is raised, also where a handle cannot be closed any more."""

    def use() -> None:
        with (
            forebay.Consumer("s", group=one.path, transport=transport, timeout=5),
            forebay.Producer("s", group=one.path, transport=transport, timeout=5, on_loss="fail"),
        ):
            one.servers[0].process.kill()
            one.servers[0].process.wait()
            raise ValueError("the body's own")

    with pytest.raises(ValueError, match="the body's own"):
        use()


def test_a_reader_waits_while_its_server_is_killed(
    one: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    reader = child(
        """
        with forebay.Consumer("s", group=sys.argv[1], transport=sys.argv[2], timeout=60) as reader:
            print("waits")
            try:
                reader.next()
            except forebay.Unreachable as error:
                print(error)
        """,
        one.path,
        transport,
    )
    reader.expect("waits")
    wait_until(lambda: (stream_status(one, "s") or {}).get("attached") == 1)
    os.kill(one.servers[0].pid, signal.SIGKILL)
    assert f"server0 (process {one.servers[0].pid})" in reader.line(10)
    reader.ended(10)


def test_a_get_waits_while_its_server_is_killed(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    getter = child(
        """
        with forebay.Space(group=sys.argv[1], timeout=60) as space:
            print("waits")
            try:
                space.get("T", step=0)
            except forebay.Unreachable as error:
                print(error)
        """,
        one.path,
    )
    getter.expect("waits")
    wait_until(
        lambda: forebay.Admin(group=one.path).status()["servers"][0]["connections"].get("spaces", 0) >= 1
    )
    os.kill(one.servers[0].pid, signal.SIGKILL)
    assert "server0" in getter.line(10)
    getter.ended(10)


def test_what_a_dead_server_held_is_lost_and_said_so(two: forebay.LocalGroup, transport: str) -> None:
    """The other server's part of a step can still be read; a get never hangs."""
    shape = (600, 500)
    whole = reference(shape)
    with (
        reading(two, transport=transport) as reader,
        open_ranks(two, "s", 4, timeout=5, transport=transport) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f8", shape=shape)
        write_steps(sim, [0], lambda _: whole)
        found = reader.next()
        victim = 1 - coordinator(two)
        os.kill(pid_of_server(two, victim), signal.SIGKILL)
        with within(20):
            with pytest.raises((forebay.Lost, forebay.Unreachable), match=f"server{victim}") as raised:
                found["U"][...]
            assert raised.value.server == victim
            survivors = 0
            for block in reader_blocks(found):
                assert block.offset is not None
                at = block.offset[0]
                np.testing.assert_array_equal(block.data, whole[at : at + block.shape[0]])
                survivors += 1
            assert survivors in (0, 2, 4)


def reader_blocks(found: forebay.Step) -> list[forebay.Block]:
    with contextlib.suppress(forebay.Lost, forebay.Unreachable):
        return found["U"].blocks()
    return []


def test_a_put_is_in_progress_while_the_server_is_killed(
    one: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """Large puts, one after the other: whatever the moment, the simulation goes on."""
    sim = child(
        """
        path, transport = sys.argv[1:]
        with forebay.Producer("s", group=path, transport=transport, timeout=5) as sim:
            sim.array("U", dtype="f8", shape=(2000, 1000))
            array = reference((2000, 1000))
            number = 0
            while not sim.lost:
                with sim.step(number) as step:
                    step.put("U", array)
                number += 1
                if number == 5:
                    print("runs")
            for number in range(number, number + 5):
                with sim.step(number) as step:
                    assert not step.put("U", array)
            print(sim.lost[0])
        """,
        one.path,
        transport,
    )
    with reading(one, transport=transport) as reader:
        sim.expect("runs")
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][::100, ::50], reference((2000, 1000))[::100, ::50])
        os.kill(one.servers[0].pid, signal.SIGKILL)
        assert "server0" in sim.line(15)
        sim.ended(15)


@pytest.mark.parametrize("whose", ["coordinator", "other"])
def test_a_stopped_server_ends_calls_at_their_deadline(
    two: forebay.LocalGroup, transport: str, whose: str
) -> None:
    """SIGSTOP: it answers nothing, and nobody waits longer than asked."""
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(reading(two, transport=transport, timeout=1))
        sims = [
            forebay.Producer("s", rank=rank, size=2, group=two.path, transport=transport, timeout=1)
            for rank in range(2)
        ]
        for sim in sims:
            sim.array("U", dtype="f8", shape=SHAPE)
        write_steps(sims, [0], lambda n: reference(SHAPE, "f8", n))
        first = coordinator(two)
        pid = pid_of_server(two, first if whose == "coordinator" else 1 - first)
        stack.callback(os.kill, pid, signal.SIGCONT)
        stand_still(pid)
        with within(45):
            for number in (1, 2):
                for rank, sim in enumerate(sims):
                    half = SHAPE[0] // 2
                    part = reference(SHAPE, "f8", number)[rank * half : (rank + 1) * half]
                    with (
                        contextlib.suppress(forebay.Timeout, forebay.Unreachable, forebay.StepOrder),
                        sim.step(number) as step,
                    ):
                        step.put("U", part, offset=(rank * half, 0))
            with contextlib.suppress(forebay.Timeout, forebay.Unreachable):
                for _ in range(3):
                    with reader.next(timeout=1) as found, contextlib.suppress(forebay.Error):
                        np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
            for use in (
                lambda: forebay.Consumer("s", group=two.path, timeout=1, transport=transport),
                lambda: forebay.Consumer("t", group=two.path, timeout=1, transport=transport),
                lambda: forebay.Producer("u", rank=0, group=two.path, timeout=1, transport=transport),
                lambda: forebay.Producer("u", rank=1, size=2, group=two.path, timeout=1, transport=transport),
            ):
                with contextlib.suppress(forebay.Timeout):
                    use().close()
            # If that took long, the other one has given it up.
            status = forebay.Admin(group=two.path, timeout=1, transport=transport).status()["servers"]
            assert sum("error" not in server for server in status) == 1
            for sim in sims:
                with contextlib.suppress(forebay.Timeout, forebay.Unreachable):
                    sim.close()


def test_a_stopped_server_that_wakes_goes_on(two: forebay.LocalGroup) -> None:
    with reading(two, timeout=20) as reader, open_ranks(two, "s", 2, policy="block") as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
        for number in range(3):
            for server in two.servers.values():
                stand_still(server.pid)
            waker = [server.pid for server in two.servers.values()]
            import threading

            timer = threading.Timer(0.1, lambda pids=waker: [os.kill(pid, signal.SIGCONT) for pid in pids])
            timer.start()
            write_steps(sim, [number], lambda n: reference(SHAPE, "f8", n))
            with reader.next() as found:
                assert found.number == number
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
            timer.join()


@pytest.mark.parametrize("again", [True, False], ids=["the same step", "the next one"])
def test_a_simulation_whose_server_was_stopped_goes_on(
    one: forebay.LocalGroup, transport: str, again: bool
) -> None:
    """A `begin` that ended at its deadline costs that step; it may be tried again."""
    with (
        reading(one, transport=transport) as reader,
        forebay.Producer("s", group=one.path, transport=transport, timeout=0.5) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        write_steps([sim], [0], lambda n: reference(SHAPE, "f8", n))
        stand_still(one.servers[0].pid)
        try:
            with pytest.raises(forebay.Timeout, match="server0"):
                write_steps([sim], [1], lambda n: reference(SHAPE, "f8", n))
        finally:
            os.kill(one.servers[0].pid, signal.SIGCONT)
        later = [1, 2, 3] if again else [2, 3]
        write_steps([sim], later, lambda n: reference(SHAPE, "f8", n))
        for number in [0, *later]:
            with reader.next() as found:
                assert found.number == number
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))


def test_a_stopped_coordinator_is_not_taken_for_dead(two: forebay.LocalGroup) -> None:
    """A rank at home elsewhere ends steps of small blocks, far more than may wait for the coordinator.

    It waits, up to its timeout, and both servers go on when the coordinator does.
    """
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(reading(two, timeout=20))
        first = coordinator(two)
        # The other server is the home of one of two ranks.
        sims = stack.enter_context(open_ranks(two, "s", 2, timeout=1))
        for sim in sims:
            sim.array("U", dtype="f8", shape=(2, 16, 128))

        def write(rank: int, number: int) -> None:
            with sims[rank].step(number) as step:
                for index in range(16):
                    step.put("U", np.ones((1, 1, 128)), offset=(rank, index, 0), number=index)

        for rank in range(2):
            write(rank, 0)
        reader.next().release()
        pid = pid_of_server(two, first)
        stack.callback(os.kill, pid, signal.SIGCONT)
        stand_still(pid)
        with pytest.raises(forebay.Timeout, match=f"server{first} has not taken"):  # noqa: PT012
            for number in range(1, 9000):
                write(1 - first, number)
        os.kill(pid, signal.SIGCONT)

        def goes_on() -> bool:
            with contextlib.suppress(forebay.Timeout):
                write(1 - first, 9000)
                return True
            return False

        wait_until(goes_on)
        write(first, 9000)
        while (found := reader.next()).number < 9000:
            found.release()
        np.testing.assert_array_equal(found["U"][...], np.ones((2, 16, 128)))
        found.release()
        assert [s["gone"] for s in forebay.Admin(group=two.path).status()["servers"]] == [[], []]
        assert all(sim.lost is None for sim in sims)


CONTAINED = """
import os, sys
import numpy as np
import forebay

print(os.getpid(), flush=True)
with forebay.Producer("s", group=sys.argv[1], transport="tcp", timeout=20) as sim:
    sim.array("U", dtype="f8", shape=(8,))
    print("open", flush=True)
    for number, _ in enumerate(sys.stdin):
        with sim.step(number) as step:
            print(step.put("U", np.ones(8)), sim.lost, flush=True)
"""

IN_A_CONTAINER = """
import subprocess

# The next process of a new PID namespace gets the number that is wanted.
shell = 'echo $(($1 - 1)) > /proc/sys/kernel/ns_last_pid || exit 9; exec 3<&0; "${@:2}" <&3 & wait -n'
unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", shell, "bash"]
sys.exit(subprocess.run([*unshare, sys.argv[1], sys.executable, "-c", *sys.argv[2:]]).returncode)
"""


def can_number_processes() -> bool:
    """Whether this user may make PID namespaces and say how processes are numbered there."""
    shell = "echo 4000 > /proc/sys/kernel/ns_last_pid"
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", shell]
    try:
        return subprocess.run(unshare, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def watched_by(pid: int) -> set[int]:
    """The processes for whose end a process waits."""
    found = set()
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            lines = (line.partition(":") for line in file.read_text().splitlines())
            found.update(int(value) for key, _, value in lines if key == "Pid")
    return found


@pytest.mark.skipif(not can_number_processes(), reason="needs the right to number processes")
def test_a_process_of_the_same_number_in_another_container(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """Over TCP a process says itself which one it is: its number may be that of another one of this host."""
    with reading(one):
        other = child("sys.stdin.readline()")
        rank = child(IN_A_CONTAINER, other.pid, CONTAINED, one.path)
        rank.expect(str(other.pid))
        rank.expect("open")
        rank.say()
        rank.expect("True None")
        # Its end would be taken for the rank's as soon as the rank is quiet.
        assert other.pid not in watched_by(one.servers[0].pid)
        other.say()
        other.ended()
        rank.say()
        rank.expect("True None")
        assert rank.process.stdin is not None
        rank.process.stdin.close()
        rank.ended()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_servers_end_with_the_process_that_started_them(
    child: Callable[..., Child], own_place: Path, how: int
) -> None:
    """However it ends; and their files with them."""
    owner = child(
        """
        group = forebay.local(servers=2, budget_bytes=1 << 24)
        print(json.dumps([server.pid for server in group.servers.values()]))
        sys.stdin.readline()
        """
    )
    import json

    pids = json.loads(owner.line())
    assert list((own_place / "tmp").iterdir())
    owner.kill(how)
    assert owner.code() == -how
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 10)
    assert not list((own_place / "tmp").iterdir())


# ---- producers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before", "between", "open", "put", "alloc"])
def test_a_producer_is_killed(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str, point: str
) -> None:
    """One of two ranks dies: whole steps stay whole, the one it died in is torn, then the stream ends."""
    if transport == "tcp" and point == "alloc":
        pytest.skip("memory is not allocated over TCP")
    with reading(two, transport=transport, window=16) as reader:
        victim = child(
            """
            path, transport, point = sys.argv[1:]
            sim = forebay.Producer("s", rank=1, size=2, group=path, transport=transport)
            sim.array("U", dtype="f8", shape=(60, 50))
            if point == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            for number in range(3):
                with sim.step(number) as step:
                    step.put("U", reference((60, 50), "f8", number)[20:], offset=(20, 0))
            sim.flush()
            if point != "between":
                step = sim.step(3).__enter__()
                if point == "put":
                    step.put("U", reference((60, 50), "f8", 3)[20:], offset=(20, 0))
                    sim.flush()
                if point == "alloc":
                    step.alloc("U", (40, 50), offset=(20, 0))[...] = 1
            os.kill(os.getpid(), signal.SIGKILL)
            """,
            two.path,
            transport,
            point,
        )
        with forebay.Producer("s", rank=0, size=2, group=two.path, transport=transport, timeout=10) as sim:
            sim.array("U", dtype="f8", shape=SHAPE)
            assert victim.code() == -signal.SIGKILL
            for number in range(5):
                with sim.step(number) as step:
                    step.put("U", reference(SHAPE, "f8", number)[:20], offset=(0, 0))
        with within(15):
            for step in steps_until_crash(reader, f"rank 1 of 2 (process {victim.pid} on "):
                if step.number == 3 and point == "put":
                    # What the servers had answered for is kept, although its step was not ended.
                    assert step.torn
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", 3))
                # A rank that never came back leaves its part of every later step empty.
                elif step.torn or len(step["U"].blocks()) < 2:
                    with pytest.raises(forebay.NotCovered):
                        step["U"][...]
                    np.testing.assert_array_equal(step["U"][:20], reference(SHAPE, "f8", step.number)[:20])
                else:
                    assert step.number < 3
                    assert point != "before"
                    np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", step.number))
                if step.number >= 3:
                    assert step.torn, f"step {step.number} lacks a rank that died and is not torn"
    wait_until(lambda: is_given_back(two))


def test_a_simulation_is_killed_and_restarted(
    two: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    with reading(two, transport=transport, follow=True, timeout=30) as reader:
        last = -1
        for run in range(3):
            ranks = [child(SIMULATION, two.path, transport, rank, 3, "fail", FOREVER) for rank in range(3)]
            for rank in ranks:
                rank.expect("open")
            for rank in ranks:
                rank.say()
            seen = 0
            while seen < 8:
                with reader.next() as found:
                    if found.torn:
                        continue
                    np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
                    assert found.rewound == (found.number <= last and seen == 0) or found.run <= run
                    seen += found.run == run + 1
                    last = found.number
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.code()
            wait_until(lambda: open_ranks_of(two, "s") == 0)
    wait_until(lambda: is_given_back(two))


def test_a_producer_is_killed_while_it_waits_for_room(
    own_place: Path, child: Callable[..., Child], transport: str
) -> None:
    """Its rank is free at once: the simulation can be restarted though its reader still holds everything."""
    with (
        forebay.local(servers=1, budget_bytes=8 << 20) as group,
        reading(group, transport=transport, follow=True, window=64) as reader,
    ):
        victim = child(
            """
            sim = forebay.Producer("s", group=sys.argv[1], transport=sys.argv[2], policy="block", timeout=60)
            sim.array("U", dtype="f8", shape=(512, 512))
            for number in range(100):
                print(number)
                with sim.step(number) as step:
                    step.put("U", np.ones((512, 512)))
            """,
            group.path,
            transport,
        )
        held = [reader.next() for _ in range(3)]
        wait_until(lambda: total(group, "staged_bytes") >= 8 << 20)
        victim.kill()
        victim.code()
        wait_until(lambda: open_ranks_of(group, "s") == 0, 10, "its rank is open")
        for step in held:
            step.release()
        with open_ranks(group, "s", 1, policy="block", transport=transport) as sim:
            assert sim[0].run == 2


# ---- consumers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("holding", ["a step", "views", "nothing"])
def test_a_consumer_is_killed(
    own_place: Path, child: Callable[..., Child], transport: str, holding: str
) -> None:
    """Whatever it held is given back; the simulation, which waits for readers, goes on."""
    with forebay.local(servers=2, budget_bytes=32 << 20) as group:
        victim = child(
            """
            path, transport, holding = sys.argv[1:]
            reader = forebay.Consumer("s", group=path, transport=transport, window=8)
            print("attached")
            kept = []
            for _ in range(6 if holding != "nothing" else 0):
                step = reader.next()
                kept.append(step if holding == "a step" else step["U"].blocks())
            print("holds")
            sys.stdin.readline()
            """,
            group.path,
            transport,
            holding,
        )
        victim.expect("attached")
        with open_ranks(group, "s", 3, policy="block", transport=transport) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(300, 400))
            write_steps(sim, range(6), lambda n: reference((300, 400), "f8", n))
            victim.expect("holds")
            victim.kill()
            victim.code()
            write_steps(sim, range(6, 80), lambda n: reference((300, 400), "f8", n))
        wait_until(lambda: is_given_back(group))


def test_memory_goes_back_to_the_system(own_place: Path, child: Callable[..., Child]) -> None:
    """After the peak, once nothing holds it, arenas do not keep what nobody uses."""
    with forebay.local(servers=1, budget_bytes=512 << 20) as group:
        victim = child(
            """
            reader = forebay.Consumer("s", group=sys.argv[1], window=64)
            print("attached")
            kept = [reader.next()["U"].blocks() for _ in range(20)]
            print("holds")
            sys.stdin.readline()
            """,
            group.path,
        )
        victim.expect("attached")
        with open_ranks(group, "s", 1) as sim:
            sim[0].array("U", dtype="f8", shape=(1024, 1024))
            write_steps(sim, range(20), lambda n: np.full((1024, 1024), float(n)))
            victim.expect("holds")
            assert total(group, "staged_bytes") >= 160 << 20
            victim.kill()
            victim.code()
            wait_until(lambda: total(group, "staged_bytes") <= 16 << 20)
        wait_until(lambda: is_given_back(group))
        wait_until(lambda: total(group, "arena_bytes") <= 64 << 20, 30, "arenas keep their pages")


def test_a_stopped_consumer_costs_its_window(
    own_place: Path, child: Callable[..., Child], transport: str
) -> None:
    with forebay.local(servers=2, budget_bytes=32 << 20) as group:
        stuck = child(
            """
            reader = forebay.Consumer("s", group=sys.argv[1], transport=sys.argv[2], window=2)
            print("attached")
            for step in reader:
                if step.number % 50 == 0:
                    print(step.number)
                np.testing.assert_array_equal(step["U"][...], reference((300, 400), "f8", step.number))
            """,
            group.path,
            transport,
        )
        stuck.expect("attached")
        with (
            reading(group, transport=transport) as reader,
            open_ranks(group, "s", 2, transport=transport) as sim,
        ):
            for rank in sim:
                rank.array("U", dtype="f8", shape=(300, 400))
            write_steps(sim, [0], lambda n: reference((300, 400), "f8", n))
            stuck.expect("0")
            stand_still(stuck.pid)
            reader.next().release()
            for number in range(1, 120):
                write_steps(sim, [number], lambda n: reference((300, 400), "f8", n))
                with reader.next() as found:
                    assert found.number == number
            stuck.kill(signal.SIGCONT)
        stuck.ended()
        wait_until(lambda: is_given_back(group))


@pytest.mark.parametrize("servers", [3, 7])
def test_a_larger_group_forms_and_serves(own_place: Path, servers: int) -> None:
    """Servers that know that the group is complete dial others that do not know it yet."""
    array = reference((2 * servers, 31))
    for _ in range(3):
        with (
            forebay.local(servers=servers, budget_bytes=16 << 20) as group,
            forebay.Consumer("s", group=group, timeout=20) as viewer,
            open_ranks(group, "s", servers) as ranks,
        ):
            for rank in ranks:
                rank.array("U", dtype="f8", shape=array.shape)
            write_steps(ranks, [0], lambda _: array)
            with viewer.next() as step:
                assert np.array_equal(step["U"][...], array)
                assert {block.server for block in step.blocks("U")} == set(range(servers))
