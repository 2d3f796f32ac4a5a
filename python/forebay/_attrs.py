# SPDX-License-Identifier: Apache-2.0
"""Attributes: from Python's values to the core's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from forebay import _plain
from forebay._errors import Invalid, TypeMismatch

AttrValue = (
    bool
    | int
    | float
    | complex
    | str
    | Sequence[bool]
    | Sequence[int]
    | Sequence[float]
    | Sequence[complex]
    | Sequence[str]
    | NDArray[Any]
)
"""What an attribute may be."""


def as_values(key: str, value: object) -> tuple[str, list[Any], bool]:
    """The kind of the values, the values, and whether they are a list."""
    value = _python(key, value)
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)
    values: list[Any] = (
        [_python(key, v) for v in value] if isinstance(value, Iterable) and is_list else [value]
    )
    kinds = {type(v) for v in values}
    if kinds == {bool}:
        return "bool", values, is_list
    if kinds == {int}:
        if all(-(1 << 63) <= v < 1 << 63 for v in values):
            return "int", values, is_list
        if all(0 <= v < 1 << 64 for v in values):
            return "unsigned", values, is_list
        raise Invalid(f"attribute '{key}': {value!r} has more than 64 bits")
    if kinds <= {int, float, complex}:  # an empty list, too
        wide = [v for v in values if type(v) is int and abs(v) > 1 << 53]
        if wide:
            raise Invalid(f"attribute '{key}': {wide[0]} would be rounded among numbers that are no integers")
        if complex in kinds:
            return "complex", [[complex(v).real, complex(v).imag] for v in values], is_list
        return "float", [float(v) for v in values], is_list
    if kinds == {str}:
        return "text", values, is_list
    raise Invalid(
        f"attribute '{key}': {value!r} is no bool, integer, float, complex number or text, nor a list of one of these"
    )


def _python(key: str, value: object) -> object:
    """NumPy's numbers and arrays as Python's; anything else as it is."""
    if not hasattr(value, "__array__"):
        return value
    plain = _plain.as_plain(value, f"attribute '{key}'")
    if plain.dtype.kind not in "biufcU":  # dates would become numbers
        raise TypeMismatch(
            f"attribute '{key}': {plain.dtype} is no type of an attribute: give a number or a text"
        )
    return plain.tolist()
