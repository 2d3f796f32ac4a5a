"""The functions of `forebay.h` as Fortran declares them, made of their prototypes there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from faces.declaration import Declaration, Wrong
from faces.fortran import broken

_NUMBERS = {
    "int": "integer(c_int)",
    "int32_t": "integer(c_int32_t)",
    "uint32_t": "integer(c_int32_t)",
    "int64_t": "integer(c_int64_t)",
    "uint64_t": "integer(c_int64_t)",
    "double": "real(c_double)",
}


def interfaces(declaration: Declaration, header: str) -> list[str]:
    """An interface of all functions."""
    structs = {f"fb_{struct.c}" for struct in [*declaration.structs.values(), *declaration.options.values()]}
    lines = ["   interface"]
    for result, name, arguments in _prototypes(header):
        lines += [f"   {line}" for line in _function(result, name, arguments, structs)]
    lines += [
        "      function c_strlen(text) bind(C, name='strlen') result(n)",
        "         import; type(c_ptr), value :: text; integer(c_size_t) :: n",
        "      end function",
    ]
    return [*lines, "   end interface"]


def _prototypes(header: str) -> Iterator[tuple[str, str, list[str]]]:
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    results = "|".join([*_NUMBERS, "void", r"const char \*"])
    for found in re.finditer(rf"^({results}) *(fb_\w+)\(([^;{{]*)\);", code, re.MULTILINE):
        arguments = [" ".join(argument.split()) for argument in found[3].split(",")]
        yield found[1].strip(), found[2], [] if arguments == ["void"] else arguments


def _function(result: str, name: str, arguments: list[str], structs: set[str]) -> list[str]:
    own = f"c_{name.removeprefix('fb_')}"
    declared = [_argument(argument, structs) for argument in arguments]
    names = ", ".join(called for called, _ in declared)
    word = "subroutine" if result == "void" else "function"
    given = "" if result == "void" else " result(r)"
    lines = broken(f"   {word} {own}({names}) bind(C, name='{name}'){given}")
    lines += ["      import"]
    lines += [f"      {line}" for _, line in declared]
    if result != "void":
        lines += [f"      {_NUMBERS.get(result, 'type(c_ptr)')} :: r"]
    return [*lines, f"   end {word}"]


def _argument(argument: str, structs: set[str]) -> tuple[str, str]:
    found = re.fullmatch(r"(const )?(?:struct )?(\w+) ?(\*const \*|\*\*|\*)?(\w+)(\[\w*\])?", argument)
    if found is None:
        raise Wrong(f"forebay.h: '{argument}' is not understood")
    constant, kind, stars, name, array = found.groups()
    intent = "intent(in)" if constant else "intent(inout)"
    if kind in structs:
        return name, f"type({_struct(kind)}), {intent} :: {name}{'(*)' if array else ''}"
    if stars == "**":
        return name, f"type(c_ptr), intent(out) :: {name}"
    if kind == "char" and constant:
        return name, f"character(kind=c_char), intent(in), optional :: {name}(*)"
    if kind in _NUMBERS and stars == "*":
        return name, f"{_NUMBERS[kind]}, {intent}, optional :: {name}"
    if kind in _NUMBERS and array:
        return name, f"{_NUMBERS[kind]}, {intent}, optional :: {name}(*)"
    if kind in _NUMBERS:
        return name, f"{_NUMBERS[kind]}, value :: {name}"
    if stars == "*":
        return name, f"type(c_ptr), value :: {name}"
    raise Wrong(f"forebay.h: '{argument}' is not understood")


def _struct(name: str) -> str:
    return name if name == "fb_to_place" else f"c_{name.removeprefix('fb_')}"
