# SPDX-License-Identifier: Apache-2.0
"""The space: arrays put and got by name, step and region, whoever put them."""

from __future__ import annotations

import builtins
import fnmatch
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forebay import _arrays, _choices, _expressions, _forebay, _options, _plain
from forebay._closing import close_after
from forebay._errors import Closed, OutOfBounds


class SpaceArray(NamedTuple):
    """An array in the space, as `Space.list` tells of it."""

    name: str
    step: int
    dtype: np.dtype[Any]
    #: The global shape.
    shape: tuple[int, ...]
    #: How many blocks were put of it.
    blocks: int
    #: How many bytes these have, without copies.
    bytes: int


class Space:
    """Arrays by name, step and region. What is put stays until it is removed.

    Opening connects to nothing.

    Parameters
    ----------
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP
        says.
    timeout:
        Seconds that any wait may take: more than 0; infinity waits for ever.
    transport:
        How blocks travel: `"auto"` (shared memory where the server is on this host, else TCP), `"shm"` or
        `"tcp"`.
    replicas:
        How many servers hold each array that this handle puts, 1 to 8: all but one of them may die.
        `Invalid` if the group has fewer.
    name:
        What this handle is called by `status` and in logs; by default its host and process say which it is.
    """

    def __init__(
        self,
        *,
        # generated from interface/forebay.toml: options space
        group: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        transport: _choices.Transport = "auto",
        replicas: int = 1,
        name: str | None = None,
        # end of what is generated
    ) -> None:
        # generated from interface/forebay.toml: given space
        given = _options.space(
            group=group, timeout=timeout, transport=transport, replicas=replicas, name=name
        )
        # end of what is generated
        self._open: _forebay.Space | None = _forebay.Space(given)
        self._timeout = timeout

    @property
    def _core(self) -> _forebay.Space:
        if self._open is None:
            raise Closed("the space was closed")
        return self._open

    def put(
        self,
        name: str,
        array: object,
        *,
        step: int,
        offset: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        replace: bool = False,
    ) -> None:
        """Puts an array as part of a global one of this `shape` (default: the array's, with its offset).

        Waits until a server holds it and the directory knows it. With `replace` it takes the place of what there is under
        this name and step, if there is anything, in one operation: who gets it gets the one before or the new one. Then
        it must be the whole array, and may have another shape or dtype than the one before. A put that fails with `Timeout`
        or `Unreachable` may have replaced it.
        """
        given = _plain.as_plain(array, f"field '{name}'")
        kind = _arrays.dtype_name(given.dtype)
        if not _arrays.is_native(given):
            given = given.astype(given.dtype.newbyteorder("="))
        at = [0] * given.ndim if offset is None else _arrays.integers(offset, f"field '{name}': offset")
        if len(at) != given.ndim:
            raise OutOfBounds(f"field '{name}': offset {tuple(at)} for an array of {given.ndim} dimensions")
        whole = (
            [a + n for a, n in zip(at, given.shape, strict=True)]
            if shape is None
            else _arrays.integers(shape, f"field '{name}': shape")
        )
        self._core.put(
            name,
            kind,
            whole,
            _arrays.integer(step, "step"),
            at,
            _arrays.exposed(given),
            replace,
        )

    def get(
        self,
        name: str,
        *,
        step: int,
        region: object = ...,
        out: NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Copies exactly a region, given as in NumPy, waiting until it is covered.

        At the deadline the error names the part that is missing. `timeout`, in seconds, is for that wait (default: that
        of the handle); bytes that were found are copied within that of the handle.
        """
        made: dict[str, Any] = {}

        def make(told: dict[str, Any]) -> tuple[list[int], list[int], list[int], NDArray[Any]]:
            dtype = _arrays.numpy_dtype(told["dtype"])
            offset, count, every, after = _arrays.selection(region, told["shape"])
            final = [n for n, part in zip(count, after, strict=True) if not isinstance(part, int)]
            if out is not None:
                _arrays.check_out(out, final, dtype, name)
            direct = out is not None and final == count and all(part == slice(None) for part in after)
            target = out if out is not None and direct else _arrays.room(count, dtype)
            made.update(target=target, after=after, direct=direct)
            return offset, count, every, _arrays.exposed(target)

        wait = self._timeout if timeout is None else timeout
        self._core.get(name, _arrays.integer(step, "step"), wait, make)
        target: NDArray[Any] = made["target"]
        if out is None:
            cut: NDArray[Any] = target[made["after"]]
            return cut
        if not made["direct"]:
            out[...] = target[made["after"]]
        return out

    def evaluate(self, text: str, *, step: int, timeout: float | None = None) -> _expressions.Value:
        """What an expression gives of what is put at a step: a number, a condition, or a `Place` (`None` if there are no numbers).

        `space.evaluate("max(T[0:32]) - min(T[0:32])", step=3)`: as `Step.evaluate`, of fields of the space. Waits until the regions
        that it names are covered, no longer than `timeout` seconds (default: that of the handle) all in all: then `NotCovered` names what
        lacks, and of a field of which nothing is there it is `Timeout`. The servers compute beside the blocks, and nothing but the
        answer travels.
        """
        wait = self._timeout if timeout is None else timeout
        return _expressions.value_of(self._core.evaluate(text, _arrays.integer(step, "step"), wait))

    def remove(self, name: str, *, step: int) -> None:
        """Removes what was put of a field at a step, on every server."""
        self._core.remove(name, _arrays.integer(step, "step"))

    def list(self, pattern: str = "*") -> builtins.list[SpaceArray]:
        """What there is in the space, by name and step.

        `pattern` chooses by name, as file names are chosen: `*`, `?` and `[...]`. Asks all servers; what is put or removed
        meanwhile may be in it or not. Reads no data.
        """
        return [
            SpaceArray(name, step, _arrays.numpy_dtype(kind), tuple(shape), blocks, size)
            for name, step, kind, shape, blocks, size in self._core.list()
            if fnmatch.fnmatchcase(name, pattern)
        ]

    def close(self) -> None:
        """Closes the connections, as soon as no other thread uses them. Closing twice is harmless."""
        self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(self.close, value)
