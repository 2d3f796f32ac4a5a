"""Runs of more ranks than those whose blocks travel with each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import forebay
from support.arrays import cut, reference
from support.sessions import open_ranks

SHAPE = (211, 190, 17)
"""Large enough for tiles on each of three servers, with unequal extents."""


RANKS = 67
"""More than those whose blocks travel with each step."""


def slabs() -> list[tuple[int, int]]:
    """What each rank puts of the large field."""
    return cut(SHAPE[0], RANKS)


@contextlib.contextmanager
def many_ranks(group: forebay.LocalGroup, **options: Any) -> Iterator[list[forebay.Producer]]:
    """All ranks of the run, in this process."""
    options.setdefault("policy", "block")
    with open_ranks(group, "s", RANKS, **options) as sim:
        for rank in sim:
            rank.array("U", dtype="f8", shape=SHAPE)
            rank.array("e", dtype="i4", shape=(RANKS, 3))
            rank.array("log", dtype="u1", shape=None, ndim=1)
        yield sim


def write_large(sim: list[forebay.Producer], number: int, without: int | None = None) -> None:
    """One step of all ranks: a large field, a small one, and local arrays of which each rank has another."""
    whole = reference(SHAPE, "f8", number)
    with contextlib.ExitStack() as stack:
        for rank, (begin, end) in enumerate(slabs()):
            step = stack.enter_context(sim[rank].step(number, time=number / 8))
            step.put("e", np.full((1, 3), rank, "i4"), offset=(rank, 0))
            step.put("log", np.full(rank, rank, "u1"))
            if rank != without:
                step.put("U", whole[begin:end], offset=(begin, 0, 0))
