"""Pipelines: user code in worker processes beside the data."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.arrays import reference
from support.commands import FOREBAY
from support.groups import is_given_back
from support.pipelines import notes, pipeline_status
from support.sessions import open_ranks, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)


def workers_of(group: forebay.LocalGroup, name: str) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = pipeline_status(group, name).get("workers", [])
    return workers


def simulate(
    group: forebay.LocalGroup, numbers: Any, stream: str = "s", ranks: int = 4, **options: Any
) -> None:
    options.setdefault("policy", "block")
    with open_ranks(group, stream, ranks, **options) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
        write_steps(sim, numbers, lambda n: reference(SHAPE, "f8", n))


def executed(group: forebay.LocalGroup, name: str, count: int) -> dict[str, Any]:
    def done() -> dict[str, Any] | None:
        status = pipeline_status(group, name)
        assert status, f"pipeline {name} is gone"
        return status if status["executed"] + status["failed"] >= count else None

    found: dict[str, Any] = wait_until(done)
    return found


def test_blocks_and_communicator(group: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    """Every worker sees the blocks beside it, together all; what they exchange is right."""
    path = code(
        """
        from forebay import MPI

        class Check(forebay.Pipeline):
            fields = {"U": forebay.every(2)}

            def execute(self, step, comm):
                blocks = step.blocks("U")
                rows = sorted((b.offset[0], b.shape[0], float(b.data.sum())) for b in blocks)
                every = comm.gather(rows)
                total = comm.allreduce(sum(r[2] for r in rows))
                low = comm.allreduce(np.array([comm.rank, -comm.rank]), op=MPI.MIN).tolist()
                high = comm.allreduce(comm.rank + 1, op=MPI.PROD)
                comm.barrier()
                word = comm.bcast({"step": step.number} if comm.rank == 0 else None)
                ring = comm.rank
                if comm.size > 1:
                    comm.send(np.full((3, 2), comm.rank), (comm.rank + 1) % comm.size, tag=7)
                    got = comm.recv(source=(comm.rank - 1) % comm.size, tag=7)
                    assert got.shape == (3, 2)
                    ring = int(got[0, 0])
                ranks = comm.allgather(comm.rank)
                big = comm.allreduce(np.ones(300_000))
                note(self.config, step=step.number, rank=comm.rank, size=comm.size, rows=rows, every=every,
                     total=total, low=low, high=high, word=word, ring=ring, ranks=ranks, big=float(big.min()),
                     whole=float(step["U"][...].sum()), everywhere=len(step["U"].blocks(all_servers=True)),
                     servers=sorted({b.server for b in blocks}))
        """
    )
    size = len(group.servers)
    with forebay.Admin(group=group.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        simulate(group, range(1, 8))
        status = executed(group, "check", 3)
    assert (status["executed"], status["failed"], status["last_step"]) == (3, 0, 6), status["last_error"]
    found = notes(out)
    assert len(found) == 3 * size
    for number in (2, 4, 6):
        whole = reference(SHAPE, "f8", number)
        mine = sorted((note for note in found if note["step"] == number), key=lambda note: note["rank"])
        assert [note["rank"] for note in mine] == list(range(size))
        rows = sorted(tuple(row) for note in mine for row in note["rows"])
        assert sum(row[1] for row in rows) == SHAPE[0]
        for begin, extent, added in rows:
            assert added == whole[begin : begin + extent].sum()
        for note in mine:
            assert note["size"] == size
            assert note["total"] == note["whole"] == whole.sum()
            assert note["low"] == [0, 1 - size]
            assert note["high"] == (2 if size == 2 else 1)
            assert note["word"] == {"step": number}
            assert note["ring"] == (note["rank"] - 1) % size
            assert note["ranks"] == list(range(size))
            assert note["big"] == size
            assert note["everywhere"] == 4
            assert len(note["servers"]) == 1
            assert note["every"] == ([other["rows"] for other in mine] if note["rank"] == 0 else None)
    wait_until(lambda: is_given_back(group))


def test_views_are_not_copies(two: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    path = code(
        """
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                for block in step.blocks("U"):
                    bounds = [
                        tuple(int(part, 16) for part in line.split()[0].split("-"))
                        for line in open("/proc/self/maps") if "memfd" in line
                    ]
                    at = block.data.ctypes.data
                    writeable = block.data.flags.writeable
                    note(self.config, mapped=any(a <= at < b for a, b in bounds), writeable=writeable)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        simulate(two, [0])
        assert executed(two, "check", 1)["failed"] == 0
    assert notes(out) == [{"mapped": True, "writeable": False}] * 4


