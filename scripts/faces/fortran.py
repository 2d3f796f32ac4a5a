"""The parts of `forebay.f90`: constants, the structs of C, and how handles are opened."""

from __future__ import annotations

from faces.declaration import Declaration, Member, Struct, Wrong
from faces.members import CMember, c_members
from faces.regions import BANNER
from faces.text import WIDTH, Words, byte_count, clause, wrapped

LICENCE = "SPDX-License-Identifier: Apache-2.0"

# What opens each handle: the type, what it is called, and the arguments before the options.
OPENED = {
    "producer": (
        "fb_producer",
        "producer",
        "Joins the stream as one rank. Waits for one or two answers of a server.",
    ),
    "consumer": ("fb_consumer", "consumer", "Attaches to a stream. Waits for a few answers."),
    "space": ("fb_space", "space", "Finds the group. Connects to nothing yet."),
    "admin": ("fb_admin", "admin", "Finds the group. Each call connects."),
    "pipeline_handle": (
        "fb_pipeline",
        "handle",
        "Opens a handle of the `pipeline`, which was created to be driven: on all workers, or on the one beside "
        "`server` alone, which then holds what is staged. Waits for a few answers.",
    ),
}


class Module:
    """Makes what stands between the marks of `forebay.f90`, and the files that it includes."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._words = Words(declaration, "c")

    def part(self, name: str, indent: str) -> list[str]:
        """The lines of one part: only `numbers`."""
        if name != "numbers":
            raise Wrong(f"nothing is generated as '{name}'")
        lines = parameters(
            [("FB_OK", 0), *((kind.c, kind.number) for kind in self._declaration.errors)], indent
        )
        for enum in self._declaration.enums.values():
            if not enum.by_name and enum.name != "memory":
                lines += parameters([(value.c, value.number) for value in enum.built], indent)
        return lines

    def structs(self) -> list[str]:
        """The structs of `forebay.h`, member by member."""
        lines: list[str] = []
        own = [struct for struct in self._declaration.options.values() if struct.like is None]
        for struct in [*self._declaration.structs.values(), *own]:
            if struct.name == "to_place":  # a caller's function sees it
                continue
            lines += self._struct(f"c_{struct.c}", struct)
        return lines

    def to_place(self) -> list[str]:
        """What a function of the caller's sees that places blocks."""
        return self._struct("fb_to_place", self._declaration.structs["to_place"], ", public")

    def _struct(self, name: str, struct: Struct, more: str = "") -> list[str]:
        lines = [f"   type, bind(C){more} :: {name}", "      integer(c_int64_t) :: struct_size = 0"]
        lines += [f"      {_component(member)}" for member in c_members(self._declaration, struct)]
        return [*lines, "   end type"]

    def openings(self) -> str:
        """`forebay_open.inc`: a procedure for each handle, and for fields."""
        lines = [
            "   ! Part of forebay.f90: how handles are opened, and fields declared.",
            "   !",
            f"   ! {LICENCE}",
            "   !",
        ]
        lines += [f"   ! {BANNER.capitalize()}."]
        for name, (kind, handle, doc) in OPENED.items():
            lines += ["", *self._opening(self._declaration.options[name], kind, handle, doc)]
        lines += ["", *self._arrays()]
        return "\n".join(lines) + "\n"

    def _arrays(self) -> list[str]:
        """How a field is declared: its shape is of either kind of integer."""
        options = self._declaration.structs["field"].options
        names = ", ".join(member.name for member in options)
        lines = [f"   ! {line}" for line in _DECLARES]
        for member in options:
            lines += self._documented(member)
        for kind, optional in (("int32", ", optional"), ("int64", "")):
            lines += broken(
                f"   subroutine array_{kind}(producer, name, dtype, shape, ndim, {names}, stat, errmsg)"
            )
            lines += [*_DECLARED, f"      integer({kind}), intent(in){optional} :: shape(:)"]
            lines += self._declarations(options)
            call = f"call declare(producer, name, dtype, given_{kind}(shape), ndim, {names}, stat, errmsg)"
            lines += [*broken(f"      {call}"), "   end subroutine", ""]
        lines += broken(f"   subroutine declare(producer, name, dtype, shape, ndim, {names}, stat, errmsg)")
        lines += [*_DECLARED, "      type(numbers), intent(in) :: shape", *self._declarations(options)]
        for member in options:
            lines += [
                f"      {line}" for line in _ROOM.get(member.type, "").format(name=member.name).splitlines()
            ]
        lines += [f"      {line}" for line in _BEGINS]
        for member in options:
            lines += [f"      {line}" for line in _TURNED[member.type].format(name=member.name).splitlines()]
        return [*lines, "      call told(c_array(producer%handle, field), stat, errmsg)", "   end subroutine"]

    def _declarations(self, options: list[Member]) -> list[str]:
        lines = ["      integer, intent(in), optional :: ndim"]
        kinds = {"labels": "character(*)", "numbers": "real(real64)", "flags": "logical", "counts": "integer"}
        for member in options:
            if member.type in kinds:
                lines += [f"      {kinds[member.type]}, intent(in), optional :: {member.name}(:)"]
            else:
                _, kind = self._arguments(member)[0]
                lines += [f"      {kind}, intent(in), optional :: {member.name}"]
        told = [
            "      integer, intent(out), optional :: stat",
            "      character(*), intent(inout), optional :: errmsg",
        ]
        return [*lines, *told]

    def _opening(self, struct: Struct, kind: str, handle: str, doc: str) -> list[str]:
        driven = struct.name == "pipeline_handle"
        first = (
            ["pipeline", "server"]
            if driven
            else [member.name for member in struct.members if member.required]
        )
        members = [member for member in struct.members if not member.required]
        names = [name for member in members for name, _ in self._arguments(member)]
        lines = [f"   ! {line}" for line in wrapped(doc, WIDTH - 5)]
        for member in members:
            lines += self._documented(member)
        arguments = ", ".join([handle, *first[:1], *names, *first[1:], "stat", "errmsg"])
        lines += broken(f"   subroutine {kind}_open({arguments})")
        lines += [f"      type({kind}), intent(out) :: {handle}"]
        lines += [f"      character(*), intent(in) :: {name}" for name in first[:1]]
        lines += ["      integer, intent(in), optional :: server"] if driven else []
        for member in members:
            lines += [
                f"      {declared}, intent(in), optional :: {name}{'(:)' if name in ('fields', 'needs') else ''}"
                for name, declared in self._arguments(member)
            ]
        lines += [
            "      integer, intent(out), optional :: stat",
            "      character(*), intent(inout), optional :: errmsg",
        ]
        texts = [
            member.name
            for member in struct.members
            if self._is_text(member) and not (driven and member.required)
        ]
        lines += [
            "      character(:, c_char), allocatable, target :: " + ", ".join(f"{name}_c" for name in texts)
        ]
        if any(member.type == "needs" for member in members):
            lines += ["      character(name_room, c_char), allocatable, target :: fields_c(:)"]
            lines += ["      type(c_need), allocatable, target :: needs_c(:)"]
            lines += ["      integer(c_int64_t), allocatable, target :: parts(:, :, :)"]
        lines += ["      integer(c_int64_t) :: alone"] if driven else []
        lines += [f"      type(c_{struct.c}) :: options", "", "      options%struct_size = c_sizeof(options)"]
        for member in struct.members:
            lines += [f"      {line}" for line in self._given(member)]
        if driven:
            lines += ["      alone = -1", "      if (present(server)) alone = server"]
            call = f"c_pipeline_open(options, c_text(pipeline), alone, {handle}%handle)"
        else:
            call = f"c_{handle}_open(options, {handle}%handle)"
        return [*lines, f"      call told({call}, stat, errmsg)", "   end subroutine"]

    def _documented(self, member: Member) -> list[str]:
        doc = self._words.of(member.doc if member.c is None or member.name == "every" else member.c)
        if member.type == "bytes":
            doc = f"{clause(doc)} (default {byte_count(member.default)})."
        elif isinstance(member.default, int) and not isinstance(member.default, bool):
            doc = f"{clause(doc)} (default {member.default})."
        names = ", ".join(name for name, _ in self._arguments(member))
        return [
            f"   !    {line}" if number == 0 else f"   !       {line}"
            for number, line in enumerate(wrapped(f"{names}: {doc}", WIDTH - 11))
        ]

    def _is_text(self, member: Member) -> bool:
        enum = self._declaration.enums.get(member.type)
        return member.type in ("text", "group") or (enum is not None and enum.by_name)

    def _arguments(self, member: Member) -> list[tuple[str, str]]:
        """Names and types of what is given for a member."""
        name = member.name
        if self._is_text(member):
            return [(name, "character(*)")]
        if member.type == "bool":
            return [(name, "logical")]
        if member.type in ("u64", "bytes"):
            return [(name, "integer(int64)")]
        if member.type in ("seconds", "own_seconds"):
            return [(name, "real(real64)")]
        if member.type == "needs":
            return [(name, "character(*)"), ("needs", "type(fb_need)")]
        if member.type == "run_step":
            return [(f"{name}_run", "integer(int64)"), (f"{name}_step", "integer(int64)")]
        if member.type == "placement":
            return [(name, "integer"), ("place", "type(c_funptr)"), ("place_context", "type(c_ptr)")]
        if member.type == "start":
            return [(name, "integer"), ("start_run", "integer(int64)"), ("start_step", "integer(int64)")]
        return [(name, "integer")]

    def _given(self, member: Member) -> list[str]:
        name = member.name
        if member.required:
            return [f"{name}_c = c_text({name}); options%{name} = c_loc({name}_c)"]
        if self._is_text(member):
            return [
                f"if (present({name})) then",
                f"   {name}_c = c_text({name}); options%{name} = c_loc({name}_c)",
                "end if",
            ]
        if member.type == "bool":
            return [f"if (present({name})) options%{name} = merge(1, 0, {name})"]
        if member.type == "needs":
            return _FIELDS
        both = [f"if (present({given})) options%{given} = {given}" for given, _ in self._arguments(member)]
        if member.type == "run_step":
            pair = f"{name}_run and {name}_step"
            return [
                f"if (present({name}_run) .neqv. present({name}_step)) then",
                f"   call refused('{pair} go together: give both, or neither', stat, errmsg, FB_INVALID)",
                "   return",
                "end if",
                *both,
            ]
        return both


