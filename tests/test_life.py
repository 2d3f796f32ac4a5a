"""How processes start, do not start, and end: workers, servers, and what starts them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.children import Child
from support.commands import FOREBAY, command
from support.processes import MARK, is_alive, marked_processes, stand_still
from support.sessions import consumer, producer
from support.waiting import wait_until, within

import forebay

SHAPE = (60, 50)


def pipelines(group: forebay.LocalGroup) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = forebay.Admin(group=group.path).status()["pipelines"]
    return found


def workers(group: forebay.LocalGroup) -> list[dict[str, Any]]:
    return [worker for pipeline in pipelines(group) for worker in pipeline["workers"]]


def simulate(group: forebay.LocalGroup, numbers: range, stream: str = "s") -> None:
    with producer(group, stream, policy="block") as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in numbers:
            with sim.step(number) as step:
                step.put("U", np.full(SHAPE, float(number)))


@pytest.fixture
def code(own_place: Path) -> Callable[[str], str]:
    """Writes a pipeline `Check` whose class has this body; returns how to name it."""

    def write(body: str) -> str:
        path = own_place / "code.py"
        path.write_text(f"import os, signal, time\nimport forebay\n{body}\n")
        return f"{path}:Check"

    return write


IDLE = "class Check(forebay.Pipeline):\n    def execute(self, step, comm): pass"


# ---- workers ------------------------------------------------------------------------------------


def test_a_worker_that_could_not_be_started_is_started_later(
    one: forebay.LocalGroup, code: Callable[[str], str], own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status says why meanwhile, and a simulation that may not lose a step goes on afterwards."""
    gone = own_place / "gone"
    gone.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(gone)
        forebay.Admin(group=one.path).create_pipeline("check", code(IDLE), stream="s")
    shutil.rmtree(gone)
    os.kill(workers(one)[0]["pid"], signal.SIGKILL)
    wait_until(lambda: "cannot start" in (pipelines(one)[0]["last_error"] or ""))
    assert "cannot start" in workers(one)[0]["log"][-1]
    gone.mkdir()
    simulate(one, range(20))
    wait_until(lambda: pipelines(one)[0]["executed"] == 20)


def test_the_successor_of_a_dead_worker_is_left_alone(
    one: forebay.LocalGroup, code: Callable[[str], str], own_place: Path
) -> None:
    """What is noted of the dead one's connection is not taken for the new one's."""
    # Something that it started keeps the dead one's output open for a while: its end is known before it is
    # told, and its connection's end comes between. Executions take longer than a worker may linger that has
    # lost its connection.
    name = code(
        """
import subprocess
subprocess.Popen(["sh", "-c", "cat; sleep 1"], stdin=subprocess.PIPE)

class Check(forebay.Pipeline):
    def execute(self, step, comm):
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            time.sleep(0.05)
"""
    )
    forebay.Admin(group=one.path, timeout=60).create_pipeline("check", name, stream="s")
    (worker,) = workers(one)
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: workers(one)[0]["starts"] == 2)
    wait_until(lambda: pipelines(one)[0]["workers_ready"] == 1)
    simulate(one, range(1))
    wait_until(lambda: pipelines(one)[0]["last_step"] == 0)
    (pipeline,) = pipelines(one)
    (worker,) = pipeline["workers"]
    assert (pipeline["executed"], pipeline["failed"], worker["starts"]) == (1, 0, 2), pipeline["last_error"]


def test_a_worker_ends_with_its_server_amid_an_execution(
    one: forebay.LocalGroup, code: Callable[[str], str], own_place: Path
) -> None:
    name = code(
        "class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n"
        f"        open({str(own_place / 'executes')!r}, 'w').close()\n        while True: time.sleep(0.05)\n"
        f"    def close(self): open({str(own_place / 'closed')!r}, 'w').close()"
    )
    forebay.Admin(group=one.path).create_pipeline("check", name, stream="s")
    (worker,) = workers(one)
    simulate(one, range(1))
    wait_until((own_place / "executes").exists)
    one.servers[0].process.kill()
    wait_until(lambda: not is_alive(worker["pid"]))
    assert (own_place / "closed").exists(), "it could not close what it had open"


