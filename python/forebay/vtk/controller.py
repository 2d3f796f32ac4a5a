# SPDX-License-Identifier: Apache-2.0
"""A vtkMultiProcessController of the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm
from vtkmodules.vtkParallelCore import (
    vtkDummyCommunicator,
    vtkDummyController,
    vtkMultiProcessController,
    vtkProcessGroup,
    vtkSubCommunicator,
)

from forebay._errors import Closed, Error, Invalid
from forebay._mpi.communicator import Intracomm
from forebay.vtk import filters
from forebay.vtk.link import Link, connect, disconnect

_entered: list[Controller] = []
"""Those that are in a `with`, the first one first."""


class Controller(vtkDummyController):  # type: ignore[misc]
    """VTK's parallel filters, on a communicator of Forebay's: the one of a pipeline, or any other.

    All ranks make one, in a `with`, and give it to their filters; within the block it is also the one that filters take by themselves::

        with forebay.vtk.Controller(comm) as controller:
            integrate = vtkIntegrateAttributes()
            integrate.SetController(controller)
            integrate.SetInputData(mine)
            controller.update(integrate)

    Opening and leaving it waits for the other ranks. An error of the communicator, which VTK does not look at, stays: it is raised by
    `update`, by `check` and on leaving, and the step of a pipeline fails, whether the code looks at it or not; the other ranks hear
    of it at once. `Unsupported` if this VTK is built in a way that Forebay does not know, and for filters that would run for themselves alone
    (docs/vtk.md).
    """

    def __init__(self, comm: Intracomm, *, trusted: Iterable[str] = ()) -> None:
        """`trusted` names filters that are used although nobody has tried them: `"vtkPKdTree"`."""
        self.trusted = frozenset(trusted)
        self._given, own = comm, comm.Dup()
        self._rank, self._size = own.rank, own.size
        self._link = Link(own)
        self._own = own
        # VTK's own communicator of some processes of another one: it takes rank and size from a group, in which this process is one that
        # the other one calls 0.
        group, nobody = vtkProcessGroup(), vtkDummyCommunicator()
        group.Initialize(nobody)
        group.RemoveAllProcessIds()
        for rank in range(self._size):
            group.AddProcessId(0 if rank == self._rank else rank + 1)
        self._communicator = vtkSubCommunicator()
        self._communicator.SetGroup(group)
        connect(self._communicator, self._link)
        self._is_open = True
        self.SetCommunicator(self._communicator)
        self.SetRMICommunicator(self._communicator)
        # The global one before this one was, while it is in a `with`.
        self._before: Any = None

    def GetLocalProcessId(self) -> int:  # noqa: N802 - as in VTK
        """The rank of this process."""
        return self._rank

    def GetNumberOfProcesses(self) -> int:  # noqa: N802 - as in VTK
        """How many ranks there are."""
        return self._size

    def update(self, algorithm: vtkAlgorithm) -> None:
        """Brings a filter, and all that it takes its input from, up to date. All ranks call it.

        `Unsupported` if one of them would run for itself alone; else what went wrong in the communicator.
        """
        self.check()
        filters.refuse_any(algorithm, self.trusted)
        algorithm.Update()
        self.check()

    def check(self) -> None:
        """Raises what has gone wrong on this rank until now; `Closed` if it is. Does not wait."""
        if self._link.error is not None:
            # Without what it has seen on its way: frames keep views of a step that is given back.
            raise self._link.error.with_traceback(None)
        if not self._is_open:
            raise Closed("this controller is closed: its filters would each run alone")

    def close(self) -> None:
        """Ends it: filters that still have it are alone from here on. Waits for the other ranks, and raises what went wrong on any."""
        if not self._is_open:
            return
        try:
            self.check()
            # Nobody has the whole answer while another one has failed.
            self._own.Barrier()
        except Error as error:
            self._link.fail(error)
            raise
        finally:
            self._end()

    def _end(self) -> None:
        """Without waiting for anybody. What went wrong in the communicator stays with the one that was given."""
        if self._is_open:
            self._is_open = False
            disconnect(self._communicator)
            if self._link.error is not None:
                self._given._stick(self._link.error.with_traceback(None))
            self._own.Free()
            # VTK may keep this object for as long as a filter has it.
            self._given = Intracomm()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self._link.fail(Closed("a controller has gone without close(): make it in a `with`"))
            self._end()

    def __enter__(self) -> Self:
        self.check()
        if self in _entered:
            raise Invalid("this controller is in a `with` already")
        self._before = vtkMultiProcessController.GetGlobalController()
        _entered.append(self)
        vtkMultiProcessController.SetGlobalController(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._step_back()
        if error is None:
            self.close()
        elif self._is_open:
            try:
                self._link.leave(error)
            finally:
                self._end()

    def _step_back(self) -> None:
        """The global one is what it was before this one, whichever of several is left first."""
        for other in _entered:
            if other._before is self:
                other._before = self._before
        if vtkMultiProcessController.GetGlobalController() is self:
            vtkMultiProcessController.SetGlobalController(self._before)
        self._before = None
        _entered.remove(self)


filters.guard(Controller)