_DECLARES = wrapped(
    "Adds a field to the output contract, or changes its global shape from the next step on. Without `shape` the field's "
    "blocks have no place in a global array, and `ndim` says how many dimensions they have. All is in Fortran's order.",
    WIDTH - 5,
)

_DECLARED = [
    "      type(fb_producer), intent(in) :: producer",
    "      character(*), intent(in) :: name",
    "      integer, intent(in) :: dtype",
]

# What an option of a field needs that C is to see.
_ROOM = {
    "text": "character(:, c_char), allocatable, target :: {name}_c",
    "labels": "character(name_room, c_char), allocatable, target :: {name}_c(:)\n"
    "type(c_ptr), allocatable, target :: {name}_at(:)",
    "numbers": "real(c_double), allocatable, target :: {name}_c(:)",
    "flags": "integer(c_int32_t), allocatable, target :: {name}_c(:)",
    "counts": "integer(c_int32_t), allocatable, target :: {name}_c(:)",
}

# How one that has an entry for each dimension is turned round.
_TURNED = {
    "labels": """\
if (present({name})) then
   if (.not. fits('{name}', .true., size({name}), n, stat, errmsg)) return
   if (.not. names_fit('{name}', {name}, stat, errmsg)) return
   allocate ({name}_c(n), {name}_at(n))
   do d = 1, n
      {name}_c(d) = trim({name}(n + 1 - d))//c_null_char
      {name}_at(d) = c_loc({name}_c(d))
   end do
   if (n > 0) field%{name} = c_loc({name}_at)
end if""",
    "numbers": """\
if (present({name})) then
   if (.not. fits('{name}', .true., size({name}), n, stat, errmsg)) return
   {name}_c = {name}(n:1:-1)
   if (n > 0) field%{name} = c_loc({name}_c)
end if""",
    "flags": """\
if (present({name})) then
   if (.not. fits('{name}', .true., size({name}), n, stat, errmsg)) return
   {name}_c = merge(1, 0, {name}(n:1:-1))
   if (n > 0) field%{name} = c_loc({name}_c)
end if""",
    "counts": """\
if (present({name})) then
   if (.not. fits('{name}', .true., size({name}), n, stat, errmsg)) return
   {name}_c = {name}(n:1:-1)
   if (n > 0) field%{name} = c_loc({name}_c)
end if""",
    "text": """\
if (present({name})) then
   {name}_c = c_text({name}); field%{name} = c_loc({name}_c)
end if""",
    "bool": "if (present({name})) field%{name} = merge(1, 0, {name})",
    "u32": "if (present({name})) field%{name} = {name}",
    "association": "if (present({name})) field%{name} = {name}",
}

