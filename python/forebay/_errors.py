# SPDX-License-Identifier: Apache-2.0
"""Errors: one class for each kind of the append-only list that all languages share."""

from __future__ import annotations


class Error(Exception):
    """Something failed; the text says what, on what, and what to do about it."""

    code = 0
    """Its number in C, too."""
    retryable = False
    """Whether the same call may succeed later although its caller has changed nothing."""
    server: int | None = None
    """The number of the server that it is about: one that could not be reached, did not answer in time or is not there, or
    that held what is lost. None if it is about no server."""


# generated from interface/forebay.toml: errors


class Invalid(Error, ValueError):
    """An argument is wrong in itself."""

    code = 1


class NotFound(Error, LookupError):
    """No such stream, field, step, pipeline or server."""

    code = 2


class Timeout(Error, TimeoutError):
    """The deadline passed; the text names what was being waited for."""

    code = 3
    retryable = True


class Lost(Error):
    """The data was held by a process that died."""

    code = 4


class NotCovered(Error, LookupError):
    """A region is not filled by what was put; the text names the missing part."""

    code = 5


class Conflict(Error):
    """The same block with other content, blocks that overlap, or ranks that do not agree."""

    code = 6


class TypeMismatch(Error, TypeError):
    """The dtype differs from the contract's."""

    code = 7


class OutOfBounds(Error, IndexError):
    """The number of dimensions, offset or shape do not fit the field."""

    code = 8


class OverBudget(Error, MemoryError):
    """It can never fit into the byte budget."""

    code = 9


class Full(Error, MemoryError):
    """It did not fit, although the call waited for room: see `"block"`, the space, and servers that
    leave.
    """

    code = 10
    retryable = True


class Closed(Error):
    """The handle was closed."""

    code = 11


class WrongSecret(Error, PermissionError):
    """The other side does not hold this group's secret."""

    code = 12


class WrongVersion(Error):
    """The other side speaks another protocol version."""

    code = 13


class Unreachable(Error, ConnectionError):
    """The peer cannot be reached, or went away."""

    code = 14
    retryable = True


class Protocol(Error):
    """A malformed message."""

    code = 15


class ConnectionFile(Error, OSError):
    """The connection file is missing, stale, foreign or readable by others."""

    code = 16


class Unsupported(Error, NotImplementedError):
    """Not built yet, or not in this build."""

    code = 17


class StepOrder(Error):
    """A step number was used twice or goes backwards, or a call is out of order."""

    code = 18


class Forked(Error):
    """A handle was used in a forked child."""

    code = 19


class Ended(Error):
    """The stream has ended: no failure, the end of a loop."""

    code = 20


class Torn(Error):
    """A rank died in the step, or left it out. Today only the execution of a driven pipeline fails with
    it; a reader is told by the step's `torn`.
    """

    code = 21


class Dropped(Error):
    """The step was dropped: by the stream's policy, or since a part found no room, or it is held no
    longer. Who asks for it by its number is told so, and the execution of a driven pipeline; a reader
    is told by the next step's `missed`.
    """

    code = 22


class PipelineFailed(Error):
    """A pipeline raised an error; the text holds its traceback."""

    code = 23


class Internal(Error):
    """A defect of Forebay's own; please report it."""

    code = 24


class Io(Error, OSError):
    """The operating system refused something; the text says what."""

    code = 25


class Crashed(Error):
    """The run is over, and not all its ranks closed it: raised after all that can be read was told, by
    loops, too.
    """

    code = 26


# end of what is generated

_BY_CODE: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def make(code: int, text: str, server: int | None = None) -> Error:
    """The exception of this kind."""
    return _about(server, _BY_CODE.get(code, Internal)(text))


def by_name(name: str, text: str, server: int | None = None) -> Error:
    """The same by its name."""
    kind = next((kind for kind in _BY_CODE.values() if kind.__name__ == name), Internal)
    return _about(server, kind(text))


def _about(server: int | None, error: Error) -> Error:
    if server is not None:
        error.server = server
    return error
