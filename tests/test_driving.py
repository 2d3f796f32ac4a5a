"""Pipelines that ranks drive themselves: activate, stage, execute, deactivate."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.deaths import kill_servers
from support.groups import BUDGET, group_status, is_given_back, server_ids
from support.native import CASE_NAMES, SOURCES, Program, build
from support.pipelines import notes, pipeline_status
from support.processes import stand_still
from support.sessions import producer
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)

CHECK = """
class Check(forebay.Pipeline):
    fields = {"U": forebay.every(1)}

    def execute(self, step, comm):
        rows = sorted((b.offset[0], b.shape[0], float(b.data.sum())) for b in step.blocks("U"))
        all_rows = sorted(row for rows in comm.allgather(rows) for row in rows)
        if os.path.exists(self.config["out"] + ".fail"):
            raise RuntimeError("told to fail")
        if comm.rank == 0:
            note(self.config, step=step.number, size=comm.size, rows=all_rows,
                 whole=float(step["U"][...].sum()))
"""


@pytest.fixture
def check(code: Callable[[str], str], out: Path) -> Callable[..., None]:
    """Creates a pipeline, to be driven, that notes what it sees."""

    def create(group: forebay.LocalGroup, name: str = "check", **config: Any) -> None:
        with forebay.Admin(group=group.path) as admin:
            path = code(CHECK)
            admin.create_pipeline(
                name, f"{path}:Check", stream=name, driven=True, config={"out": str(out), **config}
            )

    return create


@contextlib.contextmanager
def handles(
    group: forebay.LocalGroup, size: int, name: str = "check", **options: Any
) -> Iterator[list[forebay.PipelineHandle]]:
    """All ranks, in this process."""
    options = {"timeout": 20, **options}
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(
                forebay.PipelineHandle(name, group=group.path, rank=rank, size=size, **options)
            )
            for rank in range(size)
        ]
        for handle in opened:
            handle.array("U", dtype="f8", shape=SHAPE)
        yield opened


def stage(ranks: list[forebay.PipelineHandle], number: int, **options: Any) -> None:
    """Each rank stages its slab of the step that is active."""
    whole = reference(SHAPE, "f8", number)
    for handle, (begin, end) in zip(ranks, cut(SHAPE[0], len(ranks)), strict=True):
        assert handle.stage("U", whole[begin:end], offset=(begin, 0), **options)


def is_right(note: dict[str, Any]) -> bool:
    whole = reference(SHAPE, "f8", note["step"])
    return note["whole"] == whole.sum() and sum(row[2] for row in note["rows"]) == whole.sum()


def seen(out: Path) -> list[int]:
    """The steps that were run, each as often as it was; what was seen of each is right."""
    found = notes(out)
    assert all(is_right(note) for note in found)
    return sorted(note["step"] for note in found)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_life_cycle(
    group: forebay.LocalGroup, check: Callable[..., None], out: Path, transport: str, ranks: int
) -> None:
    """Nothing runs before it is told to, and then once for all ranks."""
    check(group)
    servers = server_ids(group)
    with handles(group, ranks, transport=transport) as sim:
        for number in range(5, 10):
            assert [handle.activate(number, time=0.5) for handle in sim] == [servers] * ranks
            stage(sim, number)
            assert seen(out) == list(range(5, number))
            requests = [handle.execute_async(number) for handle in sim]
            assert [request.wait() for request in requests] == [True] * ranks
            assert [request.wait() for request in requests] == [True] * ranks
            assert seen(out) == list(range(5, number + 1))
            assert sim[0].active == [number]
            assert not is_given_back(group)
            for handle in sim[1:]:
                handle.deactivate(number)
            assert not is_given_back(group)
            sim[0].deactivate(number)
            assert sim[0].active == []
            wait_until(lambda: is_given_back(group))
    status = pipeline_status(group, "check")
    assert (status["executed"], status["failed"], status["driven"]) == (5, 0, True)
    assert {note["size"] for note in notes(out)} == {len(servers)}


def test_one_worker_alone(two: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """It holds what is staged, and has all of it."""
    check(two)
    with handles(two, 2, server=1) as sim:
        for number in range(4):
            assert [handle.activate(number) for handle in sim] == [[1], [1]]
            stage(sim, number)
            assert [request.wait() for request in [handle.execute_async(number) for handle in sim]] == [
                True
            ] * 2
            staged = {server["server"]: server["staged_bytes"] for server in group_status(two)["servers"]}
            assert staged[0] == 0
            assert staged[1] > 0
            for handle in sim:
                handle.deactivate(number)
    assert seen(out) == [0, 1, 2, 3]
    assert {note["size"] for note in notes(out)} == {1}
    with pytest.raises(forebay.Unreachable, match="server7"):
        forebay.PipelineHandle("check", group=two.path, server=7)


def test_only_one_rank_executes(group: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """The others stage, and say that they have finished."""
    check(group)
    with handles(group, 3) as sim:
        for number in range(3):
            for handle in sim:
                handle.activate(number)
            stage(sim, number)
            for handle in sim[1:]:
                handle.deactivate(number)
            assert sim[0].execute(number)
            sim[0].deactivate(number)
        wait_until(lambda: is_given_back(group))
    assert seen(out) == [0, 1, 2]


def test_again_and_not_at_all(one: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """A step may be run several times while it is active, or never."""
    check(one)
    with handles(one, 2) as sim:
        for handle in sim:
            handle.activate(0)
        stage(sim, 0)
        for turn in range(1, 4):
            requests = [handle.execute_async(0) for handle in sim]
            assert [request.wait() for request in requests] == [True, True]
            assert seen(out) == [0] * turn
        for handle in sim:
            handle.deactivate(0)
        for handle in sim:
            handle.activate(1)
        stage(sim, 1)
        for handle in sim:
            handle.deactivate(1)
        wait_until(lambda: is_given_back(one))
        assert seen(out) == [0] * 3


def test_four_steps_at_once(two: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """Steps run while later ones are staged. A rank that is ahead waits for the others."""
    check(two)
    with handles(two, 2) as sim:
        requests = []
        for number in range(4):
            activated = [handle.activate_async(number) for handle in sim]
            stage(sim, number, wait=False)
            assert [request.wait() for request in activated] == [[0, 1], [0, 1]]
            requests += [handle.execute_async(number) for handle in sim]
        assert [request.wait() for request in requests] == [True] * 8
        with pytest.raises(forebay.Conflict, match="4 steps are active"):
            sim[0].activate(4)
        assert sim[0].active == [0, 1, 2, 3]
        sim[0].deactivate(0)
        late = sim[0].activate_async(4)
        with pytest.raises(forebay.Timeout, match=r"activate step 4 of pipeline 'check'"):
            late.wait(timeout=0.2)
        assert sim[0].activate(4) == [0, 1]
        sim[1].deactivate(0)
        assert late.wait() == [0, 1]
        assert sim[1].activate(4) == [0, 1]
        stage(sim, 4)
        last = [handle.execute_async(4) for handle in sim]
        assert [request.wait() for request in last] == [True, True]
    assert seen(out) == [0, 1, 2, 3, 4]
    wait_until(lambda: is_given_back(two))


def test_a_pipeline_that_fails_is_tried_again(
    two: forebay.LocalGroup, check: Callable[..., None], out: Path
) -> None:
    """All ranks are told why; the data is there still."""
    check(two)
    with handles(two, 2) as sim:
        for handle in sim:
            handle.activate(3)
        stage(sim, 3)
        fail = out.with_name("out.fail")
        fail.touch()
        requests = [handle.execute_async(3) for handle in sim]
        for request in requests:
            with pytest.raises(forebay.PipelineFailed, match="told to fail"):
                request.wait()
        fail.unlink()
        requests = [handle.execute_async(3) for handle in sim]
        assert [request.wait() for request in requests] == [True, True]
    assert seen(out) == [3]


def test_a_rank_that_dies_tears_the_step(
    two: forebay.LocalGroup, check: Callable[..., None], out: Path, child: Callable[..., Child]
) -> None:
    """The other ranks are told, and what it staged is free in the end."""
    check(two)
    other = child(
        """
        handle = forebay.PipelineHandle("check", group=sys.argv[1], rank=1, size=2)
        handle.array("U", dtype="f8", shape=(60, 50))
        handle.activate(0)
        handle.stage("U", np.ones((30, 50)), offset=(30, 0))
        print("staged")
        sys.stdin.readline()
        """,
        two.path,
    )
    with forebay.PipelineHandle("check", group=two.path, rank=0, size=2) as handle:
        handle.array("U", dtype="f8", shape=SHAPE)
        handle.activate(0)
        handle.stage("U", np.ones((30, 50)), offset=(0, 0))
        other.expect("staged")
        request = handle.execute_async(0)
        with pytest.raises(forebay.Timeout, match="which all ranks must have ended"):
            request.wait(timeout=0.2)
        other.process.kill()
        with pytest.raises(forebay.Torn, match="a rank died in it"):
            request.wait()
        handle.deactivate(0)
        wait_until(lambda: is_given_back(two))
    assert seen(out) == []


def test_what_the_contract_does_not_need(one: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    """Nothing is staged, and nothing runs."""
    path = code(
        """
        class Tenth(forebay.Pipeline):
            fields = {"U": forebay.every(10)}
            def execute(self, step, comm):
                assert step.number % 10 == 0
        """
    )
    forebay.Admin(group=one.path).create_pipeline("tenth", f"{path}:Tenth", stream="s", driven=True)
    with forebay.PipelineHandle("tenth", group=one.path, timeout=20) as handle:
        handle.array("U", dtype="f8", shape=SHAPE)
        for number in (9, 10, 11):
            handle.activate(number)
            assert handle.demanded("U") is (number == 10)
            assert handle.stage("U", reference(SHAPE)) is (number == 10)
            assert handle.execute(number) is (number == 10)
            handle.deactivate(number)


def test_calls_in_the_wrong_order(one: forebay.LocalGroup, check: Callable[..., None]) -> None:
    """Each says what is wrong, and harms nothing."""
    check(one)
    with handles(one, 1) as (handle,):
        with pytest.raises(forebay.StepOrder, match="activate"):
            handle.stage("U", reference(SHAPE))
        for call in (handle.execute, handle.execute_async, handle.deactivate):
            with pytest.raises(forebay.StepOrder, match="step 4 is not active"):
                call(4)
        handle.activate(4)
        with pytest.raises(forebay.StepOrder, match="step 4 is being staged"):
            handle.activate(5)
        assert handle.active == [4]
        assert handle.activate(4) == [0]
        handle.stage("U", reference(SHAPE, "f8", 4))
        assert handle.execute(4)
        with pytest.raises(forebay.StepOrder):
            handle.stage("U", reference(SHAPE))
        with pytest.raises(forebay.StepOrder, match="active already"):
            handle.activate(4)
        handle.deactivate(4)
        with pytest.raises(forebay.StepOrder, match="step 3 after step 4"):
            handle.activate(3)
        with pytest.raises(forebay.StepOrder):
            handle.deactivate(4)
        assert handle.active == []
    with pytest.raises(forebay.Closed):
        handle.activate(6)
    handle.close()


def test_handles_of_what_is_not_there(one: forebay.LocalGroup, check: Callable[..., None], code: Any) -> None:
    """A name that is wrong, or a pipeline that runs by itself."""
    check(one)
    with pytest.raises(forebay.NotFound, match=r"no pipeline 'chekc'.*check"):
        forebay.PipelineHandle("chekc", group=one.path)
    path = code(CHECK, "other.py")
    forebay.Admin(group=one.path).create_pipeline("alone", f"{path}:Check", stream="other")
    with pytest.raises(forebay.Invalid, match="driven=True"):
        forebay.PipelineHandle("alone", group=one.path)
    # Its rank was given back: another one may be opened.
    with producer(one, "other") as sim:
        assert sim.rank == 0


def test_ranks_that_do_not_agree(two: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """One drives all workers, the other one of them: the second is told so."""
    check(two)
    with (
        forebay.PipelineHandle("check", group=two.path, rank=0, size=2) as first,
        forebay.PipelineHandle("check", group=two.path, rank=1, size=2, server=1) as second,
    ):
        for handle in (first, second):
            handle.array("U", dtype="f8", shape=SHAPE)
        first.activate(0)
        with pytest.raises(forebay.Conflict, match="on all servers, and now on server1"):
            second.activate(0)
        assert second.active == []
        first.deactivate(0)


def test_a_pipeline_that_is_destroyed(one: forebay.LocalGroup, check: Callable[..., None]) -> None:
    """Who waits for it is told."""
    check(one)
    with handles(one, 2) as (handle, other):
        handle.activate(0)
        other.activate(0)
        request = handle.execute_async(0)
        with pytest.raises(forebay.Timeout):
            request.wait(timeout=0.1)
        forebay.Admin(group=one.path).destroy_pipeline("check")
        with pytest.raises(forebay.NotFound, match="'check' was destroyed"):
            request.wait()
        with pytest.raises(forebay.NotFound, match="'check'"):
            other.execute(0)
    wait_until(lambda: is_given_back(one))


def test_steps_that_nobody_activated(one: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """A producer of the same stream: its steps are let go of at once."""
    check(one)
    with producer(one, "check", policy="block") as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(20):
            with sim.step(number) as step:
                assert step.put("U", reference(SHAPE, "f8", number))
        sim.flush()
        wait_until(lambda: is_given_back(one))
    assert pipeline_status(one, "check")["missed"] == 20
    # A second run of the stream drives it.
    with handles(one, 1) as (handle,):
        handle.activate(0)
        stage([handle], 0)
        assert handle.execute(0)
    assert seen(out) == [0]


def test_runs_follow_each_other(one: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """The first leaves a step active; the next one begins with the same numbers."""
    check(one)
    for _ in range(3):
        with handles(one, 2) as sim:
            for handle in sim:
                handle.activate(7)
            stage(sim, 7)
            requests = [handle.execute_async(7) for handle in sim]
            assert [request.wait() for request in requests] == [True, True]
        wait_until(lambda: is_given_back(one))
    assert seen(out) == [7] * 3


def test_joining_and_leaving(two: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """Who takes part is fixed when a step is activated; one that leaves is done without."""
    check(two)

    def workers() -> int:
        return int(pipeline_status(two, "check")["workers_ready"])

    with handles(two, 2) as sim:
        assert [handle.activate(0) for handle in sim] == [[0, 1], [0, 1]]
        two.add_servers()
        wait_until(lambda: workers() == 3)
        stage(sim, 0)
        requests = [handle.execute_async(0) for handle in sim]
        assert [request.wait() for request in requests] == [True, True]
        for handle in sim:
            handle.deactivate(0)
        # Who runs this one was fixed with the one before.
        assert [handle.activate(1) for handle in sim] == [[0, 1]] * 2
        stage(sim, 1)
        requests = [handle.execute_async(1) for handle in sim]
        assert [request.wait() for request in requests] == [True, True]
        for handle in sim:
            handle.deactivate(1)
        assert [handle.activate(2) for handle in sim] == [[0, 1, 2]] * 2
        stage(sim, 2)
        requests = [handle.execute_async(2) for handle in sim]
        assert [request.wait() for request in requests] == [True, True]
        two.remove_server(1)
        requests = [handle.execute_async(2) for handle in sim]
        assert [request.wait() for request in requests] == [True, True]
        for handle in sim:
            handle.deactivate(2)
        for number in (3, 4):
            servers = [handle.activate(number) for handle in sim]
            stage(sim, number)
            requests = [handle.execute_async(number) for handle in sim]
            assert [request.wait() for request in requests] == [True, True]
            for handle in sim:
                handle.deactivate(number)
        assert servers == [[0, 2]] * 2
    sizes = sorted((note["step"], note["size"]) for note in notes(out))
    assert sizes == [(0, 2), (1, 2), (2, 2), (2, 3), (3, 2), (4, 2)]
    assert seen(out) == [0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize("how", ["killed", "stopped", "leaves"])
@pytest.mark.parametrize("phase", ["active", "staged", "asked", "executed", "deactivated"])
def test_the_coordinator_goes(
    own_place: Path, check: Callable[..., None], out: Path, phase: str, how: str
) -> None:
    """At any moment of the cycle: the next server takes its place, and the cycle goes on."""
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=2.0) as group:
        check(group)
        coordinator = int(next(s["server"] for s in group_status(group)["streams"] if s["name"] == "check"))

        def go() -> None:
            if how == "killed":
                kill_servers(group, coordinator)
            elif how == "stopped":
                stand_still(
                    next(s["pid"] for s in group_status(group)["servers"] if s["server"] == coordinator)
                )
            else:
                threading.Thread(target=group.remove_server, args=(coordinator,)).start()

        with handles(group, 2, replicas=2, durability="replicated") as sim:
            for number in range(3):
                assert all(handle.activate(number) for handle in sim)
                if (number, phase) == (1, "active"):
                    go()
                stage(sim, number)
                if (number, phase) == (1, "staged"):
                    go()
                requests = [handle.execute_async(number) for handle in sim]
                if (number, phase) == (1, "asked"):
                    go()
                assert [request.wait() for request in requests] == [True, True]
                if (number, phase) == (1, "executed"):
                    go()
                for handle in sim:
                    handle.deactivate(number)
                if (number, phase) == (1, "deactivated"):
                    go()
            wait_until(lambda: coordinator not in server_ids(group))
            wait_until(lambda: is_given_back(group))
            assert sim[0].lost is None
        # It may have been run just before.
        assert set(seen(out)) == {0, 1, 2}
        (status,) = group_status(group)["pipelines"]
        assert [status[name] for name in ("executed", "failed", "missed", "last_step")] == [3, 0, 0, 2], (
            status
        )
        for server in group.servers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGCONT)


SLOW = """
    import time
    class Slow(forebay.Pipeline):
        fields = {"U": forebay.every(1)}
        def execute(self, step, comm):
            note(self.config, pid=os.getpid(), size=comm.size, step=step.number, whole=float(step["U"][...].sum()))
            while os.path.exists(self.config["out"] + ".wait"):
                time.sleep(0.01)
    """


def test_a_worker_dies_while_it_runs(two: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    """Its process: the execution has failed, and may be tried again. Its server: it is run again on the others."""
    wait = out.with_name("out.wait")
    path = code(SLOW)
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("slow", f"{path}:Slow", stream="slow", driven=True, config={"out": str(out)})
    coordinator = next(
        stream["server"] for stream in group_status(two)["streams"] if stream["name"] == "slow"
    )
    with handles(two, 2, "slow", replicas=2) as sim:
        for handle in sim:
            handle.activate(0)
        stage(sim, 0)
        wait.touch()
        requests = [handle.execute_async(0) for handle in sim]
        wait_until(lambda: len(notes(out)) == 2)
        os.kill(notes(out)[0]["pid"], signal.SIGKILL)
        wait.unlink()
        for request in requests:
            with pytest.raises(forebay.PipelineFailed, match="its process ended"):
                request.wait()
        wait.touch()
        requests = [handle.execute_async(0) for handle in sim]
        wait_until(lambda: len(notes(out)) == 4)
        kill_servers(two, 1 - coordinator)
        wait.unlink()
        assert [request.wait() for request in requests] == [True, True]
        assert notes(out)[-1]["whole"] == reference(SHAPE, "f8", 0).sum()
        assert sorted(note["size"] for note in notes(out)) == [1, 2, 2, 2, 2]
        assert pipeline_status(two, "slow")["repeated"] == 1


def test_a_run_begins_while_a_step_of_the_one_before_is_run(
    one: forebay.LocalGroup, code: Callable[[str], str], out: Path
) -> None:
    """What came of that is not taken for what comes of the same step of the new run, and its memory is free."""
    wait = out.with_name("out.wait")
    path = code(SLOW)
    with forebay.Admin(group=one.path) as admin:
        admin.create_pipeline("slow", f"{path}:Slow", stream="slow", driven=True, config={"out": str(out)})
    wait.touch()
    with handles(one, 1, "slow") as (handle,):
        handle.activate(3)
        stage([handle], 3)
        handle.execute_async(3)
        wait_until(lambda: len(notes(out)) == 1)
    with handles(one, 2, "slow") as sim:
        for handle in sim:
            handle.activate(3)
        # Not all ranks have ended it: nothing can be run yet.
        requests = [sim[0].execute_async(3)]
        wait.unlink()
        wait_until(lambda: pipeline_status(one, "slow")["executed"] == 1)
        with pytest.raises(forebay.Timeout):
            requests[0].wait(timeout=0.2)
        stage(sim[1:], 3)
        requests.append(sim[1].execute_async(3))
        assert [request.wait() for request in requests] == [True, True]
        assert pipeline_status(one, "slow")["executed"] == 2
    wait_until(lambda: is_given_back(one))


def test_a_rank_that_is_far_ahead(one: forebay.LocalGroup, check: Callable[..., None], out: Path) -> None:
    """It only stages, and has finished with steps for which there was no room yet: nobody waits for it there."""
    check(one)
    with handles(one, 2) as (ahead, behind):
        for number in range(8):
            ahead.activate(number)
            stage_half(ahead, number, 0)
            ahead.deactivate(number)
        for number in range(12):
            behind.activate(number)
            stage_half(behind, number, 1)
            if number >= 8:
                ahead.activate(number)
                stage_half(ahead, number, 0)
                ahead.deactivate(number)
            assert behind.execute(number)
            behind.deactivate(number)
    assert seen(out) == list(range(12))


def stage_half(handle: forebay.PipelineHandle, number: int, half: int) -> None:
    rows = SHAPE[0] // 2
    whole = reference(SHAPE, "f8", number)
    assert handle.stage("U", whole[half * rows :][:rows], offset=(half * rows, 0))


SUM = """
    class Sum(forebay.Pipeline):
        fields = {"U": forebay.every(1)}
        def execute(self, step, comm):
            total = comm.allreduce(sum(float(b.data.sum()) for b in step.blocks("U")))
            if comm.rank == 0:
                note(self.config, step=step.number, size=comm.size, total=total)
    """


@pytest.mark.parametrize("language, suffix", [("cpp", "cpp"), ("fortran", "f90")])
def test_from_languages_on_top_of_c(
    language: str, suffix: str, two: forebay.LocalGroup, code: Callable[[str], str], out: Path, built: Path
) -> None:
    with forebay.Admin(group=two.path) as admin:
        path = code(SUM)
        admin.create_pipeline("sum", f"{path}:Sum", stream="s", driven=True, config={"out": str(out)})
    program = build(language, SOURCES / f"driving.{suffix}", built)
    with contextlib.closing(Program([str(program), "sum"], two.path)) as running:
        assert running.rest() == ""
    elements = np.arange(6 * 170, dtype="f8")
    found = {note["step"]: (note["total"], note["size"]) for note in notes(out)}
    assert found == {step: ((elements + step).sum(), 2) for step in range(5, 10)}
    wait_until(lambda: is_given_back(two))


@pytest.mark.parametrize(
    "case", re.findall(CASE_NAMES["c"], (SOURCES / "driving.c").read_text(), re.MULTILINE)
)
def test_from_c(
    case: str, two: forebay.LocalGroup, code: Callable[[str], str], out: Path, built: Path
) -> None:
    """Each case with a pipeline of its own, which says what it has seen."""
    path = code(SUM)
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline(case, f"{path}:Sum", stream=case, driven=True, config={"out": str(out)})
    with contextlib.closing(
        Program([str(build("c", SOURCES / "driving.c", built)), case], two.path)
    ) as running:
        assert running.rest() == ""
    steps = {"blocking": range(5, 10), "over_tcp": range(5, 10), "not_blocking": range(6)}.get(
        case, [3] if case == "memory_of_its_own" else [0]
    )
    elements = np.arange(6 * 170, dtype="f8")
    found = {note["step"]: (note["total"], note["size"]) for note in notes(out)}
    size = 1 if case == "one_server" else 2
    assert found == {step: ((elements + step).sum(), size) for step in steps}
    wait_until(lambda: is_given_back(two))