_BEGINS = [
    "character(:, c_char), allocatable, target :: name_c",
    "integer(c_int64_t), allocatable, target :: shape_c(:)",
    "type(c_field) :: field",
    "integer :: d, n",
    "",
    "n = 0",
    "if (present(ndim)) n = ndim",
    "if (shape%there) n = shape%n",
    "if (.not. fits('shape', .true., min(n, max_ndim), n, stat, errmsg)) return",
    "field%struct_size = c_sizeof(field)",
    "field%dtype = dtype",
    "field%ndim = n",
    "name_c = c_text(name); field%name = c_loc(name_c)",
    "if (shape%there) then",
    "   shape_c = shape%of(n:1:-1)",
    "   if (n > 0) field%shape = c_loc(shape_c)",
    "end if",
]

_FIELDS = [
    "if (.not. describe_needs(needs_c, fields_c, parts, fields, needs, every, stat, errmsg)) return",
    "options%fields_count = ubound(needs_c, 1)",
    "if (ubound(needs_c, 1) > 0) then",
    "   options%fields_stride = int(c_sizeof(needs_c(1)), c_int32_t)",
    "   options%fields = c_loc(needs_c)",
    "end if",
]


def _component(member: CMember) -> str:
    kind = member.kind
    return f"{kind.fortran} :: {member.name}{kind.fortran_count} = {member.fortran}"


def parameters(named: list[tuple[str, int]], indent: str) -> list[str]:
    """Public constants."""
    # A name stays on one line with its number.
    listed = ", ".join(f"{name}\xa0=\xa0{number}" for name, number in named)
    lines = broken(f"{indent}integer, parameter, public :: {listed}")
    return [line.replace("\xa0", " ") for line in lines]


def broken(line: str) -> list[str]:
    """A statement in lines that are not too long."""
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 3)
    lines = wrapped(line.lstrip(), WIDTH - len(indent) - 2)
    first = [line[: len(line) - len(line.lstrip())] + lines[0], *(indent + rest for rest in lines[1:])]
    return [*(part + " &" for part in first[:-1]), first[-1]]
