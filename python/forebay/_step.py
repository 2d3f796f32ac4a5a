# SPDX-License-Identifier: Apache-2.0
"""Steps, as readers hold them: their fields and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay import (
    _arrays,
    _assign,
    _expressions,
    _forebay,
    _xarray,
)
from forebay._closing import close_after, is_clean
from forebay._errors import Invalid, NotCovered, OutOfBounds


class Step:
    """A closed step of a run."""

    def __init__(self, core: _forebay.Step, assign: _assign.Function | None = None) -> None:
        self._core = core
        self._assign = assign

    @property
    def stream(self) -> str:
        """The stream that it belongs to."""
        return self._core.stream

    @property
    def number(self) -> int:
        """Its number, as the producer gave it."""
        return self._core.number

    @property
    def time(self) -> float | None:
        """Physical time, as the producer gave it; `None` if it gave none."""
        time = self._core.time
        return None if math.isnan(time) else time

    @property
    def run(self) -> int:
        """The run that it belongs to."""
        return self._core.run

    @property
    def missed(self) -> int:
        """How many steps were dropped, by the stream's policy, between the last one and this."""
        return self._core.missed

    @property
    def rewound(self) -> bool:
        """Whether a restarted simulation went back: what was read of steps from this number on is not true."""
        return self._core.rewound

    @property
    def attempt(self) -> int:
        """Where readers share steps (`share`): how often it was given before to one that did not finish with it."""
        return self._core.attempt

    @property
    def torn(self) -> bool:
        """Whether a rank died in it or left it out."""
        return self._core.torn

    @property
    def fields(self) -> list[str]:
        """Names of the fields that it has for this reader."""
        return self._core.fields()

    @property
    def attrs(self) -> dict[str, Any]:
        """What the producer says of the stream and of this step: bools, integers, floats, complex numbers, texts, or lists."""
        return self._core.attrs(None)

    def __getitem__(self, name: str) -> Field:
        return Field(self._core, self._core.field(name))

    def __contains__(self, name: object) -> bool:
        return name in self._core.fields()

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.fields())

    def keys(self) -> list[str]:
        """Names of its fields, as `fields`: `dict(step)` has them with their names."""
        return self.fields

    def field(self, name: str) -> Field:
        """A field of this step."""
        return self[name]

    def evaluate(self, text: str) -> _expressions.Value:
        """What an expression gives at this step: a number, a condition, or a `Place` (`None` if there are no numbers).

        `step.evaluate("count(sqrt(u**2 + v**2) > 3) / size(u)")`: names and precedence are those of NumPy; fields are those of this
        step. Ghosts take no part; NaN is left out of aggregates; integers are computed in 64 bits, sums exactly. Where all blocks
        that it takes are on this host, this process reads them where they lie; else the servers compute beside them, on threads of
        the lowest priority, and nothing but the answer travels. Waits for no other step.

        `Invalid`, `NotFound`, `TypeMismatch`, `OutOfBounds` or `Unsupported` where the text is wrong: the message shows the column;
        `NotCovered` where elements were not put; `Torn` at a step that a rank left out; `Invalid` where an integer needs more
        than 64 bits.
        """
        return _expressions.value_of(self._core.evaluate(text))

    def blocks(self, name: str) -> list[Block]:
        """The field's blocks as read-only views, without a copy; in a pipeline those held beside it."""
        return self[name].blocks()

    def mine(self, name: str) -> list[Block]:
        """Those of the field's blocks that are this rank's, of a parallel reader, as `assign` says; otherwise as `blocks`.

        All ranks together have each block once; with `assign="slab"` each element once, where the field has a global shape:
        blocks are cut. Of a reader that is not parallel all blocks. `Invalid` if a function of `assign` forgets a block, or gives
        one twice.
        """
        return self[name]._mine(self._assign)

    def to_xarray(self, fields: str | Sequence[str] | None = None) -> Any:
        """The fields as an `xarray.Dataset` in this process's memory: one copy of each, which outlives the step.

        By default all fields that have a global shape; or these; or, by its name alone, a field or a particle species. Of each the
        part that the reader's contract asks for. Dimensions are the fields' own, `U_dim_0` where the producer named none;
        coordinates are the static field of one dimension that has the dimension's name, or `origin + i * spacing`, where the
        producer gave either; units, attributes and the association go along, as do `time`, `step` and `run`. Where vertices and cells share a name of a
        dimension, that of vertices is called `x_vertex`; fields whose elements lie at other places along one dimension are
        a `Conflict`. Needs xarray: `pip install forebay[xarray]`.
        """
        return _xarray.of_step(self, fields)

    @property
    def rank_bounds(self) -> dict[int, RankBounds]:
        """Which part of space each rank has that said so (`put_rank_bounds`).

        `NotCovered` if none did, or the reader's contract does not name `rank_bounds`. Copies a few numbers of each rank.
        """
        return {rank: RankBounds(*own, *outer) for rank, own, outer in self._core.rank_bounds()}

    def particle_rows(self, species: str, rows: slice) -> dict[str, NDArray[Any]]:
        """Some particles of a species: arrays of each field, by name.

        `rows` is a slice of all particles in the order of ranks, as `particles` gives them, without ghosts: half-open, negative
        from the end, cut to what there is, as in NumPy; without a stride. Copies, and fetches nothing else.
        """
        given: object = rows
        if not isinstance(given, slice) or rows.step not in (None, 1):
            raise Invalid(f"species '{species}': rows={given!r}: use a slice without a stride")
        found = {}
        for name in self._fields_of(species):
            field = self[name]
            first, last, _ = rows.indices(self._core.row_count(name))
            shape = (max(0, last - first), *self._core.element_shape(name))
            array = _arrays.room(list(shape), field.dtype)
            self._core.read_rows(name, first, _arrays.exposed(array), field._kind)
            found[name.removeprefix(f"{species}/")] = array
        return found

    def particle_ghosts(self, species: str) -> NDArray[np.bool_]:
        """Which of the particles that `particles(species, ghosts=True)` gives are ghosts. Copies nothing of them."""
        blocks = self[self._fields_of(species)[0]].blocks()
        marks = [np.zeros(0, np.bool_)]
        for block in sorted(blocks, key=lambda block: (block.rank, block.number)):
            mark = np.ones(len(block.data), np.bool_)
            mark[block.ghost_low[0] : block.ghost_low[0] + block.shape[0]] = False
            marks.append(mark)
        return np.concatenate(marks)

    def _fields_of(self, species: str) -> list[str]:
        prefix = f"{species}/"
        names = [name for name in self.fields if name.startswith(prefix)]
        if not names:
            self[prefix]  # raises, and names the fields that there are
        return names

    def particles(self, species: str, *, ghosts: bool = False) -> dict[str, NDArray[Any]]:
        """The fields of a particle species, by name: read-only arrays, one after another in the order of ranks.

        Ghosts, which are other ranks' particles, are left out, unless `ghosts`: then each rank's lie around its own.
        Copies, unless a single block holds all. In a pipeline only those held by the worker's own server.
        Fields of which nothing was put at this step are left out; `NotCovered` if one lacks particles that another one has.
        """
        prefix, names = f"{species}/", self._fields_of(species)
        found = {}
        for name in names:
            blocks = sorted(self[name].blocks(), key=lambda block: (block.rank, block.number))
            found[name] = {
                (block.rank, block.number): block.data if ghosts else block.interior for block in blocks
            }
        first = found[names[0]]
        for name in names[1:]:
            for rank, number in first.keys() ^ found[name].keys():
                lacks = name if (rank, number) in first else names[0]
                raise NotCovered(
                    f"field '{lacks}' at step {self.number}: block {number} of rank {rank} was not put, and the fields of "
                    f"species '{species}' share one count"
                )
        return {name.removeprefix(prefix): self[name]._joined(blocks) for name, blocks in found.items()}

    def release(self) -> None:
        """Has finished with the step, so that the next one may come. Arrays of it that live stay valid."""
        self._core.release()

    def give_back(self) -> None:
        """Releases the step, but has not finished with it; the end of `with` does that after an error.

        Where readers share steps, another one is given it, or this one again: its `attempt` counts that. Of others, the next
        reader of their name begins there (`start="resume"`), unless this one releases a later step. Arrays of it that live stay
        valid. Does not wait.
        """
        self._core.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(self.release if is_clean(value) else self.give_back, value)

    def __repr__(self) -> str:
        return f"<forebay.Step {self.number} of run {self.run}: {', '.join(self.fields)}>"


