# SPDX-License-Identifier: Apache-2.0
"""Contracts: which fields somebody needs, how often, and which part of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from numpy.typing import DTypeLike

from forebay import _arrays, _choices
from forebay._errors import Invalid

#: Start, stop and step of one dimension; negative ones count from the end.
_Slice = tuple[int | None, int | None, int]
#: Of the first dimensions, and of those after an ellipsis.
_Part = tuple[list[_Slice], list[_Slice]]


@dataclass(frozen=True)
class Every:
    """What is needed of a field: made by `every`."""

    period: int
    dtype: DTypeLike | None = None
    region: Any = None
    first: int | None = None
    optional: bool = False
    stats: _choices.Stats = "none"


def every(
    period: int,
    *,
    dtype: DTypeLike | None = None,
    region: Any = None,
    first: int | None = None,
    optional: bool = False,
    stats: bool | Literal["alone"] = False,
) -> Every:
    """Needs a field every so many of the steps that the producer offers: a producer that offers it at 1005, 1015, 1025, ...
    gives `every(2)` the steps 1005, 1025, ...

    `dtype` is the one that it must have, else `TypeMismatch` is raised. `region` is the part of it that is needed, as NumPy
    indexes an array (`numpy.s_[:, :, 32]`, `numpy.s_[..., ::4]`): only that leaves the simulation, and reading anything else
    raises `NotCovered`. What an index by number takes is a dimension of one element. A region that reaches outside the field's
    shape as the reader attaches is refused (`OutOfBounds`); where the shape changes in the run, what lies outside is left out.
    `first` is the step from which on they are counted: the first that is needed is the first that is offered from there on.
    `optional`: a field that the run has not, or declares only later, fails nothing. A particle species is named for all its fields.
    `stats`: minimum, maximum, sum, variance and counts come with each block (`Block.stats`) and with the whole field (`Field.stats`);
    `"alone"`: with the field, and no data leaves the simulation, which reads its array once. Complex types have none.
    """
    part = None if region is None else as_part(region)
    first = None if first is None else _arrays.integer(first, "first", bits=64)
    return Every(
        _arrays.integer(period, "every", low=1, bits=32), dtype, part, first, bool(optional), _stats(stats)
    )


def _stats(stats: object) -> _choices.Stats:
    if stats == "alone":
        return "alone"
    if not isinstance(stats, bool):
        raise Invalid(f'stats={stats!r}: use True, False or "alone"')
    return "along" if stats else "none"


Fields = Mapping[str, Every | int] | Sequence[str] | None


class Need(NamedTuple):
    """A field of a contract, as the core takes it; without a period it has that of all."""

    field: str
    dtype: str | None = None
    every: int | None = None
    part: _Part | None = None
    first: int | None = None
    optional: bool = False
    stats: _choices.Stats = "none"


def as_needs(fields: Fields) -> list[Need] | None:
    """A contract as the core takes it; None means all fields."""
    if fields is None:
        return None
    if isinstance(fields, str):
        raise Invalid(f"fields={fields!r}: give a list or a mapping of names")
    if not isinstance(fields, Mapping):
        return [Need(name) for name in fields]
    needs = []
    for name, need in fields.items():
        wanted = need if isinstance(need, Every) else every(need)
        dtype = None if wanted.dtype is None else _arrays.dtype_name(wanted.dtype)
        needs.append(
            Need(name, dtype, wanted.period, wanted.region, wanted.first, wanted.optional, wanted.stats)
        )
    return needs


def as_part(region: Any) -> _Part:
    """A region as NumPy has it, before the shape of its array is known."""
    parts = region if isinstance(region, tuple) else (region,)
    ellipses = [index for index, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise Invalid(f"region {region!r}: an index has one ellipsis at most")
    cut = ellipses[0] if ellipses else len(parts)
    return [_slice(part, region) for part in parts[:cut]], [_slice(part, region) for part in parts[cut + 1 :]]


def _slice(part: Any, region: Any) -> _Slice:
    if isinstance(part, slice):
        bounds = [None if bound is None else _bound(bound, region) for bound in (part.start, part.stop)]
        step = 1 if part.step is None else _bound(part.step, region)
        if step < 1:
            raise Invalid(
                f"region {region!r}: its step is {step}; a contract takes every 1 or more elements, in their order"
            )
        return bounds[0], bounds[1], step
    index = _bound(part, region)
    return index, None if index == -1 else index + 1, 1


def _bound(given: Any, region: Any) -> int:
    try:
        index = operator.index(given)
    except TypeError:
        index = None
    if index is None or isinstance(given, bool):
        raise Invalid(f"region {region!r}: {given!r} is no slice, number or ellipsis")
    if not -(2**63) <= index < 2**63:
        raise Invalid(f"region {region!r}: {index} has more than 64 bits")
    return index
