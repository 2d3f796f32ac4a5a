# SPDX-License-Identifier: Apache-2.0
"""What is told of a message that was received."""

from __future__ import annotations

from forebay._mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, SUCCESS, UNDEFINED
from forebay._mpi.datatypes import BYTE, Datatype


class Status:
    """Which message was received: its source, its tag and its length."""

    def __init__(self, status: Status | None = None) -> None:
        if status is not None and not isinstance(status, Status):
            raise TypeError(f"a Status is made of nothing or of another one, not of {status!r}")
        self.source: int = ANY_SOURCE
        """The rank that sent it."""
        self.tag: int = ANY_TAG
        """Its tag."""
        self.error: int = SUCCESS
        self.count: int = 0
        """Its length, in bytes."""
        self.cancelled: bool = False
        """Whether it was given up."""
        if status is not None:
            self.__dict__.update(status.__dict__)

    def Get_source(self) -> int:
        """The rank that sent it."""
        return self.source

    def Get_tag(self) -> int:
        """Its tag."""
        return self.tag

    def Get_error(self) -> int:
        """0: what fails is raised."""
        return self.error

    def Set_source(self, source: int) -> None:
        """Sets the rank."""
        self.source = source

    def Set_tag(self, tag: int) -> None:
        """Sets the tag."""
        self.tag = tag

    def Set_error(self, error: int) -> None:
        """Sets the error."""
        self.error = error

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """How many elements of this type it has; UNDEFINED if they are no whole number."""
        if datatype.size == 0:
            return 0
        count, rest = divmod(self.count, datatype.size)
        return UNDEFINED if rest else count

    Get_elements = Get_count

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Sets its length."""
        self.count = count * datatype.size

    def Is_cancelled(self) -> bool:
        """Whether it was given up."""
        return self.cancelled

    def Set_cancelled(self, flag: bool) -> None:  # noqa: FBT001 - as in MPI
        """Sets whether it was given up."""
        self.cancelled = flag

    def _tell(self, told: tuple[int, int, int] | None) -> None:
        """Says which message it was; of one that was sent nothing is known."""
        source, tag, count = told or (ANY_SOURCE, ANY_TAG, 0)
        self.source, self.tag, self.count, self.error, self.cancelled = source, tag, count, SUCCESS, False


NOBODY = (PROC_NULL, ANY_TAG, 0)
"""What is told of a message of nobody."""


def tell(status: Status | None, told: tuple[int, int, int] | None) -> None:
    """Says which message it was, if somebody wants to know."""
    if status is not None:
        status._tell(told)
