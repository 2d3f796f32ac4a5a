# SPDX-License-Identifier: Apache-2.0
"""The blocks that lie beside a worker, with as much around them as is needed so that no seam shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid, NotCovered
from forebay._step import Block, Field, Step
from forebay.viz.domain import Domain, Grid

Array = NDArray[Any]
Index = tuple[int, int, int]

_EXACT_IN_32 = ("f2", "f4", "i1", "u1", "i2", "u2", "b1")


@dataclass(frozen=True)
class Piece:
    """A block of one field or several, which lie on one grid. Indices are z, y, x, in the grid."""

    values: dict[str, Array]
    """By field: float32 or float64, what is missing is NaN; contiguous, and all of one shape."""
    first: Index
    """The index of their first element."""
    begin: Index
    end: Index
    """The block's own elements: the first, and the one behind the last. In `values` there are more around them."""
    grid: Grid

    def box(self, above: int = 0) -> tuple[slice, slice, slice]:
        """Where its own elements lie in `values`, with so many of those behind them as there are."""
        ends = [min(end + above, extent) for end, extent in zip(self.end, self.grid.shape, strict=True)]
        return tuple(  # type: ignore[return-value]
            slice(begin - first, end - first)
            for begin, end, first in zip(self.begin, ends, self.first, strict=True)
        )


def pieces(step: Step, names: Sequence[str], domain: Domain | None, *, below: int, above: int) -> list[Piece]:
    """The blocks of the first field that lie beside this worker, with so many elements before and behind them, and those of the other
    fields at the same places. What ghosts there lack is read from the space; beyond the domain there is nothing. They lie in the scene, or
    without a domain in the units of the data.
    """
    fields = [step.field(name) for name in dict.fromkeys(names)]
    main = fields[0]
    _check(main, fields)
    found = []
    for block in main.blocks():
        if block.offset is None or 0 in block.shape:
            continue
        grid = Grid.of(main, domain, block.level)
        # What is before an element in the grid is behind it in the array where the grid counts the other way.
        widths = [(above, below) if turned else (below, above) for turned in grid.turned][-len(block.shape) :]
        values, first = {}, None
        for field in fields:
            own = block if field is main else _same(field, block)
            values[field.name], first = _padded(field, block, own, widths)
        begin = _three(block.offset, 0)
        end = tuple(low + n for low, n in zip(begin, _three(block.shape, 1), strict=True))
        assert first is not None
        found.append(_upright(Piece(values, first, begin, end, grid)))  # type: ignore[arg-type]
    # In one order wherever they lie: their numbers are the same on any server.
    return sorted(found, key=lambda piece: (piece.grid.shape, piece.begin))


def _upright(piece: Piece) -> Piece:
    """The same, counted as its grid counts."""
    grid = piece.grid
    if not any(grid.turned):
        return piece
    axes = tuple(axis for axis, turned in enumerate(grid.turned) if turned)
    values = {name: np.ascontiguousarray(np.flip(of_field, axes)) for name, of_field in piece.values.items()}
    shape = next(iter(values.values())).shape
    first, begin, end = list(piece.first), list(piece.begin), list(piece.end)
    for axis in axes:
        extent = grid.shape[axis]
        first[axis] = extent - (piece.first[axis] + shape[axis])
        begin[axis], end[axis] = extent - piece.end[axis], extent - piece.begin[axis]
    return Piece(values, tuple(first), tuple(begin), tuple(end), grid)  # type: ignore[arg-type]


def block_of(step: Step, name: str, beside: Block) -> Block:
    """The block of another field of the same rank and number, wherever it lies. `NotCovered` if it was not put."""
    for blocks in (step.blocks(name), step.field(name).blocks(all_servers=True)):
        for block in blocks:
            if (block.rank, block.number) == (beside.rank, beside.number):
                return block
    raise NotCovered(
        f"field '{name}' at step {step.number}: block {beside.number} of rank {beside.rank} was not put"
    )


