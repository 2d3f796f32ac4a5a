# SPDX-License-Identifier: Apache-2.0
"""Pipelines that the ranks of a simulation drive themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from numpy.typing import DTypeLike, NDArray

from forebay import _arrays, _choices, _forebay, _given, _jobs, _options
from forebay._attrs import AttrValue
from forebay._closing import close_after, is_clean
from forebay._errors import StepOrder
from forebay._producer import OpenStep, Producer, Widths, moment

_T = TypeVar("_T")


class PipelineRequest(Generic[_T]):
    """What a pipeline was asked for. Made by `activate_async` and `execute_async` of a `PipelineHandle`."""

    def __init__(self, core: _forebay.PipelineRequest, take: Callable[[Any], _T]) -> None:
        self._core = core
        self._take = take

    def wait(self, timeout: float | None = None) -> _T:
        """What `activate` or `execute` returns, or the error that it raises; later calls tell the same.

        Waits no longer than `timeout` seconds (default: the handle's deadline). After a `Timeout` it can be waited
        for again: what was asked for goes on.
        """
        return self._take(self._core.wait(timeout))


def _workers(outcome: tuple[list[int] | None, bool, float]) -> list[int]:
    return outcome[0] or []


def _ran(outcome: tuple[list[int] | None, bool, float]) -> bool:
    return outcome[1]


class PipelineHandle:
    """One rank that drives a pipeline itself, step by step: `activate`, `stage`, `execute`, `deactivate`.

    The pipeline must have been created with `driven=True`. All ranks of the simulation open a handle, each with its
    `rank` and the same `size`, declare the same fields (`array`, `particles`, `buffer`), and make the same calls: the
    pipeline runs once for all of them. A rank that only stages may leave out `execute`, never `deactivate`.

    `pipeline` is its name. With the number of a `server` the worker beside it runs alone, and the server holds what is
    staged; by default all workers run. Steps are never dropped: a `stage` that finds no room waits (policy `"block"`).
    Opening waits for a few answers; no thread is started. Calls come from one thread at a time.

    Parameters
    ----------
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP
        says.
    rank:
        This rank, counted from 0.
    size:
        How many ranks there are; all of them must open the stream.
    keep:
        How many closed steps are kept although nobody reads them.
    timeout:
        Seconds that any wait may take: more than 0; infinity waits for ever.
    transport:
        How blocks travel: `"auto"` (shared memory where the server is on this host, else TCP), `"shm"` or
        `"tcp"`.
    on_loss:
        What to do when the home server is gone, and no other one takes this rank within two seconds:
        `"skip"` (the simulation goes on unstaged: `lost` tells). With `"fail"` a call waits for another one
        until `timeout`, and then fails with `Unreachable`; so it does where something of the open step is
        lost.
    placement:
        Which server holds a block: the rank's home, which is on its host if any is (`"nearest"`), a server
        by the block's id, so that they are spread evenly (`"by-block"`), or the one that a function of a
        `BlockToPlace` names. A block that the home does not hold costs a second question. Blocks of up to 1
        KiB travel with the step and are not placed.
    continues:
        After a restart from a checkpoint: the run, and its last step that is still true.
    queue_bytes:
        Bytes of closed steps that may wait for readers before the policy drops some (default 1 GiB).
    replicas:
        How many servers hold each block, 1 to 8: all but one of them may die. A copy on another host is
        preferred; on one host it costs almost nothing, since the servers share the memory.
    durability:
        With copies, what is safe when: what was put once the step has ended or `flush` has returned
        (`"local"`), or each block once its put has returned (`"replicated"`).
    job:
        What names the job that the ranks belong to, the same for all of them: ranks of two jobs never make
        one run. By default as the launcher says (PMIx, Slurm, Open MPI, MPICH on one host); where it says
        nothing, ranks are told apart by their numbers alone. A program that uses MPI opens its ranks by its
        communicator instead (`comm`).
    name:
        What this rank is called in errors, by `status` and in logs; by default its host and process say
        which it is.
    first:
        The number of the first step, or of one before it: with `stride` it says which numbers steps have.
        Readers' periods count the steps from there on. A step with another number is refused.
    stride:
        The distance between the numbers of two steps: 10 where a simulation hands over each tenth of its
        iterations.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        server: int | None = None,
        # generated from interface/forebay.toml: options pipeline_handle
        group: str | os.PathLike[str] | None = None,
        rank: int = 0,
        size: int = 1,
        keep: int = 0,
        timeout: float = 30.0,
        transport: _choices.Transport = "auto",
        on_loss: _choices.OnLoss = "skip",
        placement: _given.Placement = "nearest",
        continues: tuple[int, int] | None = None,
        queue_bytes: int = 1 << 30,
        replicas: int = 1,
        durability: _choices.Durability = "local",
        job: str | None = None,
        name: str | None = None,
        first: int = 0,
        stride: int = 1,
        # end of what is generated
        comm: _jobs.Communicator | None = None,
    ) -> None:
        with _jobs.together(comm, lambda: None):
            if server is not None:
                server = _arrays.integer(server, "server", bits=32)
            where = _options.admin(group=group, timeout=timeout, transport=transport, name=name)
            stream, _ = _forebay.find_pipeline(where, pipeline)
        # generated from interface/forebay.toml: rank of pipeline_handle
        self._producer = Producer(
            stream,
            policy="block",
            group=group,
            rank=rank,
            size=size,
            keep=keep,
            timeout=timeout,
            transport=transport,
            on_loss=on_loss,
            placement=placement,
            continues=continues,
            queue_bytes=queue_bytes,
            replicas=replicas,
            durability=durability,
            job=job,
            name=name,
            first=first,
            stride=stride,
            comm=comm,
        )
        # end of what is generated
        with _jobs.together(comm, self._producer.abandon):
            try:
                self._core = _forebay.PipelineHandle(self._producer._core, pipeline, server)
            except BaseException:
                self._producer.abandon()
                raise
        self._step: OpenStep | None = None
        self.pipeline = pipeline
        self.server = server
        self.stream = stream
        self.rank = self._producer.rank
        self.size = self._producer.size

    def array(
        self, name: str, *, dtype: DTypeLike, shape: Sequence[int] | None = None, **options: Any
    ) -> None:
        """Declares a field, as `Producer.array` does, with its arguments."""
        self._producer.array(name, dtype=dtype, shape=shape, **options)

    def particles(
        self, species: str, fields: Mapping[str, DTypeLike | tuple[DTypeLike, int]], **options: Any
    ) -> None:
        """Declares a particle species, as `Producer.particles` does, with its arguments."""
        self._producer.particles(species, fields, **options)

    def buffer(self, name: str, *, every: int = 1) -> None:
        """Declares a buffer, as `Producer.buffer` does."""
        self._producer.buffer(name, every=every)

    def attr(self, key: str, value: AttrValue, *, field: str | None = None) -> None:
        """Says something of the stream or of a field, as `Producer.attr` does."""
        self._producer.attr(key, value, field=field)

    @property
    def lost(self) -> tuple[str, int] | None:
        """Why staging was given up and how many steps were skipped so far; None while all is well."""
        return self._producer.lost

    @property
    def skipped(self) -> int:
        """How many steps were begun so far while staging was given up, as `Producer.skipped` says."""
        return self._producer.skipped

    @property
    def active(self) -> list[int]:
        """The steps that this rank has activated and not deactivated, in order; at most 4. Never waits."""
        return self._core.active()

    def activate(self, step: int, *, time: float | None = None) -> list[int]:
        """Begins a step; returns the numbers of the servers whose workers run it, as far as they are there then.

        Those of the first step are fixed when it is activated, those of each later one when the one before is: a
        server that joins takes part in the second step that is activated once its worker is ready. One that dies or
        leaves before the step was executed is done without. Numbers grow, as a producer's; `time` is physical time
        (default: none). Up to 4 steps may be active, the last of them being staged; a fifth raises `Conflict`.
        Waits for one answer of this rank's home; with the first step, of the pipeline's coordinator, too. A rank that is
        ahead waits until the others have so few steps active that the one before can be (`Timeout` at the deadline; the
        same call waits on). An empty list: staging was given up (see `lost`).
        """
        number, time = self._number(step, time)
        servers = self._core.activate(number, moment(time))
        self._begun(number, time)
        return servers

    def activate_async(self, step: int, *, time: float | None = None) -> PipelineRequest[list[int]]:
        """As `activate`, but does not wait for the coordinator: `stage` may be called at once.

        What it returns waits until the step is active, which may take until slower ranks have finished with earlier ones.
        """
        number, time = self._number(step, time)
        request = self._core.activate_async(number, moment(time))
        self._begun(number, time)
        return PipelineRequest(request, _workers)

    def stage(
        self,
        name: str,
        array: object,
        *,
        offset: Sequence[int] | None = None,
        ghost_low: Widths = 0,
        ghost_high: Widths = 0,
        number: int = 0,
        level: int = 0,
        wait: bool = True,
    ) -> bool:
        """Stages one block of the step that was activated last, as `put` of a producer's step does.

        One copy; the array is yours again on return. With `wait=False` the server's answer is waited for by `execute`
        or `deactivate`. Returns whether it was staged: fields that the pipeline does not need at this step cost one
        check.
        """
        return self._staging().put(
            name,
            array,
            offset=offset,
            ghost_low=ghost_low,
            ghost_high=ghost_high,
            number=number,
            level=level,
            wait=wait,
        )

    def alloc(
        self, name: str, shape: Sequence[int], *, offset: Sequence[int] | None = None, **options: Any
    ) -> NDArray[Any] | None:
        """Memory of a staged block to compute into, as `alloc` of a producer's step; None if nothing needs it.

        It is published when the step is executed or deactivated.
        """
        return self._staging().alloc(name, shape, offset=offset, **options)

    def demanded(self, name: str) -> bool:
        """Whether something needs this field at the step that is staged. Never waits."""
        return self._staging().demanded(name)

    def execute(self, step: int, *, timeout: float | None = None) -> bool:
        """Ends this rank's staging, and runs the pipeline once all ranks have ended theirs. Waits until it is over.

        All ranks that call it are told of the same execution. Returns whether the workers ran: not at a step at which
        the pipeline's contract needs nothing, nor while staging is given up (see `lost`). If it failed it raises
        `PipelineFailed` with the workers' tracebacks, also if a rank died in the step. A worker whose server dies
        has the step run again on the others, once. While the step is active it can be executed again, which runs it
        again. Waits no longer than `timeout` seconds (default: the handle's): after a `Timeout` the same call waits on.
        """
        number = self._close_staging(step)
        return _ran(self._core.execute(number, timeout))

    def execute_async(self, step: int) -> PipelineRequest[bool]:
        """As `execute`, but waits only until this rank has ended its staging: the next step can be activated."""
        number = self._close_staging(step)
        return PipelineRequest(self._core.execute_async(number), _ran)

    def deactivate(self, step: int) -> None:
        """Has finished with a step: when all ranks have, and nothing runs on it, its memory is free.

        Ends this rank's staging if `execute` has not. Waits for nothing else.
        """
        self._core.deactivate(self._close_staging(step))

    def close(self) -> None:
        """Ends the stream for this rank, with all steps that are active. Closing twice is harmless."""
        if self._step is not None and self._step.number in self.active:
            self._close_staging(self._step.number)
        self._core.close()

    def __repr__(self) -> str:
        where = "" if self.server is None else f" on server{self.server}"
        return f"<forebay.PipelineHandle of {self.pipeline!r}{where}, rank {self.rank} of {self.size}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was staged of a step may not be all if something was raised: it is left torn.
        close_after(self.close if is_clean(value) else self._producer.abandon, value)

    @staticmethod
    def _number(step: int, time: float | None) -> tuple[int, float | None]:
        return _arrays.integer(step, "step"), None if time is None else float(time)

    def _begun(self, number: int, time: float | None) -> None:
        if self._step is None or self._step.number != number:
            self._step = OpenStep(self._producer, number, time)
            self._step._open = True

    def _staging(self) -> OpenStep:
        if self._step is None or not self._step._open:
            raise StepOrder("no step is being staged: activate one first")
        return self._step

    def _close_staging(self, step: int) -> int:
        number = _arrays.integer(step, "step")
        if self._step is not None and self._step.number == number:
            self._step._finish()
        return number
