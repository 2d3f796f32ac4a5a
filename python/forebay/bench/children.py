# SPDX-License-Identifier: Apache-2.0
"""Other processes that take part in a benchmark: asked over a pipe, gone with this one."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from forebay.bench.errors import BenchError

_SPAWN = multiprocessing.get_context("spawn")
_PR_SET_PDEATHSIG = 1
PATIENCE = 120.0
"""Seconds after which a process that does not answer counts as stuck."""


class Channel:
    """A child's end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, answer: object) -> None:
        """Answers."""
        self._connection.send(("answer", answer))

    def poll(self, seconds: float = 0.0) -> bool:
        """Whether a message is there, or comes within so many seconds."""
        return self._connection.poll(seconds)

    def receive(self) -> tuple[Any, ...]:
        """Waits for the next message."""
        message: tuple[Any, ...] = self._connection.recv()
        return message

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """All messages, until the parent closes the pipe."""
        while True:
            try:
                yield self.receive()
            except EOFError:
                return


Target = Callable[..., None]
"""What a child runs: a function of a module, called with its channel and the arguments."""


def _main(target: Target, connection: Connection, arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        target(Channel(connection), *arguments)
    except BaseException:
        with contextlib.suppress(OSError):
            connection.send(("error", traceback.format_exc()))


class Child:
    """A process of its own that runs `target(channel, *arguments)`."""

    def __init__(
        self, name: str, target: Target, *arguments: Any, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_main, args=(target, theirs, arguments), name=name, daemon=True)
        with _environment(env or {}), _interrupts_blocked():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, *message: object) -> None:
        """Sends a message, and does not wait."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise BenchError(f"{self.name} is gone: {error}") from error

    def answered(self, seconds: float = 0.0) -> bool:
        """Whether an answer is there, or comes within so many seconds."""
        return self._connection.poll(seconds)

    def answer(self, patience: float = PATIENCE) -> Any:
        """Waits for the next answer."""
        if not self._connection.poll(patience):
            raise BenchError(f"{self.name} has not answered for {patience:g} s")
        try:
            kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise BenchError(f"{self.name} died with exit code {self._process.exitcode}") from error
        if kind == "error":
            raise BenchError(f"{self.name} failed:\n{answer}")
        return answer

    def ask(self, *message: object, patience: float = PATIENCE) -> Any:
        """Sends a message and waits for its answer."""
        self.tell(*message)
        return self.answer(patience)

    def close(self, patience: float = 10.0) -> None:
        """Lets the process end by itself, and ends it where it does not."""
        self._connection.close()
        self._process.join(patience)
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGCONT)
            self._process.terminate()
            self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(10.0 if error is None else 0.5)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Lets a process that is started meanwhile never see Ctrl-C: this one gets it, and ends the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for a process that is started meanwhile (some are read before its first line runs)."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
