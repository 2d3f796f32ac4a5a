# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes. One that cannot be pickled fails on all ranks that wait for it, not only on its own."""

from __future__ import annotations

import pickle as _pickle
from collections.abc import Callable
from typing import Any

from forebay._errors import Invalid

# No pickle begins so: in the place of an object that its rank could not pickle.
_FAILED = b"\0forebay: no object\0"


class Pickle:
    """How objects become bytes and come back; `__init__` may be called again with other functions."""

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[[Any], Any] | None = None,
        protocol: int | None = None,
    ) -> None:
        self.PROTOCOL: int | None = protocol
        """The protocol of `pickle`; None for the newest."""
        if dumps is None and protocol is None:
            self.PROTOCOL = _pickle.HIGHEST_PROTOCOL
        self._dumps = dumps or _pickle.dumps
        self._loads = loads or _pickle.loads

    def dumps(self, obj: object) -> bytes:
        """The bytes of an object."""
        return self._dumps(obj) if self.PROTOCOL is None else self._dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        """The object of these bytes."""
        return self._loads(data)


pickle = Pickle()


def packed(obj: object) -> tuple[bytes, Exception | None]:
    """The bytes of an object for other ranks; if it has none, what tells them, and why."""
    try:
        return pickle.dumps(obj), None
    except Exception as error:
        return failure(error), error


def failure(error: Exception) -> bytes:
    """What tells other ranks, instead of an object, what has failed."""
    return _FAILED + f"{type(error).__name__}: {error}".encode()


def unpacked(data: bytes, rank: int) -> Any:
    """The object that a rank gave."""
    if data.startswith(_FAILED):
        raise Invalid(f"rank {rank} gives no object: {data[len(_FAILED) :].decode(errors='replace')}")
    return pickle.loads(data)
