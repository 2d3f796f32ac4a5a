# SPDX-License-Identifier: Apache-2.0
"""Steps and events that are waited for: on a thread of their own, or one after the other."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar
from typing import Protocol as TypingProtocol

from forebay import _forebay
from forebay._errors import Ended

T = TypeVar("T")
_Asked = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class _Coming(Future[T]):
    """What a call will return, which is given up if it comes and nobody takes it."""

    def __init__(self, give_up: Callable[[T], None]) -> None:
        super().__init__()
        self._give_up = give_up
        self._not_taken: T | None = None

    def set_result(self, result: T) -> None:
        self._not_taken = result
        super().set_result(result)

    def result(self, timeout: float | None = None) -> T:
        result = super().result(timeout)
        self._not_taken = None
        return result

    def __del__(self) -> None:
        if self._not_taken is not None:
            self._give_up(self._not_taken)


class Waiter(Generic[T]):
    """Runs calls that wait one after the other, on a thread that begins with the first of them and ends with this object.

    What a call returned and nobody has taken when its future is gone is given to `give_up`.
    """

    def __init__(self, give_up: Callable[[T], None]) -> None:
        self._give_up = give_up
        self._asked: _Asked = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def ask(self, call: Callable[[], T]) -> Future[T]:
        """What a call will return."""
        future = _Coming(self._give_up)
        self._asked.put((future, call))
        with self._starting:
            if not self._started:
                thread = threading.Thread(target=_run, args=(self._asked,), name="forebay waits", daemon=True)
                _threads.add(thread)
                weakref.finalize(self, self._asked.put, None)
                thread.start()
                self._started = True
        return future


def _run(asked: _Asked) -> None:
    _forebay.end_waits_at_exit()
    while (one := asked.get()) is not None:
        future, call = one
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        # What is waited for next must not keep this.
        del one, future, call


@atexit.register
def _end() -> None:
    """A thread that came back from a wait while the interpreter ends would find none."""
    _forebay.end_waits()
    for thread in list(_threads):
        thread.join(2)


async def done(future: Future[T]) -> None:
    """Waits until it is done, whatever came of it. One that is cancelled meanwhile leaves it as it is."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def on_done(_: Future[T]) -> None:
        # Of a loop that is closed nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(on_done)
    await woken


class Released(TypingProtocol):
    """What is held until it is released."""

    def release(self) -> None: ...


H = TypeVar("H", bound=Released)


class Turns(Generic[H]):
    """Things one after the other: each is released when the next one is asked for. `Ended` ends it."""

    def __init__(self, ask: Callable[[], H]) -> None:
        self._ask = ask
        self._last: H | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> H:
        if self._last is not None:
            self._last.release()
            self._last = None
        try:
            self._last = self._ask()
        except Ended:
            raise StopIteration from None
        return self._last


class AsyncTurns(Generic[H]):
    """The same in a coroutine."""

    def __init__(self, ask: Callable[[], Awaitable[H]]) -> None:
        self._ask = ask
        self._last: H | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> H:
        if self._last is not None:
            self._last.release()
            self._last = None
        try:
            self._last = await self._ask()
        except Ended:
            raise StopAsyncIteration from None
        return self._last
