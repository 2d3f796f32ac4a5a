"""Communicators whose ranks are threads of the test, each with an endpoint of its own, as processes have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import forebay
from support.cohorts import at_once, outcomes


def open_comms(group: Any, size: int, name: str = "c", **options: Any) -> list[forebay.Comm]:
    """All ranks of a communicator."""
    options.setdefault("timeout", 30.0)
    path = getattr(group, "path", group)
    return at_once(
        [
            lambda rank=rank: forebay.Comm(name, rank=rank, size=size, group=path, **options)
            for rank in range(size)
        ]
    )


@contextlib.contextmanager
def comms(group: Any, size: int, name: str = "c", **options: Any) -> Iterator[list[forebay.Comm]]:
    """The same, closed afterwards."""
    opened = open_comms(group, size, name, **options)
    try:
        yield opened
    finally:
        at_once([comm.close for comm in opened])


def on_all(opened: list[Any], work: Callable[[Any], Any]) -> list[Any]:
    """What this gives on each rank, called on all at the same time."""
    return at_once([lambda comm=comm: work(comm) for comm in opened])


def outcomes_on_all(opened: list[Any], work: Callable[[Any], Any]) -> list[Any]:
    """The same; errors are returned."""
    return outcomes([lambda comm=comm: work(comm) for comm in opened])
