# SPDX-License-Identifier: Apache-2.0
"""Consumers: readers of a stream."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from forebay import (
    _arrays,
    _assign,
    _choices,
    _coming,
    _contract,
    _forebay,
    _jobs,
    _options,
)
from forebay._closing import close_after, is_clean
from forebay._errors import Timeout
from forebay._given import Cursor
from forebay._step import Step


class Consumer:
    """A reader of a stream, which may attach before, while and after the simulation runs.

    Iterating, with `for` or `async for`, waits for step after step and ends when the simulation ends; if that crashes, it
    raises `Crashed` after the last step. Each step is released when the next one is asked for.

    Parameters
    ----------
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP
        says.
    stream:
        The name that the producer gave. It need not exist yet.
    fields:
        What is needed: names, or a mapping from names to `every(n)`; by default all fields.
    timeout:
        Seconds that the reader waits for a run to begin, and for a server's answer: more than 0; infinity
        waits for ever. While ranks of a run live it waits for their next step however long that takes.
    transport:
        How blocks travel: `"auto"` (shared memory where the server is on this host, else TCP), `"shm"` or
        `"tcp"`.
    every:
        Every so many of the steps at which the producer offers a field: of all fields, or of those that are
        named without a period of their own.
    window:
        How many steps may be held at once, 1 to 1024. More wait in the stream, under its policy.
    follow:
        Whether to go on with the next run when the simulation is restarted.
    start:
        With which step to begin: `"next"`, the next step that begins; `"oldest"`, the oldest that the
        stream keeps; `"latest"`, the newest that is held; `"held"`, those that are held now and none that
        comes later, so that nothing is demanded of the simulation; `"run"`, the first step of a run: of the
        one that is there, if it has begun none yet, else of the next one, whatever ran before; `"resume"`,
        where the last reader of this `name` has stopped, as the group knows, with the next step that begins
        if there was none: what it had not finished with when it died is given again; or a cursor: where an
        earlier reader of the stream stopped, in this process or another, as `cursor` tells. Steps that are
        held no longer are left out, and counted as `missed` with the first one that comes, as far as the
        group knows. `NotFound` if the stream has had no such run.
    pin_bytes:
        Bytes of earlier steps that arrays may keep in the servers' memory. Beyond that the blocks of
        further steps are copied, so that a reader that collects arrays cannot fill the servers. The arrays
        of one step may be kept whatever its size (default 1 GiB).
    take:
        Which of the steps that wait for it the reader is given: `"all"` of them, in order; or the
        `"latest"`, for a live view: then `next` gives the newest closed step and counts those passed over
        as `missed`. Neither the simulation nor other readers notice, whatever the stream's policy.
    name:
        What this reader is called: by simulations that wait for their readers (`wait_for_readers`), in
        errors, by `status` and in logs. The ranks of a parallel reader have one name, which no other
        parallel reader of the stream has.
    rank:
        Of a parallel reader: this rank, counted from 0.
    size:
        How many ranks the reader has. They begin once all have come, have one position in the stream, and
        are given the same steps in the same order; a step is held until the last rank has released it.
    on_loss:
        Of a parallel reader: what the other ranks do when one dies, `"fail"` (they are told `Lost`, which
        names it) or `"go-on"` (without it: what it had not finished with, nobody reads).
    assign:
        Of a parallel reader: which blocks are this rank's, as `Step.mine` tells. `"all"`; `"ranks"`, those
        of whole ranks of the simulation, so that fields which belong together stay so; `"round-robin"`;
        `"balanced"`, by bytes; `"slab"`, a slab of each field that has a global shape, cut along its first
        dimension that is long enough; `"host+ranks"`, `"host+round-robin"` or `"host+balanced"`, where each
        rank is given first what lies on its own host. Or a function of the blocks (`Placed`) and of the
        ranks that read (`Reader`), which returns a mapping from ranks to their blocks: each block once, and
        the same at all ranks.
    share:
        Whether the steps are shared out among all readers of this `name`: `"on-demand"`, each step goes to
        the reader that has asked for one first; `"round-robin"`, to the next in turn. Readers come and go;
        a step with which one that dies had not finished is given to another one, which is told how often
        that has happened (`attempt`). A reader has finished with a step when it releases it.
    """

    def __init__(
        self,
        stream: str,
        *,
        # generated from interface/forebay.toml: options consumer
        group: str | os.PathLike[str] | None = None,
        fields: _contract.Fields = None,
        timeout: float = 30.0,
        transport: _choices.Transport = "auto",
        every: int = 1,
        window: int = 4,
        follow: bool = False,
        start: _choices.Start | tuple[int, int] = "next",
        pin_bytes: int = 1 << 30,
        take: _choices.Take = "all",
        name: str | None = None,
        rank: int = 0,
        size: int = 1,
        on_loss: _choices.OnRankLoss = "fail",
        assign: _assign.Assign = "all",
        share: _choices.Share = "none",
        # end of what is generated
        comm: _jobs.Communicator | None = None,
    ) -> None:
        with _jobs.together(comm, lambda: self._core.close()):
            if comm is not None:
                rank, size, group, called = _jobs.joined(comm, rank, size, group, name)
                name = called if size > 1 else name
            # generated from interface/forebay.toml: given consumer
            given = _options.consumer(
                group=group,
                fields=fields,
                timeout=timeout,
                transport=transport,
                every=every,
                window=window,
                follow=follow,
                start=start,
                pin_bytes=pin_bytes,
                take=take,
                name=name,
                rank=rank,
                size=size,
                on_loss=on_loss,
                assign=assign,
                share=share,
            )
            # end of what is generated
            self._core = _forebay.Consumer(stream, given)
        if given["name"] is not None and given["size"] == 1:
            # What a program had not finished with when it ended others are given, or the next of its name reads: so its steps are
            # not released before.
            weakref.finalize(self, self._core.abandon)
        self._assign = assign if callable(assign) else None
        self._waiter: _coming.Waiter[Step] = _coming.Waiter(Step.give_back)
        self._awaited: Future[Step] | None = None
        self.stream = stream
        self.rank = given["rank"]
        self.size = given["size"]

    def next(self, timeout: float | None = None) -> Step:
        """Waits for the next step.

        With `timeout` it waits no longer than so many seconds, and raises `Timeout`. Without it, it waits for as long as
        ranks of the run live; the reader's own `timeout` bounds the wait for a run to begin, for a step of its own to be
        released if it holds as many as it may, and for a server's answer. Raises `Ended` when the simulation has ended,
        `Crashed` when its ranks have gone without closing the stream, `NotFound` if it had ended before this reader came
        and nothing was left for it.
        """
        if self._awaited is not None:
            # Of an `async for` that was cancelled.
            try:
                self._awaited.exception(timeout)
            except TimeoutError:
                raise Timeout(f"no step of stream {self.stream!r} came in {timeout} s") from None
            return self._take_awaited()
        return Step(self._core.next_step(timeout), self._assign)

    def poll(self) -> Step | None:
        """The next step if it is there, else `None`. Errors as of `next`; also `Timeout` if this reader holds as many steps as
        it may. Does not wait, but for the server's answer with `take="latest"`.
        """
        if self._awaited is not None:
            return self._take_awaited() if self._awaited.done() else None
        core = self._core.poll()
        return None if core is None else Step(core, self._assign)

    def next_async(self, timeout: float | None = None) -> Future[Step]:
        """What `next` gives, as a future: a thread of this reader's own waits for it.

        Futures of several calls are given their steps in the order of the calls. One whose wait has begun cannot be
        cancelled: its step would be lost. A step that came, and that nobody has taken (`result`) when its future is gone, is
        given back (`Step.give_back`). In a coroutine, `async for step in reader` waits for step after step.
        """
        core, assign = self._core, self._assign
        return self._waiter.ask(lambda: Step(core.next_step(timeout), assign))

    def need(self, fields: _contract.Fields = None, *, every: int = 1) -> int:
        """Changes what is needed, while the reader is attached: `fields` and `every` are as when it is opened.

        Returns the step from which on that holds; steps before it come as they were needed before. 0 if no run is there: then
        it holds for the next one. Waits until the servers have agreed on it, and copies nothing. What the run cannot meet is an
        error, and the contract stays what it was.
        """
        period = _arrays.integer(every, "every", low=1, bits=32)
        found = self._core.need(_contract.as_needs(fields), period)
        return 0 if found is None else found[1]

    def __iter__(self) -> Iterator[Step]:
        return _coming.Turns(self.next)

    def __aiter__(self) -> AsyncIterator[Step]:
        return _coming.AsyncTurns(self._next_awaited)

    async def _next_awaited(self) -> Step:
        if self._awaited is None:
            self._awaited = self.next_async()
        await _coming.done(self._awaited)
        return self._take_awaited()

    def _take_awaited(self) -> Step:
        awaited, self._awaited = self._awaited, None
        assert awaited is not None
        return awaited.result()

    def __repr__(self) -> str:
        return f"<forebay.Consumer of stream {self.stream!r}>"

    @property
    def cursor(self) -> Cursor | None:
        """The run, and the step after the last one that came: with `start=cursor` another reader goes on there.

        Before the first step has come it is the one from which on this reader takes part, or `None` if that is not
        known. It is a tuple of two integers, to be kept anywhere, and stays known after `close`. Does not wait.
        """
        cursor = self._core.cursor()
        return None if cursor is None else Cursor(*cursor)

    def close(self) -> None:
        """Detaches. Arrays that are still held stay valid."""
        self._core.close()

    def abandon(self) -> None:
        """Detaches a reader that has failed, as if its process had ended; the end of `with` does that after an error.

        The other ranks of a parallel reader are told `Lost`; where readers share steps, others are given those that this one
        has not released. Arrays that are still held stay valid. Does not wait.
        """
        self._core.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(self.close if is_clean(value) else self.abandon, value)
