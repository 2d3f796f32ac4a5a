# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: expressions that the servers watch from step to step, and their events."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Literal, Self

from forebay import _arrays, _choices, _coming, _expressions, _forebay, _options
from forebay._errors import Dropped, Ended, Invalid
from forebay._step import Field, Step

Start = Literal["next", "first", "resume"] | int


class UnknownWarning(UserWarning):
    """Whether what is watched holds is not known at a step. Given once for each sort of reason."""


class Event:
    """What a subscription watches for held at a step, or did so no more.

    `event["U"]` is a field of its step, which is held until the event is released: by `release`, at the end of `with`, or when the next
    event is asked for in a loop. Of an event that was told late the step may be held no longer: then `data` is None.
    """

    def __init__(
        self, subscription: str, stream: str | None, told: dict[str, Any], step: Step | None
    ) -> None:
        self.subscription = subscription
        """The subscription's name."""
        self.stream = stream
        """The stream; None: the space."""
        self.number: int = told["number"]
        """Its number among the events of the subscription, from 1 on."""
        self.run: int = told["run"]
        """The run."""
        self.step: int = told["step"]
        """The step's number."""
        self.time: float | None = told["time"]
        """Physical time; None if the producer gave none."""
        self.turn: Literal["rose", "holds", "fell"] = told["turn"]
        """Whether it is the first of an episode, a later one, or its end."""
        self.episode: int = told["episode"]
        """The number of the episode, from 1 on."""
        self.first: int = told["first"]
        """The step at which the episode began."""
        self.missing: int = told["missing"]
        """How many evaluations of the episode gave nothing known."""
        self.missed: int = told["missed"]
        """How many events before it were forgotten before this process could be told of them."""
        values: dict[str, Any] = told["values"]
        self.values: dict[str, _expressions.Value] = {
            label: _expressions.value_of(value) for label, value in values.items()
        }
        """What the bindings are, by their names, and the aggregates, by their texts; None where that is not known."""
        self.nan: dict[str, int] = told["nan"]
        """How many elements of each were no numbers."""
        places: dict[str, Any] = told["places"]
        self.places: dict[str, _expressions.Place] = {}
        """Where the extremes lie."""
        for label, told_place in places.items():
            place = _expressions.value_of(told_place)
            if isinstance(place, _expressions.Place):
                self.places[label] = place
        self.data = step
        """The step, held until this event is released; None if it is held no longer."""

    def __getitem__(self, field: str) -> Field:
        """A field of the step: `Dropped` if that is held no longer."""
        if self.data is None and self.stream is None:
            raise Dropped(
                f"events of the space hold no steps: read it with Space.get({field!r}, step={self.step})"
            )
        if self.data is None:
            raise Dropped(
                f"step {self.step} of stream '{self.stream}' is held no longer: events hold their steps for a while "
                "(`hold`), or keep them (`keep_around`)"
            )
        return self.data[field]

    def release(self) -> None:
        """Lets go of the step. Arrays of it that live keep it. Does not wait."""
        if self.data is not None:
            self.data.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<forebay.Event {self.number} of {self.subscription!r}: {self.turn} at step {self.step}, {self.values}>"


