"""How runs end: finished, or crashed; and what readers are told of it, whether they come before or after."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from support.children import Child
from support.commands import run
from support.groups import pid_of_server, server_numbers, stream_coordinated_by, stream_status
from support.pipelines import pipeline_status
from support.processes import is_alive, stand_still
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

ENDS = {
    "killed in a step": "os.kill(os.getpid(), signal.SIGKILL)",
    "exits in a step": "os._exit(3)",
    "raises in a step": "raise ArithmeticError",
}

SIMULATION = """
    with producer(sys.argv[1], "s", transport=sys.argv[2]) as sim:
        sim.array("U", dtype="f8", shape=(int(sys.argv[3]),))
        print("open")
        sys.stdin.readline()
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", np.arange(float(sys.argv[3])))
                if number == 2:
                    {in_step}
        {after}
"""


def phase(group: forebay.LocalGroup, stream: str = "s") -> str:
    """Whether a stream runs, or how it ended."""
    return str((stream_status(group, stream) or {}).get("phase"))


def read_all(reader: forebay.Consumer) -> tuple[list[tuple[int, bool]], str]:
    """The steps that a loop sees, whether each is torn, and what it is ended by."""
    seen = []
    try:
        seen.extend((step.number, step.torn) for step in reader)
    except forebay.Error as error:
        return seen, f"{type(error).__name__}: {error}"
    return seen, ""


@pytest.mark.parametrize("size", [4, 5000], ids=["small", "in memory"])
@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_ends_in_a_step_leaves_it_torn_and_has_crashed(
    one: forebay.LocalGroup, transport: str, child: Callable[..., Child], end: str, size: int
) -> None:
    sim = child(SIMULATION.format(in_step=ENDS[end], after="pass"), one.path, transport, size)
    sim.expect("open")
    with consumer(one) as reader:
        sim.say()
        seen, told = read_all(reader)
        assert seen == [(0, False), (1, False), (2, True)]
        why = f"rank 0 of 1 (process {sim.pid} on {os.uname().nodename}) ended without closing it"
        assert told == f"Crashed: stream 's' has crashed at step 2: {why}"
        with pytest.raises(forebay.Crashed):
            reader.next()
    assert sim.code() != 0
    status = stream_status(one, "s")
    assert status is not None
    assert (status["phase"], status["reached"]) == ("crashed", 2)
    assert status["why"] == why


@pytest.mark.parametrize(
    "after, told",
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "Crashed"),
        ("raise ArithmeticError", "Crashed"),
        ("sys.exit(1)", "Crashed"),
        ("sim.abandon()", "Crashed"),
        ("sys.exit(0)", ""),
        ("pass", ""),
        ("sim.close(); os.kill(os.getpid(), signal.SIGKILL)", ""),
    ],
)
def test_a_run_has_finished_when_its_ranks_have_closed_it(
    one: forebay.LocalGroup, transport: str, child: Callable[..., Child], after: str, told: str
) -> None:
    """Between two steps none is torn, whatever becomes of the simulation."""
    sim = child(SIMULATION.format(in_step="pass", after=after), one.path, transport, 5000)
    sim.expect("open")
    with consumer(one) as reader:
        sim.say()
        seen, error = read_all(reader)
    assert seen == [(0, False), (1, False), (2, False)]
    assert error.partition(":")[0] == told
    sim.code()
    assert phase(one) == ("crashed" if told else "finished")


def test_a_step_that_was_begun_and_in_which_nothing_was_put_is_not_told(
    one: forebay.LocalGroup, transport: str
) -> None:
    with consumer(one) as reader, producer(one, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0) as step:
            step.put("U", np.ones(4))
        sim.begin(1)
        sim.abandon()
        assert read_all(reader)[0] == [(0, False)]


def test_one_of_several_ranks_that_crashed_is_named(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, open_ranks(one, "s", 3) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(3,))
        sim[1].abandon()
        for number in range(2):
            with sim[0].step(number) as a, sim[2].step(number) as b:
                a.put("U", np.ones(1), offset=(0,))
                b.put("U", np.ones(1), offset=(2,))
        assert phase(one) == "running", "the others go on"
        shown = run("ls", "--group", one.path).stdout
        assert "its steps are torn: rank 1 of 3 (process" in shown
        assert "; its steps are torn: rank 1" in run("status", "--group", one.path).stdout
        sim[0].close()
        sim[2].close()
        seen, told = read_all(reader)
    assert seen == [(0, True), (1, True)]
    assert f"rank 1 of 3 (process {os.getpid()} on " in told


def test_ranks_that_never_came_are_named_when_the_next_run_begins(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader:
        with producer(one, rank=0, size=2):
            pass
        assert phase(one) == "running"
        with producer(one), pytest.raises(forebay.Crashed, match="rank 1 of 2 never came"):
            reader.next()


def test_a_step_that_is_open_as_a_rank_closes_is_torn_and_the_run_finished(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        step = sim.begin(0)
        step.put("U", np.ones(4))
        sim.close()
        assert read_all(reader) == ([(0, True)], "")


@pytest.mark.parametrize("how", ["killed", "leaves"])
def test_a_rank_that_gives_up_when_its_home_is_gone_has_crashed(two: forebay.LocalGroup, how: str) -> None:
    """Another server tells that."""
    with consumer(two) as reader:
        with producer(two) as sim:
            sim.array("U", dtype="f8", shape=(400,))
            with sim.step(0) as step:
                step.put("U", np.ones(400))
            with reader.next() as found:
                (home,) = {block.server for block in found.blocks("U")}
            if how == "killed":
                kill_server(two, home)
            else:
                forebay.Admin(group=two.path, timeout=30).remove_server(home)
            sim.abandon()
        with pytest.raises(forebay.Crashed, match="rank 0 of 1"):
            reader.next()


def test_a_rank_that_is_interrupted_gives_up_at_once(
    one: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """Its home waits for readers just then, for ever if need be."""
    sim = child(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with producer(sys.argv[1], "s", wait_for_readers=1, timeout=float("inf")) as sim:
            sim.array("U", dtype="f8", shape=(4,))
            print("open")
            sim.begin(0)
        """,
        one.path,
    )
    sim.expect("open")
    wait_until(lambda: (stream_status(one, "s") or {}).get("awaited_readers") == 1)
    # It may not have come to its wait yet: then Python raises at once.
    sim.kill(signal.SIGINT)
    assert sim.code() != 0
    wait_until(lambda: phase(one) == "crashed")


