"""The directory on several servers: large fields are cut into tiles, each with an owner of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.groups import is_given_back, total
from support.many_ranks import RANKS, SHAPE, many_ranks, slabs, write_large
from support.sessions import open_ranks, trouble, write_steps
from support.waiting import wait_until

import forebay


def space(group: forebay.LocalGroup, **options: object) -> forebay.Space:
    options.setdefault("timeout", 20)
    return forebay.Space(group=group.path, **options)  # type: ignore[arg-type]


def servers(group: forebay.LocalGroup) -> list[dict[str, Any]]:
    with forebay.Admin(group=group.path, timeout=10) as admin:
        found: list[dict[str, Any]] = admin.status()["servers"]
    return found


def known(group: forebay.LocalGroup) -> list[int]:
    """How many blocks the directory's part on each server knows."""
    return [server["blocks"] for server in servers(group)]


def put_all(mine: forebay.Space, whole: np.ndarray[Any, Any], step: int) -> int:
    blocks = [(a, b, c, d) for a, b in cut(SHAPE[0], 5) for c, d in cut(SHAPE[1], 4)]
    for a, b, c, d in blocks:
        mine.put("T", whole[a:b, c:d], step=step, offset=(a, c, 0), shape=SHAPE)
    return len(blocks)


PUTTER = """
path, transport = sys.argv[1:]
with forebay.Space(group=path, transport=transport, timeout=20) as space:
    while line := sys.stdin.readline():
        a, b, step, shape = json.loads(line)
        try:
            space.put("T", reference(shape, "f8", step)[a:b], step=step, offset=(a, 0, 0), shape=shape)
            print("put")
        except forebay.Error as error:
            print(type(error).__name__, *str(error).splitlines())
"""


