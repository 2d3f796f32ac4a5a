# SPDX-License-Identifier: Apache-2.0
"""Steps that are waited for on a thread of their own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from forebay import _forebay

T = TypeVar("T")
_Asked = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Waiter(Generic[T]):
    """Runs calls that wait one after the other, on a thread that begins with the first of them and ends with this object."""

    def __init__(self) -> None:
        self._asked: _Asked = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def ask(self, call: Callable[[], T]) -> Future[T]:
        """What a call will return."""
        future: Future[T] = Future()
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