class Subscription:
    """An expression that the servers watch from step to step: made by `subscribe`.

    Iterating, with `for` or `async for`, waits for event after event, and ends when the subscription does. Each event is released
    when the next one is asked for. It survives the servers that watch it.
    """

    def __init__(self, core: _forebay.Subscription) -> None:
        self._core = core
        self._waiter: _coming.Waiter[Event] = _coming.Waiter(Event.release)
        self._awaited: Future[Event] | None = None
        self._finalizer = weakref.finalize(self, core.close)

    @property
    def name(self) -> str:
        """Its name."""
        return self._core.name

    @property
    def stream(self) -> str | None:
        """The stream that it watches; None: the space."""
        return self._core.stream

    @property
    def text(self) -> str:
        """What it watches for."""
        return self._core.text

    @property
    def cursor(self) -> int | None:
        """The number of the event behind which it goes on, the last one that came: for `subscribe(..., start=cursor)`. None before the first one with `start="first"`."""
        return self._core.cursor()

    def wait_active(self) -> tuple[int, int] | None:
        """Waits until the servers have agreed from which step on it watches: the run and the step; None if no run is there yet."""
        return self._core.wait_active()

    def next(self, timeout: float | None = None) -> Event:
        """The next event. Waits as long as it takes, or no longer than `timeout` seconds: `Timeout`. `Ended` when the subscription has
        ended. What is not known is told as an `UnknownWarning`, once for each sort of reason.
        """
        while True:
            told, step, unknown = self._core.next(timeout)
            if told is not None:
                return Event(self.name, self.stream, told, None if step is None else Step(step))
            if unknown is not None:
                _, number, why = unknown
                text = f"subscription '{self.name}', step {number} of {self._watched}: not known: {why}"
                warnings.warn(text, UnknownWarning, stacklevel=2)

    def next_async(self, timeout: float | None = None) -> Future[Event]:
        """What `next` gives, as a future: a thread of this subscription's own waits for it."""
        next_event = weakref.WeakMethod(self.next)

        def wait() -> Event:
            call = next_event()
            if call is None:
                raise Ended("the subscription is gone")
            return call(timeout)

        return self._waiter.ask(wait)

    async def _next_awaited(self) -> Event:
        if self._awaited is None:
            self._awaited = self.next_async()
        await _coming.done(self._awaited)
        awaited, self._awaited = self._awaited, None
        assert awaited is not None
        return awaited.result()

    def pause(self) -> None:
        """Nothing is evaluated until it is resumed, by whomever. Waits for the server that coordinates it."""
        self._core.change("pause")

    def resume(self) -> None:
        """It goes on with the next step."""
        self._core.change("resume")

    def remove(self) -> None:
        """It ends, for all who listen to it."""
        self._core.change("remove")

    def on_event(self, callback: Callable[[Event], object]) -> threading.Thread:
        """Calls `callback` with each event, on a thread of its own that ends with the subscription. An event is released when the
        call returns. A call that raises is reported as threads' errors are, and the next event is waited for.
        """
        thread = threading.Thread(
            target=_call, args=(self, callback), name=f"forebay {self.name}", daemon=True
        )
        thread.start()
        return thread

    def __iter__(self) -> Iterator[Event]:
        return _coming.Turns(self.next)

    def __aiter__(self) -> AsyncIterator[Event]:
        return _coming.AsyncTurns(self._next_awaited)

    def close(self) -> None:
        """Listens no more. The subscription itself goes on if it is to be kept, or others listen to it; else it ends a while after. Waits
        until the server knows with which events this subscriber has finished; no longer than a second.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<forebay.Subscription {self.name!r} of {self._watched}: {self.text}>"

    @property
    def _watched(self) -> str:
        return "the space" if self.stream is None else f"stream {self.stream!r}"


def _call(subscription: Subscription, callback: Callable[[Event], object]) -> None:
    _forebay.end_waits_at_exit()
    for event in subscription:
        try:
            callback(event)
        except Exception as error:
            kind, trace = type(error), error.__traceback__
            threading.excepthook(threading.ExceptHookArgs((kind, error, trace, threading.current_thread())))


_subscribers: dict[tuple[object, ...], _forebay.Subscriber] = {}
_lock = threading.Lock()


def subscribe(
    text: str,
    *,
    stream: str | None = None,
    space: bool = False,
    name: str | None = None,
    every: int = 1,
    on: _choices.On = "each",
    limit: int | None = None,
    expires: float | None = None,
    missing: _choices.Missing = "skip",
    keep: bool = False,
    keep_around: tuple[int, int] | None = None,
    hold: int = 30,
    start: Start = "resume",
    window: int = 4,
    callback: Callable[[Event], object] | None = None,
    group: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
    transport: _choices.Transport = "auto",
) -> Subscription:
    """Has the servers watch for something, from the next step on, and returns at once.

    ::

        for event in forebay.subscribe("max(grayscott.U[0:32]) > 0.9 for 3 steps"):
            print(event.step, event.values, event["U"][event.places["max(grayscott.U[0:32])"].index])

    Names and precedence are those of NumPy (docs/expressions.md). The stream need not be there yet. One connection to each stream's
    server is kept for all subscriptions of this process: the next one costs a question and its answer.

    Parameters
    ----------
    text:
        What to watch for: a condition. Fields are `stream.field`, or `field` of `stream`.
    stream:
        The stream of fields that are named without one.
    space:
        Whether the fields are those of the space (`Space`). Each step is watched at the put that completes the regions that the text
        names, in the order of that; one that is removed and put again is watched again. Its events hold no step, since arrays stay in
        the space until they are removed: `Space.get` reads them. `Invalid` with `stream`, with `keep_around`, and for texts that speak
        of physical time.
    name:
        Its name, unique in its stream; by default one that nobody else has. If there is one that watches for the same, that goes on,
        with the event after the last one with which a subscriber has finished. `Conflict` if one of the name watches for something else.
    every:
        At every so many of the steps at which its fields are offered.
    on:
        At which evaluations there are events: at `"each"` at which it holds, at the `"rise"` or the `"fall"` of an episode, or at `"both"`.
    limit:
        It ends after so many events.
    expires:
        It ends after so many seconds.
    missing:
        What evaluations are that give nothing known (torn steps, regions that were not put): `"skip"`, they take no part; `"reset"`, they
        count as if it did not hold.
    keep:
        Whether it goes on without anybody who listens, also when this process has ended. Otherwise it ends half a minute after that.
    keep_around:
        Keeps the step of each event, so many steps before it and so many after it, in the servers' memory: 128 steps at most, the
        latest. `Stream.at` reads them.
    hold:
        For how many seconds an event holds its step for those who have not taken it.
    start:
        With which event to begin, where there is a subscription of the name already: the one after the last with which a subscriber has
        finished (`"resume"`), the `"next"` one, the `"first"` that is remembered (1024 are), or the one after that of a number
        (`Subscription.cursor`).
    window:
        How many events this process may hold at once, 1 to 1024.
    callback:
        Is called with each event, as `Subscription.on_event` says.
    group, timeout, transport:
        As of a `Consumer`.

    `Invalid`, `NotFound`, `TypeMismatch`, `OutOfBounds` or `Unsupported` where the text is wrong, as far as that is known already: the
    message shows the column.
    """
    given = _options.admin(group=group, timeout=timeout, transport=transport, name=None)
    after = 0
    if isinstance(start, int):
        after, begin = _arrays.integer(start, "start"), "after"
    else:
        begin = start
        if begin not in ("next", "first", "resume"):
            raise Invalid(f"start is {start!r}: use 'next', 'first', 'resume' or an event's number")
    if space and stream is not None:
        raise Invalid(
            f"fields are those of stream {stream!r} or of the space: give stream or space, not both"
        )
    if keep_around is not None:
        try:
            before, behind = keep_around
        except (TypeError, ValueError):
            text = f"keep_around={keep_around!r}: give how many steps before and after, as (2, 1)"
            raise Invalid(text) from None
        keep_around = (
            _arrays.integer(before, "keep_around", bits=32),
            _arrays.integer(behind, "keep_around", bits=32),
        )
    made = _subscriber(given).subscribe(
        text,
        name,
        stream,
        bool(space),
        _arrays.integer(every, "every", bits=32),
        on,
        None if limit is None else _arrays.integer(limit, "limit"),
        expires,
        missing,
        keep,
        keep_around,
        _arrays.integer(hold, "hold", bits=32),
        begin,
        after,
        _arrays.integer(window, "window", low=1, bits=32),
    )
    subscription = Subscription(made)
    if callback is not None:
        subscription.on_event(callback)
    return subscription


def _subscriber(given: Any) -> _forebay.Subscriber:
    """What makes subscriptions in this group, with these options; a forked child has its own."""
    key = (os.getpid(), os.environ.get("FOREBAY_GROUP"), *(repr(value) for value in given.values()))
    with _lock:
        known = _subscribers.get(key)
        if known is None:
            known = _subscribers[key] = _forebay.Subscriber(given)
        return known