class RankBounds(NamedTuple):
    """Which part of space a rank of the simulation has."""

    low: list[float]
    high: list[float]
    """The lowest and the highest place of what is its own, in each dimension."""
    ghost_low: list[float]
    ghost_high: list[float]
    """The same with its ghosts."""


class Stats(NamedTuple):
    """Of a block's interior, or of a whole field. Infinities are values; NaN are counted, and take no part in the rest."""

    min: float
    """An integer of a field of integers; NaN if there are no numbers, as the next."""
    max: float
    sum: float
    """Of integers exact; of floats as if added without rounding, then rounded once."""
    count: int  # type: ignore[assignment]  # of elements, not the method of tuples
    """How many elements are numbers."""
    nan: int
    """How many are not."""
    var: float
    """Their variance, with `count` as divisor; NaN if there are none."""

    @property
    def mean(self) -> float:
        """Of the numbers; NaN if there are none."""
        return self.sum / self.count if self.count else math.nan

    @property
    def std(self) -> float:
        """The square root of `var`."""
        return math.sqrt(self.var)


@dataclass(frozen=True, eq=False)
class Block:
    """One block, as a rank put it, as far as the contract shows it. Compared by identity: arrays have no single answer."""

    data: NDArray[Any]
    """Read-only, ghosts included. It keeps the memory it shows."""
    offset: tuple[int, ...] | None
    """Where the interior begins in the global array; None for a field without one."""
    shape: tuple[int, ...]
    """The interior's shape."""
    step: tuple[int, ...]
    """How far apart its elements lie in the global array: 1, but where the contract's region has steps."""
    ghost_low: tuple[int, ...]
    ghost_high: tuple[int, ...]
    rank: int
    number: int
    level: int
    server: int
    """The number of the server that holds it."""
    stats: Stats | None
    """Of the interior, if the contract asks for them (`every(n, stats=True)`) and the block is shown as it was put."""
    tile_bounds: NDArray[Any] | None
    """With them, of an interior of more than one tile: the smallest and the largest element of each, of shape (tiles, 2). A tile is
    64 KiB of consecutive elements in C order; of an interior of more than 256 MiB twice, four times ... that."""

    @property
    def interior(self) -> NDArray[Any]:
        """The data without its ghosts; a view."""
        cut = tuple(slice(low, low + n) for low, n in zip(self.ghost_low, self.shape, strict=True))
        return self.data[cut]