def test_each_server_owns_a_part(three: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with space(three, transport=transport) as mine:
        count = put_all(mine, whole, 3)
        parts = known(three)
        assert all(0 < part < count for part in parts), parts
        assert sum(parts) >= count
        assert sum(server["directory_bytes"] for server in servers(three)) < 256 * sum(parts) + 3 * 4096
        for region in (
            np.s_[...],
            np.s_[3:170, 2:188, 1:14],
            np.s_[::4, 1::3, ::2],
            np.s_[210, :, -1],
            np.s_[::-1, ::-5, 2],
            np.s_[5:5, :, :],
            np.s_[100:101, 77, 3],
        ):
            found = mine.get("T", step=3, region=region)
            np.testing.assert_array_equal(found, whole[region], strict=True)
        mine.remove("T", step=3)
        assert known(three) == [0, 0, 0], "when remove has returned nobody knows of it"
        mine.remove("T", step=3)
    wait_until(lambda: is_given_back(three))


def test_fields_of_one_tile_stay_with_one_owner(three: forebay.LocalGroup) -> None:
    with space(three) as mine:
        for step in range(30):
            mine.put("small", reference((33, 7)), step=step)
        assert sum(known(three)) == 30
        for step in range(30):
            np.testing.assert_array_equal(mine.get("small", step=step), reference((33, 7)))
            mine.remove("small", step=step)
        assert known(three) == [0, 0, 0]


def test_several_servers_hold_and_own(
    three: forebay.LocalGroup, child: Callable[..., Child], transport: str
) -> None:
    """Three processes, most likely with different servers, put while a fourth waits for all of it."""
    slabs = cut(SHAPE[0], 6)
    putters = [child(PUTTER, three.path, transport) for _ in range(3)]
    getter = child(
        """
        with forebay.Space(group=sys.argv[1], transport=sys.argv[2], timeout=20) as space:
            print("waits")
            for step in range(3):
                found = space.get("T", step=step, region=np.s_[2:, 1:-1])
                np.testing.assert_array_equal(found, reference((211, 190, 17), "f8", step)[2:, 1:-1])
        """,
        three.path,
        transport,
    )
    getter.expect("waits")
    for step in range(3):
        for number, (a, b) in enumerate(slabs):
            putters[number % 3].say(f"[{a}, {b}, {step}, {list(SHAPE)}]")
        for number in range(len(slabs)):
            putters[number % 3].expect("put")
    getter.ended()
    with space(three) as mine:
        for step in range(3):
            mine.remove("T", step=step)
        assert known(three) == [0, 0, 0]
        wait_until(lambda: is_given_back(three))
        # All servers that had described it learn that it is another field now.
        other = (190, 17, 211)
        for number, (a, b) in enumerate(cut(other[0], 6)):
            putters[number % 3].say(f"[{a}, {b}, 1, {list(other)}]")
            putters[number % 3].expect("put")
        putters[0].say(f"[0, 10, 1, {list(SHAPE)}]")
        assert putters[0].line().startswith("Conflict field 'T' at step 1 is float64 of shape")
        np.testing.assert_array_equal(mine.get("T", step=1), reference(other, "f8", 1))
        mine.remove("T", step=1)
    wait_until(lambda: is_given_back(three))
    for putter in putters:
        assert putter.process.stdin is not None
        putter.process.stdin.close()
        putter.code()


def test_a_shape_is_believed_until_it_is_another(three: forebay.LocalGroup) -> None:
    """Whom a reader asks follows from the shape, which it may remember from another step."""
    shapes = [SHAPE, (5, 3, 2), (17, 211, 190), (1, 700, 300), SHAPE]
    with space(three) as mine:
        for step, shape in enumerate(shapes):
            mine.put("T", reference(shape), step=step)
        for _ in range(3):
            for step, shape in enumerate(shapes):
                np.testing.assert_array_equal(mine.get("T", step=step, timeout=5), reference(shape))
        for step, shape in enumerate(shapes):
            with space(three) as other:
                np.testing.assert_array_equal(
                    other.get("T", step=step, region=np.s_[-1:, ::2]), reference(shape)[-1:, ::2]
                )


def test_what_is_missing_is_named(three: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE)
    with space(three, transport=transport) as mine:
        with pytest.raises(forebay.Timeout, match="'T'"):
            mine.get("T", step=0, timeout=0.1)
        mine.put("T", whole[:, :100], step=0, offset=(0, 0, 0), shape=SHAPE)
        mine.put("T", whole[:, 101:], step=0, offset=(0, 101, 0), shape=SHAPE)
        for _ in range(2):
            with pytest.raises(
                forebay.NotCovered, match=r"\[\d+:\d+, 100:101, \d+:\d+\].*\[0:211, 0:190, 0:17\]"
            ):
                mine.get("T", step=0, timeout=0.2)
            with pytest.raises(forebay.NotCovered, match=r"\[7:8, 100:101, 3:4\]"):
                mine.get("T", step=0, region=np.s_[7:8, 20:120, 3:4], timeout=0)
        np.testing.assert_array_equal(mine.get("T", step=0, region=np.s_[:, :90]), whole[:, :90])


def test_an_overlap_is_refused_everywhere(three: forebay.LocalGroup) -> None:
    whole = reference(SHAPE)
    with space(three) as mine:
        mine.put("T", whole[:20], step=0, offset=(0, 0, 0), shape=SHAPE)
        before = known(three)
        for _ in range(3):
            with pytest.raises(forebay.Conflict, match="overlap"):
                mine.put("T", whole[19:] * 0, step=0, offset=(19, 0, 0), shape=SHAPE)
        wait_until(lambda: known(three) == before)
        staged = total(three, "staged_bytes")
        mine.put("T", whole[20:], step=0, offset=(20, 0, 0), shape=SHAPE)
        assert total(three, "staged_bytes") > staged
        np.testing.assert_array_equal(mine.get("T", step=0), whole)
        mine.remove("T", step=0)
        assert known(three) == [0, 0, 0]
    wait_until(lambda: is_given_back(three))


def test_what_is_got_while_others_remove_and_put_is_of_one_put(
    three: forebay.LocalGroup, child: Callable[..., Child]
) -> None:
    """All parts that a reader gets from several owners belong together, and their bytes stay."""
    churn = [
        child(
            """
            stop = []
            threading.Thread(target=lambda: stop.append(sys.stdin.readline()), daemon=True).start()
            whole = np.empty((211, 190, 17))
            with forebay.Space(group=sys.argv[1], timeout=20) as space:
                value = 0.0
                while not stop:
                    whole[:] = value
                    space.put("T", whole, step=int(sys.argv[2]))
                    space.remove("T", step=int(sys.argv[2]))
                    value += 1
                    if value == 3:
                        print("runs")
            """,
            three.path,
            step,
        )
        for step in range(2)
    ]
    for process in churn:
        process.expect("runs")
    with space(three) as mine:
        for number in range(60):
            found = mine.get("T", step=number % 2)
            low, high = found.min(), found.max()
            assert low == high, f"bytes of two puts in one array: {low} and {high}"
    for process in churn:
        process.say()
        process.ended()
    wait_until(lambda: known(three) == [0, 0, 0])
    wait_until(lambda: is_given_back(three))


def test_two_put_and_remove_one_field(three: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """Whatever they do to each other is said, and nothing is left when all is removed."""
    rivals = [
        child(
            """
            begin, end = json.loads(sys.argv[2])
            part = reference((211, 190, 17))[begin:end]
            with forebay.Space(group=sys.argv[1], timeout=20) as space:
                for _ in range(40):
                    try:
                        space.put("T", part, step=0, offset=(begin, 0, 0), shape=(211, 190, 17))
                    except forebay.Conflict as error:
                        assert "overlap" in str(error), error
                    space.remove("T", step=0)
            """,
            three.path,
            f"[{begin}, {end}]",
        )
        for begin, end in ((0, 140), (70, 211), (100, 120))
    ]
    for rival in rivals:
        rival.ended(60)
    with space(three) as mine:
        mine.remove("T", step=0)
    assert known(three) == [0, 0, 0]
    wait_until(lambda: is_given_back(three))


def home_of(group: forebay.LocalGroup, before: list[int]) -> int:
    """Which server holds more since."""
    return next(n for n, server in enumerate(servers(group)) if server["staged_bytes"] > before[n])


def test_an_owner_that_dies_has_a_successor(three: forebay.LocalGroup, transport: str) -> None:
    """Whoever holds the blocks tells it of them: nothing is lost that another server held."""
    # Those of up to 1 KiB are held by their owner, and go with it.
    whole, small = reference(SHAPE), reference((50, 70))
    with space(three, transport=transport) as mine:
        before = [server["staged_bytes"] for server in servers(three)]
        put_all(mine, whole, step=0)
        home = home_of(three, before)
        for number in range(12):
            mine.put("small", small + number, step=number)
        for dead in [number for number in range(3) if number != home]:
            (victim,) = [server["pid"] for server in servers(three) if server.get("server") == dead]
            os.kill(victim, signal.SIGKILL)
            with space(three, transport=transport) as other:
                np.testing.assert_array_equal(other.get("T", step=0), whole)
                np.testing.assert_array_equal(
                    other.get("T", step=0, region=np.s_[90:140, 3:, ::2]), whole[90:140, 3:, ::2]
                )
            put_all(mine, whole, step=dead + 1)
            with space(three, transport=transport) as other:
                np.testing.assert_array_equal(other.get("T", step=dead + 1), whole)
                for number in range(12):
                    np.testing.assert_array_equal(other.get("small", step=number), small + number)
        mine.remove("T", step=0)
        with pytest.raises(forebay.Timeout):
            mine.get("T", step=0, timeout=0.1)
        put_all(mine, -whole, step=0)
        np.testing.assert_array_equal(mine.get("T", step=0), -whole)


def test_what_a_holder_held_is_lost_and_can_be_put_again(three: forebay.LocalGroup) -> None:
    whole = reference(SHAPE)
    with space(three) as mine:
        before = [server["staged_bytes"] for server in servers(three)]
        mine.put("T", whole, step=0)
        home = home_of(three, before)
        os.kill(servers(three)[home]["pid"], signal.SIGKILL)
        with space(three) as other:
            with pytest.raises(forebay.Lost, match=f"server{home}"):
                other.get("T", step=0)
            mine.put("T", -whole, step=0)
            np.testing.assert_array_equal(other.get("T", step=0), -whole)


# ---- runs of many ranks -------------------------------------------------------------------------


def is_forgotten(group: forebay.LocalGroup) -> bool:
    """Whether no server knows or holds any block, or has memory for some."""
    keys = ("blocks", "held_records_bytes", "staged_bytes", "arena_bytes")
    return all(server[key] == 0 for server in servers(group) for key in keys)


def test_a_large_run_is_read(three: forebay.LocalGroup, transport: str) -> None:
    regions = (
        np.s_[3:170, 2:188, 1:14],
        np.s_[100:101, 77, 3],
        np.s_[::4, 1::3, ::2],
        np.s_[210, :, -1],
        np.s_[::-1, ::-5, 2],
        np.s_[5:5, :, :],
        np.s_[...],
    )
    with (
        forebay.Consumer("s", group=three.path, transport=transport, timeout=20) as viewer,
        many_ranks(three, transport=transport) as sim,
    ):
        for number in range(3):
            write_large(sim, number)
            step = viewer.next()
            assert step.number == number
            whole = reference(SHAPE, "f8", number)
            for region in regions:
                np.testing.assert_array_equal(step["U"][region], whole[region], strict=True)
            np.testing.assert_array_equal(step["e"][:, 1], np.arange(RANKS))
            blocks = step["U"].blocks()
            assert sorted((block.rank, block.offset[0], block.shape[0]) for block in blocks) == [
                (rank, begin, end - begin) for rank, (begin, end) in enumerate(slabs())
            ]
            for block in blocks:
                begin, extent = block.offset[0], block.shape[0]
                np.testing.assert_array_equal(block.data, whole[begin : begin + extent])
            logs = sorted((block.rank, bytes(block.data)) for block in step["log"].blocks())
            assert logs == [(rank, bytes([rank] * rank)) for rank in range(RANKS)]
            parts = known(three)
            assert min(parts) > 0, parts
            # Large blocks may touch tiles of several owners, small ones do not.
            assert 3 * RANKS <= sum(parts) < 5 * RANKS
            assert sum(server["directory_bytes"] for server in servers(three)) < 256 * sum(parts) + 9 * 4096
        kept = step["U"].blocks()[5]
        viewer.close()
        np.testing.assert_array_equal(kept.data, whole[slabs()[kept.rank][0] : slabs()[kept.rank][1]])
        del kept, block, blocks, step
    wait_until(lambda: is_forgotten(three))


def test_what_a_large_run_did_not_put_is_named(three: forebay.LocalGroup) -> None:
    begin, end = slabs()[40]
    with (
        forebay.Consumer("s", group=three.path, timeout=20, window=2) as viewer,
        many_ranks(three) as sim,
    ):
        write_large(sim, 0, without=40)
        write_large(sim, 1)
        first, second = viewer.next(), viewer.next()
        whole = reference(SHAPE)
        with pytest.raises(
            forebay.NotCovered, match=rf"\[{begin}:{end}, 0:190, 0:17\].*\[0:211, 0:190, 0:17\]"
        ):
            first["U"][...]
        with pytest.raises(forebay.NotCovered, match=rf"\[{begin}:{end}, 5:6, 0:1\]"):
            first["U"][:, 5, 0]
        np.testing.assert_array_equal(first["U"][:begin], whole[:begin])
        np.testing.assert_array_equal(first["U"][end:, ::7], whole[end:, ::7])
        assert len(first["U"].blocks()) == RANKS - 1
        np.testing.assert_array_equal(second["U"][...], reference(SHAPE, "f8", 1))
        del first, second
    wait_until(lambda: is_forgotten(three))


def test_ranks_of_a_large_run_that_overlap(three: forebay.LocalGroup) -> None:
    """They are told, the step goes on without the block, and all servers agree on that."""
    with (
        forebay.Consumer("s", group=three.path, timeout=20) as viewer,
        open_ranks(three, "s", RANKS, policy="block") as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
        whole = reference(SHAPE)
        with contextlib.ExitStack() as stack:
            for rank, (begin, end) in enumerate(slabs()):
                stack.enter_context(sim[rank].step(0)).put("U", whole[begin:end], offset=(begin, 0, 0))
        np.testing.assert_array_equal(viewer.next()["U"][...], whole)
        with contextlib.ExitStack() as stack:
            for rank, (begin, end) in enumerate(slabs()):
                if rank == 60:
                    begin -= 1
                stack.enter_context(sim[rank].step(1)).put("U", whole[begin:end], offset=(begin, 0, 0))
        step = viewer.next()
        ranks = {block.rank for block in step["U"].blocks()}
        assert ranks < set(range(RANKS))
        assert set(range(RANKS)) - ranks <= {59, 60}
        begin, end = slabs()[58]
        np.testing.assert_array_equal(step["U"][:end], whole[:end])
        np.testing.assert_array_equal(step["U"][slabs()[61][0] :], whole[slabs()[61][0] :])
        with pytest.raises(forebay.NotCovered):
            step["U"][...]
        del step
        found = wait_until(lambda: trouble(sim))
        assert "overlaps" in found
        assert "step 1" in found
    wait_until(lambda: is_forgotten(three))


def test_a_pipeline_on_a_large_run(three: forebay.LocalGroup, own_place: Path) -> None:
    """Workers see the blocks beside them without asking, and all of the field if they ask."""
    code = own_place / "code.py"
    code.write_text(
        textwrap.dedent(
            """
            import json, os
            import forebay

            class Check(forebay.Pipeline):
                fields = {"U": forebay.every(1)}

                def execute(self, step, comm):
                    mine = step.blocks("U")
                    rows = [(b.rank, b.server, b.offset[0], float(b.data.sum())) for b in mine]
                    whole = float(step["U"][...].sum())
                    plane = float(step["U"][17:203:5, 3, :].sum())
                    everywhere = len(step["U"].blocks(all_servers=True))
                    every = comm.gather([rows, whole, plane, everywhere])
                    if comm.rank == 0:
                        path = os.path.join(self.config["out"], f"{step.number}.part")
                        with open(path, "w") as file:
                            json.dump(every, file)
                        os.rename(path, path[:-5] + ".json")
            """
        )
    )
    out = own_place / "out"
    out.mkdir()
    with forebay.Admin(group=three.path) as admin:
        admin.create_pipeline("check", f"{code}:Check", stream="s", config={"out": str(out)})
        with many_ranks(three) as sim:
            for number in range(3):
                write_large(sim, number)
        for number in range(3):
            wait_until((out / f"{number}.json").exists, 20, str(admin.status()))
            whole = reference(SHAPE, "f8", number)
            workers = json.loads((out / f"{number}.json").read_text())
            assert len(workers) == 3
            rows = sorted(row for found, *_ in workers for row in found)
            assert [row[0] for row in rows] == list(range(RANKS))
            for (rank, _, begin, added), (low, high) in zip(rows, slabs(), strict=True):
                assert (begin, added) == (low, whole[low:high].sum()), rank
            for found, added, plane, everywhere in workers:
                assert len({server for _, server, _, _ in found}) == 1
                assert added == whole.sum()
                assert plane == whole[17:203:5, 3, :].sum()
                assert everywhere == RANKS
    wait_until(lambda: is_forgotten(three))


def test_an_owner_dies_with_what_it_knew(three: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer("s", group=three.path, timeout=5) as viewer,
        open_ranks(three, "s", RANKS, policy="block", on_loss="skip", timeout=5) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
        write_steps(sim, range(1), lambda number: reference(SHAPE, "f8", number))
        step = viewer.next()
        found = servers(three)
        coordinator = forebay.Admin(group=three.path).status()["streams"][0]["server"]
        victim = found[(coordinator + 1) % 3]
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: "error" in servers(three)[victim["server"]])
        with pytest.raises(forebay.Lost, match=f"of its {RANKS} blocks are lost with a server"):
            step["U"][...]
        with pytest.raises(forebay.Lost, match=f"of its {RANKS} blocks are lost with a server"):
            step["U"].blocks()
        for rank, (begin, end) in enumerate(slabs()):
            # Homes are spread by rank.
            if rank % 3 != victim["server"]:
                np.testing.assert_array_equal(step["U"][begin:end], reference(SHAPE, "f8", 0)[begin:end])
        write_steps(sim, range(1, 2), lambda number: reference(SHAPE, "f8", number))
        step = viewer.next()
        assert step.number == 1
        # Ranks whose home it was go on with another server.
        assert not step.torn
        np.testing.assert_array_equal(step["U"][...], reference(SHAPE, "f8", 1))
        assert {block.rank for block in step["U"].blocks()} == set(range(RANKS))
        assert victim["server"] not in {block.server for block in step["U"].blocks()}
        del step