def test_a_rank_may_close_again_after_its_home_has_stood_still(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one, timeout=1) as sim:
        sim.array("U", dtype="f8", shape=(400,))
        with sim.step(0) as step:
            step.put("U", np.ones(400))
        sim.flush()
        server = pid_of_server(one, 0)
        stand_still(server)
        try:
            with pytest.raises(forebay.Timeout):
                sim.close()
            with pytest.raises(forebay.Closed):
                sim.flush()
        finally:
            os.kill(server, signal.SIGCONT)
        wait_until(partial(has_closed, sim))
        assert read_all(reader) == ([(0, False)], "")
    assert phase(one) == "finished"


def has_closed(sim: forebay.Producer) -> bool:
    try:
        sim.close()
    except forebay.Timeout:
        return False
    return True


ROWS = 400
"""Of a rank's block: it is large enough to lie at the rank's home."""


def put_ones(ranks: list[forebay.Producer], number: int) -> None:
    """All ranks put their part of a step."""
    with contextlib.ExitStack() as stack:
        for rank, sim in enumerate(ranks):
            step = stack.enter_context(sim.step(number))
            step.put("U", np.ones(ROWS), offset=(rank * ROWS,))


def homes(ranks: list[forebay.Producer], reader: forebay.Consumer) -> list[int]:
    """The home of each rank: where its block of step 0 lies."""
    for sim in ranks:
        sim.array("U", dtype="f8", shape=(len(ranks) * ROWS,))
    put_ones(ranks, 0)
    with reader.next() as step:
        return [block.server for block in sorted(step.blocks("U"), key=lambda block: block.rank)]


def kill_server(group: forebay.LocalGroup, server: int) -> None:
    """Ends a server at once; returns when the others go on without it."""
    pid = pid_of_server(group, server)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    wait_until(lambda: server not in server_numbers(group))


@pytest.mark.parametrize("dead_is", ["home and coordinator", "coordinator", "home"])
def test_a_rank_that_has_closed_stays_so_whichever_server_dies(two: forebay.LocalGroup, dead_is: str) -> None:
    """The other rank goes on, through another home if it must, and closes as well."""
    dead, other = server_numbers(two)
    stream = stream_coordinated_by(two, dead if "coordinator" in dead_is else other)
    with consumer(two, stream) as reader, open_ranks(two, stream, 2) as ranks:
        rank_at = {home: rank for rank, home in enumerate(homes(ranks, reader))}
        assert set(rank_at) == {dead, other}
        ranks[rank_at[dead if "home" in dead_is else other]].close()
        kill_server(two, dead)
        for rank in ranks:
            rank.close()
        assert read_all(reader) == ([], "")
        wait_until(lambda: phase(two, stream) == "finished")


