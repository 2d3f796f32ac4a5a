"""The options as the Python extension takes them: `crates/python/src/options.rs`."""

from __future__ import annotations

from faces.declaration import Declaration, Member, Struct
from faces.regions import BANNER
from faces.rust import OF_GROUP, doc

_TYPES = {
    "u32": "u32",
    "u64": "u64",
    "bytes": "u64",
    "bool": "bool",
    "text": "Option<String>",
    "needs": "given::Fields",
    "run_step": "Option<(u64, u64)>",
    "placement": "given::Placement",
    "start": "given::Start",
}


def options(declaration: Declaration) -> str:
    """The whole file."""
    lines = ["//! Options as the package hands them over, checked.", "//!", f"//! {BANNER.capitalize()}.", ""]
    own = [struct for struct in declaration.options.values() if struct.like is None]
    named = ", ".join(struct.rust for struct in own if struct.name != "admin")
    lines += [
        "use crate::given;",
        "use crate::timeout::Timeout;",
        "use forebay_client::core::contract::Field;",
    ]
    lines += [f"use forebay_client::{{GroupOptions, {named}}};", "use pyo3::prelude::*;"]
    lines += ["", *_field(declaration)]
    for struct in own:
        lines += ["", *_struct(struct), "", *_conversion(declaration, struct)]
    return "\n".join(lines) + "\n"


def _given(struct: Struct) -> str:
    return f"{struct.rust.removesuffix('Options')}Given"


def _struct(struct: Struct) -> list[str]:
    lines = [*doc(struct.doc), "#[derive(FromPyObject)]", "#[pyo3(from_item_all)]"]
    lines += [f"pub(crate) struct {_given(struct)} {{", "    group: Option<String>,"]
    timeout = "Option<Timeout>" if struct.name == "admin" else "Timeout"
    lines += [f"    timeout: {timeout},", "    transport: String,", "    name: Option<String>,"]
    for member in _own(struct):
        lines.append(f"    {member.name}: {_TYPES.get(member.type, 'String')},")
    return [*lines, "}"]


def _own(struct: Struct) -> list[Member]:
    return [member for member in struct.members if member.name not in OF_GROUP and not member.required]


def _conversion(declaration: Declaration, struct: Struct) -> list[str]:
    if struct.name == "admin":
        group = "given::group(self.group, &self.transport, self.timeout, self.name)"
        made = ["    pub(crate) fn options(self) -> PyResult<GroupOptions> {", f"        {group}", "    }"]
        return [f"impl {_given(struct)} {{", *made, "}"]
    required = [member.name for member in struct.members if member.required]
    more = "".join(f", {name}: String" for name in required)
    lines = [f"impl {_given(struct)} {{"]
    lines += [f"    pub(crate) fn options(self{more}) -> PyResult<{struct.rust}> {{"]
    lines += [
        "        let group = given::group(self.group, &self.transport, Some(self.timeout), self.name)?;"
    ]
    lines += [
        f"        Ok({struct.rust} {{",
        "            group,",
        *(f"            {name}," for name in required),
    ]
    for member in _own(struct):
        if line := _converted(declaration, member):
            lines.append(f"            {line},")
    return [*lines, "        })", "    }", "}"]


def _converted(declaration: Declaration, member: Member) -> str:
    name = member.name
    if member.type == "needs":
        return f"needs: given::needs(self.{name}, self.every)?"
    if name == "every":
        return ""
    if member.type in ("placement", "start"):
        return f"{name}: self.{name}.made()?"
    if member.type in declaration.enums:
        return f"{name}: given::choice(&self.{name})?"
    return f"{name}: self.{name}"


def _field(declaration: Declaration) -> list[str]:
    """What is said of a field."""
    kinds = {"u32": "u32", "bool": "bool", "labels": "Vec<String>", "numbers": "Vec<f64>"}
    kinds |= {"flags": "Vec<bool>", "counts": "Vec<u32>"}
    options = declaration.structs["field"].options
    lines = ["/// What is said of a field beside its name, type and shape.", "#[derive(FromPyObject)]"]
    lines += ["#[pyo3(from_item_all)]", "pub(crate) struct FieldGiven {"]
    lines += [f"    {member.name}: {kinds.get(member.type, 'String')}," for member in options]
    lines += [
        "}",
        "",
        "impl FieldGiven {",
        "    pub(crate) fn apply(self, field: &mut Field) -> PyResult<()> {",
    ]
    for member in options:
        is_choice = member.type in declaration.enums
        value = f"given::choice(&self.{member.name})?" if is_choice else f"self.{member.name}"
        lines += [f"        field.{member.name} = {value};"]
    return [*lines, "        Ok(())", "    }", "}"]
