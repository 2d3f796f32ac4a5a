# SPDX-License-Identifier: Apache-2.0
"""Types of the elements of buffers."""

from __future__ import annotations

import struct
from typing import Any

from forebay import _forebay
from forebay._errors import Invalid


class Datatype(_forebay.Datatype):
    """A type of elements. Those that there are stand in `forebay.MPI`; a NumPy array tells its own."""

    _all: dict[str, Datatype] = {}  # noqa: RUF012 - filled below, by the names that this module gives
    _by_code: dict[str, Datatype] = {}  # noqa: RUF012 - as above

    name: str
    """As in MPI, such as `MPI_DOUBLE`."""
    typechar: str
    """NumPy's character for it, such as `d`; empty if it has none."""

    def __new__(cls, bytes_: int, kind: str, name: str, typechar: str) -> Datatype:
        made = super().__new__(cls, bytes_, kind)
        made.name, made.typechar = name, typechar
        return made

    def Get_size(self) -> int:
        """Bytes of an element."""
        return self.size

    def Get_extent(self) -> tuple[int, int]:
        """Where an element begins, and how far away the next one is, in bytes."""
        return 0, self.size

    @property
    def extent(self) -> int:
        """How far away the next element is, in bytes."""
        return self.size

    def Get_name(self) -> str:
        """Its name, as in MPI."""
        return self.name

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """The type of a NumPy dtype or of a character of it: `d`, `float64`, `<i4`."""
        found = cls._by_code.get(code)
        if found is None:
            import numpy as np

            try:
                found = cls._by_code.get(np.dtype(code).char)
            except TypeError:
                found = None
        if found is None:
            raise Invalid(f"there is no datatype {code!r}: use one of {', '.join(sorted(cls._by_code))}")
        return found

    @classmethod
    def of_kind(cls, kind: str, size: int) -> Datatype:
        """The type that reductions know by this name, or one of so many bytes that they do not know."""
        found = next((made for made in cls._all.values() if kind and made.kind == kind), None)
        return found or cls(size, kind, "MPI_Datatype", "")

    def tocode(self) -> str:
        """NumPy's character for it."""
        return self.typechar

    def __repr__(self) -> str:
        return f"MPI.{self.name.removeprefix('MPI_')}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datatype):
            return NotImplemented
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


def _named(name: str) -> Datatype:
    return Datatype._all[name]


def _made(name: str, kind: str, code: str) -> Datatype:
    bytes_ = struct.calcsize(f"@{code}") if code in "bBhHiIlLqQfd?" else {"F": 8, "D": 16}[code]
    made = Datatype(bytes_, kind, f"MPI_{name}", code)
    Datatype._all[made.name] = made
    Datatype._by_code.setdefault(code, made)
    return made


def _integer(name: str, code: str) -> Datatype:
    sign = "Int" if code in "bhilq" else "UInt"
    return _made(name, f"{sign}{8 * struct.calcsize(f'@{code}')}", code)


SIGNED_CHAR = _integer("SIGNED_CHAR", "b")
CHAR = _integer("CHAR", "b")
BYTE = _integer("BYTE", "B")
UNSIGNED_CHAR = _integer("UNSIGNED_CHAR", "B")
Datatype._by_code["c"] = CHAR
SHORT = _integer("SHORT", "h")
UNSIGNED_SHORT = _integer("UNSIGNED_SHORT", "H")
INT = _integer("INT", "i")
UNSIGNED = UNSIGNED_INT = _integer("UNSIGNED", "I")
LONG = _integer("LONG", "l")
UNSIGNED_LONG = _integer("UNSIGNED_LONG", "L")
LONG_LONG = _integer("LONG_LONG", "q")
UNSIGNED_LONG_LONG = _integer("UNSIGNED_LONG_LONG", "Q")
INT8_T = _integer("INT8_T", "b")
INT16_T = _integer("INT16_T", "h")
INT32_T = _integer("INT32_T", "i")
INT64_T = _integer("INT64_T", "l")
UINT8_T = _integer("UINT8_T", "B")
UINT16_T = _integer("UINT16_T", "H")
UINT32_T = _integer("UINT32_T", "I")
UINT64_T = _integer("UINT64_T", "L")
FLOAT = _made("FLOAT", "Float32", "f")
DOUBLE = _made("DOUBLE", "Float64", "d")
C_BOOL = BOOL = _made("C_BOOL", "Bool", "?")
C_FLOAT_COMPLEX = COMPLEX = _made("C_FLOAT_COMPLEX", "Complex64", "F")
C_DOUBLE_COMPLEX = DOUBLE_COMPLEX = _made("C_DOUBLE_COMPLEX", "Complex128", "D")


def _pair(name: str, kind: str, bytes_: int) -> Datatype:
    made = Datatype(bytes_, kind, f"MPI_{name}", "")
    Datatype._all[made.name] = made
    return made


# A value and an `int`, as C lays out a struct of both: for the places of extrema.
FLOAT_INT = _pair("FLOAT_INT", "Float32Int", 8)
DOUBLE_INT = _pair("DOUBLE_INT", "Float64Int", 16)
LONG_INT = _pair("LONG_INT", "Int64Int", 16)
TWOINT = INT_INT = _pair("2INT", "Int32Int", 8)
SHORT_INT = _pair("SHORT_INT", "Int16Int", 8)
# It compares equal to no other type.
DATATYPE_NULL = _pair("DATATYPE_NULL", "", 0)
LONG_DOUBLE = C_LONG_DOUBLE_COMPLEX = DATATYPE_NULL