@pytest.mark.parametrize("how", ["finished", "crashed"])
def test_how_a_run_ended_is_known_after_its_coordinator_has_died(two: forebay.LocalGroup, how: str) -> None:
    dead = server_numbers(two)[0]
    stream = stream_coordinated_by(two, dead)
    with producer(two, stream) as sim:
        if how == "crashed":
            sim.abandon()
    wait_until(lambda: phase(two, stream) == how)
    kill_server(two, dead)
    wait_until(lambda: phase(two, stream) == how)


def test_who_goes_on_unstaged_and_closes_has_closed(two: forebay.LocalGroup) -> None:
    """Its home dies while the other server stands still; when that goes on, the rank closes, and tells what it has skipped."""
    with consumer(two) as reader, producer(two, on_loss="skip") as sim:
        (dead,) = homes([sim], reader)
        (stays,) = set(server_numbers(two)) - {dead}
        pids = {server: pid_of_server(two, server) for server in (dead, stays)}
        stand_still(pids[stays])
        try:
            os.kill(pids[dead], signal.SIGKILL)
            for number in (1, 2):
                put_ones([sim], number)
            assert sim.skipped == 2
        finally:
            os.kill(pids[stays], signal.SIGCONT)
        wait_until(lambda: server_numbers(two) == [stays])
        sim.close()
        with pytest.raises(forebay.Ended, match="a rank began 2 steps that no server took"):
            reader.next()


def test_who_comes_late_is_told_at_once(one: forebay.LocalGroup, transport: str) -> None:
    with producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", np.ones(4))
    for start in ("next", "oldest"):
        with consumer(one, start=start, transport=transport, timeout=600) as reader:
            with pytest.raises(
                forebay.NotFound, match="has ended after 3 steps and keeps none of its steps"
            ) as error:
                next(iter(reader))
            for remedy in ("`wait_for_readers`", "`keep`", "`follow`"):
                assert remedy in str(error.value)
    with consumer(one, follow=True) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(7) as step:
            step.put("U", np.ones(4))
        assert reader.next().number == 7


def test_who_comes_after_a_crash_is_told_of_that(one: forebay.LocalGroup) -> None:
    with producer(one, keep=2) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(0) as step:
            step.put("U", np.ones(4))
        sim.abandon()
    with consumer(one, start="oldest") as reader:
        assert read_all(reader)[0] == [(0, False)]
    with (
        consumer(one) as reader,
        pytest.raises(forebay.Crashed, match="keeps 1 of its steps: begin with the oldest"),
    ):
        reader.next()


def test_a_crash_that_another_run_continues_is_told_as_an_end(one: forebay.LocalGroup) -> None:
    with consumer(one, window=1) as reader:
        with producer(one) as sim:
            sim.array("U", dtype="f8", shape=(4,))
            for number in range(3):
                with sim.step(number) as step:
                    step.put("U", np.ones(4))
            sim.abandon()
        first = reader.next()
        with producer(one, continues=(sim.run, 2)):
            first.release()
            numbers = [reader.next().number for _ in range(2)]
            with pytest.raises(forebay.Ended, match="run 2 continues it"):
                reader.next()
        assert numbers == [1, 2]


def test_status_ls_and_the_logs_of_pipelines_say_how_a_run_ended(
    one: forebay.LocalGroup, code: Callable[[str], str]
) -> None:
    def said(*command: str) -> str:
        done = subprocess.run(
            ["forebay", *command, "--group", one.path], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with consumer(one, "later"):
        assert phase(one, "later") == "awaited"
    admin = forebay.Admin(group=one)
    path = code("class Pass(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n")
    admin.create_pipeline("p", f"{path}:Pass", stream="s")
    with producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,))
        with sim.step(5) as step:
            step.put("U", np.ones(4))
        assert phase(one) == "running"
        assert "s (running since 20" in said("ls")
        wait_until(lambda: pipeline_status(one, "p")["executed"] == 1)
        sim.abandon()
    with producer(one):
        pass
    wait_until(lambda: phase(one) == "finished")
    assert "finished since 20" in said("status")

    def log() -> str:
        return said("pipeline", "log", "p")

    wait_until(lambda: "run 2 of stream 's' has ended" in log())
    assert "run 1 of stream 's' is running: its step 5 is the first here" in log()
    assert f"run 1 of stream 's' has crashed at step 5: rank 0 of 1 (process {os.getpid()} on" in log()
    assert "ended without closing it (20" in log()


def test_a_producer_that_is_only_let_go_has_not_closed(one: forebay.LocalGroup) -> None:
    """A script that ends without `close` looks like one that was killed, since it may have been."""
    code = "import forebay, sys; sim = forebay.Producer('s', group=sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, one.path], check=True, timeout=30)
    wait_until(lambda: phase(one) == "crashed")