def test_configuration_fields_and_helpers(
    two: forebay.LocalGroup, code: Callable[..., str], out: Path, own_place: Path
) -> None:
    """Fields may follow from the configuration; modules beside the file can be imported; a class will do."""
    code("def double(x):\n    return 2 * x\n", "beside_it.py")
    path = code(
        """
        from beside_it import double

        class Outer:
            class Check(forebay.Pipeline):
                def __init__(self, config):
                    super().__init__(config)
                    self.fields = {config["field"]: config["every"]}
                    self.count = 0

                def execute(self, step, comm):
                    self.count += double(1)
                    note(self.config, step=step.number, fields=step.fields, count=self.count, rank=comm.rank)

                def close(self):
                    note(self.config, closed=True, rank=-1)
        """
    )
    config = {
        "out": str(out),
        "field": "V",
        "every": 3,
        "text": "ä\"'\n$HOME",
        "nested": {"a": [1, None, 2.5]},
    }
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Outer.Check", stream="s", config=config)
        with open_ranks(two, "s", 2, policy="block") as sim:
            for rank in sim:
                for name in "UV":
                    rank.array(name, dtype="f8", shape=SHAPE)
            for number in range(7):
                with sim[0].step(number) as step:
                    assert not step.put("U", reference(SHAPE))
                    assert step.put("V", reference(SHAPE)) == (number % 3 == 0)
                with sim[1].step(number):
                    pass
        executed(two, "check", 3)
        seen = sorted((n["step"], n["fields"], n["count"]) for n in notes(out) if n["rank"] == 0)
        assert seen == [(0, ["V"], 2), (3, ["V"], 4), (6, ["V"], 6)]
        admin.destroy_pipeline("check")
        wait_until(lambda: sum(note.get("closed", False) for note in notes(out)) == 2)


