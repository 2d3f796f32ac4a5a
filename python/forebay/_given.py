# SPDX-License-Identifier: Apache-2.0
"""Options that are more than a number or a name: from what users give to what the extension module takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forebay import _arrays, _choices
from forebay._errors import Invalid


class BlockToPlace(NamedTuple):
    """A block, as a function sees it that says on which server it is to be held."""

    field: str
    rank: int
    number: int
    #: Its place in the global array, in elements; None if the field has no global shape.
    offset: tuple[int, ...] | None
    #: Its extents without ghosts, in elements.
    shape: tuple[int, ...]
    #: The numbers of the servers that there are, in order: the answer is one of them.
    servers: tuple[int, ...]


Placement = _choices.Placement | Callable[[BlockToPlace], int]

_Place = Callable[[str, int, int, list[int] | None, list[int], list[int]], int]


class Cursor(NamedTuple):
    """Where a reader goes on: with this step of this run, or the first after it that is still held."""

    run: int
    step: int


def group(given: str | os.PathLike[str] | None) -> str | None:
    """A group's path, name or text."""
    return None if given is None else os.fspath(given)


def run_step(given: tuple[int, int] | None, name: str) -> tuple[int, int] | None:
    """A run and a step of it."""
    if given is None:
        return None
    try:
        run, step = given
    except (TypeError, ValueError):
        raise Invalid(f"{name}={given!r}: give a run and a step") from None
    return _arrays.integer(run, f"{name}: run", low=1, bits=48), _arrays.integer(step, f"{name}: step")


def start(given: object) -> str | tuple[int, int]:
    """With which step to begin: a name, or a cursor as somebody kept it."""
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or len(given) != 2:
        raise Invalid(
            f"start={given!r}: give 'next', 'oldest', 'latest', 'run', or a reader's cursor, which is a run and a step"
        )
    run, step = given
    return _arrays.integer(run, "start: run", low=1), _arrays.integer(step, "start: step")


def placement(given: Placement) -> str | _Place:
    """A name, or the user's function as the extension module calls it."""
    if not callable(given):
        return given

    def place(
        field: str, rank: int, number: int, offset: list[int] | None, shape: list[int], servers: list[int]
    ) -> int:
        placed = None if offset is None else tuple(offset)
        block = BlockToPlace(field, rank, number, placed, tuple(shape), tuple(servers))
        return _arrays.integer(given(block), "the server that a placement function names", bits=32)

    return place
