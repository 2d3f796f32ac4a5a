# SPDX-License-Identifier: Apache-2.0
"""Attributes: from Python's values to the core's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid

AttrValue = (
    bool | int | float | str | Sequence[bool] | Sequence[int] | Sequence[float] | Sequence[str] | NDArray[Any]
)
"""What an attribute may be."""


def as_values(key: str, value: object) -> tuple[str, list[Any], bool]:
    """The kind of the values, the values, and whether they are a list."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)
    given = list(value) if isinstance(value, Iterable) and is_list else [value]
    values: list[Any] = [v.item() if isinstance(v, np.generic) else v for v in given]
    kinds = {type(v) for v in values}
    if kinds == {bool}:
        return "bool", values, is_list
    if kinds == {int}:
        if any(not -(1 << 63) <= v < 1 << 63 for v in values):
            raise Invalid(f"attribute '{key}': {value!r} has more than 64 bits")
        return "int", values, is_list
    if kinds <= {int, float}:  # an empty list, too
        return "float", [float(v) for v in values], is_list
    if kinds == {str}:
        return "text", values, is_list
    raise Invalid(
        f"attribute '{key}': {value!r} is no bool, integer, float or text, nor a list of one of these"
    )
