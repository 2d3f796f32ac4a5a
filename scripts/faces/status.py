"""What the status of a group says, of `interface/status.toml`: structs for Rust, types for Python, tables for people."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faces.declaration import Wrong
from faces.text import wrapped

SOURCE = "interface/status.toml"
BANNER = f"generated from {SOURCE} by scripts/generate_faces.py: change it there"

# What a plain type is called in Rust, in Python and in JSON.
PLAIN = {
    "text": ("String", "str"),
    "integer": ("u64", "int"),
    "number": ("f64", "float"),
    "flag": ("bool", "bool"),
    "json": ("serde_json::Map<String, serde_json::Value>", "dict[str, Any]"),
}

# What no member of a struct in Rust can be called: there it is a question, as `is_static`.
KEYWORDS = {"static"}


@dataclass(frozen=True)
class Member:
    """A member of a table."""

    name: str
    type: str
    doc: str
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """A JSON object."""

    name: str
    title: str
    doc: str
    members: tuple[Member, ...]


class Status:
    """The whole declaration."""

    def __init__(self, root: Path) -> None:
        told = tomllib.loads((root / SOURCE).read_text(encoding="utf-8"))
        self._intro: str = told.pop("intro")
        self._tables = [
            Table(name, table["title"], table["doc"], tuple(Member(**member) for member in table["members"]))
            for name, table in told.items()
        ]

    def rust(self) -> str:
        """The structs."""
        lines = ["//! What the status of a group says.", f"//! {BANNER.capitalize()}.", ""]
        lines += ["use serde::{Deserialize, Serialize};", "use std::collections::BTreeMap;"]
        for table in self._tables:
            lines += ["", *_comment(table.doc)]
            lines += [
                "#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]",
                "#[serde(default)]",
            ]
            lines += [f"pub struct {table.name} {{"]
            for member in table.members:
                lines += _comment(_sentence(member.doc))
                kind = self._type(member.type, 0)
                if member.optional:
                    lines.append('#[serde(skip_serializing_if = "Option::is_none")]')
                    kind = f"Option<{kind}>"
                if member.name in KEYWORDS:
                    lines.append(f'#[serde(rename = "{member.name}")]')
                    lines.append(f"pub is_{member.name}: {kind},")
                else:
                    lines.append(f"pub {member.name}: {kind},")
            lines.append("}")
        return "\n".join(lines) + "\n"

    def python(self) -> str:
        """The types: the parts of the whole come before it."""
        lines = [
            f'"""What `Admin.status` returns, as types: `GroupStatus` is the whole.\n\n{BANNER.capitalize()}.\n"""'
        ]
        lines += ["", "from typing import Any, NotRequired, TypedDict", ""]
        lines.append(f"__all__ = {sorted(table.name for table in self._tables)!r}")
        for table in self._in_order():
            lines += ["", f"class {table.name}(TypedDict):", f'    """{table.doc}"""', ""]
            for member in table.members:
                kind = self._type(member.type, 1)
                lines.append(f"    {member.name}: {f'NotRequired[{kind}]' if member.optional else kind}")
                doc = wrapped(_sentence(member.doc), 100)
                lines += [f'    """{doc[0]}', *[f"    {line}" for line in doc[1:]]]
                lines[-1] += '"""'
        return "\n".join(lines) + "\n"

    def page(self) -> str:
        """The page for people."""
        lines = ["# The status of a group", "", f"<!-- {BANNER} -->", "", self._intro.strip()]
        for table in self._tables:
            lines += [
                "",
                f"## {table.title}",
                "",
                f"`{table.name}`",
                "",
                "| member | type | what it is |",
                "| --- | --- | --- |",
            ]
            lines += [
                f"| `{member.name}` | {self._shown(member)} | {member.doc} |" for member in table.members
            ]
        return "\n".join(lines) + "\n"

    def _in_order(self) -> Iterator[Table]:
        """Each after those that it is made of."""
        done: set[str] = set()

        def with_parts(table: Table) -> Iterator[Table]:
            if table.name in done:
                return
            done.add(table.name)
            for member in table.members:
                for part in self._tables:
                    if part.name in member.type.split():
                        yield from with_parts(part)
            yield table

        for table in self._tables:
            yield from with_parts(table)

    def _type(self, kind: str, language: int) -> str:
        """A type in Rust (0) or in Python (1)."""
        if kind.endswith(" or null"):
            inner = self._type(kind.removesuffix(" or null"), language)
            return f"Option<{inner}>" if language == 0 else f"{inner} | None"
        if kind.startswith("list of "):
            inner = self._type(kind.removeprefix("list of "), language)
            return f"Vec<{inner}>" if language == 0 else f"list[{inner}]"
        if kind.startswith("counts by "):
            return "BTreeMap<String, u64>" if language == 0 else "dict[str, int]"
        if kind in PLAIN:
            return PLAIN[kind][language]
        if not any(table.name == kind for table in self._tables):
            raise Wrong(f"{SOURCE}: there is no type '{kind}'")
        return kind

    def _shown(self, member: Member) -> str:
        """A type for people."""
        words = [
            f"[{word}](#{self._anchor(word)})" if any(table.name == word for table in self._tables) else word
            for word in member.type.replace("json", "object").split()
        ]
        return " ".join(words) + (", or left out" if member.optional else "")

    def _anchor(self, name: str) -> str:
        title = next(table.title for table in self._tables if table.name == name)
        return title.lower().replace(" ", "-")


def _sentence(text: str) -> str:
    """A clause as a sentence."""
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else text + "."


def _comment(text: str) -> list[str]:
    return [f"/// {line}" for line in wrapped(text, 110)]
