"""The declaration as data: what `interface/forebay.toml` says, checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SOURCE = "interface/forebay.toml"


class Wrong(Exception):
    """The declaration says something that cannot be."""


@dataclass(frozen=True)
class ErrorKind:
    """A kind of error."""

    name: str
    number: int
    doc: str
    python: str | None = None
    """The exception of Python's own that it is, too."""
    retry: bool = False

    @property
    def c(self) -> str:
        """Its name in C: FB_NOT_FOUND."""
        return "FB_" + re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).upper()


@dataclass(frozen=True)
class Value:
    """A value of an enum."""

    name: str
    number: int
    c: str
    doc: str = ""
    rust: str | None = None
    """The variant; None where code by hand makes it."""
    unbuilt: bool = False
    python: bool = True
    """Whether Python gives it by its name."""


@dataclass(frozen=True)
class Enum:
    """An enum."""

    name: str
    doc: str
    values: tuple[Value, ...]
    rust: str | None = None
    by_name: bool = False

    @property
    def camel(self) -> str:
        """Its name as a type: OnLoss."""
        return camel(self.name)

    @property
    def in_rust(self) -> str:
        """What its type is called there."""
        return self.rust.rpartition("::")[2] if self.rust else self.camel

    @property
    def built(self) -> list[Value]:
        """The values that may be given."""
        return [value for value in self.values if not value.unbuilt]

    def value(self, name: str) -> Value:
        """The value of this name."""
        for value in self.values:
            if value.name == name:
                return value
        raise Wrong(f"enum {self.name} has no value '{name}'")


@dataclass(frozen=True)
class Member:
    """An option, or a member of a struct."""

    name: str
    type: str
    doc: str = ""
    default: Any = None
    low: int | None = None
    high: int | None = None
    required: bool = False
    option: bool = False
    """Of a struct: an option of what it describes, in all languages."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What the members mean that it has in C, where those are several."""
    c: str | None = None
    python: str | None = None
    python_name: str | None = None
    """What it is called in Python, if its name is a word of other languages there."""

    @property
    def in_python(self) -> str:
        """Its name in Python."""
        return self.python_name or self.name


@dataclass(frozen=True)
class Struct:
    """A struct of the C interface, or the options of an object."""

    name: str
    doc: str
    first: int
    members: tuple[Member, ...]
    is_options: bool = False
    like: str | None = None
    """The options whose struct it has in C."""

    @property
    def c(self) -> str:
        """Its name in C, without fb_."""
        return f"{self.like or self.name}_options" if self.is_options else self.name

    @property
    def rust(self) -> str:
        """Its name in the client."""
        return camel(self.c)

    @property
    def options(self) -> list[Member]:
        """The members that are options in all languages."""
        return [member for member in self.members if member.option]

    def member(self, name: str) -> Member:
        """The member of this name."""
        for member in self.members:
            if member.name == name:
                return member
        raise Wrong(f"{self.name} has no member '{name}'")


@dataclass(frozen=True)
class Declaration:
    """All of it."""

    errors: tuple[ErrorKind, ...]
    enums: Mapping[str, Enum]
    names: Mapping[str, Mapping[str, str]]
    options: Mapping[str, Struct]
    structs: Mapping[str, Struct]


def camel(name: str) -> str:
    """`on_loss` as OnLoss."""
    return "".join(part.capitalize() for part in re.split(r"[-_+]", name))


def load(root: Path) -> Declaration:
    """Reads the declaration of a checkout."""
    told = tomllib.loads((root / SOURCE).read_text(encoding="utf-8"))
    errors = tuple(ErrorKind(name, **given) for name, given in told["errors"].items())
    if [kind.number for kind in errors] != list(range(1, len(errors) + 1)):
        raise Wrong("the kinds of errors are numbered from 1, without a gap")
    enums = {name: _enum(name, given) for name, given in told["enums"].items()}
    options: dict[str, Struct] = {}
    for name, given in told["options"].items():
        options[name] = _options(name, given, options)
    structs = {
        name: Struct(name, given["doc"], given["first"], _members(given["members"], options))
        for name, given in told["structs"].items()
    }
    return Declaration(errors, enums, told["names"], options, structs)


def _enum(name: str, given: Mapping[str, Any]) -> Enum:
    prefix = given.get("c_prefix", f"FB_{name.upper()}_")
    values = []
    for value in given["values"]:
        has_rust = given.get("rust") is not None and value.get("rust", True)
        values.append(
            Value(
                name=value["name"],
                number=value["number"],
                c=prefix + re.sub(r"[-+]", "_", value["name"]).upper(),
                doc=value.get("doc", ""),
                rust=camel(value["name"]) if has_rust else None,
                unbuilt=value.get("unbuilt", False),
                python=value.get("python", True),
            )
        )
    return Enum(name, given["doc"], tuple(values), given.get("rust"), given.get("by_name", False))


def _options(name: str, given: Mapping[str, Any], known: Mapping[str, Struct]) -> Struct:
    if "like" in given:
        other = known[given["like"]]
        members = tuple(member for member in other.members if member.name not in given["without"])
        return replace(other, name=name, members=members, like=other.name)
    return Struct(name, given["doc"], given["first"], _members(given["members"], known), is_options=True)


def _members(given: Mapping[str, Any], known: Mapping[str, Struct]) -> tuple[Member, ...]:
    members = []
    for name, about in given.items():
        if "like" in about:
            of, _, member = about["like"].partition(".")
            members.append(replace(known[of].member(member), name=name))
        else:
            members.append(Member(name=name, **about))
    return tuple(members)