SLOW_INIT = "class Check(forebay.Pipeline):\n    def __init__(self, config): time.sleep(600)"
SLOW_IMPORT = f"time.sleep(600)\n{IDLE}"


def test_a_pipeline_that_does_not_start_in_time_is_not_there(
    two: forebay.LocalGroup, code: Callable[[str], str]
) -> None:
    with forebay.Admin(group=two.path, timeout=2) as admin, within(30):
        with pytest.raises(forebay.Timeout, match=r"pipeline 'check'.*server"):
            admin.create_pipeline("check", code(SLOW_INIT), stream="s")
        wait_until(lambda: not pipelines(two))
        with pytest.raises(forebay.Timeout, match="imported"):
            admin.create_pipeline("check", code(SLOW_IMPORT))
        told = command("pipeline", "create", "check", code(SLOW_IMPORT), "--timeout", 1, "--group", two.path)
        assert (told.returncode, "imported" in told.stderr) == (1, True), told.stderr
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", code(IDLE), stream="s")


def test_a_pipeline_ends_with_who_waits_for_its_start(
    one: forebay.LocalGroup, code: Callable[[str], str], child: Callable[..., Child]
) -> None:
    waits = child(
        "forebay.Admin(group=sys.argv[1]).create_pipeline('check', sys.argv[2], stream='s')",
        one.path,
        code(SLOW_INIT),
    )
    (worker,) = wait_until(lambda: [w for w in workers(one) if w["pid"]])
    waits.kill()
    wait_until(lambda: not pipelines(one))
    wait_until(lambda: not is_alive(worker["pid"]))


# ---- servers ------------------------------------------------------------------------------------


def test_servers_end_with_a_parent_that_dies_while_they_form(
    child: Callable[..., Child], own_place: Path
) -> None:
    owner = child(
        """
        import subprocess
        import forebay._local

        class Once(subprocess.Popen):
            def __init__(self, command, **options):
                super().__init__(command, **options)
                print(self.pid, flush=True)
                wait_until(lambda: os.path.exists(command[command.index("--group") + 1]))
                os.kill(os.getpid(), signal.SIGKILL)

        forebay._local.subprocess.Popen = Once
        forebay.local(servers=2, budget_bytes=1 << 24)
        """
    )
    pid = int(owner.line())
    assert owner.code() == -signal.SIGKILL
    wait_until(lambda: not is_alive(pid))
    for directory in (own_place / "tmp").iterdir():
        assert not (directory / "group.json").exists()
        shutil.rmtree(directory)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_servers_end_with_an_up_that_is_cut_off(own_place: Path, how: signal.Signals) -> None:
    """Until it has told all of them to stay; then a new group can be started at the same place."""
    group, log = own_place / "g.json", own_place / "g.json.forebay.log"
    arguments = ["up", "-n", "6", "--budget", "16M", "--group", str(group)]

    def is_cut_off() -> bool:
        with subprocess.Popen([FOREBAY, *arguments], stdout=subprocess.DEVNULL) as up:
            wait_until(group.exists)
            up.send_signal(signal.SIGSTOP)
            # Its group forms, or has formed: it may have been done before it was stopped.
            up.send_signal(how)
            up.send_signal(signal.SIGCONT)
        if up.returncode == 0 or log.read_text().count("is a member") == 6:
            # Those that it has not let go end by themselves.
            down = command("down", "--group", group)
            assert up.returncode == -how or down.returncode == 0
            wait_until(lambda: not marked_processes(os.environ[MARK]))
            return False
        return up.returncode == -how

    wait_until(is_cut_off, what="an up that is not done yet")
    wait_until(lambda: not marked_processes(os.environ[MARK]))
    assert not group.exists()
    again = command(*arguments)
    assert again.returncode == 0, again.stderr
    assert command("down", "--group", group).returncode == 0
    assert not list(own_place.glob("g.json*"))


