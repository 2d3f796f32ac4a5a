"""A simulation that is watched, and what subscriptions tell of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from support.sessions import open_ranks

SHAPE = (64, 20, 30)
ROWS = SHAPE[0]


def field(number: int) -> NDArray[Any]:
    """Some waves, whose maximum rises and falls with the steps."""
    z, y, x = np.meshgrid(*(np.arange(float(n)) for n in SHAPE), indexing="ij")
    return np.asarray(np.sin(z / 7 + number) * np.cos(y / 5) + (1 + np.sin(number / 2)) * x / SHAPE[2])


def put(
    ranks: list[forebay.Producer], number: int, array: NDArray[Any], name: str = "U", also: str | None = None
) -> None:
    with contextlib.ExitStack() as stack:
        size = len(ranks)
        for rank, sim in enumerate(ranks):
            first, end = ROWS * rank // size, ROWS * (rank + 1) // size
            step = stack.enter_context(sim.step(number, time=number / 4))
            for field in filter(None, (name, also)):
                step.put(field, array[first:end], offset=(first, *[0] * (array.ndim - 1)))


@contextlib.contextmanager
def simulation(
    group: Any, stream: str = "s", size: int = 3, **options: Any
) -> Iterator[list[forebay.Producer]]:
    with open_ranks(group, stream, size, **options) as ranks:
        for sim in ranks:
            sim.array("U", dtype="f8", shape=SHAPE, dims=("z", "y", "x"))
        yield ranks


def subscribe(group: Any, text: str, **options: Any) -> forebay.Subscription:
    options.setdefault("timeout", 20)
    return forebay.subscribe(text, group=getattr(group, "path", group), **options)


def events(subscription: forebay.Subscription, count: int) -> list[tuple[int, str]]:
    """The steps and turns of the next events."""
    found = []
    for _ in range(count):
        with subscription.next(timeout=20) as event:
            found.append((event.step, event.turn))
    return found


def nothing_comes(subscription: forebay.Subscription) -> bool:
    try:
        subscription.next(timeout=0.05)
    except forebay.Timeout:
        return True
    return False


def of_name(group: forebay.LocalGroup, name: str) -> dict[str, Any]:
    all_of_them = forebay.Admin(group=group.path).subscriptions()
    return next(dict(one) for one in all_of_them if one["name"] == name)
