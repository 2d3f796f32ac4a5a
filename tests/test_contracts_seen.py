"""Contracts from outside: what matches what is offered, and contracts that change while their readers are attached."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.children import Child
from support.commands import run
from support.deaths import kill_servers
from support.groups import BUDGET, stream_coordinated_by
from support.pipelines import pipeline_status
from support.sessions import consumer, producer
from support.single_rank import SINGLE_RANK, put_steps
from support.waiting import wait_until

import forebay

SHAPE = (60, 50)
"""Of the rank that is a process of its own."""
WIDE = (40, 30)


def put(sim: forebay.Producer, number: int, *names: str) -> list[bool]:
    """Puts whole fields; which were staged."""
    with sim.step(number) as step:
        return [step.put(name, reference(WIDE, "f8", number)) for name in names]


def declare(sim: forebay.Producer, *names: str, **options: Any) -> None:
    for name in names:
        sim.array(name, dtype="f8", shape=WIDE, **options)


def row(told: Any, name: str) -> Any:
    return next(found for found in told if found["field"] == name)


def test_the_contracts_of_a_stream_are_seen(one: forebay.LocalGroup) -> None:
    needed = {"U": forebay.every(2, region=np.s_[:, 7], first=10), "W": forebay.every(1, optional=True)}
    with (
        consumer(one, fields=needed, name="slice"),
        consumer(one, every=3),
        producer(one, first=10, stride=5) as sim,
    ):
        declare(sim, "U", "V")
        for number in range(10, 45, 5):
            put(sim, number, "U", "V")
        sim.flush()
        admin = forebay.Admin(group=one.path)
        wait_until(lambda: admin.contracts("s")["last_closed"] == 40)
        told = admin.contracts("s")
        assert (told["stream"], told["run"], told["readers_left_out"]) == ("s", sim.run, 0)
        u, v = row(told["fields"], "U"), row(told["fields"], "V")
        whole = 40 * 30 * 8
        assert [u[key] for key in ("dtype", "first", "apart", "bytes", "readers")] == [
            "float64",
            10,
            5,
            whole,
            2,
        ]
        # At 40 both need something of it: one column is part of the whole.
        assert (u["last_staged"], u["staged_bytes"], v["last_staged"], v["staged_bytes"]) == (
            40,
            whole,
            40,
            whole,
        )
        by_name = {reader["name"]: reader for reader in told["readers"]}
        (found,) = by_name["slice"]["matches"]
        assert found == {
            "field": "U",
            "static": False,
            "every": 2,
            "first": 10,
            "apart": 10,
            "region": "[:, 7:8]",
            "statistics": None,
            "bytes": 40 * 8,
            "last": 40,
        }
        assert by_name["slice"]["missing"] == ["W"]
        assert [(found["field"], found["apart"], found["last"]) for found in by_name[None]["matches"]] == [
            ("U", 15, 40),
            ("V", 15, 40),
        ]
        # Through the command, for programs and for people.
        assert json.loads(run("contracts", "s", "--json", "--group", one.path).stdout) == told
        lines = run("contracts", "s", "--group", one.path).stdout.splitlines()
        assert all(len(line) <= 80 for line in lines), max(lines, key=len)
        assert lines[0] == f"s, run {sim.run}, closed up to step 40"
        assert "  U          2    10     10  [:, 7:8]  320 B    40" in lines
        assert "  and W, which are not offered" in lines
    assert admin.contracts("s")["readers"] == []
    assert "Nobody is attached." in run("contracts", "s", "--group", one.path).stdout
    with pytest.raises(forebay.NotFound, match="there is no stream 'nothing'; there are: s"):
        admin.contracts("nothing")
    assert "there are: s" in run("contracts", "nothing", "--group", one.path, code=1).stderr


def test_statistics_static_fields_and_readers_without_a_run_are_seen(one: forebay.LocalGroup) -> None:
    admin = forebay.Admin(group=one.path)

    def shown() -> str:
        lines = run("contracts", "s", "--group", one.path).stdout.splitlines()
        assert all(len(line) <= 80 for line in lines), max(lines, key=len)
        return "\n".join(" ".join(line.split()) for line in lines)

    needed = {
        "U": forebay.every(1, stats=True),
        "V": forebay.every(2, stats="alone"),
        "mesh": forebay.every(1),
    }
    with (
        consumer(one, every=3, name="all"),
        consumer(one, fields=needed, name="w", share="on-demand"),
        consumer(one, fields=needed, name="w", share="on-demand", window=2),
    ):
        told = {reader["name"]: reader for reader in admin.contracts("s")["readers"]}
        assert (told["all"]["needs"], told["all"]["matches"], told["all"]["ranks"]) == ({"every": 3}, [], 1)
        assert (told["w"]["missing"], told["w"]["ranks"]) == (["U", "V", "mesh"], 2)
        text = shown()
        assert text.startswith("s has had no run yet\n")
        assert "every 3. step of all fields; none is offered yet" in text
        assert f"consumer 'w' (2 readers, one is process {os.getpid()} on " in text
        assert "U, V, mesh, which are not offered" in text
        status = run("status", "--group", one.path).stdout
        assert f"'w' (2 readers, one is process {os.getpid()} on " in status
        assert "holds 0 of 6" in status
        with producer(one) as sim:
            declare(sim, "U", "V")
            sim.array("mesh", dtype="f8", shape=(5,), static=True)
            found = {reader["name"]: reader["matches"] for reader in admin.contracts("s")["readers"]}["w"]
            assert [(row(found, name)["statistics"], row(found, name)["bytes"]) for name in "UV"] == [
                ("along", 40 * 30 * 8),
                ("alone", 0),
            ]
            mesh = row(found, "mesh")
            assert (mesh["static"], mesh["first"], mesh["apart"], mesh["bytes"]) == (True, None, None, 40)
            text = shown()
            assert "U 1 0 1 all, statistics 9.4 KiB -" in text
            assert "V 2 0 2 statistics 0 B -" in text
            assert "mesh static - - all 40 B -" in text


def test_what_is_staged_is_what_the_union_asks_for(one: forebay.LocalGroup) -> None:
    with (
        consumer(one, fields={"U": forebay.every(1, region=np.s_[:10])}),
        consumer(one, fields={"U": forebay.every(1, region=np.s_[5:15])}),
        producer(one) as sim,
    ):
        declare(sim, "U", "V")
        assert put(sim, 0, "U", "V") == [True, False]
        sim.flush()
        told = forebay.Admin(group=one.path).contracts("s")
        assert row(told["fields"], "U")["staged_bytes"] == 15 * 30 * 8
        assert row(told["fields"], "V")["last_staged"] is None
        assert [reader["matches"][0]["bytes"] for reader in told["readers"]] == [2400, 2400]


def test_a_contract_changes_while_its_reader_is_attached(one: forebay.LocalGroup, transport: str) -> None:
    with consumer(one, fields=["U"], window=8, transport=transport) as reader, producer(one) as sim:
        declare(sim, "U", "V")
        assert [put(sim, number, "U", "V") for number in range(3)] == [[True, False]] * 3
        first = reader.next()
        begins = reader.need({"V": forebay.every(2, region=np.s_[3]), "W": forebay.every(1, optional=True)})
        assert begins == 3
        # The same again changes nothing.
        assert (
            reader.need({"V": forebay.every(2, region=np.s_[3]), "W": forebay.every(1, optional=True)}) == 3
        )
        assert [put(sim, number, "U", "V") for number in range(3, 7)] == [
            [False, number % 2 == 0] for number in range(3, 7)
        ]
        first.release()
        # Those that were closed, or waited for, before.
        for number in (1, 2):
            with reader.next() as step:
                assert (step.number, step.fields) == (number, ["U"])
                np.testing.assert_array_equal(step["U"][...], reference(WIDE, "f8", number))
        for number in (4, 6):
            with reader.next() as step:
                assert (step.number, step.fields, step.missed) == (number, ["V"], 0)
                np.testing.assert_array_equal(step["V"][3], reference(WIDE, "f8", number)[3])
                with pytest.raises(forebay.NotCovered, match="outside what this reader needs"):
                    step["V"][4]
        # All fields again.
        assert reader.need() == 7
        assert put(sim, 7, "U", "V") == [True, True]
        assert reader.next().fields == ["U", "V"]


def test_a_contract_that_changes_before_a_run_holds_for_it(one: forebay.LocalGroup) -> None:
    with consumer(one, fields=["U"]) as reader:
        assert reader.need(["V"]) == 0
        with producer(one, first=100) as sim:
            declare(sim, "U", "V")
            assert put(sim, 100, "U", "V") == [False, True]
            assert reader.next().fields == ["V"]


def test_a_contract_that_cannot_be_met_leaves_the_one_before(one: forebay.LocalGroup) -> None:
    with consumer(one, fields={"U": forebay.every(1, region=np.s_[:2])}) as reader, producer(one) as sim:
        declare(sim, "U", "V")
        put(sim, 0, "U", "V")
        bad: list[tuple[Any, type[Exception], str]] = [
            (["W"], forebay.NotFound, "stream 's' has no field 'W'"),
            ({"U": forebay.every(1, region=np.s_[50:60])}, forebay.OutOfBounds, "lies outside shape"),
            (
                {"U": forebay.every(1, dtype="f4")},
                forebay.TypeMismatch,
                "float64, the contract needs float32",
            ),
            ([], forebay.Invalid, "at least one field"),
            (["U", "U"], forebay.Invalid, "twice"),
            ("U", forebay.Invalid, "give a list"),
        ]
        for fields, kind, text in bad:
            with pytest.raises(kind, match=text):
                reader.need(fields)
        with pytest.raises(forebay.Invalid, match="every"):
            reader.need(["U"], every=0)
        put(sim, 1, "U", "V")
        for number in (0, 1):
            with reader.next() as step:
                assert (step.number, step.fields) == (number, ["U"])
                assert step["U"].blocks()[0].data.shape == (2, 30)
        with (
            consumer(one, start="held") as looks,
            pytest.raises(forebay.Invalid, match="looks at what is held"),
        ):
            looks.need(["U"])
    with pytest.raises(forebay.Closed):
        reader.need(["U"])


def test_pipelines_are_named(one: forebay.LocalGroup, code: Callable[[str], str]) -> None:
    """In what is shown of contracts, and in what ends them."""
    path = code(
        """
        class Draw(forebay.Pipeline):
            fields = {"U": forebay.every(1, region=np.s_[2])}

            def execute(self, step, comm):
                pass

        class Typed(Draw):
            fields = {"U": forebay.every(1, dtype="f4")}
        """
    )
    admin = forebay.Admin(group=one.path)
    admin.create_pipeline("draw", f"{path}:Draw", stream="s")
    admin.create_pipeline("typed", f"{path}:Typed", stream="s")
    with producer(one) as sim:
        declare(sim, "U")
        put(sim, 0, "U")
        wait_until(lambda: pipeline_status(one, "typed").get("ended"))
        text = pipeline_status(one, "typed")["ended"]
        assert "the contract of pipeline 'typed': field 'U' of stream 's': it is float64" in text
        (told,) = admin.contracts("s")["readers"]
        assert (told["kind"], told["name"], told["matches"][0]["region"]) == ("pipeline", "draw", "[2:3]")
        assert "pipeline 'draw' needs" in run("contracts", "s", "--group", one.path).stdout


def test_mismatches_name_both_sides(one: forebay.LocalGroup) -> None:
    who = rf"the contract of a reader, 'late' \(process {os.getpid()} on \S+\): "
    wanted: list[tuple[dict[str, Any], type[Exception], str]] = [
        (
            {"U": forebay.every(1, dtype="f4")},
            forebay.TypeMismatch,
            r"field 'U' of stream 's\d+': it is float64, the contract needs float32",
        ),
        (
            {"W": 1},
            forebay.NotFound,
            r"stream 's\d+' has no field 'W'; it offers U \(float64 of shape \[40, 30\]\)",
        ),
        (
            {"U": forebay.every(1, region=np.s_[99:])},
            forebay.OutOfBounds,
            r"field 'U' of stream 's\d+': region \[99:\] lies outside shape \[40, 30\]: 99 in dimension 0",
        ),
    ]
    # As they attach before the run, and after it has begun.
    for fields, kind, text in wanted:
        stream = f"s{len(text)}"
        with (
            consumer(one, stream, fields=fields, name="late") as early,
            producer(one, stream) as sim,
        ):
            declare(sim, "U")
            put(sim, 0, "U")
            with pytest.raises(kind, match=who + text):
                early.next()
            with pytest.raises(kind, match=who + text):
                consumer(one, stream, fields=fields, name="late")


def test_each_step_comes_as_its_contract_was(two: forebay.LocalGroup) -> None:
    """Whatever the moment at which a contract changes, each step has the fields that held when it began, and none is lost."""
    names = ["a", "b", "c"]
    chance = random.Random(28)
    held: list[tuple[int, list[str]]] = [(0, ["a"])]
    done = threading.Event()
    with consumer(two, fields=["a"], window=64) as reader, producer(two, policy="block") as sim:
        declare(sim, *names)

        def change() -> None:
            while not done.is_set():
                wanted = sorted(chance.sample(names, chance.randint(1, 3)))
                held.append((reader.need(wanted), wanted))

        changing = threading.Thread(target=change)
        changing.start()
        came: list[tuple[int, list[str]]] = []
        try:
            for number in range(300):
                put(sim, number, *names)
                with reader.next() as step:
                    came.append((step.number, step.fields))
                    for name in step.fields:
                        assert step[name][0, 0] == reference(WIDE, "f8", number)[0, 0]
        finally:
            done.set()
            changing.join()
    assert [number for number, _ in came] == list(range(300))
    assert [begins for begins, _ in held] == sorted(begins for begins, _ in held)
    for number, fields in came:
        assert fields == [wanted for begins, wanted in held if begins <= number][-1], number
    assert len({begins for begins, _ in held}) > 20


def test_a_contract_outlives_the_death_of_the_coordinator(
    own_place: Path, child: Callable[..., Child], transport: str
) -> None:
    """What was changed before stays changed, and may be changed again."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, 2)
        rank = child(SINGLE_RANK, group.path, transport, stream, 1)
        rank.expect("open")
        with consumer(group, stream, transport=transport, window=8) as reader:
            put_steps(rank, 0, 2)
            assert reader.need({"U": forebay.every(1, region=np.s_[0])}) == 2
            put_steps(rank, 2, 3)
            kill_servers(group, 2)
            put_steps(rank, 3, 4)
            for number in range(4):
                with reader.next() as step:
                    assert (step.number, step.missed) == (number, 0)
                    whole = reference(SHAPE, "f8", number)
                    if number < 2:
                        np.testing.assert_array_equal(step["U"][...], whole)
                    else:
                        np.testing.assert_array_equal(step["U"][0], whole[0])
                        assert step["U"].blocks()[0].data.shape[0] == 1
            assert reader.need() == 4
            put_steps(rank, 4, 5)
            with reader.next() as step:
                np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", 4))
        rank.close_input()
        rank.ended()