def test_errors_and_tracebacks(two: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    """An exception costs that step; status and log show the traceback and what was printed."""
    path = code(
        """
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                print(f"looking at step {step.number}")
                print("to errors, äöü", file=sys.stderr)
                if step.number == 2:
                    self.trip_over(step)

            def trip_over(self, step):
                raise KeyError("an odd number of gremlins")
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s")
        simulate(two, range(5))
        status = executed(two, "check", 5)
        assert (status["executed"], status["failed"]) == (4, 1)
        for part in ("step 2", "gremlins", "trip_over", "KeyError", "server0", "server1"):
            assert part in status["last_error"]
        text = subprocess.run(
            [FOREBAY, "status", "--group", two.path], capture_output=True, text=True, check=True, timeout=30
        ).stdout
        assert "gremlins" in text
        log = subprocess.run(
            [FOREBAY, "pipeline", "log", "check", "--group", two.path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for part in ("looking at step 4", "to errors, äöü", "trip_over", "gremlins"):
            assert part in log
    assert all(worker["starts"] == 1 for worker in workers_of(two, "check"))


@pytest.mark.parametrize(
    "text, said",
    [
        ("def broken(:\n    pass\n", "SyntaxError"),
        ("import no_such_module_at_all\n", "no_such_module_at_all"),
        ("class Other(forebay.Pipeline):\n    pass\n", "Check"),
        ("class Check:\n    pass\n", "Pipeline"),
        (
            "class Check(forebay.Pipeline):\n    def __init__(self, config):\n        raise RuntimeError('no, thanks')\n",
            "no, thanks",
        ),
        (
            "class Check(forebay.Pipeline):\n    def warm_up(self):\n        raise RuntimeError('too cold')\n"
            "    def execute(self, step, comm): ...\n",
            "too cold",
        ),
        ("class Check(forebay.Pipeline):\n    fields = 'U'\n", "fields"),
        ("class Check(forebay.Pipeline):\n    fields = {'U': -1}\n", "every"),
        (
            "class Check(forebay.Pipeline):\n    fields = []\n    def execute(self, step, comm): ...\n",
            "at least one field",
        ),
        ("class Check(forebay.Pipeline):\n    def run(self, step, comm): ...\n", "no method execute"),
        ("import os\nos._exit(3)\n", "3"),
        ("import os\nos.kill(os.getpid(), 9)\n", "9"),
    ],
    ids=[
        "syntax",
        "import",
        "no class",
        "no pipeline",
        "init",
        "warm up",
        "fields",
        "period",
        "no fields",
        "no execute",
        "exit",
        "killed",
    ],
)
def test_bad_code_is_told_at_creation(
    two: forebay.LocalGroup, code: Callable[[str], str], text: str, said: str
) -> None:
    path = code(text)
    with forebay.Admin(group=two.path, timeout=20) as admin:
        for _ in range(2):
            with pytest.raises((forebay.PipelineFailed, forebay.Invalid), match=said):
                admin.create_pipeline("check", f"{path}:Check", stream="s")
        wait_until(lambda: not workers_of(two, "check"), 10, "workers of a pipeline that is not there")
        assert pipeline_status(two, "check") == {}
        with pytest.raises(forebay.NotFound, match="there is no pipeline 'check'; there are none"):
            admin.destroy_pipeline("check")
        good = code("class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n")
        admin.create_pipeline("check", f"{good}:Check", stream="s")
        # Whichever server is asked first: one of the two knows of none.
        for unknown in ("nope", "chek", "x"):
            with pytest.raises(forebay.NotFound, match=f"no pipeline '{unknown}'; there are check"):
                admin.destroy_pipeline(unknown)
        simulate(two, range(2))
        assert executed(two, "check", 2)["failed"] == 0


def test_names_that_are_wrong(two: forebay.LocalGroup, code: Callable[[str], str], own_place: Path) -> None:
    path = code("class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n")
    with forebay.Admin(group=two.path, timeout=20) as admin:
        for bad in ("", "Check", path, f"{path}:", ":Check", str(own_place / "none.py") + ":Check"):
            with pytest.raises(forebay.Invalid):
                admin.create_pipeline("check", bad, stream="s")
        for name in ("", "x" * 5000):
            with pytest.raises(forebay.Invalid):
                admin.create_pipeline(name, f"{path}:Check", stream="s")
            with pytest.raises(forebay.Invalid):
                admin.create_pipeline("check", f"{path}:Check", stream=name)
        with pytest.raises(forebay.PipelineFailed, match="no-such-python"):
            admin.create_pipeline("check", f"{path}:Check", stream="s", python="/no-such-python")
        admin.create_pipeline("check", f"{path}:Check", stream="s")
        with pytest.raises(forebay.Conflict, match="destroy"):
            admin.create_pipeline("check", f"{path}:Check", stream="s")
        with pytest.raises(forebay.Conflict, match="destroy"):
            admin.create_pipeline("check", f"{path}:Check", stream="another, of the other server")
        with pytest.raises(forebay.NotFound, match="'none'"):
            admin.destroy_pipeline("none")


def test_one_name_for_streams_of_two_servers(two: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    """A pipeline's name is the group's, whichever server coordinates its stream."""
    path = code("class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n")
    with forebay.Admin(group=two.path, timeout=20) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s0")
        for stream in ("s1", "s2", "s3", "s4", "s5"):
            with pytest.raises(forebay.Conflict):
                admin.create_pipeline("check", f"{path}:Check", stream=stream)
        admin.destroy_pipeline("check")
        wait_until(lambda: not workers_of(two, "check"))


@pytest.mark.parametrize("how", ["os._exit(7)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_a_worker_that_dies(two: forebay.LocalGroup, code: Callable[[str], str], how: str, out: Path) -> None:
    """It costs one step, is restarted, and later steps are executed by all again."""
    path = code(
        f"""
        import faulthandler
        faulthandler.disable()

        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                if step.number == 2 and comm.rank == 1:
                    {how}
                if step.number != 3:
                    comm.barrier()
                note(self.config, step=step.number, rank=comm.rank)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        simulate(two, range(8))
        status = executed(two, "check", 8)
        assert (status["executed"], status["failed"]) == (7, 1)
        assert status["workers_ready"] == 2
        assert "server1" in status["last_error"]
        assert sorted(worker["starts"] for worker in workers_of(two, "check")) == [1, 2]
    seen = {(note["step"], note["rank"]) for note in notes(out)}
    assert seen >= {(n, r) for n in (0, 1, 3, 4, 5, 6, 7) for r in (0, 1)}
    assert (2, 1) not in seen
    wait_until(lambda: is_given_back(two))


def test_an_idle_worker_is_killed(two: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    path = code(
        "class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        comm.barrier()\n"
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s")
        for round_ in range(2):
            victim = workers_of(two, "check")[round_]["pid"]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: pipeline_status(two, "check")["workers_ready"] < 2 or victim not in pids(two))  # noqa: B023
            simulate(two, range(3))
            status = executed(two, "check", 3 * (round_ + 1))
            assert status["failed"] <= round_ + 1


def pids(group: forebay.LocalGroup) -> list[int]:
    return [worker["pid"] for worker in workers_of(group, "check")]


def test_a_server_with_a_worker_is_killed(two: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    """The pipeline goes on with the blocks of the server that is left."""
    path = code(
        "class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        comm.barrier()\n"
    )
    with forebay.Admin(group=two.path, timeout=5) as admin:
        for number in range(20):
            # A stream of the first server's, where the only rank has its home too.
            stream = f"s{number}"
            admin.create_pipeline(f"check{number}", f"{path}:Check", stream=stream)
            status = admin.status()
            if status["pipelines"][0]["server"] == 0:
                break
            admin.destroy_pipeline(f"check{number}")
        os.kill(status["servers"][1]["pid"], signal.SIGKILL)
        wait_until(lambda: coordinated(admin)["workers_expected"] == 1)
        simulate(two, range(3), stream, ranks=1)
        wait_until(lambda: coordinated(admin)["executed"] == 3)


def coordinated(admin: forebay.Admin) -> dict[str, Any]:
    return next(iter(admin.status()["pipelines"]), {})


def test_two_pipelines_at_once(two: forebay.LocalGroup, code: Callable[..., str], out: Path) -> None:
    """On one stream, on two, and each ends alone."""
    path = code(
        """
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                total = comm.allreduce(sum(float(b.data.sum()) for b in step.blocks("U")))
                note(self.config, name=self.config["name"], step=step.number, total=total, rank=comm.rank)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        for name, stream in (("a", "s"), ("b", "s"), ("c", "t")):
            admin.create_pipeline(
                name, f"{path}:Check", stream=stream, config={"out": str(out), "name": name}
            )
        simulate(two, range(6), "s")
        simulate(two, range(3), "t", ranks=2)
        for name, count in (("a", 6), ("b", 6), ("c", 3)):
            assert executed(two, name, count)["failed"] == 0
        for note in notes(out):
            assert note["total"] == reference(SHAPE, "f8", note["step"]).sum()
        for name, count in (("a", 6), ("b", 6), ("c", 3)):
            assert sorted(n["step"] for n in notes(out) if n["name"] == name and n["rank"] == 1) == list(
                range(count)
            )
        admin.destroy_pipeline("a")
        assert pipeline_status(two, "a") == {}
        simulate(two, range(2), "s")
        assert executed(two, "b", 8)["executed"] == 8
        assert len([note for note in notes(out) if note["name"] == "a"]) == 12


def test_destroy_while_it_works(two: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    """Its workers end, its demand too, and the memory of what it had not seen is given back."""
    path = code(
        """
        import time
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                note(self.config, step=step.number)
                time.sleep(600)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        with open_ranks(two, "s", 2) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=SHAPE)
            write_steps(sim, range(10), lambda n: reference(SHAPE, "f8", n))
            wait_until(lambda: len(notes(out)) == 2)
            ended = pids(two)
            admin.destroy_pipeline("check")
            wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ended), 10)
            wait_until(lambda: is_given_back(two))

            def staged() -> bool:
                with sim[0].step(next(numbers)) as step:
                    return step.put("U", reference(SHAPE))

            numbers = iter(range(10, 10**6))
            wait_until(lambda: not staged())
            assert len(notes(out)) == 2


def test_a_slow_pipeline_does_not_stop_the_simulation(
    own_place: Path, code: Callable[[str], str], out: Path
) -> None:
    """With the default policy steps are dropped and counted; with `block` none is."""
    path = code(
        """
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                for _ in range(20):
                    comm.barrier()
                note(self.config, step=step.number, missed=step.missed, rank=comm.rank)
        """
    )
    with forebay.local(servers=2, budget_bytes=16 << 20) as group, forebay.Admin(group=group.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        size = 8 * SHAPE[0] * SHAPE[1]
        simulate(group, range(400), queue_bytes=3 * size, policy="drop-oldest")
        last = wait_until(
            lambda: (
                pipeline_status(group, "check").get("last_step") == 399 and pipeline_status(group, "check")
            )
        )
        assert last["executed"] + last["missed"] == 400
        assert last["failed"] == 0


def test_a_torn_step_is_not_executed(two: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    path = code(
        """
        class Check(forebay.Pipeline):
            def execute(self, step, comm):
                note(self.config, step=step.number, run=step.run)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        with open_ranks(two, "s", 2) as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=SHAPE)
            write_steps(sim, range(2), lambda n: reference(SHAPE, "f8", n))
            with sim[0].step(2) as step:
                step.put("U", reference(SHAPE)[:30], offset=(0, 0))
            sim[1].step(2).__enter__().put("U", reference(SHAPE)[30:], offset=(30, 0))
        # The next run is executed again.
        simulate(two, range(1, 3))
        wait_until(lambda: len(notes(out)) >= 8)
        seen = sorted({(note["run"], note["step"]) for note in notes(out)})
        assert seen == [(1, 0), (1, 1), (2, 1), (2, 2)]


def test_arrays_kept_by_a_pipeline_do_not_change_under_it(
    two: forebay.LocalGroup, code: Callable[[str], str], out: Path
) -> None:
    """What a pipeline keeps against the rule is either an error or still what it was: never a wrong byte."""
    path = code(
        """
        class Check(forebay.Pipeline):
            kept = ()
            def execute(self, step, comm):
                if step.number == 0:
                    self.kept = [(b.data, b.data.copy()) for b in step.blocks("U")]
                note(self.config, same=all((a == b).all() for a, b in self.kept), step=step.number)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
        simulate(two, range(30))
        executed(two, "check", 30)
    assert all(note["same"] for note in notes(out))


def test_a_class_instead_of_a_name(
    two: forebay.LocalGroup, code: Callable[[str], str], own_place: Path
) -> None:
    import importlib.util

    path = code(
        "class Check(forebay.Pipeline):\n    def execute(self, step, comm):\n        pass\n", "mine.py"
    )
    spec = importlib.util.spec_from_file_location("mine_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["mine_of_a_test"] = module
    try:
        spec.loader.exec_module(module)
        with forebay.Admin(group=two.path) as admin:
            admin.create_pipeline("check", module.Check, stream="s")
            simulate(two, range(2))
            assert executed(two, "check", 2)["failed"] == 0
    finally:
        del sys.modules["mine_of_a_test"]


def test_a_pipeline_that_the_simulation_cannot_serve(
    two: forebay.LocalGroup, code: Callable[[str], str]
) -> None:
    """It was ready before there was a simulation. Who looks for it finds why it is gone, until it is destroyed."""
    path = code(
        """
        class Check(forebay.Pipeline):
            fields = {"U": forebay.every(1)}

            def execute(self, step, comm):
                pass
        """
    )

    def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [FOREBAY, *arguments, "--group", two.path]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def ended() -> list[dict[str, Any]]:
        pipelines = forebay.Admin(group=two.path).status()["pipelines"]
        return [pipeline for pipeline in pipelines if pipeline["ended"] is not None]

    admin = forebay.Admin(group=two.path)
    admin.create_pipeline("check", f"{path}:Check", stream="s")
    with forebay.Producer("s", group=two.path) as sim:
        sim.array("T", dtype="f8", shape=SHAPE)
        write_steps([sim], [0], lambda _: reference(SHAPE), field="T")
        (found,) = wait_until(ended)
        assert (found["name"], found["stream"]) == ("check", "s")
        assert "no field 'U'" in found["ended"]
        for command in (["status"], ["pipeline", "list"]):
            assert "check     s       ended\n" in asked(*command).stdout
            assert "no field 'U'" in asked(*command).stdout
        log = asked("pipeline", "log", "check")
        assert log.returncode != 0
        assert "no field 'U'; it offers T" in log.stderr
        admin.destroy_pipeline("check")
        assert ended() == []
        with pytest.raises(forebay.NotFound, match="there are none"):
            admin.destroy_pipeline("check")
