# SPDX-License-Identifier: Apache-2.0
"""Streams, looked at from outside: nothing is demanded of the simulation, and no reader is attached to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay import _arrays, _choices, _expressions, _forebay, _options
from forebay._consumer import Consumer
from forebay._step import Step
from forebay.status import StreamStatus


class StepInfo(NamedTuple):
    """A step that is held."""

    run: int
    number: int
    time: float | None
    """Physical time; None if the producer gave none."""
    fields: list[str]
    bytes: int
    """How many servers hold of it, without copies."""
    blocks: int
    torn: bool


class Stream:
    """A stream, looked at from outside.

    Nothing is demanded of the simulation for it: what is held is there since a reader or the simulation's `keep` holds it.
    Opening it finds the group, and waits for one that is forming. The stream need not exist yet. It may be pickled.

    Parameters
    ----------
    name:
        The name that the producer gave.
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP says.
    timeout:
        Seconds that each call may take.
    transport:
        How blocks travel: `"auto"` (shared memory where the server is on this host, else TCP), `"shm"` or `"tcp"`.
    """

    def __init__(
        self,
        name: str,
        *,
        group: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        transport: _choices.Transport = "auto",
    ) -> None:
        self.name = name
        self._asked = {"group": group, "timeout": timeout, "transport": transport}
        self._given = _options.admin(group=group, timeout=timeout, transport=transport, name=None)
        self._core = _forebay.Stream(name, self._given)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, **self._asked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def status(self) -> StreamStatus | None:
        """What the group says of it (`docs/status.md`); None if nobody has opened it yet. Waits for the servers."""
        streams: list[StreamStatus] = json.loads(_forebay.status(self._given))["streams"]
        return next((stream for stream in streams if stream["name"] == self.name), None)

    @property
    def steps(self) -> list[StepInfo]:
        """The closed steps that are held now, of all runs, the oldest first. Waits for the servers; moves no data."""
        return [StepInfo(*told) for told in self._core.steps()]

    @property
    def runs(self) -> list[int]:
        """The latest run, and the earlier ones of which steps are held."""
        status = self.status
        latest = {status["run"]} if status is not None and status["run"] else set()
        return sorted(latest | {step.run for step in self.steps})

    @property
    def fields(self) -> list[str]:
        """Names of the fields that the latest run offers, as far as they are known."""
        status = self.status
        return [] if status is None else [field["name"] for field in status["fields"]]

    @property
    def latest(self) -> Step:
        """The newest closed step that is held: `NotFound` if none is. It is held until it is released, or forgotten."""
        return Step(self._core.latest())

    def at(self, *, run: int | None = None, number: int) -> Step:
        """The step of this number, of a run or of the latest one.

        `Dropped` if it is held no longer: the text says which is the next that is. `NotFound` if there was none, or it is
        not closed yet. It is held until it is released, or forgotten.
        """
        chosen = None if run is None else _arrays.integer(run, "run", low=1, bits=48)
        return Step(self._core.at(chosen, _arrays.integer(number, "number")))

    def evaluate(self, text: str, *, step: int | None = None, run: int | None = None) -> _expressions.Value:
        """What an expression gives at a step that is held: by default the newest, else the one of this number.

        As `Step.evaluate`; the step is held until the answer is there. Errors are those of `Step.evaluate`, and of `latest` and
        `at` where there is no such step.
        """
        with self.latest if step is None else self.at(run=run, number=step) as held:
            return held.evaluate(text)

    def __getitem__(self, number: int) -> Step:
        return self.at(number=number)

    def __iter__(self) -> Iterator[Step]:
        """The closed steps that are held now, the oldest first. Each is released when the next one is asked for."""
        held = self._core.held()
        while (core := held.next_step()) is not None:
            step = Step(core)
            yield step
            step.release()

    def __contains__(self, number: object) -> bool:
        return any(step.number == number for step in self.steps)

    def follow(self, **options: Any) -> Consumer:
        """A reader of this stream, with the options of `Consumer`."""
        return Consumer(self.name, **{**self._asked, **options})

    def __repr__(self) -> str:
        return f"<forebay.Stream {self.name!r}>"


def streams(*, group: str | os.PathLike[str] | None = None, timeout: float | None = None) -> list[str]:
    """Names of the streams that the servers of a group know. Waits for all servers, by default 3 s at most."""
    given = _options.admin(group=group, timeout=timeout, transport="auto", name=None)
    return [stream["name"] for stream in json.loads(_forebay.status(given))["streams"]]