def _check(main: Field, fields: Sequence[Field]) -> None:
    for field in fields:
        if field.shape is None:
            raise Invalid(f"field '{field.name}' has no global shape: it is no grid that could be drawn")
        if field.dtype.kind == "c":
            raise Invalid(f"field '{field.name}' is complex: put its magnitude, or one of its parts")
        if field.shape != main.shape:
            raise Invalid(
                f"field '{field.name}' has shape {field.shape}, '{main.name}' {main.shape}: what colours it lies on one grid with it"
            )


def _same(field: Field, block: Block) -> Block | None:
    """Its block at the same place, if that lies here."""
    return next(
        (
            other
            for other in field.blocks()
            if (other.offset, other.shape, other.level) == (block.offset, block.shape, block.level)
        ),
        None,
    )


def _padded(
    field: Field, block: Block, own: Block | None, widths: Sequence[tuple[int, int]]
) -> tuple[Array, Index]:
    """The values at a block's place and so many before and behind it along each axis, and the index of the first."""
    assert block.offset is not None
    assert field.shape is not None
    ratio = field.refinement or (2,) * len(field.shape)
    extents = [n * r**block.level for n, r in zip(field.shape, ratio, strict=True)]
    wanted = [
        (max(0, low - before), min(extent, low + n + behind))
        for low, n, extent, (before, behind) in zip(block.offset, block.shape, extents, widths, strict=True)
    ]
    kind = "f4" if field.dtype.str[1:] in _EXACT_IN_32 else "f8"
    values = np.full([end - begin for begin, end in wanted], np.nan, kind)
    here = None if own is None else _copy(values, wanted, own)
    if here is None or here != wanted:
        _read(field, values, wanted, here, block.level)
    lacking = 3 - values.ndim
    return values.reshape((1,) * lacking + values.shape), _three([begin for begin, _ in wanted], 0)


def _copy(values: Array, wanted: list[tuple[int, int]], own: Block) -> list[tuple[int, int]]:
    """Copies what a block has of this, and returns where that is."""
    assert own.offset is not None
    has = [
        (offset - low, offset + n + high)
        for offset, n, low, high in zip(own.offset, own.shape, own.ghost_low, own.ghost_high, strict=True)
    ]
    here = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, has, strict=True)]
    to = tuple(slice(a - begin, b - begin) for (a, b), (begin, _) in zip(here, wanted, strict=True))
    of = tuple(slice(a - begin, b - begin) for (a, b), (begin, _) in zip(here, has, strict=True))
    values[to] = own.data[of]
    return here


def _read(
    field: Field,
    values: Array,
    wanted: list[tuple[int, int]],
    here: list[tuple[int, int]] | None,
    level: int,
) -> None:
    """Fills what is not here with what others hold: one slab at each side."""
    if level:
        return  # only level 0 is one array
    slabs = [list(wanted)] if here is None else []
    rest = list(wanted)
    for axis, (begin, end) in enumerate(here or ()):
        beside = ((rest[axis][0], begin), (end, rest[axis][1]))
        slabs += [[*rest[:axis], side, *rest[axis + 1 :]] for side in beside if side[0] < side[1]]
        rest[axis] = (begin, end)
    for slab in slabs:
        to = tuple(slice(a - begin, b - begin) for (a, b), (begin, _) in zip(slab, wanted, strict=True))
        try:
            values[to] = field.read(tuple(slice(*side) for side in slab))
        except NotCovered:
            values[to] = _covered(field, slab)


def _covered(field: Field, slab: list[tuple[int, int]]) -> Array:
    """What there is of it; the rest is NaN."""
    region = tuple(slice(*side) for side in slab)
    read = field.read(region, fill=0)
    return np.where(field.covered(region), read, np.nan)


def _three(index: Sequence[int], fill: int) -> Index:
    return (fill,) * (3 - len(index)) + tuple(index)  # type: ignore[return-value]
