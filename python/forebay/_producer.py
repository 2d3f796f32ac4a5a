# SPDX-License-Identifier: Apache-2.0
"""Producers: one rank of a simulation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay import _arrays, _attrs, _choices, _forebay, _given, _jobs, _options
from forebay._attrs import AttrValue
from forebay._closing import close_after, is_clean
from forebay._errors import Invalid, OutOfBounds, StepOrder

NO_TIME = math.nan
"""What the core takes for the time of a step that has none."""

_Ghosts = tuple[list[int], list[int]] | None
Widths = int | Sequence[int]
"""Layers of ghosts: as many in each dimension, or a number for each."""


@dataclass(frozen=True)
class _Offer:
    dtype: str
    ndim: int
    shape: tuple[int, ...] | None
    """The global one, of a field whose blocks have a place."""
    components: int | None = None
    """Of a species' vectors."""


class Producer:
    """One rank of a simulation. Opening waits for a few answers of its home server; no thread is started.

    Parameters
    ----------
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP
        says.
    stream:
        The name under which readers find the simulation's output.
    rank:
        This rank, counted from 0.
    size:
        How many ranks there are; all of them must open the stream.
    policy:
        What becomes of closed steps when readers or memory cannot keep up: `"drop-oldest"` (they are
        counted, readers see a gap), `"block"` (puts wait for room) or `"latest"`.
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
    wait_for_readers:
        How many readers with different names are to be attached before the first step of the run begins;
        `Timeout` at the deadline names those that have come. Two codes that read each other both need it
        from their first step.
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
        stream: str,
        *,
        # generated from interface/forebay.toml: options producer
        group: str | os.PathLike[str] | None = None,
        rank: int = 0,
        size: int = 1,
        policy: _choices.Policy = "drop-oldest",
        keep: int = 0,
        timeout: float = 30.0,
        transport: _choices.Transport = "auto",
        on_loss: _choices.OnLoss = "skip",
        placement: _given.Placement = "nearest",
        continues: tuple[int, int] | None = None,
        queue_bytes: int = 1 << 30,
        replicas: int = 1,
        durability: _choices.Durability = "local",
        wait_for_readers: int = 0,
        job: str | None = None,
        name: str | None = None,
        first: int = 0,
        stride: int = 1,
        # end of what is generated
        comm: _jobs.Communicator | None = None,
    ) -> None:
        with _jobs.together(comm, lambda: self._core.abandon()):
            rank, size, group, job = _jobs.joined(comm, rank, size, group, job)
            # generated from interface/forebay.toml: given producer
            given = _options.producer(
                group=group,
                rank=rank,
                size=size,
                policy=policy,
                keep=keep,
                timeout=timeout,
                transport=transport,
                on_loss=on_loss,
                placement=placement,
                continues=continues,
                queue_bytes=queue_bytes,
                replicas=replicas,
                durability=durability,
                wait_for_readers=wait_for_readers,
                job=job,
                name=name,
                first=first,
                stride=stride,
            )
            # end of what is generated
            self._core = _forebay.Producer(stream, given)
        self._offers: dict[str, _Offer] = {}
        self._open: OpenStep | None = None
        self.stream = stream
        self.rank = given["rank"]
        self.size = given["size"]

    @property
    def run(self) -> int:
        """The run that was joined: one life of the stream."""
        return self._core.run

    @property
    def transport(self) -> str:
        """Which transport is used."""
        return self._core.transport

    @property
    def lost(self) -> tuple[str, int] | None:
        """Why staging was given up and how many steps were skipped so far; None while all is well."""
        return self._core.lost()

    @property
    def skipped(self) -> int:
        """How many steps were begun so far while staging was given up, also when all is well again. Never waits."""
        return self._core.skipped()

    def array(
        self,
        name: str,
        *,
        dtype: DTypeLike,
        shape: Sequence[int] | None = None,
        ndim: int | None = None,
        # generated from interface/forebay.toml: field options
        association: _choices.Association = "cell",
        every: int = 1,
        dims: Sequence[str] = (),
        spacing: float | Sequence[float] = (),
        origin: float | Sequence[float] = (),
        units: str = "",
        periodic: bool | Sequence[bool] = (),
        refinement: int | Sequence[int] = (),
        static: bool = False,
        # end of what is generated
        attrs: Mapping[str, AttrValue] | None = None,
    ) -> None:
        """Adds a field to the output contract, or gives it another global shape from the next step on.

        `shape` is the global shape; without it blocks have no place in a global array, and `ndim` says how
        many dimensions they have. `attrs` are set as by `attr`. Waits for an answer.

        Parameters
        ----------
        association:
            What its values belong to: `"cell"` or `"vertex"` of the mesh.
        every:
            Offered at every so many of the producer's steps, the first of them among these.
        dims:
            The names of its dimensions, in the order of its shape.
        spacing:
            The distance of neighbours: a number for all dimensions, or one for each.
        origin:
            Where the first element lies: a number for all dimensions, or one for each.
        units:
            The units of its values.
        periodic:
            Whether the domain goes on with its first elements behind its last ones: one for all dimensions,
            or one for each.
        refinement:
            How many elements of a refinement level lie where one of the level below does: one for all
            dimensions, or one for each.
        static:
            Whether it belongs to the run and not to its steps, as the coordinates of a mesh or a mask do:
            it is declared before the first step, put once in that, and given to every reader with its first
            step, whatever the reader asked for.
        """
        if shape is None and ndim is None:
            raise Invalid(
                f"field '{name}': give its global shape, or ndim if its blocks have no place in one"
            )
        extents = None if shape is None else _arrays.integers(shape, f"field '{name}': shape")
        dimensions = (
            _arrays.integer(ndim, f"field '{name}': ndim", bits=16) if extents is None else len(extents)
        )
        kind = _arrays.dtype_name(dtype)
        # generated from interface/forebay.toml: given field
        given = _options.field(
            name,
            dimensions,
            association=association,
            every=every,
            dims=dims,
            spacing=spacing,
            origin=origin,
            units=units,
            periodic=periodic,
            refinement=refinement,
            static=static,
        )
        # end of what is generated
        self._core.array(name, kind, dimensions, extents, given)
        self._offers[name] = _Offer(kind, dimensions, None if extents is None else tuple(extents))
        for key, value in (attrs or {}).items():
            self.attr(key, value, field=name)

    def particles(
        self,
        species: str,
        fields: Mapping[str, DTypeLike | tuple[DTypeLike, int]],
        *,
        every: int = 1,
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a particle species: a group of fields that share one count.

        `fields` maps names to a dtype, or to a dtype and the number of components of a vector:
        `{"x": ("f8", 3), "charge": "f4"}`. Each field is named `species/name` and has no global shape; its
        first dimension counts the particles. Within a step the blocks of a species that have one `number`
        must have one count, else `put` raises `Conflict`. Readers take `step.particles(species)`, or single
        fields. `units` are by field; `every`, of all of them, is as in `array`. Waits for an answer for each field.
        """
        given: dict[str, _Offer] = {}
        for name, kind in fields.items():
            dtype, components = kind if isinstance(kind, tuple) and len(kind) == 2 else (kind, 1)
            offer = _Offer(_arrays.dtype_name(dtype), 1, None)
            components = _arrays.integer(components, f"field '{name}': components", low=1)
            if components != 1:
                offer = _Offer(offer.dtype, 2, None, components)
            given[name] = offer
        of = units or {}
        unknown = ", ".join(of.keys() - given.keys())
        if unknown:
            raise Invalid(f"species '{species}': units of {unknown}, which it does not have")
        told = [(name, offer.dtype, offer.ndim, of.get(name, "")) for name, offer in given.items()]
        self._core.particles(species, told, _every(every))
        self._offers.update({f"{species}/{name}": offer for name, offer in given.items()})

    def rank_bounds(self, ndim: int, *, every: int = 1) -> None:
        """Declares that ranks say which part of space, of so many dimensions, they have: what particles alone do not tell.

        A rank says it with `step.put_rank_bounds(low, high)`, and readers see `step.rank_bounds`. It is a field like others, called
        `rank_bounds`: a contract names it. Waits for an answer.
        """
        self._core.rank_bounds(_arrays.integer(ndim, "ndim"), _every(every))

    def buffer(self, name: str, *, every: int = 1) -> None:
        """Adds a buffer: bytes, of another length at each step and rank if need be. Waits for an answer.

        It is put as any field: `step.put(name, b"...")`, and read as `step.blocks(name)`.
        """
        self._core.buffer(name, _every(every))
        self._offers[name] = _Offer("uint8", 1, None)

    def attr(self, key: str, value: AttrValue, *, field: str | None = None) -> None:
        """Says something of the stream, or of a field, for the rest of the run.

        `value` is a bool, an integer of 64 bits with or without a sign, a float, a complex number, a text, or a sequence of
        one of these. Readers see
        it from the next step on. One rank that sets it is enough; where several do they must agree, and to
        change one raises `Conflict`: what changes with the step is a field. All attributes of a stream take
        up to 64 KiB. Waits for an answer.
        """
        kind, values, is_list = _attrs.as_values(key, value)
        self._core.attr(field, key, kind, values, is_list)

    def step(self, number: int, *, time: float | None = None) -> OpenStep:
        """A step, to be used in `with`. Entering waits for one answer of the home server; leaving ends it.

        On one host it need not wait where nothing of this rank is wanted, or where the last step brought blocks of
        up to 1024 bytes only and its home has taken them.

        Numbers must grow within a run. `time` is physical time, the same at all ranks: readers are told what the first rank
        that gives one says, and `None` where none does. When the block is left by an exception the step is not ended: the
        producer can begin no other, and once it closes readers are told of the step as torn, if anything was put in it.

        What went wrong with the step before and was not told yet, such as a block that overlaps another rank's, is raised
        here: then the step is not begun, and can be begun again.
        """
        number = _arrays.integer(number, "step")
        return OpenStep(self, number, None if time is None else float(time))

    def begin(self, number: int, *, time: float | None = None) -> OpenStep:
        """Begins a step without `with`: `put` and `alloc` of what it gives are for that step, until `end`.

        Waits, and takes its arguments, as entering what `step` gives.
        """
        self._open = self.step(number, time=time).__enter__()
        return self._open

    def end(self) -> None:
        """Ends the step that `begin` has begun: what was allocated is published. Waits for answers to `put(wait=False)`."""
        if self._open is None:
            raise StepOrder("an end outside a step: begin one first")
        step, self._open = self._open, None
        step._end()

    def flush(self) -> None:
        """Waits until the home server holds all that was put, or raises what failed."""
        self._core.flush()

    def close(self) -> None:
        """Ends the stream for this rank; closing twice is harmless. Waits until other servers know; after `Timeout` it may be
        called once more.

        A run has finished when all its ranks have closed it. One that ends without it, or that an exception takes
        out of its `with`, has crashed: readers are told `Crashed` after all that can be read.
        """
        self._core.close()

    def abandon(self) -> None:
        """Gives up this rank without closing the stream, as an exception that leaves `with` does.

        Readers are told that the run has crashed; an open step is left torn. For a simulation that fails and goes
        on as a process. Waits until the home server holds what was put, two seconds at most; where that is gone, until
        another one knows. Harmless after `close`.
        """
        self._core.abandon()

    def __repr__(self) -> str:
        return f"<forebay.Producer of stream {self.stream!r}, rank {self.rank} of {self.size}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(self.close if is_clean(value) else self.abandon, value)


