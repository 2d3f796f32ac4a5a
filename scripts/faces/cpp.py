"""The parts of `forebay.hpp`: options as structs, and how they become those of C."""

from __future__ import annotations

from faces.declaration import Declaration, Member, Struct, Wrong
from faces.text import WIDTH, Words, byte_count, clause, wrapped

_NUMBERS = {"u32": "std::uint32_t", "u64": "std::uint64_t", "bytes": "std::uint64_t"}


class HeaderPlus:
    """Makes what stands between the marks of `forebay.hpp`."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._words = Words(declaration, "c")

    def part(self, name: str, indent: str) -> list[str]:
        """The lines of one part: `options producer`, or `given producer`."""
        if name == "field options":
            return self._field_options()
        if name == "given field":
            lines = [
                line for member in self._declaration.structs["field"].options for line in _of_field(member)
            ]
            return [f"{indent}{line}" for line in lines]
        what, _, which = name.partition(" ")
        struct = self._declaration.options[which]
        return self._options(struct) if what == "options" else self._given(struct)

    def _field_options(self) -> list[str]:
        lines = ["// What may be said of a field beside its name, type and shape.", "struct FieldOptions {"]
        kinds = {
            "labels": "std::vector<std::string>",
            "numbers": "std::vector<double>",
            "flags": "std::vector<std::int32_t>",
            "counts": "std::vector<std::uint32_t>",
            "text": "std::string",
        }
        for member in self._declaration.structs["field"].options:
            lines += [f"    // {line}" for line in wrapped(self._words.of(member.doc), WIDTH - 7)]
            kind = kinds.get(member.type)
            told = [f"{kind} {member.name} = {{}}"] if kind else self._members(member)
            lines += [f"    {line};" for line in told]
        return [*lines, "};"]

    def _options(self, struct: Struct) -> list[str]:
        lines = [f"// {struct.doc}", f"struct {struct.rust} {{"]
        # Those that must be given come first, so that `ProducerOptions{"stream"}` says them.
        for member in sorted(struct.members, key=lambda member: not member.required):
            doc = self._words.of(member.doc if member.c is None else member.c)
            if member.type == "bytes":
                doc = f"{clause(doc)} (default {byte_count(member.default)})."
            elif member.type == "own_seconds":
                doc = f"{clause(doc)}. Below 0: by default."
            lines += [f"    // {line}" for line in wrapped(doc, WIDTH - 7)]
            lines += [f"    {line};" for line in self._members(member)]
        return [*lines, "};"]

    def _members(self, member: Member) -> list[str]:
        name, default = member.name, member.default
        if member.required:
            return [f"std::string {name}"]
        if member.type in ("group", "text"):
            return [f"std::string {name} = {{}}"]
        if member.type in ("seconds", "own_seconds"):
            return [f"double {name} = {-1 if default is None else default}"]
        if member.type in _NUMBERS:
            shown = f"std::uint64_t(1) << {default.bit_length() - 1}" if member.type == "bytes" else default
            return [f"{_NUMBERS[member.type]} {name} = {shown}"]
        if member.type == "bool":
            return [f"bool {name} = {'true' if default else 'false'}"]
        if member.type == "needs":
            return [f"std::vector<Need> {name} = {{}}"]
        if member.type == "run_step":
            return [f"std::optional<Cursor> {name} = {{}}"]
        if member.type not in self._declaration.enums:
            raise Wrong(f"{name}: C++ has no type '{member.type}'")
        if self._declaration.enums[member.type].by_name:
            return [f'std::string {name} = "{default}"']
        lines = [f"std::int32_t {name} = {self._declaration.enums[member.type].value(default).c}"]
        if member.type == "placement":
            lines += ["fb_place_function place = nullptr", "void *place_context = nullptr"]
        if member.type == "start":
            lines += ["Cursor cursor = {}"]
        return lines

    def _given(self, struct: Struct) -> list[str]:
        needs = any(member.type == "needs" for member in struct.members)
        more = ", const std::vector<fb_need> &fields" if needs else ""
        lines = [
            f"// As C takes them; what they point at stays with {'both' if needs else 'the other ones'}."
        ]
        lines += [f"inline fb_{struct.c} given(const {struct.rust} &options{more}) {{"]
        lines += [f"    fb_{struct.c} given = FB_{struct.c.upper()}_INIT;"]
        for member in struct.members:
            lines += [f"    {line}" for line in self._assigned(member)]
        return [*lines, "    return given;", "}"]

    def _assigned(self, member: Member) -> list[str]:
        name = member.name
        enum = self._declaration.enums.get(member.type)
        if member.type in ("group", "text") and not member.required:
            return [f"given.{name} = or_null(options.{name});"]
        if member.required or (enum is not None and enum.by_name):
            return [f"given.{name} = options.{name}.c_str();"]
        if member.type == "bool":
            return [f"given.{name} = options.{name} ? 1 : 0;"]
        if member.type == "needs":
            return [
                "given.fields_count = static_cast<std::uint32_t>(fields.size());",
                "given.fields = or_null(fields);",
            ]
        if member.type == "run_step":
            return [
                f"if (options.{name}) {{",
                f"    given.{name}_run = options.{name}->run;",
                f"    given.{name}_step = options.{name}->step;",
                "}",
            ]
        lines = [f"given.{name} = options.{name};"]
        if member.type == "placement":
            lines += ["given.place = options.place;", "given.place_context = options.place_context;"]
        if member.type == "start":
            lines += ["given.start_run = options.cursor.run;", "given.start_step = options.cursor.step;"]
        return lines


def _of_field(member: Member) -> list[str]:
    """How an option of a field becomes a member of the struct of C."""
    name = member.name
    if member.type == "labels":
        return [
            f'same_length("{name}", options.{name}.size(), ndim);',
            f"for (const std::string &label : options.{name}) {name}.push_back(label.c_str());",
            f"field.{name} = or_null({name});",
        ]
    if member.type in ("numbers", "flags", "counts"):
        return [
            f'same_length("{name}", options.{name}.size(), ndim);',
            f"field.{name} = or_null(options.{name});",
        ]
    if member.type == "text":
        return [f"field.{name} = or_null(options.{name});"]
    if member.type == "bool":
        return [f"field.{name} = options.{name} ? 1 : 0;"]
    return [f"field.{name} = options.{name};"]
