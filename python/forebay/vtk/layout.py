# SPDX-License-Identifier: Apache-2.0
"""Functions of a VTK object, replaced without VTK's headers and without a compiler.

An object of C++ begins with the address of a table: of each virtual function the address. A copy of that table, in which some are
others, makes the object call these. Which place is whose is asked of the dynamic linker, by the names that the functions have in VTK's own
library; nothing of it is taken for granted. Where a name is not there, or stands where it should not, the object stays as it is.

The only memory that is written is the object's first word.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from vtkmodules.vtkCommonCore import vtkObject, vtkVersion

from forebay._errors import Unsupported

_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
# By the C++ ABI of all compilers on Linux: what an object points at stands behind two words, an offset and the type.
_HEAD: Final = 2
_WITH_SYMBOL: Final = 1  # RTLD_DL_SYMENT


class _Found(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Symbol(ctypes.Structure):
    """Elf64_Sym of elf.h."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class Table:
    """The table of a class, in which some functions are others: made once, and kept for ever."""

    def __init__(self, example: vtkObject, functions: Mapping[str, Any]) -> None:
        """`functions` are by their names as the linker has them. `Unsupported` if the class has not exactly one place for each."""
        self._functions = dict(functions)
        self._pointed = _first_of(example).value
        begin, count = _table_of(example, self._pointed)
        words = (ctypes.c_void_p * count).from_address(begin)
        names = [_name_at(word) for word in words]
        self._words = (ctypes.c_void_p * count)(*words)
        for name, function in functions.items():
            if names.count(name) != 1:
                raise _unknown(example, f"{names.count(name)} places in its table for {name}")
            self._words[names.index(name)] = ctypes.cast(function, ctypes.c_void_p).value

    def put(self, given: vtkObject) -> int:
        """Makes an object of the class call these functions, until `restore`. Returns its address, which they are given."""
        first = _first_of(given)
        if first.value != self._pointed:
            raise _unknown(given, "another table than others of its class")
        first.value = ctypes.addressof(self._words) + _HEAD * _WORD
        return _address_of(given)

    def restore(self, given: vtkObject) -> int:
        """Gives an object its own functions back, and returns its address."""
        _first_of(given).value = self._pointed
        return _address_of(given)


def _first_of(given: vtkObject) -> ctypes.c_void_p:
    """An object's first word."""
    return ctypes.c_void_p.from_address(_address_of(given))


def _address_of(given: vtkObject) -> int:
    """Where an object lies: VTK tells it as `_ADDRESS_p_CLASS`."""
    parts = str(getattr(given, "__this__", "")).split("_")
    if len(parts) < 4 or parts[2] != "p":
        raise _unknown(given, "no address")
    return int(parts[1], 16)


def _table_of(given: vtkObject, pointed: int | None) -> tuple[int, int]:
    """Where an object's table begins, and how many words it has."""
    name = type(given).__name__
    wanted = f"_ZTV{len(name)}{name}"
    found, symbol = _looked_up(pointed)
    if symbol is None or found.name != wanted.encode():
        raise _unknown(given, "no table of its own")
    begin, size = found.address or 0, int(symbol.size)
    if pointed != begin + _HEAD * _WORD or size % _WORD or not _HEAD * _WORD < size < 1 << 14:
        raise _unknown(given, f"a table of {size} bytes")
    return begin, size // _WORD


def _name_at(address: int | None) -> str | None:
    """The name of what is at an address, if it begins there."""
    found, symbol = _looked_up(address)
    if symbol is None or found.address != address:
        return None
    return bytes(found.name).decode(errors="replace")


def _looked_up(address: int | None) -> tuple[_Found, _Symbol | None]:
    """What the linker knows of what is at an address; empty if that is nothing."""
    found, symbol = _Found(), ctypes.POINTER(_Symbol)()
    dladdr1 = getattr(ctypes.CDLL(None), "dladdr1", None)  # only glibc has it
    if dladdr1 is None or not address:
        return found, None
    where = ctypes.byref(found), ctypes.byref(symbol), _WITH_SYMBOL
    is_known = dladdr1(ctypes.c_void_p(address), *where) and found.name
    return found, symbol.contents if is_known else None


def _unknown(given: vtkObject, what: str) -> Unsupported:
    return Unsupported(
        f"VTK {vtkVersion.GetVTKVersion()} is not built as Forebay knows it: its {type(given).__name__} has {what};"
        " use VTK 9.4 to 9.7 of PyPI, or build integrations/vtk against your own VTK"
    )
