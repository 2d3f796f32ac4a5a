# SPDX-License-Identifier: Apache-2.0
"""What users write for the memory of a message: an array, or a list of it with counts, offsets and a type.

The forms and their meaning are mpi4py's.
"""

from __future__ import annotations

from operator import index
from typing import Any

from forebay import _forebay
from forebay._errors import Invalid
from forebay._mpi.datatypes import Datatype

Blocks = tuple[list[int], list[int]] | None
"""Lengths and offsets of the blocks of all ranks, in bytes."""


def _typed(given: Any, buffer: Any) -> _forebay.Datatype:
    if given is None:
        return _forebay.Datatype.of(buffer)
    if isinstance(given, str):
        return Datatype.fromcode(given)
    if not isinstance(given, _forebay.Datatype):
        raise TypeError(f"message: {given!r} is no datatype")
    if not given.size:
        raise Invalid("message: DATATYPE_NULL is no type of elements")
    return given


def _is_type(given: Any) -> bool:
    return given is None or isinstance(given, (str, _forebay.Datatype))


def _parts(message: list[Any] | tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """Buffer, counts, offsets and type of what was written."""
    counts = displs = datatype = None
    match len(message):
        case 2:
            buffer, second = message
            if _is_type(second):
                datatype = second
            else:
                counts = second
        case 3:
            buffer, counts, datatype = message
        case 4:
            buffer, counts, displs, datatype = message
        case n:
            raise Invalid(f"message: 2 to 4 items are expected in a list, not {n}")
    if isinstance(counts, tuple) and len(message) < 4:
        if len(counts) != 2:
            raise Invalid("message: counts and offsets are a tuple of two")
        counts, displs = counts
    if not _is_type(datatype):
        raise TypeError(f"message: {datatype!r} is no datatype")
    return buffer, counts, displs, datatype


def _sized(buffer: Any, datatype: Any) -> tuple[Any, int, _forebay.Datatype]:
    if buffer is None:
        buffer = bytearray()
    return buffer, memoryview(buffer).nbytes, _typed(datatype, buffer)


def _not_negative(value: Any, what: str) -> int:
    number = index(value)
    if number < 0:
        raise Invalid(f"message: {what} {number} is negative")
    return number


def simple(message: Any, blocks: int = 1) -> Any:
    """A buffer, or a part of one as (buffer, offset in bytes, bytes, type).

    A count that is written is that of one of so many blocks.
    """
    if not isinstance(message, (list, tuple)):
        return bytearray() if message is None else message
    buffer, count, displ, datatype = _parts(message)
    buffer, nbytes, made = _sized(buffer, datatype)
    offset = 0 if displ is None else _not_negative(displ, "offset") * made.size
    if count is not None:
        return buffer, offset, _not_negative(count, "count") * blocks * made.size, made
    left = nbytes - offset
    if left < 0:
        raise Invalid(f"message: it begins at byte {offset} of a buffer of {nbytes}")
    if left % made.size:
        raise Invalid(f"message: a buffer of {left} bytes is no whole number of elements of {made.size}")
    return buffer, offset, left, made


def vector(message: Any, size: int) -> tuple[Any, Blocks]:
    """A buffer with the blocks of so many ranks."""
    if not isinstance(message, (list, tuple)):
        return (bytearray() if message is None else message), None
    buffer, counts, displs, datatype = _parts(message)
    buffer, nbytes, made = _sized(buffer, datatype)
    if counts is None:
        items = nbytes // made.size
        if nbytes % made.size or items % size:
            raise Invalid(f"message: {nbytes} bytes are no whole number of elements for each of {size} ranks")
        counts = items // size
    counts = _numbers(counts, size, "count")
    if displs is None:
        ends = [0]
        for count in counts:
            ends.append(ends[-1] + count)
        displs = ends[:-1]
    elif _is_number(displs):
        displs = [index(displs) * rank for rank in range(size)]
    displs = _numbers(displs, size, "offset")
    blocks = [count * made.size for count in counts], [displ * made.size for displ in displs]
    return (buffer, 0, nbytes, made), blocks


def _is_number(given: Any) -> bool:
    """One, not many: arrays have the method, too."""
    try:
        index(given)
    except TypeError:
        return False
    return True


def _numbers(given: Any, size: int, what: str) -> list[int]:
    numbers = [given] * size if _is_number(given) else list(given)
    if len(numbers) != size:
        raise Invalid(f"message: {len(numbers)} {what}s are given for {size} ranks")
    return [_not_negative(number, what) for number in numbers]
