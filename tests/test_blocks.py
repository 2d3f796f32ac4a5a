"""Blocks of many ranks, in any strides and with ghosts: what is put is what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.arrays import cut, reference
from support.children import Child
from support.groups import is_given_back
from support.sessions import consumer, open_ranks, producer, write_steps
from support.waiting import wait_until

import forebay

SHAPE = (11, 7, 5)


def test_many_ranks_with_several_blocks(group: forebay.LocalGroup, transport: str) -> None:
    """Six ranks, each with unequal blocks in two dimensions: every region and stride is right."""
    shape = (19, 14, 9)
    with (
        consumer(group, transport=transport) as reader,
        open_ranks(group, "s", 6, transport=transport) as sim,
    ):
        for rank in sim:
            rank.array("U", dtype="f4", shape=shape)
        for number in (3, 4):
            whole = reference(shape, "f4", number)
            steps = [rank.step(number).__enter__() for rank in sim]
            for step, (a, b) in zip(steps, cut(19, 6), strict=True):
                for block, (c, d) in enumerate(cut(14, 3)):
                    assert step.put("U", whole[a:b, c:d], offset=(a, c, 0), number=block)
            for step in steps:
                step.__exit__(None, None, None)
            found = reader.next()
            assert found.number == number
            field = found["U"]
            assert field.shape == shape
            assert field.dtype == np.float32
            for index in (
                np.s_[...],
                np.s_[2:17, 1:13, 1:8],
                np.s_[::3, 1::4, ::-2],
                np.s_[18, -1, -9],
                np.s_[-3:, ..., 2],
                np.s_[5],
                np.s_[4:4],
                np.s_[::-1, ::-1],
                np.s_[100:, :, :],
            ):
                np.testing.assert_array_equal(field[index], whole[index], strict=True)
            blocks = field.blocks()
            assert len(blocks) == 18
            for block in blocks:
                place = tuple(slice(o, o + n) for o, n in zip(block.offset or (), block.shape, strict=True))
                np.testing.assert_array_equal(block.data, whole[place], strict=True)
                assert not block.data.flags.writeable
            found.release()


@pytest.mark.parametrize(
    "low, high", [(1, 1), ((0, 2, 1), (0, 2, 1)), ((1, 0, 3), (0, 2, 1)), (0, (0, 1, 2))]
)
def test_ghosts(
    two: forebay.LocalGroup, transport: str, low: int | tuple[int, ...], high: int | tuple[int, ...]
) -> None:
    """Ghost layers, also asymmetric ones, are stored with the block and never read as its interior."""
    lows, highs = ((width,) * 3 if isinstance(width, int) else width for width in (low, high))
    pairs = list(zip(lows, highs, strict=True))
    whole = reference(SHAPE, "i4")
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 3, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="i4", shape=SHAPE)
        steps = [rank.step(0).__enter__() for rank in sim]
        for step, (a, b) in zip(steps, cut(11, 3), strict=True):
            padded = np.pad(whole[a:b], pairs, constant_values=-77)
            step.put("U", padded, offset=(a, 0, 0), ghost_low=low, ghost_high=high)
        for step in steps:
            step.__exit__(None, None, None)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)
            np.testing.assert_array_equal(found["U"][1::2, ::-3, 1:4], whole[1::2, ::-3, 1:4])
            for block in found["U"].blocks():
                assert block.offset is not None
                at = block.offset[0]
                assert (block.ghost_low, block.ghost_high) == tuple(zip(*pairs, strict=True))
                np.testing.assert_array_equal(block.interior, whole[at : at + block.shape[0]])
                expected = np.pad(whole[at : at + block.shape[0]], pairs, constant_values=-77)
                np.testing.assert_array_equal(block.data, expected)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(np.repeat(a, 2, 0), 3, 2)[::2, :, ::3],
        lambda a: a[::-1].copy()[::-1],
        lambda a: a[:, ::-1, ::-1].copy()[:, ::-1, ::-1],
        lambda a: np.pad(a, ((1, 2), (3, 0), (0, 4)))[1:-2, 3:, :-4],
        lambda a: np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0),
        lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    ],
    ids=["fortran", "every other", "reversed", "reversed twice", "interior", "transposed", "unaligned"],
)
def test_any_strides(two: forebay.LocalGroup, transport: str, arrange: Callable[..., np.ndarray]) -> None:
    shape = (23, 17, 13)
    whole = reference(shape)
    given = arrange(whole)
    np.testing.assert_array_equal(given, whole)
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=shape)
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)


def test_zero_strides(two: forebay.LocalGroup, transport: str) -> None:
    """A broadcast array has strides of zero."""
    given = np.broadcast_to(np.arange(40, dtype=np.int64), (30, 40))
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="i8", shape=(30, 40))
        with sim.step(0) as step:
            step.put("U", given)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], given)


def test_into_an_array_of_the_readers(two: forebay.LocalGroup, transport: str) -> None:
    whole = reference(SHAPE, "f4")
    with consumer(two, transport=transport) as reader, open_ranks(two, "s", 2, transport=transport) as sim:
        for rank in sim:
            rank.array("U", dtype="f4", shape=SHAPE)
        write_steps(sim, [0], lambda _: whole)
        with reader.next() as found:
            field = found["U"]
            for index in (np.s_[...], np.s_[2:9:2, 3, ::-1], np.s_[:, 1:, 4], np.s_[::-1, ::-2, ::-1]):
                wanted = whole[index]
                for out in (
                    np.zeros(wanted.shape, "f4"),
                    np.zeros(wanted.shape, "f4", order="F"),
                    np.zeros([2 * n for n in wanted.shape], "f4")[
                        tuple(slice(1, None, 2) for _ in wanted.shape)
                    ],
                    np.zeros(wanted.shape, "f4")[..., ::-1],
                ):
                    assert field.read(index, out=out) is out
                    np.testing.assert_array_equal(out, wanted)
            frozen = np.zeros(SHAPE, "f4")
            frozen.flags.writeable = False
            for bad in (np.zeros((11, 7), "f4"), np.zeros(SHAPE, "f8"), np.zeros((5, 7, 11), "f4"), frozen):
                with pytest.raises(forebay.OutOfBounds):
                    field.read(..., out=bad)
            assert not frozen.any()


def test_payload_may_be_encrypted(own_place: Path) -> None:
    with forebay.local(servers=2, budget_bytes=32 << 20, encrypt=True) as group:
        whole = reference((123, 217))
        with consumer(group, transport="tcp") as reader, open_ranks(group, "s", 2, transport="tcp") as sim:
            for rank in sim:
                rank.array("U", dtype="f8", shape=(123, 217))
            write_steps(sim, [0], lambda _: whole)
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], whole)
                np.testing.assert_array_equal(found["U"][::5, 3::7], whole[::5, 3::7])


def test_sixteen_ranks_in_sixteen_processes(two: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    shape = (50, 21, 6)
    ranks = [
        child(
            """
            rank, path = int(sys.argv[1]), sys.argv[2]
            begin, end = cut(50, 16)[rank]
            with forebay.Producer("s", rank=rank, size=16, group=path, policy="block") as sim:
                sim.array("U", dtype="f4", shape=(50, 21, 6))
                print("open")
                sys.stdin.readline()
                for number in range(20):
                    whole = reference((50, 21, 6), "f4", number)
                    with sim.step(number) as step:
                        step.put("U", whole[begin:end, :9], offset=(begin, 0, 0), number=0)
                        step.put("U", whole[begin:end, 9:], offset=(begin, 9, 0), number=1)
            """,
            rank,
            two.path,
        )
        for rank in range(16)
    ]
    with consumer(two, window=3, timeout=60) as reader:
        for rank in ranks:
            rank.expect("open", 60)
        for rank in ranks:
            rank.say()
        numbers = []
        for step in reader:
            np.testing.assert_array_equal(step["U"][...], reference(shape, "f4", step.number))
            assert len(step["U"].blocks()) == 32
            assert {block.server for block in step["U"].blocks()} == {0, 1}
            numbers.append(step.number)
        assert numbers == list(range(20))
    for rank in ranks:
        rank.ended()
    wait_until(lambda: is_given_back(two))


def test_refined_levels(two: forebay.LocalGroup, transport: str) -> None:
    """A level has an index space of its own: its blocks are seen one by one, and not by regions."""
    coarse, fine = reference((10, 12)), reference((8, 6), step=1)
    with consumer(two, transport=transport) as reader, producer(two, transport=transport) as sim:
        sim.array("U", dtype="f8", shape=(10, 12))
        with sim.step(0) as step:
            step.put("U", coarse)
            step.put("U", fine, offset=(12, 14), level=1, number=1)
            step.put("U", fine[:3], offset=(12, 14), level=2, number=2)
            with pytest.raises(forebay.OutOfBounds):
                step.put("U", fine, offset=(12, 14), number=3)
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], coarse)
            blocks = {block.level: block for block in found["U"].blocks()}
            np.testing.assert_array_equal(blocks[1].data, fine)
            np.testing.assert_array_equal(blocks[2].data, fine[:3])
            assert (blocks[1].offset, blocks[1].shape) == ((12, 14), (8, 6))
            del blocks
