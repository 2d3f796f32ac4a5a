# SPDX-License-Identifier: Apache-2.0
"""Arrays and numbers that are handed over: only those that mean no more than their elements.

`numpy.asarray` drops masks, units, coordinates and the like without a word. What has them is refused, and the error says how
to hand over the elements alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid, TypeMismatch

#: Arrays of NumPy's own that are arrays and nothing else.
_ARRAYS = (np.ndarray, np.memmap, np.matrix, np.recarray)

_NUMBERS = (bool, int, float, complex)


class _Mark(NamedTuple):
    """An attribute by which arrays of other packages tell that they mean more than their elements."""

    name: str
    #: Whether it does, from what the attribute is.
    tells: Callable[[Any], bool]
    meaning: str
    remedy: str


def _is_there(_: object) -> bool:
    return True


def _is_value(found: object) -> bool:
    return found is not None and not callable(found)


def _is_count(found: Any) -> bool:
    return bool(found() if callable(found) else found)


def _is_any(found: Any) -> bool:
    return callable(found) and bool(np.any(found()))


_MISSING = ("missing elements", "its elements, filled where they are missing")
_UNITS = ("units", "its numbers, as `.value` or `.magnitude`; units are named where the field is declared")
_MARKS = (
    _Mark("iloc", _is_there, "labels", "its elements, as `.to_numpy()`"),  # pandas
    _Mark(
        "coords", _is_value, "coordinates", "its elements, as `.values` with the field's order of dimensions"
    ),  # xarray
    _Mark(
        "mask", _is_value, "a mask", "its elements, as `.filled(value)`, and the mask as a field of its own"
    ),
    _Mark("unit", _is_value, *_UNITS),  # astropy
    _Mark("units", _is_value, *_UNITS),  # pint, unyt, netCDF4
    _Mark(
        "sizes",
        _is_value,
        "named dimensions",
        "its elements, as `.values` with the field's order of dimensions",
    ),  # xarray
    _Mark("null_count", _is_count, *_MISSING),  # arrow, polars
    _Mark("isna", _is_any, *_MISSING),  # pandas
)


def as_plain(given: object, what: str) -> NDArray[Any]:
    """The array as NumPy sees it, without a copy where it is one; `TypeMismatch` if it means more than its elements."""
    if type(given) in _ARRAYS:
        return given  # type: ignore[return-value]
    _check(given, what)
    if _is_nested(given):
        for part in _leaves(given):
            if type(part) not in _NUMBERS:
                _check(part, what)
    try:
        made = np.asanyarray(given)
    except Exception as error:  # whatever the other package raises
        raise TypeMismatch(f"{what}: NumPy makes no array of this {_name(given)}: {error}") from None
    # What another package makes of it may mean more, too.
    if type(made) not in _ARRAYS:
        _check(made, what)
    return np.asarray(made)


def exactly(given: object, wanted: np.dtype[Any], what: str) -> NDArray[Any] | None:
    """Python's own numbers, or lists of them, as an array of this dtype; `None` if they are something else.

    They have no width of their own: they get the field's, if it holds each of them exactly. Else raises `TypeMismatch`.
    """
    numbers: list[Any] = list(_leaves(given)) if isinstance(given, list | tuple) else [given]
    known = {bool} if wanted.kind == "b" else {int, float, complex}  # a truth is no number
    if not numbers or not {type(number) for number in numbers} <= known:
        return None
    plain: Any = given
    try:
        np.shape(plain)
    except ValueError:
        raise Invalid(f"{what}: {_shown(given)} is no array: its parts have different lengths") from None
    try:
        with np.errstate(all="ignore"):
            made = np.array(plain, wanted)
    except (OverflowError, TypeError, ValueError):
        made = None
    if made is None or not all(_is_same(a, b) for a, b in zip(numbers, made.ravel().tolist(), strict=True)):
        raise TypeMismatch(
            f"{what}: {_shown(given)} is not exact in {wanted}: give an array of that dtype, rounded as you like"
        )
    return made


def exactly_bfloat16(given: object, wanted: np.dtype[Any], what: str) -> NDArray[Any] | None:
    """The same for bfloat16, which NumPy does not know: the upper half of a float32."""
    singles = exactly(given, np.dtype("f4"), what)
    if singles is None:
        return None
    bits = singles.view("u4")
    if np.any(bits & 0xFFFF):
        raise TypeMismatch(
            f"{what}: {_shown(given)} is not exact in bfloat16: give an array of ml_dtypes.bfloat16"
        )
    return (bits >> 16).astype("u2").view(wanted)


def numbers(given: object, dimensions: int, what: str) -> list[float]:
    """A number for each dimension, given as such or as one for all."""
    plain = as_plain(given, what)
    try:
        if plain.ndim == 0:
            return [float(plain)] * dimensions
        return [float(number) for number in plain]
    except (TypeError, ValueError):
        raise Invalid(f"{what}={given!r}: give a number, or one for each dimension") from None


def _check(given: object, what: str) -> None:
    for mark in _MARKS:
        if hasattr(given, mark.name) and mark.tells(getattr(given, mark.name)):
            raise TypeMismatch(
                f"{what}: {_name(given)} has {mark.meaning}, which would be lost: give {mark.remedy}"
            )
    if isinstance(given, np.ndarray) and type(given) not in _ARRAYS:
        raise TypeMismatch(
            f"{what}: {_name(given)} may mean more than its elements: give those, as `.view(numpy.ndarray)`"
        )


def _is_nested(given: object) -> TypeGuard[Sequence[object]]:
    """Whether NumPy looks at its parts one by one."""
    if isinstance(given, list | tuple):
        return True
    if not isinstance(given, Sequence) or isinstance(given, str | range) or hasattr(given, "__array__"):
        return False
    try:
        memoryview(given)  # type: ignore[arg-type]
    except TypeError:
        return True
    return False


def _is_same(number: Any, kept: Any) -> bool:
    if number == kept:
        return True
    if isinstance(number, complex):
        kept = complex(kept)
        parts = ((number.real, kept.real), (number.imag, kept.imag))
        return all(a == b or (a != a and b != b) for a, b in parts)
    return bool(number != number and kept != kept)  # NaN


def _leaves(given: Iterable[object]) -> Iterator[object]:
    for part in given:
        if isinstance(part, list | tuple):
            yield from _leaves(part)
        else:
            yield part


def _name(given: object) -> str:
    kind = type(given)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."
