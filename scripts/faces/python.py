"""The parts of the Python package: classes of errors, names of choices, options of handles."""

from __future__ import annotations

from faces.declaration import Declaration, Member, Struct, Wrong
from faces.regions import BANNER
from faces.text import Words, byte_count, clause, wrapped

# Lines of a docstring.
_WIDTH = 108

# Options of a field: as they are given, as the extension module takes them, and how one becomes the other.
_FIELD = {
    "association": ('_choices.Association = "cell"', "str", "{name}"),
    "u32": ("int = 1", "int", '_arrays.integer({name}, "{name}", low=1, bits=32)'),
    "labels": ("Sequence[str] = ()", "list[str]", "list({name})"),
    "numbers": (
        "float | Sequence[float] = ()",
        "list[float]",
        "_plain.numbers({name}, ndim, f\"field '{{name}}': {name}\")",
    ),
    "flags": (
        "bool | Sequence[bool] = ()",
        "list[bool]",
        "_arrays.flags({name}, ndim, f\"field '{{name}}': {name}\")",
    ),
    "counts": (
        "int | Sequence[int] = ()",
        "list[int]",
        "_arrays.counts({name}, ndim, f\"field '{{name}}': {name}\")",
    ),
    "text": ('str = ""', "str", "{name}"),
    "bool": ("bool = False", "bool", "{name}"),
}

_CHECKED = {"u32": "bits=32", "u64": "", "bytes": ""}


