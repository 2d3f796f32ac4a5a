# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a step are whose, among the ranks of a parallel reader, where a function of the user's says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from forebay import _choices
from forebay._errors import Invalid


@dataclass(frozen=True)
class Placed:
    """A block that is to be assigned: what is known of it before it is read."""

    rank: int
    """The rank of the simulation that put it."""
    number: int
    level: int
    offset: tuple[int, ...] | None
    """Where it begins in the global array; None for a field without one."""
    shape: tuple[int, ...]
    nbytes: int
    host: str | None
    """Where it is held, if that is known: equal to a reader's `host` if it is there."""


class Reader(NamedTuple):
    """A rank of a parallel reader."""

    rank: int
    host: str


Function = Callable[[Sequence[Placed], Sequence[Reader]], Mapping[int, Sequence[Placed]]]
"""Tells for each rank its blocks, each block once. All ranks must find the same, so nothing else may decide."""

Assign = _choices.Assign | Function


def name_of(assign: object) -> str:
    """What the extension module is to do: nothing, where a function does it."""
    return "all" if callable(assign) else assign  # type: ignore[return-value]


def mine(
    function: Function, field: str, blocks: Sequence[Placed], readers: Sequence[Reader], rank: int
) -> list[int]:
    """The places of this rank's blocks, as a function of the user's says: it must give each block to one reader."""
    told: Any = function(blocks, readers)
    if not isinstance(told, Mapping):
        raise Invalid(
            f"the function of `assign` returned {type(told).__name__}: return a mapping from ranks to their blocks"
        )
    known = {reader.rank for reader in readers}
    places = {id(block): place for place, block in enumerate(blocks)}
    owners: list[int | None] = [None] * len(blocks)
    for reader, assigned in told.items():
        if reader not in known:
            raise Invalid(
                f"the function of `assign` names rank {reader!r}, which does not read: {sorted(known)} do"
            )
        for block in assigned:
            place = places.get(id(block))
            if place is None:
                raise Invalid(
                    f"the function of `assign` gave rank {reader} what is no block of field '{field}': {block!r}"
                )
            if owners[place] is not None:
                raise Invalid(
                    f"the function of `assign` gave block {block.number} of rank {block.rank}, of field '{field}', to ranks "
                    f"{owners[place]} and {reader}: give each block to one"
                )
            owners[place] = reader
    for block, owner in zip(blocks, owners, strict=True):
        if owner is None:
            raise Invalid(
                f"the function of `assign` gave block {block.number} of rank {block.rank}, of field '{field}', to nobody: give "
                "each block to one rank"
            )
    return [place for place, owner in enumerate(owners) if owner == rank]
