"""The Rust that is made: kinds of errors in `core`, options and choices in `client`, structs in `capi`."""

from __future__ import annotations

from faces.declaration import Declaration, Member, Struct, Wrong
from faces.members import c_members
from faces.regions import BANNER
from faces.text import Words, byte_count, clause, wrapped

OF_GROUP = ("group", "timeout", "transport", "name")
"""Options of every handle, which the client keeps together."""

COMPOUND = ("needs", "run_step", "placement", "start")
"""Types that are several members in C: code by hand makes one of them."""


def doc(text: str, indent: str = "") -> list[str]:
    """A text as Rust documents something."""
    return [f"{indent}/// {line}" for line in wrapped(text, 110 - len(indent))]


class Rust:
    """Makes whole files."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._words = Words(declaration, "rust")

    def error_kinds(self) -> str:
        """`crates/core/src/error/kind.rs`."""
        lines = ["//! The kinds of errors.", "//!", f"//! {BANNER.capitalize()}.", ""]
        lines += ["use serde::{Deserialize, Serialize};", ""]
        lines += doc(
            "What kind of failure it was. Numbers are part of the wire protocol and of the C ABI: the list only grows."
        )
        lines += ["#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]", "#[repr(u8)]"]
        lines += ["pub enum ErrorKind {"]
        for kind in self._declaration.errors:
            lines += [*doc(self._words.of(kind.doc), "    "), f"    {kind.name} = {kind.number},"]
        lines += ["}", "", "impl ErrorKind {", "    /// Every kind, in the order of its number."]
        count = len(self._declaration.errors)
        lines += [f"    pub const ALL: [ErrorKind; {count}] = ["]
        lines += [f"        ErrorKind::{kind.name}," for kind in self._declaration.errors]
        lines += ["    ];", "", "    /// The name in C, as a text that ends with NUL."]
        lines += [
            "    pub const fn c_name(self) -> &'static std::ffi::CStr {",
            "        match self {",
            *(f'            ErrorKind::{kind.name} => c"{kind.c}",' for kind in self._declaration.errors),
            "        }",
            "    }",
            "",
            "    /// Whether the same call may succeed later although its caller has changed nothing.",
            "    pub const fn is_retryable(self) -> bool {",
        ]
        retry = [f"ErrorKind::{kind.name}" for kind in self._declaration.errors if kind.retry]
        lines += [f"        matches!(self, {' | '.join(retry)})", "    }", "}"]
        return "\n".join(lines) + "\n"

    def choices(self) -> str:
        """`crates/client/src/declared/choices.rs`."""
        lines = ["//! Which values each choice has.", "//!", f"//! {BANNER.capitalize()}.", ""]
        lines += ["use crate::choice::{Choice, Named};"]
        enums = [enum for enum in self._declaration.enums.values() if enum.rust is not None]
        lines += [f"use {enum.rust};" for enum in enums]
        for enum in enums:
            kind = str(enum.rust).rpartition("::")[2]
            lines += ["", f"impl Choice for {kind} {{", f'    const WHAT: &str = "{enum.name}";']
            lines += ["    const VALUES: &[Named<Self>] = &["]
            for value in enum.values:
                made = f"Some({kind}::{value.rust})" if value.rust else "None"
                lines += [
                    f'        Named {{ value: {made}, number: {value.number}, name: "{value.name}", '
                    f'c_name: "{value.c}" }},'
                ]
            lines += ["    ];", "}"]
        return "\n".join(lines) + "\n"

    def options(self) -> str:
        """`crates/client/src/declared/options.rs`."""
        used = {"crate::group_options::GroupOptions"}
        lines: list[str] = []
        for struct in self._structs():
            lines += ["", *self._option_struct(struct, used)]
        head = ["//! How handles are opened.", "//!", f"//! {BANNER.capitalize()}.", ""]
        return "\n".join([*head, *(f"use {path};" for path in sorted(used)), *lines]) + "\n"

    def _structs(self) -> list[Struct]:
        # Those of `admin` are a group's, which the client keeps together.
        return [s for s in self._declaration.options.values() if s.like is None and s.name != "admin"]

    def _option_struct(self, struct: Struct, used: set[str]) -> list[str]:
        members = [member for member in struct.members if member.name not in OF_GROUP]
        lines = [*doc(struct.doc), "#[derive(Debug, Clone)]", f"pub struct {struct.rust} {{"]
        lines += ["    /// The group.", "    pub group: GroupOptions,"]
        for member in members:
            kind, name, _ = self._member(member, used)
            if kind:
                told = self._words.of(member.doc)
                if member.type == "bytes":
                    told = f"{clause(told)}; by default {byte_count(member.default)}."
                lines += [*doc(told, "    "), f"    pub {name}: {kind},"]
        lines += ["}", "", f"impl {struct.rust} {{"]
        stream = any(member.required for member in members)
        lines += ["    /// With all defaults."]
        lines += [
            f"    pub fn new({'stream: &str' if stream else 'group: GroupOptions'}) -> {struct.rust} {{"
        ]
        lines += [
            f"        {struct.rust} {{",
            f"            group{': GroupOptions::default()' if stream else ''},",
        ]
        for member in members:
            kind, name, default = self._member(member, used)
            if kind:
                lines += [f"            {name}: {default},"]
        return [*lines, "        }", "    }", "}"]

    def _member(self, member: Member, used: set[str]) -> tuple[str, str, str]:
        """Type, name and default; no type where another member says it."""
        name, default = member.name, member.default
        if member.required:
            return "String", name, f"{name}.to_owned()"
        if member.type in ("u32", "u64"):
            # A period for all fields is part of what is needed.
            return ("" if name == "every" else member.type), name, str(default)
        if member.type == "bytes":
            return "u64", name, f"1 << {default.bit_length() - 1}"
        if member.type == "bool":
            return "bool", name, str(default).lower()
        if member.type == "text":
            return "Option<String>", name, "None"
        if member.type == "needs":
            used.add("forebay_core::contract::Needs")
            return "Needs", "needs", "Needs::all(1)"
        if member.type == "run_step":
            used.add("forebay_core::ids::{RunNumber, StepNumber}")
            return "Option<(RunNumber, StepNumber)>", name, "None"
        if member.type == "placement":
            used.add("forebay_core::placement::Placement")
            return "Placement", name, "Placement::Nearest"
        if member.type == "start":
            used.add("forebay_core::steps::Start")
            return "Start", name, "Start::Next"
        enum = self._declaration.enums.get(member.type)
        if enum is None or enum.rust is None:
            raise Wrong(f"{name}: the client has no type '{member.type}'")
        used.add(enum.rust)
        return enum.in_rust, name, f"{enum.in_rust}::{enum.value(default).rust}"

    def abi(self) -> str:
        """`crates/capi/src/abi/declared.rs`."""
        lines = ["//! The structs and numbers of `forebay.h`.", "//!", f"//! {BANNER.capitalize()}.", ""]
        lines += ["use super::{Sized64, fb_place_function};"]
        lines += ["use std::ffi::{c_char, c_void};", "use std::mem::size_of;", "", "numbers! {"]
        enums = [enum for enum in self._declaration.enums.values() if not enum.by_name]
        lines += [f"    {value.c} = {value.number}," for enum in enums for value in enum.values]
        lines += ["}"]
        own = [struct for struct in self._declaration.options.values() if struct.like is None]
        for struct in [*self._declaration.structs.values(), *own]:
            lines += ["", "sized!(", *doc(self._words.of(struct.doc).replace("/*", ""), "    ")]
            lines += [f"    fb_{struct.c}, {struct.first}, {{"]
            for member in c_members(self._declaration, struct):
                lines += [f"        {member.name}: {member.kind.rust} = {member.rust},"]
            lines += ["    }", ");"]
        return "\n".join(lines) + "\n"

    def given(self) -> str:
        """`crates/capi/src/options.rs`."""
        lines = ["//! Options: from C's structs to the client's.", "//!", f"//! {BANNER.capitalize()}."]
        lines += ['#![allow(unsafe_code, reason = "the structs are full of C\'s pointers")]', ""]
        structs = self._structs()
        names = ", ".join(
            ["fb_field", *(f"fb_{s.c}" for s in [*structs, self._declaration.options["admin"]])]
        )
        lines += [f"use crate::abi::{{{names}}};", "use crate::{arguments, compound};"]
        lines += ["use forebay_client::core::contract::Field;"]
        lines += [
            f"use forebay_client::{{Choice, GroupOptions, Result, {', '.join(s.rust for s in structs)}}};"
        ]
        for struct in structs:
            lines += ["", *self._conversion(struct)]
        lines += ["", *self._field_options()]
        admin = self._declaration.options["admin"]
        lines += ["", f"/// {admin.doc}", "///", "/// # Safety", "/// The header's terms."]
        lines += [f"pub(crate) unsafe fn {admin.c}(given: &fb_{admin.c}) -> Result<GroupOptions> {{"]
        lines += ["    // SAFETY: the caller vouches for it.", f"    unsafe {{ {_group(own=True)} }}", "}"]
        return "\n".join(lines) + "\n"

    def _field_options(self) -> list[str]:
        lines = [
            "/// What is said of a field beside its name, type and shape.",
            "///",
            "/// # Safety",
            "/// The header's terms.",
        ]
        lines += [
            "pub(crate) unsafe fn field_options(given: &fb_field, ndim: usize, field: &mut Field) -> Result<()> {"
        ]
        lines += ["    // SAFETY: the caller vouches for it.", "    unsafe {"]
        for part in c_members(self._declaration, self._declaration.structs["field"]):
            if part.name.startswith("reserved"):
                lines += [f'    arguments::unused(given.{part.name}, "field->{part.name}")?;']
        for member in self._declaration.structs["field"].options:
            what, place = f"given.{member.name}", f'"field->{member.name}"'
            made = {
                "u32": what,
                "bool": f"arguments::truth({what}, {place})?",
                "text": f"arguments::optional_text({what}, {place})?.unwrap_or_default().to_owned()",
                "labels": f"arguments::labels({what}, ndim, {place})?",
                "numbers": f"arguments::optional_numbers({what}, ndim).collect()",
                "counts": f"arguments::optional_numbers({what}, ndim).collect()",
                "flags": f"arguments::flags({what}, ndim, {place})?",
            }
            value = made.get(member.type, f"Choice::of_number({what}, {place})?")
            lines += [f"        field.{member.name} = {value};"]
        return [*lines, "    }", "    Ok(())", "}"]

    def _conversion(self, struct: Struct) -> list[str]:
        stream = any(member.required for member in struct.members)
        lines = [*doc(f"{clause(struct.doc)}{', with the name of its stream' if stream else ''}."), "///"]
        lines += ["/// # Safety", "/// The header's terms."]
        more = ", stream: &str" if stream else ""
        lines += [f"pub(crate) unsafe fn {struct.c}(given: &fb_{struct.c}{more}) -> Result<{struct.rust}> {{"]
        lines += ["    // SAFETY: the caller vouches for it.", "    unsafe {"]
        for part in c_members(self._declaration, struct):
            if part.name.startswith("reserved"):
                lines += [f'    arguments::unused(given.{part.name}, "options->{part.name}")?;']
        lines += [f"    Ok({struct.rust} {{"]
        lines += [f"        group: {_group(own=False)}?,"]
        for member in struct.members:
            if member.name not in OF_GROUP and (line := self._converted(member)):
                lines += [f"        {line},"]
        return [*lines, "    })", "    }", "}"]

    def _converted(self, member: Member) -> str:
        name = member.name
        if member.required:
            return f"{name}: {name}.to_owned()"
        if member.type in ("u32", "u64", "bytes"):
            if name == "every":
                return ""
            if member.low is None and member.high is None:
                return f"{name}: given.{name}"
            high = "u32::MAX" if member.high is None else member.high
            return f'{name}: arguments::within(given.{name}, {member.low or 0}..={high}, "options->{name}")?'
        if member.type == "bool":
            return f'{name}: arguments::truth(given.{name}, "options->{name}")?'
        if member.type == "text":
            return f'{name}: arguments::optional_text(given.{name}, "options->{name}")?.map(str::to_owned)'
        if member.type in COMPOUND:
            called = "needs" if member.type == "needs" else name
            return f"{called}: compound::{called}(given)?"
        if self._declaration.enums[member.type].by_name:
            return f'{name}: arguments::choice_by_name(given.{name}, "options->{name}")?'
        return f'{name}: Choice::of_number(given.{name}, "options->{name}")?'


def _group(*, own: bool) -> str:
    return f"arguments::{'own_group' if own else 'group'}(given.group, given.transport, given.timeout, given.name)"