class Field:
    """A field of a step. Indexing it as a NumPy array assembles exactly that region, wherever its blocks are."""

    def __init__(self, core: _forebay.Step, told: dict[str, Any]) -> None:
        self._core = core
        self._told = told
        self._kind: str = told["dtype"]
        self.name: str = told["name"]
        self.dtype = _arrays.numpy_dtype(self._kind)
        self.shape: tuple[int, ...] | None = told["shape"]

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return self._told["ndim"]  # type: ignore[no-any-return]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its dimensions, slowest first; empty if the producer gave none."""
        return self._told["dims"]  # type: ignore[no-any-return]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance of neighbours in each dimension; empty if the producer gave none."""
        return self._told["spacing"]  # type: ignore[no-any-return]

    @property
    def origin(self) -> tuple[float, ...]:
        """Where the first element lies, in each dimension; empty if the producer gave none."""
        return self._told["origin"]  # type: ignore[no-any-return]

    @property
    def units(self) -> str:
        """Units of its values; empty if the producer gave none."""
        return self._told["units"]  # type: ignore[no-any-return]

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether the domain goes on with its first elements behind its last ones, in each dimension; empty if that was not said."""
        return self._told["periodic"]  # type: ignore[no-any-return]

    @property
    def refinement(self) -> tuple[int, ...]:
        """How many elements of a refinement level lie where one of the level below does; empty if the producer did not say."""
        return self._told["refinement"]  # type: ignore[no-any-return]

    @property
    def static(self) -> bool:
        """Whether it belongs to the run, and not to this step alone: each step of the run has it, and it was put once."""
        return self._told["static"]  # type: ignore[no-any-return]

    @property
    def association(self) -> str:
        """`"cell"` or `"vertex"`: where on the mesh its values stand."""
        return self._told["association"]  # type: ignore[no-any-return]

    @property
    def stats(self) -> Stats | None:
        """Of all its blocks of level 0, if the contract asks for them of the whole field (`every(n, stats=True)`, or
        `stats="alone"`); else None, and of complex types. Moves no data.
        """
        told = self._core.stats(self.name)
        return None if told is None else Stats(*told)

    @property
    def attrs(self) -> dict[str, Any]:
        """What the producer says of the field beside all that has a name of its own."""
        return self._core.attrs(self.name)

    def _global(self) -> tuple[int, ...]:
        if self.shape is None:
            raise OutOfBounds(
                f"field '{self.name}' has no global shape: its blocks are read one by one, with blocks()"
            )
        return self.shape

    def __getitem__(self, index: object) -> NDArray[Any]:
        return self.read(index)

    def __array__(  # NumPy's protocol: both may come by position
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a field of several blocks cannot be shown without a copy: use blocks()")
        return np.asarray(self.read(...), dtype)

    def read(
        self, region: object = ..., *, out: NDArray[Any] | None = None, fill: object = None
    ) -> NDArray[Any]:
        """Copies a region, given as in NumPy, or fails and says which part is missing (`NotCovered`).

        `out` must have the region's shape and the field's dtype; any strides will do. With `fill`, a number that the
        field can hold, a region with holes can be read: it stands where nothing was put, and `covered` tells where that
        is.
        """
        offset, count, step, after = _arrays.selection(region, self._global())
        target = out if out is not None else _arrays.room(count, self.dtype)
        if out is not None:
            final = [n for n, part in zip(count, after, strict=True) if not isinstance(part, int)]
            _arrays.check_out(out, final, self.dtype, self.name)
            target = _unsqueeze(out, after)
        if fill is not None:
            number = _arrays.checked(fill, self._kind, self.name)
            if number.ndim:
                raise OutOfBounds(
                    f"field '{self.name}': fill is one number, not an array of shape {number.shape}"
                )
            target[...] = number
        self._core.read(self.name, offset, count, step, _arrays.exposed(target), self._kind, fill is not None)
        return out if out is not None else target[after]

    def covered(self, region: object = ...) -> NDArray[np.bool_]:
        """Where a region, given as in NumPy, is filled by what was put: an array of the region's shape.

        No data is read; in runs of many ranks the servers are asked which blocks there are.
        """
        offset, count, step, after = _arrays.selection(region, self._global())
        filled = np.zeros(count, np.bool_)
        for begin, shape in self._core.covered(self.name, offset, count, step):
            filled[tuple(slice(first, first + n) for first, n in zip(begin, shape, strict=True))] = True
        return filled[after]

    def to_xarray(self) -> Any:
        """The field as an `xarray.DataArray`, in the way of `Step.to_xarray`."""
        return _xarray.of_field(self, Step(self._core))

    def _needed(self) -> tuple[slice, ...]:
        """The part that the reader's contract asks for."""
        part = self._core.needed(self.name)
        if part is None:
            return tuple(slice(0, extent) for extent in self._global())
        return tuple(
            slice(first, first + (count - 1) * step + 1 if count else first, step)
            for first, count, step in part
        )

    def blocks(self, *, all_servers: bool = False) -> list[Block]:
        """The blocks as read-only views: without a copy on the holder's host, else fetched.

        In a pipeline only those held by the worker's own server, unless `all_servers`.
        """
        return [self._block(told, buffer) for told, buffer in self._core.blocks(self.name, all_servers)]

    def bounds(self, block: Block, *, ghosts: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Where a block lies in space: the lowest and the highest place in each dimension; of its ghosts, too, if wanted.

        By the field's spacing, origin and, above level 0, refinement: `Invalid` if the producer did not say these. A cell
        reaches half the spacing to each side of its place; a vertex is where it is. Moves no data.
        """
        if block.offset is None:
            raise Invalid(f"field '{self.name}': a block without a place in a global array has none in space")
        none = [0] * len(block.shape)
        widths = (list(block.ghost_low), list(block.ghost_high)) if ghosts else (none, none)
        box = (list(block.offset), list(block.shape), list(block.step))
        low, high = self._core.bounds(self.name, *box, block.level, *widths)
        return tuple(low), tuple(high)

    @property
    def mine_region(self) -> tuple[slice, ...]:
        """The slab of this field that is this rank's, where a parallel reader was opened with `assign="slab"`.

        `field[field.mine_region]` assembles it, and all ranks together have each element that the reader needs once. `Invalid` where
        something else is assigned, or if the field has no global shape. Moves no data.
        """
        offset, shape, step = self._core.mine_region(self.name)
        along = zip(offset, shape, step, strict=True)
        return tuple(slice(begin, begin + length * by, by) for begin, length, by in along)

    def _mine(self, assign: _assign.Function | None) -> list[Block]:
        if assign is None:
            return [self._block(*found) for found in self._core.mine(self.name)]
        told = self._core.places(self.name)
        # In one order for all ranks.
        order = sorted(
            range(len(told)), key=lambda i: (told[i]["rank"], told[i]["number"], told[i]["offset"] or ())
        )
        blocks = [_assign.Placed(**told[place]) for place in order]
        ranks, rank = self._core.readers()
        readers = [_assign.Reader(*reader) for reader in ranks] or [_assign.Reader(0, "")]
        places = _assign.mine(assign, self.name, blocks, readers, rank)
        return [self._block(*self._core.block(self.name, order[place])) for place in places]

    def _block(self, told: dict[str, Any], buffer: _forebay.ReadBuffer) -> Block:
        data = np.frombuffer(memoryview(buffer), dtype=self.dtype) if len(buffer) else np.empty(0, self.dtype)
        data = data.reshape(told["stored"])
        data.flags.writeable = False
        return Block(
            data=data,
            offset=told["offset"],
            shape=told["shape"],
            step=told["step"],
            ghost_low=told["ghost_low"],
            ghost_high=told["ghost_high"],
            rank=told["rank"],
            number=told["number"],
            level=told["level"],
            server=told["server"],
            stats=None if told["stats"] is None else Stats(*told["stats"]),
            tile_bounds=np.frombuffer(told["tiles"], self.dtype).reshape(-1, 2) if told["tiles"] else None,
        )

    def _joined(self, parts: Mapping[Any, NDArray[Any]]) -> NDArray[Any]:
        """One array of all parts along the first dimension; the part itself if there is only one."""
        if len(parts) == 1:
            return next(iter(parts.values()))
        if parts:
            joined = np.concatenate(list(parts.values()))
        else:  # other workers' servers hold them all
            joined = np.empty((0, *self._core.element_shape(self.name)), self.dtype)
        joined.flags.writeable = False
        return joined

    def __repr__(self) -> str:
        return f"<forebay.Field {self.name}: {self.dtype} {self.shape or 'unplaced'}>"


def _unsqueeze(out: NDArray[Any], after: tuple[int | slice, ...]) -> NDArray[Any]:
    """The array with the dimensions back that an index by number drops, and turned as the index says."""
    turns = tuple(part for part in after if not isinstance(part, int))
    expanded: tuple[Any, ...] = tuple(np.newaxis if isinstance(part, int) else slice(None) for part in after)
    view: NDArray[Any] = out[turns][expanded] if turns else out.reshape((1,) * len(after))
    return view
