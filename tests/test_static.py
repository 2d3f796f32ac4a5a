"""Static fields: what belongs to a run is put once, and every reader has it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import reference
from support.cohorts import cohort, next_of_all
from support.commands import run, told
from support.deaths import kill_servers
from support.groups import (
    BUDGET,
    group_status,
    is_given_back,
    server_ids,
    stream_coordinated_by,
    stream_status,
)
from support.many_ranks import RANKS
from support.pipelines import notes
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

MESH = reference((40, 30), "f8", 99)
"""The coordinates that belong to the run: large enough to lie in an arena."""


def declare(sim: forebay.Producer) -> None:
    sim.array("U", dtype="f8", shape=(40, 30))
    sim.array("mesh", dtype="f8", shape=(40, 30), static=True, units="m")
    sim.array("mask", dtype="u1", shape=(4,), static=True)


def put(sim: forebay.Producer, number: int, whole: bool = True) -> None:
    """A step; the first has the static fields with it."""
    with sim.step(number) as step:
        step.put("U", reference((40, 30), "f8", number))
        if number == 0 and whole:
            assert step.demanded("mesh")
            assert step.put("mesh", MESH)
            assert step.put("mask", np.array([1, 0, 1, 1], "u1"))


def check(step: forebay.Step) -> None:
    """That all static fields are there."""
    assert step["mesh"].static
    assert step["mask"].static
    assert "U" not in step or not step["U"].static
    np.testing.assert_array_equal(step["mesh"][...], MESH)
    assert step["mask"][...].tolist() == [1, 0, 1, 1]
    assert step["mesh"].units == "m"


def held_bytes(group: forebay.LocalGroup) -> int:
    found = stream_status(group, "s")
    return 0 if found is None else int(found["held"]["bytes"])


@contextlib.contextmanager
def simulation(group: forebay.LocalGroup, **options: Any) -> Iterator[forebay.Producer]:
    """One rank that has declared its fields."""
    with producer(group, **options) as sim:
        declare(sim)
        yield sim


def test_every_reader_has_them(group: forebay.LocalGroup, transport: str) -> None:
    """Also one that comes late, one that needs another field, and one that needs nothing else."""
    with simulation(group, transport=transport) as sim, consumer(group, transport=transport) as first:
        put(sim, 0)
        with first.next() as step:
            check(step)
            assert sorted(step.fields) == ["U", "mask", "mesh"]
            found = step["mesh"].stats
            assert found is not None
            assert (found.min, found.count) == (MESH.min(), MESH.size)
        put(sim, 1)
        with first.next() as step:
            check(step)
            block = step.blocks("mesh")[0]
        with (
            consumer(group, transport=transport) as late,
            consumer(group, transport=transport, fields=["U"]) as other,
            consumer(group, transport=transport, fields=["mesh"]) as only,
            consumer(group, transport=transport, fields={"U": forebay.every(2)}, take="latest") as newest,
        ):
            put(sim, 2)
            for reader in (late, other, only, newest):
                with reader.next() as step:
                    assert step.number == 2
                    check(step)
                    assert ("U" in step) == (reader is not only)
        # A view of them lives on with its reader's steps released.
        np.testing.assert_array_equal(block.interior, MESH)
        del block, step
        gc.collect()


def test_they_stay_as_long_as_the_run_is_held(group: forebay.LocalGroup, transport: str) -> None:
    with simulation(group, transport=transport) as sim:
        put(sim, 0)
        sim.flush()
        assert wait_until(lambda: held_bytes(group)) == MESH.nbytes + 4, "nobody reads yet"
        for number in range(1, 4):
            with consumer(group, transport=transport) as reader:
                put(sim, number)
                with reader.next() as step:
                    check(step)
    wait_until(lambda: is_given_back(group))


def test_a_kept_run_keeps_them(group: forebay.LocalGroup, transport: str) -> None:
    with simulation(group, transport=transport, keep=2) as sim:
        for number in range(4):
            put(sim, number)
    with consumer(group, transport=transport, start="held") as reader:
        for number in (2, 3):
            with reader.next() as step:
                assert step.number == number
                check(step)
    stream = forebay.Stream("s", group=group.path)
    with stream.latest as step:
        check(step)
    fields = told("ls", "s", "--group", group.path)
    assert {field["name"]: field["static"] for field in fields} == {"U": False, "mask": True, "mesh": True}
    assert "static" in run("ls", "s", "--group", group.path).stdout
    text = run("get", "s", "mask", "--step", "3", "--group", group.path).stdout
    assert text.split()[-4:] == ["1", "0", "1", "1"]
    # The next run has its own, or none.
    with producer(group, transport=transport) as sim, consumer(group, start="run") as reader:
        sim.array("U", dtype="f8", shape=(40, 30))
        with sim.step(0) as writing:
            writing.put("U", MESH)
        with reader.next() as step:
            assert step.fields == ["U"]
    wait_until(lambda: is_given_back(group))


def test_a_reader_that_follows_has_those_of_each_run(group: forebay.LocalGroup, transport: str) -> None:
    with consumer(group, transport=transport, follow=True) as reader:
        for run_number in range(3):
            with simulation(group, transport=transport, policy="block") as sim:
                for number in range(2):
                    with sim.step(number) as writing:
                        writing.put("U", MESH)
                        if number == 0:
                            writing.put("mesh", MESH + run_number)
            for number in range(2):
                with reader.next() as step:
                    assert step.number == number
                    np.testing.assert_array_equal(step["mesh"][...], MESH + run_number)
                    with pytest.raises(forebay.NotFound):
                        step["mask"]
            # Those of the runs before are gone.
            wait_until(lambda: held_bytes(group) <= MESH.nbytes)
    gc.collect()
    wait_until(lambda: is_given_back(group))


def test_a_parallel_reader_has_them(group: forebay.LocalGroup, transport: str) -> None:
    with (
        simulation(group, transport=transport) as sim,
        cohort(group, 3, transport=transport, assign="slab") as ranks,
    ):
        for number in range(2):
            put(sim, number)
            steps = next_of_all(ranks)
            mine = [step.mine("mesh") for step in steps]
            np.testing.assert_array_equal(
                np.concatenate([block.interior for blocks in mine for block in blocks]), MESH
            )
            for step in steps:
                check(step)
                step.release()


def test_many_ranks(three: forebay.LocalGroup) -> None:
    """Their blocks are with the owners of tiles."""
    with consumer(three) as reader, open_ranks(three, "s", RANKS) as sim:
        for rank in sim:
            rank.array("U", dtype="i4", shape=(RANKS,))
            rank.array("mesh", dtype="i8", shape=(RANKS, 500), static=True)
        for number in range(2):
            for index, rank in enumerate(sim):
                with rank.step(number) as step:
                    step.put("U", np.array([index], "i4"), offset=(index,))
                    if number == 0:
                        step.put("mesh", np.full((1, 500), index, "i8"), offset=(index, 0))
            with reader.next() as told_of, forebay.Stream("s", group=three.path).latest as looked_at:
                for found in (told_of, looked_at):
                    assert found["U"][...].tolist() == list(range(RANKS))
                    assert found["mesh"][:, 7].tolist() == list(range(RANKS))
                    assert len(found.blocks("mesh")) == RANKS
    wait_until(lambda: is_given_back(three))


def test_pipelines_have_them(two: forebay.LocalGroup, code: Callable[[str], str], out: Path) -> None:
    path = code(
        """
        class Check(forebay.Pipeline):
            fields = ["U"]

            def execute(self, step, comm):
                mine = sum(float(block.interior.sum()) for block in step.blocks("mesh"))
                total = comm.allreduce(mine)
                if comm.rank == 0:
                    note(self.config, step=step.number, total=total, static=step["mesh"].static)
        """
    )
    with forebay.Admin(group=two.path) as admin:
        admin.create_pipeline("check", f"{path}:Check", stream="s", config={"out": str(out)})
    with simulation(two, policy="block") as sim:
        for number in range(3):
            put(sim, number)
    found = wait_until(lambda: notes(out) if len(notes(out)) == 3 else None)
    assert sorted(one["step"] for one in found) == [0, 1, 2]
    assert all(one["static"] and one["total"] == pytest.approx(MESH.sum()) for one in found)
    wait_until(lambda: is_given_back(two))


@pytest.mark.parametrize("coordinator", [0, 1])
def test_copies_outlive_a_server(own_place: Path, transport: str, coordinator: int) -> None:
    """The home of the rank dies, which coordinates the stream or does not."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        stream = stream_coordinated_by(group, coordinator)
        with (
            consumer(group, stream, transport=transport, timeout=30) as reader,
            producer(group, stream, transport=transport, replicas=2, timeout=30) as sim,
        ):
            declare(sim)
            put(sim, 0)
            with reader.next() as step:
                check(step)
                home = step.blocks("mesh")[0].server
            kill_servers(group, home)
            put(sim, 1)
            with reader.next() as step:
                check(step)
            with consumer(group, stream, transport=transport, timeout=30) as late:
                put(sim, 2)
                with late.next() as step:
                    check(step)
            with reader.next() as step:
                check(step)


