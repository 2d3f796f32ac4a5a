"""Attributes: what a producer says of its stream and its fields, once for a run, and of a step."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import FOREBAY
from support.groups import stream_status
from support.sessions import open_ranks, trouble
from support.waiting import wait_until

import forebay

VALUES: dict[str, Any] = {
    "restart": False,
    "count": -(1 << 63),
    "dt": 0.125,
    "π": "a text — with more than ASCII, and\nlines",
    "": "",
    "flags": [True, False, True],
    "sizes": [1, 2, 1 << 62],
    "nothing": [],
    "names": ["u", "", "v"],
    "range": [0.5, math.inf],
    "seed": (1 << 64) - 1,
    "seeds": [0, 1 << 63],
    "phase": 0.5 - 2j,
    "phases": [1j, complex(math.inf, 0)],
}
VALUES["empty"] = VALUES.pop("")


def put_one(sim: forebay.Producer, number: int) -> None:
    with sim.step(number) as step:
        step.put("U", np.arange(5.0))


def test_every_kind_arrives(two: forebay.LocalGroup, transport: str) -> None:
    """Of the stream and of a field; with the first step, and with the first after a change."""
    with (
        forebay.Consumer("s", group=two.path, timeout=20, transport=transport) as reader,
        forebay.Producer("s", group=two.path, timeout=20, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=(5,), attrs={"long_name": "speed", "valid": (0.0, 1e9)})
        for key, value in VALUES.items():
            sim.attr(key, value)
        put_one(sim, 0)
        with reader.next() as first:
            assert first.attrs == VALUES
            assert {key: type(value) for key, value in first.attrs.items()} == {
                key: type(value) for key, value in VALUES.items()
            }
            assert first["U"].attrs == {"long_name": "speed", "valid": [0.0, 1e9]}
        put_one(sim, 1)
        with reader.next() as second:
            assert second.attrs == VALUES, "told once, known for all"
        sim.attr("later", np.float32(0.5), field="U")
        sim.attr("counts", np.array([1, 2], "u2"))
        put_one(sim, 2)
        with reader.next() as third:
            assert third["U"].attrs["later"] == 0.5
            assert third.attrs["counts"] == [1, 2]
            assert "later" not in first["U"].attrs, "a step keeps what it was told with"
            assert third.attrs.keys() == VALUES.keys() | {"counts"}
        # A reader that comes later, and one by name.
        with forebay.Consumer("s", group=two.path, timeout=20) as other:
            put_one(sim, 3)
            with other.next() as step:
                assert step.attrs == {**VALUES, "counts": [1, 2]}


def test_ranks_agree(two: forebay.LocalGroup) -> None:
    with forebay.Consumer("s", group=two.path, timeout=20) as reader, open_ranks(two, "s", 3) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=(3, 5))
            rank.attr("all", "the same")
        sim[1].attr("one", 7, field="U")
        with pytest.raises(forebay.Conflict, match=r"'all'.*\"the same\".*\"another\""):
            sim[2].attr("all", "another")
        with pytest.raises(forebay.Conflict, match="7 in this run"):
            sim[0].attr("one", 7.0, field="U")
        sim[0].attr("one", 7, field="U")
        for index, rank in enumerate(sim):
            with rank.step(0) as step:
                step.put("U", np.arange(5.0)[None], offset=(index, 0))
        with reader.next() as found:
            assert found.attrs == {"all": "the same"}
            assert found["U"].attrs == {"one": 7}


def test_bad_attributes(one: forebay.LocalGroup) -> None:
    with forebay.Producer("s", group=one.path, timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(5,))
        for value in (
            None,
            b"bytes",
            {"a": 1},
            [1, "a"],
            [[1]],
            1 << 64,
            [-1, 1 << 63],
            [0.5, 1 << 60],
            object(),
            "a\0b",
        ):
            with pytest.raises(forebay.Invalid, match="'k'"):
                sim.attr("k", value)  # type: ignore[arg-type]
        for value in (np.datetime64("2026-11-26", "ns"), np.array([b"bytes"]), np.zeros(2, [("a", "f8")])):
            with pytest.raises(forebay.TypeMismatch, match="'k'"):
                sim.attr("k", value)
        for key in ("", "x" * 256, "a\nb"):
            with pytest.raises(forebay.Invalid):
                sim.attr(key, 1)
        with pytest.raises(forebay.NotFound, match="'V'"):
            sim.attr("k", 1, field="V")
        with pytest.raises(forebay.OverBudget, match="put what is larger as a field"):
            sim.attr("k", [0] * 8192)
        sim.attr("k", [0] * 8000)
        with pytest.raises(forebay.OverBudget, match="65536"):
            sim.attr("l", "x" * 2000)
        with sim.step(0), pytest.raises(forebay.StepOrder, match="within a step"):
            sim.attr("m", 1)
        sim.attr("m", [True])


def test_a_new_run_begins_without(one: forebay.LocalGroup) -> None:
    with forebay.Consumer("s", group=one.path, timeout=20, follow=True) as reader:
        for run in (1, 2, 3):
            with forebay.Producer("s", group=one.path, timeout=20) as sim:
                sim.array("U", dtype="f8", shape=(5,))
                if run != 2:
                    sim.attr("run", run)
                put_one(sim, run)
            with reader.next() as found:
                assert (found.run, found.attrs) == (run, {} if run == 2 else {"run": run})


def test_pipelines_see_them(two: forebay.LocalGroup, own_place: Path) -> None:
    """With every step: a worker may be a new one."""
    code = own_place / "code.py"
    code.write_text(
        "import forebay\nclass Tell(forebay.Pipeline):\n"
        "    def execute(self, step, comm):\n"
        "        print('told', step.number, step.attrs['dt'], step['U'].attrs['scale'], flush=True)\n"
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("tell", f"{code}:Tell", stream="s")
    with forebay.Producer("s", group=two.path, timeout=20, policy="block") as sim:
        sim.array("U", dtype="f8", shape=(5,))
        sim.attr("dt", 0.5)
        sim.attr("scale", 3, field="U")
        for number in range(2):
            put_one(sim, number)
        log = [str(FOREBAY), "pipeline", "log", "tell", "--group", two.path]

        def told() -> bool:
            text = subprocess.run(log, capture_output=True, text=True, check=True).stdout
            return all(text.count(f"told {number} 0.5 3") == 2 for number in range(2))

        wait_until(told)


def test_they_are_shown(one: forebay.LocalGroup) -> None:
    with forebay.Producer("s", group=one.path, timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(5,), attrs={"long_name": "speed", "x": [1.5, math.nan]})
        sim.array("V", dtype="f8", shape=(5,))
        sim.attr("long", "x" * 500)
        sim.attr("phase", [1j])
        status = stream_status(one, "s")
        assert status is not None
        assert status["attrs"] == {"long": "x" * 500, "phase": [{"real": 0.0, "imag": 1.0}]}
        attrs = {field["name"]: field["attrs"] for field in status["fields"]}
        assert attrs == {"U": {"long_name": "speed", "x": [1.5, "NaN"]}, "V": {}}

        def lines(*arguments: str) -> list[str]:
            command = [str(FOREBAY), "ls", *arguments, "--group", one.path]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

        assert lines("-a", "s")[2:] == [
            "FIELD  DTYPE    SHAPE  EVERY  DIMS  UNITS",
            "U      float64  (5)    1",
            '  long_name = "speed"',
            '  x = [1.5,"NaN"]',
            "V      float64  (5)    1",
        ]
        assert len(lines("s")) == 3
        assert lines()[0].startswith("s (running since 20")
        assert len(lines("-a")[1]) <= 80
        assert [field["name"] for field in json.loads("".join(lines("s", "--json")))] == ["U", "V"]


def test_a_rank_whose_servers_are_gone(own_place: Path) -> None:
    with forebay.local() as group:
        sim = forebay.Producer("s", group=group.path, timeout=20)
        sim.array("U", dtype="f8", shape=(5,))
        group.servers[0].process.kill()
        group.servers[0].process.wait()
        sim.attr("dt", 0.5)  # the simulation goes on
        assert sim.lost is not None
        sim.attr("dt", 0.25)
        sim.close()


def test_what_belongs_to_a_step(two: forebay.LocalGroup, transport: str) -> None:
    """Each step has its own; of the same name as one of the stream it goes before that, at this step alone."""
    with (
        forebay.Consumer("s", group=two.path, timeout=20, transport=transport, window=8) as reader,
        open_ranks(two, "s", 2, transport=transport) as ranks,
    ):
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(5,))
            sim.attr("dt", 0.5)
        for number in range(4):
            steps = [sim.step(number) for sim in ranks]
            for step in steps:
                step.__enter__()
            steps[0].put("U", np.arange(5.0))
            if number % 2:
                steps[0].attr("dt", 0.25)
                steps[1].attr("phases", [number + 1j])
                for step in steps:
                    step.attr("iterations", number)
            for step in steps:
                step.__exit__(None, None, None)
        for number in range(4):
            with reader.next() as found:
                if number % 2:
                    assert found.attrs == {"dt": 0.25, "phases": [number + 1j], "iterations": number}
                else:
                    assert found.attrs == {"dt": 0.5}


def test_ranks_agree_on_what_they_say_of_a_step(one: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        open_ranks(one, "s", 2) as ranks,
    ):
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(4,))
        for rank, sim in enumerate(ranks):
            with sim.step(0) as step:
                step.put("U", np.zeros(2), offset=(2 * rank,))
                step.attr("dt", 0.5 + rank)
                with pytest.raises(forebay.Conflict, match="and cannot become 7"):
                    step.attr("dt", 7)
        reader.next().release()
        problem = wait_until(lambda: trouble(ranks))
        assert "step 0, rank 1: attribute 'dt' of a step is 0.5, and cannot become 1.5" in problem


def test_what_of_a_step_is_too_much_or_out_of_place(one: forebay.LocalGroup) -> None:
    """64 KiB at each step are possible; more is not. Where nobody looks, nothing becomes of it."""
    large = "x" * (64 * 1024 - 100)
    with forebay.Producer("s", group=one.path, timeout=20) as sim:
        sim.array("U", dtype="f8", shape=(5,))
        with sim.step(0) as step:
            step.attr("large", large)
        with pytest.raises(forebay.StepOrder, match="attribute 'late' outside a step"):
            step.attr("late", 1)
        with forebay.Consumer("s", group=one.path, timeout=20) as reader:
            for number in range(1, 20):
                with sim.step(number) as step:
                    step.put("U", np.arange(5.0))
                    step.attr("large", large)
                    with pytest.raises(forebay.OverBudget, match="'more'"):
                        step.attr("more", "y" * 100)
                    with pytest.raises(forebay.Invalid):
                        step.attr("", 1)
                with reader.next() as found:
                    assert found.attrs == {"large": large}
