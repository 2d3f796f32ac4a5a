"""Parallel readers, whose ranks are threads of the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import forebay
from support.sessions import consumer


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What these return, called at the same time: the first failure is raised once all have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


def outcomes(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The same; errors are returned."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except forebay.Error as error:
            return error

    return at_once([lambda call=call: outcome(call) for call in calls])


def rank_of(group: Any, rank: int, size: int, stream: str = "s", **options: Any) -> forebay.Consumer:
    """One rank of a parallel reader."""
    options.setdefault("name", "render")
    return consumer(group, stream, rank=rank, size=size, **options)


@contextlib.contextmanager
def cohort(group: Any, size: int, stream: str = "s", **options: Any) -> Iterator[list[forebay.Consumer]]:
    """All ranks of a parallel reader."""
    ranks = at_once([lambda rank=rank: rank_of(group, rank, size, stream, **options) for rank in range(size)])
    with contextlib.ExitStack() as stack:
        for rank in ranks:
            stack.enter_context(rank)
        yield ranks


def next_of_all(ranks: Sequence[forebay.Consumer]) -> list[forebay.Step]:
    """The next step of each."""
    return at_once([rank.next for rank in ranks])
