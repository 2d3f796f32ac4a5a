# SPDX-License-Identifier: Apache-2.0
"""Operations of reductions: on the elements of buffers, and on objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forebay import _forebay
from forebay._errors import Invalid
from forebay._mpi.datatypes import Datatype
from forebay._mpi.messages import simple

_Function = Callable[[Any, Any, Any], object]


class Op(_forebay.Op):
    """An operation of a reduction. Called on two objects it combines them.

    Ranks are combined in their order, so that it need not commute; it should be associative.
    """

    name: str
    """As in MPI, such as `MPI_SUM`."""

    _of_objects: Callable[[Any, Any], Any]
    _function: _Function | None
    _commutes: bool

    def __new__(cls, op: Op | None = None) -> Op:
        """The same operation once more; without one OP_NULL."""
        given = OP_NULL if op is None else op
        return cls._made(given.name, given._code, given._of_objects, given._function, given._commutes)

    @classmethod
    def _made(
        cls,
        name: str,
        code: str,
        of_objects: Callable[[Any, Any], Any],
        function: _Function | None = None,
        commutes: bool = True,  # noqa: FBT001, FBT002 - of one caller
    ) -> Op:
        def of_buffers(a: Any, b: Any, kind: str, size: int) -> None:
            assert function is not None
            function(a, b, Datatype.of_kind(kind, size))

        made = super().__new__(cls, code, None if function is None else of_buffers)
        made.name, made._code, made._of_objects, made._function, made._commutes = (
            name,
            code,
            of_objects,
            function,
            commutes,
        )
        return made

    _code: str

    @classmethod
    def Create(cls, function: _Function, commute: bool = False) -> Op:  # noqa: FBT001, FBT002 - as in MPI
        """An operation by `function(a, b, datatype)`, of two buffers of as many bytes: it replaces b by a * b.

        a is of the lower ranks. Whether it commutes makes no difference here. What it raises fails the reduction, on all ranks.
        Of two objects it is `function(x, y, None)`, which returns the result.
        """
        return cls._made("MPI_Op", "Function", lambda x, y: function(x, y, None), function, commute)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combines the elements of two buffers within this process: the second become the first with them."""
        self.combine(simple(inbuf), simple(inoutbuf))

    def Free(self) -> None:
        """Does nothing: an operation goes when nobody refers to it."""

    def Is_commutative(self) -> bool:
        """Whether the order of two elements makes no difference."""
        return self._commutes

    @property
    def is_commutative(self) -> bool:
        """Whether the order of two elements makes no difference."""
        return self.Is_commutative()

    @property
    def is_predefined(self) -> bool:
        """Whether it is one of those that stand in `forebay.MPI`."""
        return self._function is None

    def __call__(self, x: Any, y: Any) -> Any:
        return self._of_objects(x, y)

    def __repr__(self) -> str:
        return f"MPI.{self.name.removeprefix('MPI_')}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        return self is other or (self._function is None and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name) if self._function is None else id(self)

    def __bool__(self) -> bool:
        return self.name != "MPI_OP_NULL"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._function is not None:
            return Op.Create, (self._function, self._commutes)
        known = _ALL[self.name]
        return (_named, (self.name,)) if self is known else (Op, (known,))


_ALL: dict[str, Op] = {}


def _named(name: str) -> Op:
    return _ALL[name]


def _made(name: str, code: str, of_objects: Callable[[Any, Any], Any]) -> Op:
    made = Op._made(f"MPI_{name}", code, of_objects, None, code not in ("REPLACE", "NO_OP"))
    _ALL[made.name] = made
    return made


def _smaller(x: Any, y: Any) -> Any:
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.minimum(x, y)
    return y if y < x else x


def _larger(x: Any, y: Any) -> Any:
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return np.maximum(x, y)
    return y if y > x else x


def _first_smaller(x: Any, y: Any) -> Any:
    """Of two pairs of a value and a place."""
    (a, i), (b, j) = x, y
    return (a, i) if a < b or (a == b and i <= j) else (b, j)


def _first_larger(x: Any, y: Any) -> Any:
    (a, i), (b, j) = x, y
    return (a, i) if a > b or (a == b and i <= j) else (b, j)


def _null(_x: Any, _y: Any) -> Any:
    raise Invalid("MPI.OP_NULL is no operation")


OP_NULL = _made("OP_NULL", "OP_NULL", _null)
MAX = _made("MAX", "Max", _larger)
MIN = _made("MIN", "Min", _smaller)
SUM = _made("SUM", "Sum", lambda x, y: x + y)
PROD = _made("PROD", "Product", lambda x, y: x * y)
LAND = _made("LAND", "LogicalAnd", lambda x, y: bool(x) & bool(y))
BAND = _made("BAND", "BitAnd", lambda x, y: x & y)
LOR = _made("LOR", "LogicalOr", lambda x, y: bool(x) | bool(y))
BOR = _made("BOR", "BitOr", lambda x, y: x | y)
LXOR = _made("LXOR", "LogicalXor", lambda x, y: bool(x) ^ bool(y))
BXOR = _made("BXOR", "BitXor", lambda x, y: x ^ y)
MAXLOC = _made("MAXLOC", "MaxLocation", _first_larger)
MINLOC = _made("MINLOC", "MinLocation", _first_smaller)
REPLACE = _made("REPLACE", "REPLACE", lambda _, y: y)
NO_OP = _made("NO_OP", "NO_OP", lambda x, _: x)
