"""What expressions give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where an element lies: what `argmin` and `argmax` give."""

    index: tuple[int, ...]
    """Its index in the global array, at its refinement level; of a block without a place in one, in the block's interior."""
    level: int
    """Its refinement level."""
    rank: int | None
    """The rank that put its block, if blocks have no place in a global array."""
    block: int | None
    """The number of that block among those of the rank."""


Value = float | int | bool | Place | None
_Told = float | int | bool | tuple[list[int], int, int | None, int | None] | None


def value_of(told: _Told) -> Value:
    """What the extension tells, with a place as such."""
    if not isinstance(told, tuple):
        return told
    index, level, rank, block = told
    return Place(tuple(index), level, rank, block)