class OpenStep:
    """A step that is being written. Made by `Producer.step` and `Producer.begin`."""

    def __init__(self, producer: Producer, number: int, time: float | None) -> None:
        self._producer = producer
        self._core = producer._core
        self._memory: list[tuple[int, NDArray[Any]]] = []
        self._open = False
        self.number = number
        self.time = time

    def __enter__(self) -> Self:
        time = self.time
        self._core.begin(self.number, NO_TIME if time is None else time)
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._open = False
            return
        self._end()

    def attr(self, key: str, value: AttrValue) -> None:
        """Says something of this step alone: readers find it in `step.attrs`, before one of the stream of the same name.

        One rank is enough; where several set it, they must agree, which is seen when the step closes (`Conflict`, from `flush` or
        a later call). Those of a step take up to 64 KiB. Does not wait.
        """
        kind, values, is_list = _attrs.as_values(key, value)
        self._core.step_attr(key, kind, values, is_list)

    def put_rank_bounds(
        self,
        low: Sequence[float],
        high: Sequence[float],
        *,
        ghost_low: Sequence[float] | None = None,
        ghost_high: Sequence[float] | None = None,
    ) -> bool:
        """Says which part of space this rank has: the lowest and the highest place of what is its own, and of this and its ghosts.

        Whether somebody needs it is returned, as by `put`. `Invalid` where the numbers are in no order.
        """
        if not self._open:
            raise StepOrder(f"step {self.number} is not open: use it in `with`")
        own = ([float(place) for place in low], [float(place) for place in high])
        outer = (
            own[0] if ghost_low is None else [float(place) for place in ghost_low],
            own[1] if ghost_high is None else [float(place) for place in ghost_high],
        )
        return self._core.put_rank_bounds(own, outer)

    def _end(self) -> None:
        self._finish()
        self._core.end()

    def _finish(self) -> None:
        """Nothing more is put; what was allocated is published."""
        self._open = False
        for allocation, view in self._memory:
            view.flags.writeable = False
            self._core.commit(allocation)
        self._memory.clear()

    def _offer(self, name: str) -> _Offer:
        if not self._open:
            raise StepOrder(f"step {self.number} is not open: use it in `with`")
        offer = self._producer._offers.get(name)
        if offer is None:
            self._core.demanded(name)  # raises, and names the fields that there are
            raise Invalid(f"field '{name}' was not declared")
        return offer

    def demanded(self, name: str) -> bool:
        """Whether something wants this field at this step. Never waits."""
        self._offer(name)
        return self._core.demanded(name)

    def put(
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
        """Stages one block by one copy; the array is yours again on return.

        `array` may have any strides; its dtype must be the field's. It includes ghost layers, if there are
        any: so many before the interior (`ghost_low`) and after it (`ghost_high`), a width for all dimensions or
        one for each. `offset` is where the interior begins in the global array; it may be left out by a rank that is alone, for
        zeros, for a block that is the whole field, and for an empty one. `number` tells apart several blocks of
        this rank. Blocks of a refined `level` (above 0) count their offsets in an index space of that level's
        own, of any extent: readers see them among `blocks()`, and reads by region leave them out. Returns
        whether it was staged: an undemanded field costs one check.

        With `wait=False` the server's answer is not waited for: `wait()`, `flush()` of the producer, or the step's
        end does that and raises what failed. The array is yours again on return all the same. That pays over TCP, where many
        blocks then share one journey; on one host there is no answer, and it changes nothing.
        """
        offer = self._offer(name)
        given = _arrays.checked(array, offer.dtype, name)
        ghosts = _ghosts(given.shape, ghost_low, ghost_high, name)
        number, level = _number(number, level, name)
        place = self._place(offset, given.shape, ghosts, offer, name, level)
        if not _arrays.is_native(given) and self._core.transport == "tcp":
            given = given.astype(given.dtype.newbyteorder("="))
        if not _arrays.is_native(given):
            # One copy, that turns the bytes round on its way into the arena.
            memory = self._alloc(name, offer, list(given.shape), place, ghosts, number, level)
            if memory is None:
                return False
            np.copyto(memory[1], given)
            self._commit(memory[0])
            return True
        given = _arrays.exposed(given)
        return self._core.put(name, given, offer.dtype, number, level, place, ghosts, wait) == "staged"

    def wait(self) -> bool:
        """Waits until the server holds what was put with `wait=False`, or raises what failed.

        Returns whether all of it found room: what did not was dropped, as the stream's policy says.
        """
        if not self._open:
            raise StepOrder(f"step {self.number} is not open: use it in `with`")
        return self._core.wait() == 0

    def alloc(
        self,
        name: str,
        shape: Sequence[int],
        *,
        offset: Sequence[int] | None = None,
        ghost_low: Widths = 0,
        ghost_high: Widths = 0,
        number: int = 0,
        level: int = 0,
    ) -> NDArray[Any] | None:
        """Memory of a staged block to compute into, without a copy; None if nothing wants the field.

        `shape` includes ghost layers. It is published by `commit`, or when the step ends; it becomes
        read-only then, and must not be written through other views of it. Raises `Unsupported` over TCP.
        """
        offer = self._offer(name)
        stored = _arrays.integers(shape, f"field '{name}': shape")
        ghosts = _ghosts(stored, ghost_low, ghost_high, name)
        number, level = _number(number, level, name)
        place = self._place(offset, stored, ghosts, offer, name, level)
        memory = self._alloc(name, offer, stored, place, ghosts, number, level)
        return None if memory is None else memory[1]

    def _place(
        self,
        offset: Sequence[int] | None,
        stored: Sequence[int],
        ghosts: _Ghosts,
        offer: _Offer,
        name: str,
        level: int,
    ) -> list[int] | None:
        """Where the interior begins in the global array; None for a field without one."""
        ndim = len(stored)
        if offer.components is not None and _interior(stored, ghosts)[1:] != (offer.components,):
            raise OutOfBounds(
                f"field '{name}' has vectors of {offer.components} components, the array shape {_interior(stored, ghosts)}"
            )
        if offer.shape is None:
            if offset is not None:
                raise OutOfBounds(f"field '{name}' has no global shape, so its blocks have no offset")
            return None
        if ndim != offer.ndim:
            raise OutOfBounds(f"field '{name}' has {offer.ndim} dimensions, the array {ndim}")
        if offset is not None:
            return _arrays.integers(offset, f"field '{name}': offset")
        if self._producer.size > 1:
            interior = _interior(stored, ghosts)
            if (interior != offer.shape or level != 0) and 0 not in interior:
                raise OutOfBounds(
                    f"field '{name}': this block of shape {interior} is not the whole field, which has shape {offer.shape}, "
                    f"and there are {self._producer.size} ranks: say where it lies with `offset`"
                )
        return [0] * ndim

    def _alloc(
        self,
        name: str,
        offer: _Offer,
        stored: list[int],
        place: list[int] | None,
        ghosts: _Ghosts,
        number: int,
        level: int,
    ) -> tuple[int, NDArray[Any]] | None:
        made = self._core.alloc(name, number, level, place, stored, ghosts)
        if made is None:
            return None
        allocation, buffer = made
        view = np.frombuffer(memoryview(buffer), dtype=_arrays.numpy_dtype(offer.dtype)).reshape(stored)
        self._memory.append((allocation, view))
        return allocation, view

    def _commit(self, allocation: int) -> None:
        view = next(view for known, view in self._memory if known == allocation)
        view.flags.writeable = False
        self._memory = [(known, view) for known, view in self._memory if known != allocation]
        self._core.commit(allocation)

    def _find(self, view: NDArray[Any]) -> int:
        for allocation, known in self._memory:
            if known is view:
                return allocation
        raise Invalid("this array was not given by alloc() in this step, or is committed already")

    def commit(self, view: NDArray[Any]) -> None:
        """Publishes what `alloc` gave, before the step ends. The array becomes read-only."""
        self._commit(self._find(view))

    def abort(self, view: NDArray[Any]) -> None:
        """Gives back what `alloc` gave, unpublished."""
        allocation = self._find(view)
        view.flags.writeable = False
        self._memory = [(known, other) for known, other in self._memory if known != allocation]
        self._core.abort(allocation)


def moment(time: float | None) -> float:
    """A step's time as the core takes it."""
    return NO_TIME if time is None else time


def _every(period: int) -> int:
    return _arrays.integer(period, "every", low=1, bits=32)


def _number(number: int, level: int, name: str) -> tuple[int, int]:
    if type(number) is type(level) is int and 0 <= number < 1 << 64 and 0 <= level < 1 << 32:
        return number, level
    return (
        _arrays.integer(number, f"field '{name}': number"),
        _arrays.integer(level, f"field '{name}': level", bits=32),
    )


def _ghosts(stored: Sequence[int], ghost_low: Widths, ghost_high: Widths, name: str) -> _Ghosts:
    """Ghost widths, low and high, of each dimension; None if there are none."""
    if type(ghost_low) is type(ghost_high) is int and ghost_low == ghost_high == 0:
        return None
    low = _arrays.per_dimension(ghost_low, len(stored), f"field '{name}': ghost_low")
    high = _arrays.per_dimension(ghost_high, len(stored), f"field '{name}': ghost_high")
    if any(n < a + b for n, a, b in zip(stored, low, high, strict=True)):
        raise OutOfBounds(
            f"field '{name}': ghosts {tuple(low)} and {tuple(high)} are wider than the array of shape {tuple(stored)}"
        )
    return low, high


def _interior(stored: Sequence[int], ghosts: _Ghosts) -> tuple[int, ...]:
    """The shape without ghosts."""
    if ghosts is None:
        return tuple(stored)
    return tuple(n - low - high for n, low, high in zip(stored, *ghosts, strict=True))
