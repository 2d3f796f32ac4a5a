"""The parts of `forebay.h`: result codes, enums, structs with what initialises them."""

from __future__ import annotations

from faces.declaration import Declaration, Enum, Struct
from faces.members import CMember, c_members
from faces.text import WIDTH, Words, clause, wrapped

# A declaration that is longer than this has its comment in the lines before it.
_COLUMN = 36


class Header:
    """Makes what stands between the marks of `forebay.h`."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._words = Words(declaration, "c")

    def part(self, name: str, _indent: str) -> list[str]:
        """The lines of one part: `errors`, `enums`, `options producer`, `struct field`, ..."""
        what, _, which = name.partition(" ")
        if what == "errors":
            return self._errors()
        if what == "enums":
            return self._enums()
        kinds = self._declaration.options if what == "options" else self._declaration.structs
        return self._struct(kinds[which])

    def _errors(self) -> list[str]:
        lines = ["enum {", "    FB_OK = 0,"]
        for kind in self._declaration.errors:
            last = kind is self._declaration.errors[-1]
            lines += self._told(f"{kind.c} = {kind.number}{'' if last else ','}", kind.doc, 24)
        return [*lines, "};"]

    def _enums(self) -> list[str]:
        shown = [enum for enum in self._declaration.enums.values() if not enum.by_name]
        lines: list[str] = []
        for enum in shown:
            lines += [*([""] if lines else []), *self._enum(enum)]
        return lines

    def _enum(self, enum: Enum) -> list[str]:
        lines = [*comment(self._words.of(enum.doc)), "enum {"]
        width = max(len(value.c) for value in enum.values) + 5
        for value in enum.values:
            last = value is enum.values[-1]
            lines += self._told(
                f"{value.c} = {value.number}{'' if last else ','}", value.doc, min(width, _COLUMN)
            )
        return [*lines, "};"]

    def _struct(self, struct: Struct) -> list[str]:
        name = f"fb_{struct.c}"
        members = c_members(self._declaration, struct)
        doc = comment(self._words.of(struct.doc)) if struct.doc else []
        lines = [*doc, f"typedef struct {name} {{", "    uint64_t struct_size;"]
        width = min(max(len(_declared(member)) for member in members) + 1, _COLUMN)
        for member in members:
            lines += self._told(_declared(member), member.doc, width)
        lines.append(f"}} {name};")
        values = ", ".join([f"sizeof({name})", *(member.c for member in members)])
        return [*lines, *_macro(f"{name.upper()}_INIT", values)]

    def _told(self, code: str, doc: str, column: int) -> list[str]:
        """A line of code with its comment beside it, or before it where there is no room."""
        text = _small(clause(self._words.of(doc)))
        if not text:
            return [f"    {code}"]
        if len(code) > column:
            return [*comment(text, "    "), f"    {code}"]
        first = f"    {code:{column}} /* "
        rest = " " * (len(first) - 2) + "* "
        lines = wrapped(text, WIDTH - len(first) - 3)
        return [
            (first if number == 0 else rest) + line + (" */" if number == len(lines) - 1 else "")
            for number, line in enumerate(lines)
        ]


def _small(text: str) -> str:
    """A text that begins as a clause does, unless its first word is a name."""
    return text if len(text) < 2 or text[1].isupper() or text[1] in "-_" else text[0].lower() + text[1:]


def comment(text: str, indent: str = "") -> list[str]:
    """A comment of its own."""
    lines = wrapped(text, WIDTH - len(indent) - 6)
    opened = [f"{indent}{'/*' if number == 0 else ' *'} {line}" for number, line in enumerate(lines)]
    return [*opened[:-1], opened[-1] + " */"]


def _declared(member: CMember) -> str:
    return f"{member.kind.c}{member.name}{member.kind.c_count};"


def _macro(name: str, values: str) -> list[str]:
    one = f"#define {name} {{ {values} }}"
    if len(one) <= WIDTH:
        return [one]
    lines = wrapped(f"{{ {values} }}", WIDTH - 8)
    body = [f"    {line if number == 0 else '  ' + line}" for number, line in enumerate(lines)]
    return [f"#define {name} \\", *(line + " \\" for line in body[:-1]), body[-1]]
