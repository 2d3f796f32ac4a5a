# SPDX-License-Identifier: Apache-2.0
"""Contracts: which fields somebody needs, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numpy.typing import DTypeLike

from forebay import _arrays
from forebay._errors import Invalid


@dataclass(frozen=True)
class Every:
    """A period, counted in the steps at which the producer offers a field."""

    period: int
    dtype: DTypeLike | None = None


def every(period: int, *, dtype: DTypeLike | None = None) -> Every:
    """Needs a field every so many of the steps that the producer offers, and, if given, with this dtype."""
    return Every(_arrays.integer(period, "every", low=1, bits=32), dtype)


Fields = Mapping[str, Every | int] | Sequence[str] | None


def as_needs(fields: Fields) -> list[tuple[str, str | None, int | None]] | None:
    """A contract as the core takes it; None means all fields, and a field without a period has that of all."""
    if fields is None:
        return None
    if isinstance(fields, str):
        raise Invalid(f"fields={fields!r}: give a list or a mapping of names")
    if not isinstance(fields, Mapping):
        return [(name, None, None) for name in fields]
    needs: list[tuple[str, str | None, int | None]] = []
    for name, need in fields.items():
        wanted = need if isinstance(need, Every) else every(need)
        dtype = None if wanted.dtype is None else _arrays.dtype_name(wanted.dtype)
        needs.append((name, dtype, _arrays.integer(wanted.period, "every", low=1, bits=32)))
    return needs
