# SPDX-License-Identifier: Apache-2.0
"""Pipelines: user code that runs beside the data, and its communicator."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from forebay import _forebay
from forebay._contract import Fields
from forebay._errors import Invalid
from forebay._step import Step

_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
}


class Pipeline:
    """Base of all pipelines. One instance lives in each worker process, beside each server.

    `fields` is the contract, as a consumer's; it may also be set in `__init__`, from the configuration.
    `stream` names the stream that it runs on; without it the one that is given when the pipeline is
    created, or the only one that the group has.
    """

    stream: str | None = None
    fields: Fields = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def warm_up(self) -> None:
        """Called once, before this worker takes part in any step: no step waits for it.

        What makes a first step slow belongs here, such as drawing a frame that nobody sees. What it raises
        fails the worker, as in `__init__`.
        """

    def execute(self, step: Step, comm: Comm) -> None:
        """Runs on one closed step, on every worker at the same time.

        `step.blocks(name)` are this worker's blocks, as views that are valid until it returns: copy what
        is to be kept.
        """
        raise NotImplementedError("a pipeline defines execute(self, step, comm)")

    def close(self) -> None:
        """Called when the pipeline ends in good order. It has 10 seconds."""


class Comm:
    """The communicator of the workers of one execution. Every operation has a deadline.

    An operation that involves a worker that died raises `Unreachable` and names it.
    """

    def __init__(self, core: _forebay.Comm) -> None:
        self._core = core

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self._core.rank

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._core.size

    def send(self, value: object, dest: int, tag: int = 0) -> None:
        """Sends any object that can be pickled, or an array, to one worker."""
        self._core.send(dest, tag, pickle.dumps(value, protocol=5))

    def recv(self, source: int, tag: int = 0) -> Any:
        """Waits for what one worker sends with this tag."""
        return pickle.loads(self._core.recv(source, tag))

    def barrier(self) -> None:
        """Waits until every worker has come here."""
        self._core.barrier()

    def broadcast(self, value: object, root: int = 0) -> Any:
        """What the root gives, on every worker."""
        mine = pickle.dumps(value, protocol=5) if self.rank == root else b""
        return pickle.loads(self._core.broadcast(root, mine))

    def gather(self, value: object, root: int = 0) -> list[Any] | None:
        """What every worker gives, in the order of ranks, on the root; None elsewhere."""
        all_bytes = self._core.gather(root, pickle.dumps(value, protocol=5))
        return None if all_bytes is None else [pickle.loads(data) for data in all_bytes]

    def allgather(self, value: object) -> list[Any]:
        """What every worker gives, in the order of ranks, on every worker."""
        return [pickle.loads(data) for data in self._core.allgather(pickle.dumps(value, protocol=5))]

    def allreduce(self, value: Any, op: Literal["sum", "prod", "min", "max"] = "sum") -> Any:
        """The values of all workers put together in the order of ranks, so that the result is the same each time."""
        combine = _OPS.get(op)
        if combine is None:
            raise Invalid(f"op {op!r} is not known: use {', '.join(_OPS)}")
        values = self.allgather(value)
        result = values[0]
        for other in values[1:]:
            result = combine(result, other)
        return result
