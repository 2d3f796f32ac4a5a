# SPDX-License-Identifier: Apache-2.0
"""Dtypes and arrays, between NumPy and the core."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay import _plain
from forebay._errors import Error, Invalid, OutOfBounds, OverBudget, TypeMismatch

_BY_DTYPE = {
    np.dtype(name): name
    for name in (
        *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

_BY_NAME = {name: dtype for dtype, name in _BY_DTYPE.items()}


def integer(
    value: object,
    what: str,
    *,
    low: int = 0,
    high: int | None = None,
    bits: int = 64,
    error: type[Error] = Invalid,
) -> int:
    """An integer from `low` to `high`, or that has so many bits; nothing is rounded to one."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise Invalid(f"{what}={value!r}: an integer is needed") from None
    if not low <= number <= ((1 << bits) - 1 if high is None else high):
        last = f"2**{bits} - 1" if high is None else high
        raise error(f"{what}={number} is out of range: from {low} to {last} are possible")
    return number


def integers(values: object, what: str) -> list[int]:
    """Extents or places: one for each dimension."""
    if not isinstance(values, Iterable):
        raise Invalid(f"{what}={values!r}: an integer for each dimension is needed")
    return [integer(value, what, error=OutOfBounds) for value in values]


def dtype_name(dtype: DTypeLike | str) -> str:
    """The core's name of a dtype. `"bfloat16"` is known by name; NumPy itself has none."""
    if isinstance(dtype, str) and dtype in ("bfloat16", "bf16"):
        return "bfloat16"
    if dtype is None:  # NumPy takes it for float64
        raise Invalid("None is no dtype")
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise Invalid(f"{dtype!r} is no dtype: {error}") from None
    if found.name == "bfloat16":  # of a package that adds it to NumPy
        return "bfloat16"
    name = _BY_DTYPE.get(found.newbyteorder("="))
    if name is None:
        known = ", ".join([*_BY_DTYPE.values(), "bfloat16"])
        raise TypeMismatch(f"dtype {found} cannot be staged; known are {known}")
    return name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype that arrays of this name have: bfloat16 is shown as its bits unless NumPy knows it."""
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    try:
        return np.dtype("bfloat16")  # NumPy knows it from when a package is imported that adds it
    except TypeError:
        return np.dtype(np.uint16)


def checked(array: object, name: str, field: str) -> NDArray[Any]:
    """The array as NumPy sees it, without a copy; its dtype must be the field's, in any byte order.

    Bytes are taken as they are for a field of bytes; only of a view with gaps a copy is made. Python's own numbers get the
    field's dtype. What means more than its elements is refused.
    """
    wanted = numpy_dtype(name)
    if type(array) is np.ndarray and array.dtype is wanted:
        return array
    if isinstance(array, bytes | bytearray | memoryview) and wanted == np.uint8:
        dense = memoryview(array).c_contiguous
        given = np.frombuffer(array if dense else array.tobytes(), wanted)  # type: ignore[union-attr]
    else:
        exactly = _plain.exactly_bfloat16 if name == "bfloat16" else _plain.exactly
        numbers = exactly(array, wanted, f"field '{field}'")
        given = _plain.as_plain(array, f"field '{field}'") if numbers is None else numbers
    if given.dtype.hasobject:
        raise TypeMismatch(
            f"field '{field}': an array of Python objects cannot be staged; convert it to {name}"
        )
    if given.dtype.newbyteorder("=") != wanted:
        remedy = f".astype('{wanted}')"
        if name == "bfloat16":
            remedy = ".astype(ml_dtypes.bfloat16)"
        raise TypeMismatch(f"field '{field}' is {name}, the array is {given.dtype}: convert it with {remedy}")
    return given


def exposed(array: NDArray[Any]) -> NDArray[Any]:
    """The array as the core takes it. A dtype that is not NumPy's own is shown as its bits."""
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array


def is_native(array: NDArray[Any]) -> bool:
    """Whether elements are in this machine's byte order (Forebay's is little-endian)."""
    return array.dtype.isnative