class Package:
    """Makes what stands between the marks of the package's files, and whole files."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._words = Words(declaration, "python")

    def part(self, name: str, indent: str) -> list[str]:
        """The lines of one part: `errors`, `error imports`, `options producer`, `given producer`, ..."""
        what, _, which = name.partition(" ")
        if name == "errors":
            return self._errors()
        if name == "error imports":
            return [f"    {name}," for name in self._names()]
        if name == "error names":
            return [f'    "{name}",' for name in self._names()]
        if name == "options as dictionaries":
            return self._dictionaries()
        if name == "field options":
            return [f"{indent}{member.in_python}: {_FIELD[member.type][0]}," for member in self._field()]
        if name == "given field":
            given = ", ".join(f"{member.in_python}={member.in_python}" for member in self._field())
            return [f"{indent}given = _options.field(name, dimensions, {given})"]
        if what == "rank":
            struct = self._declaration.options[which.removeprefix("of ")]
            given = ", ".join(f"{member.name}={member.name}" for member in struct.members)
            return [f'{indent}self._producer = Producer(stream, policy="block", {given}, comm=comm)']
        struct = self._declaration.options[which]
        if what == "options":
            return [f"{indent}{line}," for line in self._signature(struct)]
        if what == "given":
            members = [f"{member.name}={member.name}" for member in struct.members if not member.required]
            return [f"{indent}given = _options.{which}({', '.join(members)})"]
        raise Wrong(f"nothing is generated as '{name}'")

    def docs(self, which: str, indent: str) -> list[str]:
        """What a class, or a function, says of its options."""
        lines: list[str] = []
        members = self._field() if which == "field" else self._declaration.options[which].members
        for member in members:
            text = self._words.of(member.python if member.python is not None else member.doc)
            if member.type == "bytes":
                text = f"{clause(text)} (default {byte_count(member.default)})."
            body = wrapped(text, _WIDTH - 4 - len(indent))
            lines += [f"{indent}{member.in_python}:", *(f"{indent}    {line}" for line in body)]
        return lines

    def choices(self) -> str:
        """`python/forebay/_choices.py`."""
        lines = [
            "# SPDX-License-Identifier: Apache-2.0",
            f'"""Names of what can be chosen: {BANNER}."""',
            "",
            "from typing import Literal",
        ]
        for enum in self._declaration.enums.values():
            if enum.name in ("dtype", "memory", "outcome", "holes"):
                continue
            names = ", ".join(f'"{value.name}"' for value in enum.built if value.python)
            lines += ["", f"{enum.camel} = Literal[{names}]", f'"""{enum.doc}"""']
        return "\n".join(lines) + "\n"

    def options(self) -> str:
        """`python/forebay/_options.py`."""
        lines = [
            "# SPDX-License-Identifier: Apache-2.0",
            f'"""Options as they are handed to the extension module: {BANNER}."""',
            "",
            "from __future__ import annotations",
            "",
            "import os",
            "from collections.abc import Sequence",
            "",
            "from forebay import _arrays, _assign, _choices, _contract, _forebay, _given, _plain",
        ]
        for struct in self._structs():
            lines += ["", "", f"def {struct.name}(", "    *,"]
            shown = [member for member in struct.members if not member.required]
            lines += [f"    {member.name}: {self._type(member)}," for member in shown]
            lines += [f") -> _forebay.{struct.rust}:", f'    """{struct.doc}"""', "    return {"]
            lines += [f'        "{member.name}": {_check(member)},' for member in shown]
            lines += ["    }"]
        lines += ["", "", "def field(", "    name: str,", "    ndim: int,", "    *,"]
        lines += [
            f"    {member.in_python}: {_FIELD[member.type][0].partition(' = ')[0]},"
            for member in self._field()
        ]
        lines += [
            ") -> _forebay.FieldOptions:",
            '    """What is said of a field beside its name, type and shape."""',
        ]
        lines += ["    return {"]
        for member in self._field():
            lines += [f'        "{member.name}": {_FIELD[member.type][2].format(name=member.in_python)},']
        return "\n".join([*lines, "    }"]) + "\n"

    def _field(self) -> list[Member]:
        return self._declaration.structs["field"].options

    def _structs(self) -> list[Struct]:
        return [struct for struct in self._declaration.options.values() if struct.like is None]

    def _names(self) -> list[str]:
        return sorted([*(kind.name for kind in self._declaration.errors), "Error"])

    def _errors(self) -> list[str]:
        lines: list[str] = []
        for kind in self._declaration.errors:
            bases = "Error" if kind.python is None else f"Error, {kind.python}"
            lines += ["", "", f"class {kind.name}({bases}):"]
            doc = wrapped(self._words.of(kind.doc), _WIDTH - 10)
            lines += [f'    """{doc[0]}', *(f"    {line}" for line in doc[1:])]
            lines[-1] += '"""' if len(doc) == 1 else ""
            lines += ['    """'] if len(doc) > 1 else []
            lines += ["", f"    code = {kind.number}", *(["    retryable = True"] if kind.retry else [])]
        return [*lines, ""]

    def _type(self, member: Member) -> str:
        known = {
            "group": "str | os.PathLike[str] | None",
            "u32": "int",
            "u64": "int",
            "bytes": "int",
            "bool": "bool",
            "seconds": "float",
            "own_seconds": "float | None",
            "needs": "_contract.Fields",
            "run_step": "tuple[int, int] | None",
            "placement": "_given.Placement",
            "assign": "_assign.Assign",
            "start": "_choices.Start | tuple[int, int]",
            "text": "str | None",
        }
        if member.type in known:
            return known[member.type]
        if member.type not in self._declaration.enums:
            raise Wrong(f"{member.name}: Python has no type '{member.type}'")
        return f"_choices.{self._declaration.enums[member.type].camel}"

    def _signature(self, struct: Struct) -> list[str]:
        return [
            f"{member.name}: {self._type(member)} = {_default(member)}"
            for member in struct.members
            if not member.required
        ]

    def _dictionaries(self) -> list[str]:
        lines: list[str] = []
        kinds = {
            "group": "str | None",
            "needs": "list[_contract.Need] | None",
            "placement": "str | Callable[[str, int, int, list[int] | None, list[int], list[int]], int]",
            "start": "str | tuple[int, int]",
            "assign": "str",
        }
        for struct in self._structs():
            lines += ["", f"class {struct.rust}(TypedDict):"]
            for member in struct.members:
                if not member.required:
                    shown = kinds.get(member.type, self._type(member))
                    lines += [f"    {member.name}: {'str' if shown.startswith('_choices') else shown}"]
        lines += ["", "class FieldOptions(TypedDict):"]
        lines += [f"    {member.name}: {_FIELD[member.type][1]}" for member in self._field()]
        return [*lines, ""]


def _default(member: Member) -> str:
    if member.type == "bytes":
        return f"1 << {member.default.bit_length() - 1}"
    if member.type == "seconds":
        return f"{float(member.default)}"
    return f'"{member.default}"' if isinstance(member.default, str) else repr(member.default)


def _check(member: Member) -> str:
    name = member.name
    if member.type in _CHECKED:
        limits = [f"low={member.low}"] if member.low is not None else []
        limits += [f"high={member.high}"] if member.high is not None else []
        limits += [_CHECKED[member.type]] if member.high is None and _CHECKED[member.type] else []
        return f"_arrays.integer({', '.join([name, repr(name), *limits])})".replace("'", '"')
    if member.type == "assign":
        return f"_assign.name_of({name})"
    if member.type in ("group", "run_step", "placement", "start"):
        return (
            f'_given.{member.type}({name}, "{name}")'
            if member.type == "run_step"
            else f"_given.{member.type}({name})"
        )
    if member.type == "needs":
        return f"_contract.as_needs({name})"
    return name
