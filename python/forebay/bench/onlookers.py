# SPDX-License-Identifier: Apache-2.0
"""Those who look at the mini-application while `bench slowdown` times it."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.children import Channel, Child
from forebay.bench.errors import BenchError, WrongData

_STREAM = "grayscott"
_FIELDS = ("U", "V")


def _check_plane(plane: Any, number: int) -> None:
    """Concentrations are numbers from 0 to about 1, and not all alike."""
    if not (np.isfinite(plane).all() and plane.min() >= -0.1 and plane.max() <= 1.5 and np.ptp(plane) > 0):
        raise WrongData(f"a plane of step {number} cannot be Gray-Scott's")


def read_all(channel: Channel, path: str) -> None:
    """Takes every step until the simulation ends: views of all blocks, and a plane."""
    taken = 0
    with forebay_side.consumer(path, _STREAM, fields=_FIELDS) as consumer:
        channel.send("ready")
        for step in consumer:
            with step:
                for name in _FIELDS:
                    for block in step[name].blocks():
                        float(block.data.reshape(-1)[0])
                        del block
                _check_plane(forebay_side.plane(step, "U"), int(step.number))
            taken += 1
    channel.send(taken)


def read_one(channel: Channel, path: str) -> None:
    """Takes the first step, holds it, and stands still until it is killed."""
    with forebay_side.consumer(path, _STREAM, fields=_FIELDS) as consumer:
        channel.send("ready")
        step = consumer.next(timeout=60.0)
        held = step["U"].blocks()
        os.kill(os.getpid(), signal.SIGSTOP)
        del held


@contextmanager
def attached_reader(group: forebay_side.Group) -> Iterator[None]:
    """A reader that takes every step."""
    with Child("reader", read_all, group.path) as child:
        child.answer()
        yield
        if child.answer() < 2:
            raise BenchError("the reader has seen hardly any step")


@contextmanager
def stopped_reader(group: forebay_side.Group) -> Iterator[None]:
    """A reader that stops at its first step."""
    child = Child("stopped reader", read_one, group.path)
    try:
        child.answer()
        yield
        state = _state(child.pid)
        if state != "T":
            raise BenchError(f"the reader that should have stopped is in state {state}")
    finally:
        child.close(patience=0.0)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def read_sst(channel: Channel, name: str) -> None:
    """Gets both fields of every step of one rank's stream."""
    adios2: Any = importlib.import_module("adios2.bindings")
    session = adios2.ADIOS()
    io = session.DeclareIO("reader")
    io.SetEngine("SST")
    channel.send("ready")
    engine = io.Open(name, adios2.Mode.Read)
    arrays: dict[str, Any] = {}
    taken = 0
    while engine.BeginStep() == adios2.StepStatus.OK:
        for field in _FIELDS:
            variable = io.InquireVariable(field)
            if field not in arrays:
                arrays[field] = np.zeros(variable.Shape())
            engine.Get(variable, arrays[field], adios2.Mode.Deferred)
        engine.EndStep()
        _check_plane(arrays["U"], taken)
        taken += 1
    engine.Close()
    channel.send(taken)


@contextmanager
def sst_readers(name: str, ranks: int, steps: int) -> Iterator[None]:
    """A reader for the stream of each rank."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child(f"SST reader {r}", read_sst, f"{name}{r}")) for r in range(ranks)
        ]
        for child in children:
            child.answer()
        yield
        for child in children:
            taken = child.answer()
            if taken != steps:
                raise BenchError(f"{child.name} has taken {taken} of {steps} steps")
