"""Members as C has them: an option that is one thing in Python may be several there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faces.declaration import Declaration, Member, Struct, Wrong
from faces.text import byte_count, clause


@dataclass(frozen=True)
class Kind:
    """A type, in each language that stands on C."""

    c: str
    rust: str
    fortran: str
    size: int
    c_zero: str = "0"
    rust_zero: str = "0"
    fortran_zero: str = "0"
    c_count: str = ""
    fortran_count: str = ""


def _pointer(c: str, rust: str) -> Kind:
    null = "std::ptr::null_mut()" if rust.startswith("*mut") else "std::ptr::null()"
    return Kind(c, rust, "type(c_ptr)", 8, "NULL", null, "c_null_ptr")


KINDS = {
    "u32": Kind("uint32_t ", "u32", "integer(c_int32_t)", 4),
    "i32": Kind("int32_t ", "i32", "integer(c_int32_t)", 4),
    "u64": Kind("uint64_t ", "u64", "integer(c_int64_t)", 8),
    "i64": Kind("int64_t ", "i64", "integer(c_int64_t)", 8),
    "f64": Kind("double ", "f64", "real(c_double)", 8, rust_zero="0.0"),
    "text": _pointer("const char *", "*const c_char"),
    "extents": _pointer("const uint64_t *", "*const u64"),
    "strides": _pointer("const int64_t *", "*const i64"),
    "numbers": _pointer("const double *", "*const f64"),
    "flags": _pointer("const int32_t *", "*const i32"),
    "counts": _pointer("const uint32_t *", "*const u32"),
    "servers": _pointer("const uint32_t *", "*const u32"),
    "labels": _pointer("const char *const *", "*const *const c_char"),
    "const_data": _pointer("const void *", "*const c_void"),
    "data": _pointer("void *", "*mut c_void"),
    "out": _pointer("int32_t *", "*mut i32"),
    "needs": _pointer("const fb_need *", "*const fb_need"),
    "place": Kind(
        "fb_place_function ", "fb_place_function", "type(c_funptr)", 8, "NULL", "None", "c_null_funptr"
    ),
    "eight": Kind(
        *("uint64_t ", "[u64; 8]", "integer(c_int64_t)", 64, "{0}", "[0; 8]", "0", "[8]", "(max_ndim)")
    ),
    "eight_numbers": Kind(
        *("double ", "[f64; 8]", "real(c_double)", 64, "{0}", "[0.0; 8]", "0", "[8]", "(max_ndim)")
    ),
    "eight_labels": Kind(
        *("const char *", "[*const c_char; 8]", "type(c_ptr)", 64, "{NULL}", "[std::ptr::null(); 8]"),
        *("c_null_ptr", "[8]", "(max_ndim)"),
    ),
}

# What types of options are in C.
AS = {
    "bool": "i32",
    "bytes": "u64",
    "seconds": "f64",
    "own_seconds": "f64",
    "group": "text",
    "reserved": "i32",
}


@dataclass(frozen=True)
class CMember:
    """A member of a struct in C."""

    name: str
    kind: Kind
    doc: str
    c: str
    """Its default, in C."""
    rust: str
    fortran: str


def c_members(declaration: Declaration, struct: Struct) -> list[CMember]:
    """The members after `struct_size`. What would be padding is a member that is reserved: one to come may take its place."""
    members = [part for member in struct.members for part in _parts(declaration, member)]
    end = 8
    filled: list[CMember] = []

    def fill(size: int) -> int:
        if end % size == 0:
            return 0
        count = sum(member.name.startswith("reserved") for member in filled)
        filled.append(_plain(f"reserved{count + 1 if count else ''}", KINDS["i32"], "0"))
        return 4

    for member in members:
        end += fill(min(member.kind.size, 8))
        end += member.kind.size
        filled.append(member)
    end += fill(8)
    if not 8 < struct.first <= end:
        raise Wrong(f"{struct.c}: first is {struct.first}, and the struct has {end} bytes")
    return filled


def _plain(name: str, kind: Kind, doc: str) -> CMember:
    return CMember(name, kind, doc, kind.c_zero, kind.rust_zero, kind.fortran_zero)


def _number(name: str, kind: Kind, doc: str, number: int | float) -> CMember:
    rust = f"{float(number)}" if kind.rust == "f64" else str(number)
    fortran = f"{number}_c_int64_t" if kind.rust == "u64" and number >= 1 << 31 else str(number)
    return CMember(name, kind, doc, str(number), rust, fortran)


def _parts(declaration: Declaration, member: Member) -> Iterator[CMember]:
    doc = member.doc if member.c is None else member.c
    kind = KINDS.get(AS.get(member.type, member.type))
    part = member.parts.__getitem__
    if member.type == "needs":
        yield _plain("fields_count", KINDS["u32"], part("fields_count"))
        stride = CMember(
            "fields_stride",
            KINDS["u32"],
            part("fields_stride"),
            "sizeof(fb_need)",
            "size_of::<fb_need>() as u32",
            "0",
        )
        yield stride
        yield _plain("fields", KINDS["needs"], part("fields"))
    elif member.type == "run_step":
        yield _plain(f"{member.name}_run", KINDS["u64"], part(f"{member.name}_run"))
        yield _plain(f"{member.name}_step", KINDS["u64"], part(f"{member.name}_step"))
    elif member.type in ("placement", "start"):
        yield _choice(declaration, member, doc)
        if member.type == "placement":
            yield _plain("place", KINDS["place"], part("place"))
            yield _plain("place_context", KINDS["data"], part("place_context"))
        else:
            yield _plain("start_run", KINDS["u64"], part("start_run"))
            yield _plain("start_step", KINDS["u64"], part("start_step"))
    elif member.type in declaration.enums and not declaration.enums[member.type].by_name:
        yield _choice(declaration, member, doc)
    elif member.type in declaration.enums:
        yield _plain(member.name, KINDS["text"], f"{clause(doc)}. NULL: {{{member.type}.{member.default}}}")
    elif member.type == "own_seconds":
        assert kind is not None
        yield _number(member.name, kind, f"{clause(doc)}. Below 0: by default", -1)
    elif member.type == "reserved":
        yield _plain(member.name, KINDS["i32"], "0")
    elif kind is None:
        raise Wrong(f"{member.name}: there is no type '{member.type}'")
    elif member.default is None or kind.c_zero == "NULL":
        yield _plain(member.name, kind, doc)
    else:
        shown = byte_count(member.default) if member.type == "bytes" else str(int(member.default))
        if doc.startswith("Whether"):
            shown = f"{shown}: {'yes' if member.default else 'no'}"
        known = f"{clause(doc)} (default {shown})" if doc else f"default {shown}"
        number = float(member.default) if kind.rust == "f64" else int(member.default)
        yield _number(member.name, kind, known, number)


def _choice(declaration: Declaration, member: Member, doc: str) -> CMember:
    value = declaration.enums[member.type].value(member.default)
    return CMember(member.name, KINDS["i32"], doc, value.c, str(value.number), str(value.number))
