# SPDX-License-Identifier: Apache-2.0
"""Operations that go on while their caller does something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from forebay import _forebay
from forebay._mpi.constants import UNDEFINED
from forebay._mpi.status import Status, tell

_Told = tuple[tuple[int, int, int] | None, bytes | None]
# How one that gives an object makes it: of its source and its bytes.
_Load = Callable[[int, bytes], Any]


class Request:
    """An operation. It gets on while its process is in any call of a communicator, as with MPI.

    It is false once it is over. One that nobody refers to any more goes on all the same.
    """

    def __init__(self, request: Request | None = None) -> None:
        self._core: _forebay.Request | None = None if request is None else request._core
        self._load: _Load | None = None if request is None else request._load
        # What is told of one that is over from the beginning.
        self._told: _Told | None = None if request is None else request._told
        self._is_cancelled: bool = request is not None and request._is_cancelled

    @classmethod
    def _of(cls, core: _forebay.Request, load: _Load | None = None) -> Request:
        made = cls()
        made._core, made._load = core, load
        return made

    @classmethod
    def _over(cls, told: tuple[int, int, int] | None) -> Request:
        """One that has nothing to do."""
        made = cls()
        made._told = told, None
        return made

    def __bool__(self) -> bool:
        return self._core is not None or self._told is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self is other or (not self and not other)

    __hash__ = object.__hash__

    def _ends(self, told: _Told, status: Status | None) -> Any:
        """It is over: what it gives."""
        load, self._core, self._load, self._told = self._load, None, None, None
        which, data = told
        tell(status, which)
        if status is not None:
            status.cancelled = self._is_cancelled
        self._is_cancelled = False
        return load(which[0], data) if load and which and data is not None else None

    def _waited(self) -> _Told:
        if self._core is None:
            return self._told or (None, None)
        try:
            return self._core.wait()
        except BaseException as error:
            self._fails(error)
            raise

    def _tested(self) -> _Told | None:
        if self._core is None:
            return self._told or (None, None)
        try:
            return self._core.test()
        except BaseException as error:
            self._fails(error)
            raise

    def _fails(self, error: BaseException) -> None:
        # A wait that Ctrl-C ends may be begun again.
        if isinstance(error, Exception):
            self._core = self._load = self._told = None

    def Wait(self, status: Status | None = None) -> bool:
        """Waits until it is over, by the communicator's deadline: then it fails."""
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Whether it is over. Does not wait."""
        return self.test(status)[0]

    def wait(self, status: Status | None = None) -> Any:
        """The same as `Wait`: the object that was received, if one was."""
        return self._ends(self._waited(), status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Whether it is over, and the object that was received, if one was."""
        told = self._tested()
        return (False, None) if told is None else (True, self._ends(told, status))

    def Cancel(self) -> None:
        """Gives it up, unless it is over: nothing is written to its memory any more. What was sent may arrive all the same.

        `Wait` is to follow: its status says whether it was given up.
        """
        if self._core is not None:
            told = self._core.cancel()
            self._core, self._told, self._is_cancelled = None, told or (None, None), told is None

    cancel = Cancel

    def Free(self) -> None:
        """Lets it go on without this object."""
        self._core = self._load = self._told = None

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Waits until one of them is over: its place; UNDEFINED if all were over before."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """The same, with the object that was received, if one was."""
        place, told = _any_of(requests)
        if told is None:
            tell(status, None)
            return UNDEFINED, None
        return place, requests[place]._ends(told, status)

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """The place of one that is over, and whether there is one. Does not wait."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """The same, with the object that was received, if one was."""
        if not any(requests):
            tell(status, None)
            return UNDEFINED, True, None
        for place, request in enumerate(requests):
            told = request._tested() if request else None
            if told is not None:
                return place, True, request._ends(told, status)
        return UNDEFINED, False, None

    @classmethod
    def Waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> bool:
        """Waits until all of them are over. What fails first is raised; the others go on."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> list[Any]:
        """The same: the objects that were received, None where none was."""
        made = _statuses(statuses, len(requests))
        return [request.wait(status) for request, status in zip(requests, made, strict=True)]

    @classmethod
    def Testall(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> bool:
        """Whether all of them are over. Does not wait."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """The same, with the objects that were received, None where none was."""
        over = True
        for request in requests:
            if request._core is not None:
                told = request._tested()
                if told is None:
                    over = False
                else:
                    request._core, request._told = None, told
        if not over:
            return False, None
        made = _statuses(statuses, len(requests))
        return True, [request.wait(status) for request, status in zip(requests, made, strict=True)]

    @classmethod
    def Waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> list[int] | None:
        """Waits until one or more of them are over: their places; None if all were over before."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """The same, with the objects that were received, None where none was."""
        place, told = _any_of(requests)
        if told is None:
            return None, None
        requests[place]._core, requests[place]._told = None, told
        return cls.testsome(requests, statuses)

    @classmethod
    def Testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> list[int] | None:
        """The places of those that are over; None if all were before. Does not wait."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | tuple[Status, ...] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """The same, with the objects that were received, None where none was."""
        if not any(requests):
            return None, None
        over = []
        for place, request in enumerate(requests):
            told = request._tested() if request else None
            if told is not None:
                over.append((place, told))
        made = _statuses(statuses, len(over))
        objects = [
            requests[place]._ends(told, status) for (place, told), status in zip(over, made, strict=True)
        ]
        return [place for place, _ in over], objects


def _any_of(requests: Sequence[Request]) -> tuple[int, _Told | None]:
    """Waits until one is over; None of all that are over for good."""
    for place, request in enumerate(requests):
        if request and request._core is None:
            return place, request._told
    going = [(place, request._core) for place, request in enumerate(requests) if request._core is not None]
    if not going:
        return UNDEFINED, None
    try:
        which, told = _forebay.Request.wait_any([core for _, core in going])
    except Exception as error:
        for place, core in going:
            if core.is_over():
                requests[place]._fails(error)
        raise
    return going[which][0], told


def _statuses(statuses: list[Status] | tuple[Status, ...] | None, count: int) -> Sequence[Status | None]:
    """As many as that, in the user's list if it is one."""
    if statuses is None:
        return [None] * count
    if isinstance(statuses, list):
        statuses.extend(Status() for _ in range(count - len(statuses)))
        return statuses[:count]
    return [*statuses[:count], *[None] * (count - len(statuses))]


REQUEST_NULL = Request()