def test_without_copies_they_are_lost_with_their_server(three: forebay.LocalGroup) -> None:
    with consumer(three) as reader, producer(three) as sim:
        declare(sim)
        put(sim, 0)
        with reader.next() as step:
            home = step.blocks("mesh")[0].server
        kill_servers(three, home, wait=True)
        put(sim, 1)
        with consumer(three) as late:
            put(sim, 2)
            with late.next() as step, pytest.raises(forebay.Lost):
                step["mesh"][...]


def test_they_move_when_their_server_leaves(two: forebay.LocalGroup, transport: str) -> None:
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        declare(sim)
        put(sim, 0)
        with reader.next() as step:
            home = step.blocks("mesh")[0].server
        two.remove_server(home)
        assert home not in server_ids(two)
        put(sim, 1)
        with reader.next() as step:
            check(step)
        with consumer(two, transport=transport) as late:
            put(sim, 2)
            with late.next() as step:
                check(step)


def test_wrong_uses_are_told(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        with pytest.raises(forebay.Invalid, match="static, so that it is put once, and has a period of 2"):
            sim.array("mesh", dtype="f8", shape=(4,), static=True, every=2)
        declare(sim)
        sim.array("never", dtype="f8", shape=(4,), static=True)
        with sim.step(0) as step:
            step.put("mesh", MESH)
            with pytest.raises(forebay.Conflict, match="already put"):
                step.put("mesh", MESH)
        with sim.step(1) as step:
            for wrong in (lambda: step.put("mesh", MESH), lambda: step.alloc("mask", (4,))):
                with pytest.raises(forebay.StepOrder, match="put once, in the first step"):
                    wrong()
        with pytest.raises(forebay.StepOrder, match="declared before the first step"):
            sim.array("late", dtype="f8", shape=(4,), static=True)
        with pytest.raises(forebay.Invalid, match="the highest is"):
            sim.step(2**64 - 1).__enter__()
        with reader.next() as found:
            np.testing.assert_array_equal(found["mesh"][...], MESH)
            for name in ("mask", "never"):
                with pytest.raises(forebay.NotFound, match=f"field '{name}' is not part of step 0"):
                    found[name]


def test_where_there_is_no_room(own_place: Path, transport: str) -> None:
    """They count against the budget; what finds no room is told to whoever puts it."""
    with forebay.local(servers=1, budget_bytes=1 << 20) as group, producer(group, transport=transport) as sim:
        sim.array("mesh", dtype="f8", shape=(1 << 18,), static=True)
        sim.array("mask", dtype="u1", shape=(1 << 16,), static=True)
        with sim.step(0) as step:
            assert step.put("mask", np.ones(1 << 16, "u1"))
            with pytest.raises(forebay.OverBudget):
                step.put("mesh", np.zeros(1 << 18))
        status = group_status(group)
        assert status["servers"][0]["staged_bytes"] >= 1 << 16


def test_contracts_show_them(one: forebay.LocalGroup) -> None:
    with consumer(one, name="viewer"), producer(one) as sim:
        declare(sim)
        put(sim, 0)
        sim.flush()

        def staged() -> dict[str, Any] | None:
            with forebay.Admin(group=one.path) as admin:
                fields = {field["field"]: field for field in admin.contracts("s")["fields"]}
            return fields if fields["mesh"]["staged_bytes"] else None

        fields = wait_until(staged)
        assert fields["mesh"]["static"]
        assert not fields["U"]["static"]
        assert (fields["mesh"]["first"], fields["mesh"]["last_staged"]) == (None, None)
        assert fields["mesh"]["staged_bytes"] == MESH.nbytes
        lines = run("contracts", "--group", one.path, "s").stdout.splitlines()
        assert any(line.split()[:3] == ["mesh", "float64", "static"] for line in lines)
        assert max(len(line) for line in lines) <= 80
