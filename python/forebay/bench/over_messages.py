# SPDX-License-Identifier: Apache-2.0
"""What a drawing needs of a communicator, with nothing but what MPI has: so that the same code runs on any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import MPI
from forebay._step import Block, Step

Array = NDArray[Any]


class OverMessages:
    """Collectives of buffers, and pictures put together by binary swap (Ma et al., 1994) with NumPy. For 1, 2, 4 ... ranks."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        """`mpi` is the module that `comm` is of."""
        self._comm, self._in_place = comm, mpi.IN_PLACE
        self._operations = {id(MPI.MAX): mpi.MAX, id(MPI.SUM): mpi.SUM}

    def Get_rank(self) -> int:  # noqa: N802 - as in MPI
        """As in MPI."""
        return int(self._comm.Get_rank())

    def Get_size(self) -> int:  # noqa: N802 - as in MPI
        """As in MPI."""
        return int(self._comm.Get_size())

    def Allreduce(self, _: Any, values: Any, operation: Any) -> None:  # noqa: N802 - as in MPI
        """In place."""
        self._comm.Allreduce(self._in_place, values, self._operations[id(operation)])

    def Composite_nearest(  # noqa: N802 - as in Forebay
        self, colors: Array, depths: Array, root: int = 0, *, with_depths: bool = False
    ) -> None:
        """As `Intracomm.Composite_nearest`, whatever of the picture shows something."""
        rank, size = self.Get_rank(), self.Get_size()
        seen, away = colors.view("u4").reshape(-1), depths.reshape(-1)
        begin, end, bit = 0, len(seen), 1
        while bit < size:
            middle = (begin + end) // 2
            mine, theirs = slice(begin, middle), slice(middle, end)
            if rank & bit:
                mine, theirs = theirs, mine
            nearer = self._swapped(seen[theirs], mine.stop - mine.start, rank ^ bit)
            its_depths = self._swapped(away[theirs], mine.stop - mine.start, rank ^ bit)
            is_nearer = its_depths < away[mine]
            np.copyto(seen[mine], nearer, where=is_nearer)
            np.copyto(away[mine], its_depths, where=is_nearer)
            begin, end, bit = mine.start, mine.stop, 2 * bit
        self._gathered(seen, (begin, end), root)
        if with_depths:
            self._gathered(away, (begin, end), root)

    def _swapped(self, sent: Array, count: int, partner: int) -> Array:
        received = np.empty(count, sent.dtype)
        self._comm.Sendrecv(sent, partner, 0, received, partner, 0)
        return received

    def _gathered(self, whole: Array, mine: tuple[int, int], root: int) -> None:
        places = np.zeros((self.Get_size(), 2), "i8")
        self._comm.Allgather(np.array(mine, "i8"), places)
        part = whole[mine[0] : mine[1]].copy()
        if self.Get_rank() == root:
            counts, begins = (places[:, 1] - places[:, 0]).tolist(), places[:, 0].tolist()
            kind = {"u": "I", "f": "f"}[whole.dtype.kind]
            self._comm.Gatherv(part, [whole, counts, begins, kind], root)
        else:
            self._comm.Gatherv(part, None, root)


class Share:
    """A step as a worker sees it: its blocks are those of which this rank is given an equal part."""

    def __init__(self, step: Step, rank: int, size: int) -> None:
        self._step, self._rank, self._size = step, rank, size
        self._blocks: dict[str, list[Block]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def blocks(self, name: str) -> list[Block]:
        """Those of this rank."""
        if name not in self._blocks:
            every = sorted(self._step.blocks(name), key=lambda block: block.offset or ())
            first, end = (len(every) * rank // self._size for rank in (self._rank, self._rank + 1))
            self._blocks[name] = every[first:end]
        return self._blocks[name]