def per_dimension(value: int | Sequence[int], ndim: int, what: str) -> list[int]:
    """Widths: one number for all dimensions, or one for each."""
    widths = list(value) if isinstance(value, Iterable) else [value] * ndim
    if len(widths) != ndim:
        raise OutOfBounds(f"{what} has {len(widths)} entries for {ndim} dimensions")
    return integers(widths, what)


def room(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to read into."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        size = " x ".join(map(str, shape))
        raise OverBudget(
            f"{size} elements of {dtype} are more than there is memory: read a region of it"
        ) from None


def check_out(out: object, shape: Sequence[int], dtype: np.dtype[Any], field: str) -> None:
    """Whether a region of this shape can be read into what the caller gives."""
    if not isinstance(out, np.ndarray):
        raise Invalid(f"field '{field}': out is {type(out).__name__}, needed is a NumPy array")
    _plain.as_plain(out, f"field '{field}': out")
    if list(out.shape) != list(shape) or out.dtype != dtype or not out.flags.writeable:
        raise OutOfBounds(
            f"field '{field}': out has shape {out.shape} and dtype {out.dtype}, needed is a writable array of shape "
            f"{tuple(shape)} and dtype {dtype}"
        )


def selection(
    index: object, shape: Sequence[int]
) -> tuple[list[int], list[int], list[int], tuple[int | slice, ...]]:
    """NumPy's basic indexing as offset, count and step for each dimension of the field.

    The last part is what is to be applied to the array that was read: it drops dimensions that were
    indexed by a number, and turns those round whose step is negative.
    """
    ndim = len(shape)
    if index is Ellipsis:
        return [0] * ndim, list(shape), [1] * ndim, (slice(None),) * ndim
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(part is Ellipsis for part in parts):
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        if sum(part is Ellipsis for part in parts) > 1:
            raise OutOfBounds("an index has at most one ellipsis")
        parts[at : at + 1] = [slice(None)] * (ndim - len(parts) + 1)
    if len(parts) > ndim:
        raise OutOfBounds(f"too many indices: {len(parts)} for {ndim} dimensions")
    parts += [slice(None)] * (ndim - len(parts))
    offset: list[int] = []
    count: list[int] = []
    step: list[int] = []
    after: list[int | slice] = []
    for dimension, (part, extent) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            try:
                found = range(*part.indices(extent))
            except (TypeError, ValueError) as error:
                raise Invalid(f"index {part}: {error}") from None
            turned = found.step < 0
            found = found[::-1] if turned else found
            offset.append(found.start if len(found) else 0)
            count.append(len(found))
            step.append(abs(found.step) if len(found) > 1 else 1)
            after.append(slice(None, None, -1) if turned else slice(None))
        elif isinstance(part, int | np.integer) and not isinstance(part, bool):
            number = int(part)
            if not -extent <= number < extent:
                raise OutOfBounds(f"index {number} is outside dimension {dimension}, which has {extent}")
            offset.append(number % extent)
            count.append(1)
            step.append(1)
            after.append(0)
        else:
            shown = f"an {type(part).__name__}" if isinstance(part, np.ndarray | list) else repr(part)
            raise Invalid(
                f"index {shown}: a field is read by numbers, slices and '...'; read a region first, then index it"
            )
    return offset, count, step, tuple(after)


def flags(given: object, dimensions: int, what: str) -> list[bool]:
    """Yes or no for each dimension, given as such or as one for all."""
    told = [given] * dimensions if isinstance(given, bool | np.bool_) else given
    if not isinstance(told, Sequence) or not all(isinstance(flag, bool | np.bool_) for flag in told):
        raise Invalid(f"{what}={given!r}: give True or False, or one for each dimension")
    return [bool(flag) for flag in told]


def counts(given: object, dimensions: int, what: str) -> list[int]:
    """A whole number above 0 for each dimension, given as such or as one for all."""
    told = given if isinstance(given, Sequence) and not isinstance(given, str) else [given] * dimensions
    return [integer(number, what, low=1, bits=32) for number in told]