def test_up_leaves_a_group_alone_that_forms(own_place: Path) -> None:
    group = own_place / "g.json"
    serve = [FOREBAY, "serve", "--servers", "2", "--group", str(group), "--budget", "16M"]
    with subprocess.Popen(serve) as first:
        wait_until(group.exists)
        before = group.read_text()
        up = command("up", "--group", group)
        assert (up.returncode, "there are servers" in up.stderr) == (1, True), up.stderr
        assert group.read_text() == before
        first.terminate()


def test_files_of_the_users_beside_a_group(own_place: Path) -> None:
    """What servers print goes to a file of their own, and no other is emptied or removed."""
    group, log = own_place / "run.json", own_place / "run.json.forebay.log"
    for mine in (own_place / "run.log", own_place / "run.json.log"):
        mine.write_text("of the simulation\n")
    before = {path: path.read_text() for path in own_place.iterdir() if path.is_file()}
    assert command("up", "--group", group, "--budget", "16M").returncode == 0
    assert log.exists()
    assert command("down", "--group", group).returncode == 0
    assert {path: path.read_text() for path in own_place.iterdir() if path.is_file()} == before
    log.write_text("not of the servers\n")
    up = command("up", "--group", group, "--budget", "16M")
    assert (up.returncode, log.name in up.stderr) == (1, True), up.stderr
    assert log.read_text() == "not of the servers\n"
    assert not group.exists()


def test_what_is_no_file_is_no_connection_file(own_place: Path) -> None:
    for path in ("/dev/null", own_place):
        for what in ("up", "status"):
            told = command(what, "--group", path)
            assert (told.returncode, "regular file" in told.stderr) == (3, True), told.stderr
            assert "chmod" not in told.stderr


# ---- deadlines ----------------------------------------------------------------------------------


def test_servers_that_stand_still_share_one_deadline(own_place: Path) -> None:
    """Of status, of the end, and of closing a private group; those that run answer all the same."""
    with forebay.local(servers=6, budget_bytes=16 << 20) as group:
        first = forebay.Admin(group=group.path).status()["servers"]
        for server in first[:5]:
            stand_still(server["pid"])
        with forebay.Admin(group=group.path, timeout=2) as admin:
            with within(8):
                servers = admin.status()["servers"]
            assert ["error" in server for server in servers] == [True] * 5 + [False]
            assert "waiting for server3" in servers[3]["error"]
            with within(8), pytest.raises(forebay.Timeout, match="server"):
                admin.destroy_pipeline("none")
        with within(10):
            down = command("down", "--group", group.path, "--timeout", 2)
        assert (down.returncode, "waiting for server0" in down.stderr) == (1, True), down.stderr
        assert not is_alive(first[5]["pid"]) or wait_until(lambda: not is_alive(first[5]["pid"]))
        with within(12):
            group.close()


# ---- descriptors and memory ---------------------------------------------------------------------


def test_a_reader_without_descriptors_says_so(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """And goes on when it has some."""
    with producer(one) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        reader = child(
            """
            import resource
            with consumer(sys.argv[1]) as reader:
                print("attached")
                with reader.next() as found:
                    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
                    for what in (lambda: found["U"][...], lambda: consumer(sys.argv[1])):
                        try:
                            what()
                        except forebay.Io as error:
                            assert "ulimit -n" in str(error), error
                        else:
                            raise AssertionError("it had descriptors")
                    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
                    assert (found["U"][...] == 7).all()
            """,
            one.path,
        )
        reader.expect("attached")
        with sim.step(0) as step:
            step.put("U", np.full(SHAPE, 7.0))
        reader.ended()


def test_a_get_of_more_than_was_put(one: forebay.LocalGroup) -> None:
    """Far more than there is memory: what is missing is said before any is asked for."""
    with producer(one, keep=2) as sim, consumer(one) as reader:
        sim.array("U", dtype="f8", shape=(2**40,))
        with sim.step(0) as step:
            step.put("U", np.ones(5000))
        reader.next().release()
        told = command("get", "s", "U", "--group", one.path)
        assert (told.returncode, "nothing was put" in told.stderr) == (1, True), told.stderr
