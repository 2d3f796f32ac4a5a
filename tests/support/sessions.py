"""Producers and consumers in the process of the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import forebay
from support.arrays import cut, reference


def producer(group: Any, stream: str = "s", **options: Any) -> forebay.Producer:
    """The only rank of a run, unless the options say otherwise."""
    options.setdefault("timeout", 20)
    return forebay.Producer(stream, group=getattr(group, "path", group), **options)


def consumer(group: Any, stream: str = "s", **options: Any) -> forebay.Consumer:
    """A reader of this group, given as such or by its path."""
    options.setdefault("timeout", 20)
    return forebay.Consumer(stream, group=getattr(group, "path", group), **options)


@contextlib.contextmanager
def open_ranks(group: Any, stream: str, size: int, **options: Any) -> Iterator[list[forebay.Producer]]:
    """All ranks of a run, in this process."""
    path = getattr(group, "path", group)
    options.setdefault("timeout", 20)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(forebay.Producer(stream, rank=rank, size=size, group=path, **options))
            for rank in range(size)
        ]


def write_steps(
    producers: list[forebay.Producer],
    numbers: Any,
    whole: Callable[[int], np.ndarray[Any, Any]],
    field: str = "U",
) -> None:
    """All ranks, in this process, put their slab along the first dimension at each step."""
    for number in numbers:
        array = whole(number)
        slabs = cut(array.shape[0], len(producers))
        with contextlib.ExitStack() as stack:
            for producer, (begin, end) in zip(producers, slabs, strict=True):
                step = stack.enter_context(producer.step(number, time=number / 8))
                step.put(field, array[begin:end], offset=(begin, *[0] * (array.ndim - 1)))


def steps_until_crash(reader: forebay.Consumer, why: str = "") -> Iterator[forebay.Step]:
    """The steps that a reader is told of until it is told that the run has crashed, which it must be; `why` is in the text."""
    told = ""
    try:
        yield from reader
    except forebay.Crashed as error:
        told = str(error)
    assert told, "the run has finished"
    assert why in told


def trouble(producers: list[forebay.Producer]) -> str | None:
    """What the servers tell one of these ranks that went wrong with what it put."""
    for producer in producers:
        try:
            producer.flush()
        except forebay.Conflict as error:
            return str(error)
    return None


def check_it_works(group: Any, transport: str = "auto") -> None:
    """A step goes through, whole."""
    path = getattr(group, "path", group)
    with (
        forebay.Consumer("works", group=path, transport=transport, timeout=20, start="run") as reader,
        open_ranks(path, "works", 2, transport=transport) as sim,
    ):
        whole = reference((300, 70))
        for rank in sim:
            rank.array("U", dtype="f8", shape=(300, 70))
        with sim[0].step(0) as a, sim[1].step(0) as b:
            a.put("U", whole[:120], offset=(0, 0))
            b.put("U", whole[120:], offset=(120, 0))
        with reader.next() as found:
            np.testing.assert_array_equal(found["U"][...], whole)
