"""Reads which file of a crate imports which other one, and compares that with the order in `file_order.toml`.

What counts as an import of a file: a `use`, or a path in its code, that leads to something which another file of the crate
defines. Three things follow from that:

- A re-export is followed. Who names `crate::reading::Step` imports the file that defines `Step`, not `reading.rs` with its
  `pub use`; and a `use` by which a parent re-exports its own descendant is no import of the parent's.
- A parent may use its children, or a child its parent, but not both: that would be a circle.
- Tests do not count: what stands under a `cfg` that names `test`, and files that are declared so.

Methods are not seen, since they are called without a path. Who may use something (`pub(in path)`) is no import.

Two rules hold in every crate that has a list in `file_order.toml`. No file imports itself by way of others, and no folder does:
a folder with all that is in it is taken as one, beside its neighbours. And what is in a list imports only what stands above it
there.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).with_name("file_order.toml")

# The module that is the crate itself.
ROOT = ""


@dataclass(frozen=True)
class Import:
    """One file imports another: modules by their paths (`reading::step`), and where it says so."""

    user: str
    used: str
    where: str


@dataclass
class Module:
    """One file."""

    name: str
    path: Path
    code: str
    # What it defines, and what its imports call how: a name, and the path that it stands for.
    defines: set[str] = field(default_factory=set)
    names: dict[str, list[str]] = field(default_factory=dict)
    globs: list[list[str]] = field(default_factory=list)
    tests: set[str] = field(default_factory=set)


def blank(text: str) -> str:
    """As many lines as `text` has, and as many characters, with nothing in them."""
    return re.sub(r"[^\n]", " ", text)


_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]{1,9}?|[^'\\\n])'""", re.DOTALL
)
_TESTS = re.compile(r"#\[cfg\((?=[^\]]*\btest)(?![^\]]*\bnot\()[^\]]*\)\]")
_DEFINES = re.compile(r"\b(?:struct|enum|union|trait|type|const|static|fn|macro_rules!)\s+(\w+)")
_USE = re.compile(r"\b(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_VISIBILITY = re.compile(r"\bpub\s*\(\s*in\s+[^)]*\)")
_PATH = re.compile(r"(?<![\w:])\w+(?:\s*::\s*\w+)+")


def without_tests(text: str) -> tuple[str, set[str]]:
    """The code without comments, texts and what is compiled for tests alone; and the modules that are declared so."""
    code = _NO_CODE.sub(lambda found: blank(found[0]), text)
    tests: set[str] = set()
    while found := _TESTS.search(code):
        end = _end_of_item(code, found.end())
        item = text[found.end() : end]
        if declared := re.search(r"\bmod\s+(\w+)\s*;", item):
            elsewhere = re.search(r'path\s*=\s*"(\w+)\.rs"', item)
            tests.add(f"super::{elsewhere[1]}" if elsewhere else declared[1])
        code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
    return code, tests


def _end_of_item(code: str, start: int) -> int:
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "{([":
            depth += 1
        elif code[at] in "})]":
            depth -= 1
            if depth < 0 or (depth == 0 and code[at] == "}"):
                return at + (depth == 0)
        elif depth == 0 and code[at] in ";,":
            return at + 1
    return len(code)


def paths_of_use(tree: str) -> Iterator[tuple[list[str], str]]:
    """The paths in a `use`, each with the name by which it is known: `a::{b, c as d}` is `a::b` as b, `a::c` as d."""
    tree = tree.strip()
    if "{" not in tree:
        path, _, name = (part.strip() for part in re.sub(r"\s+as\s+", "\0", tree).partition("\0"))
        parts = re.split(r"\s*::\s*", path)
        if parts[-1] == "self":
            parts = parts[:-1]
        yield parts, name or parts[-1]
        return
    start = tree.index("{")
    depth, begin = 0, start + 1
    for at in range(start, len(tree)):
        depth += (tree[at] == "{") - (tree[at] == "}")
        if (tree[at] == "," and depth == 1) or depth == 0:
            if part := tree[begin:at].strip():
                yield from paths_of_use(tree[:start] + part)
            begin = at + 1
        if depth == 0:
            return


class Crate:
    """The files of one crate, and which imports which."""

    def __init__(self, source: Path, shown_from: Path) -> None:
        self._source, self._shown_from = source, shown_from
        self.modules: dict[str, Module] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = list(path.relative_to(source).with_suffix("").parts)
            if parts in (["lib"], ["main"]):
                parts = []
            elif parts[-1] == "mod":
                parts = parts[:-1]
            name = "::".join(parts)
            code, tests = without_tests(path.read_text(encoding="utf-8"))
            self.modules[name] = Module(name, path, code, tests=tests)
        self._drop_tests()
        for module in self.modules.values():
            module.defines = set(_DEFINES.findall(module.code))
            for use in _USE.finditer(module.code):
                for parts, known_as in paths_of_use(use[1]):
                    if parts[-1] == "*":
                        module.globs.append(parts[:-1])
                    else:
                        module.names[known_as] = parts
        found = (self._imports_of(module) for module in self.modules.values())
        self.imports = sorted(
            {i for imports in found for i in imports}, key=lambda i: (i.user, i.used, i.where)
        )

    def _drop_tests(self) -> None:
        tests = []
        for module in self.modules.values():
            for name in module.tests:
                beside = name.startswith("super::")
                folder = module.name.rpartition("::")[0] if beside else module.name
                tests.append(child(folder, name.removeprefix("super::")))
        for name in list(self.modules):
            if any(name == test or name.startswith(f"{test}::") for test in tests):
                del self.modules[name]

    def _imports_of(self, module: Module) -> Iterator[Import]:
        uses = [(use.span(), use) for use in _USE.finditer(module.code)]
        for (start, _), use in uses:
            is_public = use[0].startswith("pub")
            for parts, _ in paths_of_use(use[1]):
                used = self._home_of(module.name, [part for part in parts if part != "*"])
                if used is None or (is_public and is_below(used, module.name)):
                    continue
                yield from self._import(module, used, start)
        code = _USE.sub(lambda found: blank(found[0]), module.code)
        code = _VISIBILITY.sub(lambda found: blank(found[0]), code)
        for path in _PATH.finditer(code):
            parts = re.split(r"\s*::\s*", path[0])
            first = parts[0]
            # What an import has brought in was counted there.
            if first in ("crate", "super", "self") or child(module.name, first) in self.modules:
                yield from self._import(module, self._home_of(module.name, parts), path.start())

    def _import(self, module: Module, used: str | None, at: int) -> Iterator[Import]:
        if used is not None and used != module.name:
            line = module.code.count("\n", 0, at) + 1
            where = module.path.relative_to(self._shown_from)
            yield Import(module.name, used, f"{where}:{line}")

    def _home_of(self, user: str, parts: list[str], seen: tuple[tuple[str, str], ...] = ()) -> str | None:
        """The file to which a path leads that `user` names; none if it leads out of the crate."""
        at, rest = user, list(parts)
        if rest and rest[0] == "crate":
            at, rest = ROOT, rest[1:]
        elif rest and rest[0] in ("super", "self"):
            while rest and rest[0] in ("super", "self"):
                at = at.rpartition("::")[0] if rest.pop(0) == "super" else at
        elif not rest or child(user, rest[0]) not in self.modules:
            return None
        while rest and child(at, rest[0]) in self.modules:
            at = child(at, rest.pop(0))
        if not rest or rest[0] in self.modules[at].defines:
            return at
        name, module = rest[0], self.modules[at]
        if (at, name) in seen:
            return at
        seen = (*seen, (at, name))
        if name in module.names:
            return self._home_of(at, module.names[name], seen)
        for glob in module.globs:
            home = self._home_of(at, [*glob, name], seen)
            if home is not None and name in self.modules[home].defines:
                return home
        return at


def child(module: str, name: str) -> str:
    """The path of a module in another one."""
    return f"{module}::{name}" if module else name


def is_below(module: str, folder: str) -> bool:
    """Whether a module stands in another one's folder."""
    return module != folder and (not folder or module.startswith(f"{folder}::"))


def apart(user: str, used: str) -> tuple[str, str, str] | None:
    """The folder in which both stand, and the names there under which they do; none if one stands in the other."""
    left, right = user.split("::"), used.split("::")
    common = 0
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    if not user or not used or common == min(len(left), len(right)):
        return None
    return "::".join(left[:common]), left[common], right[common]


def circle_in(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle, or nothing."""
    done: set[str] = set()

    def walk(at: str, path: list[str]) -> list[str]:
        for other in sorted(edges.get(at, ())):
            if other in path:
                return path[path.index(other) :]
            if other not in done and (found := walk(other, [*path, other])):
                return found
        done.add(at)
        return []

    for start in sorted(edges):
        if start not in done and (found := walk(start, [start])):
            return found
    return []


def _circle(crate: str, kind: str, edges: dict[str, dict[str, Import]]) -> list[str]:
    circle = circle_in(edges)
    if not circle:
        return []
    steps = [edges[a][b] for a, b in zip(circle, [*circle[1:], circle[0]], strict=True)]
    told = ", ".join(f"{i.where} imports {i.used or 'the crate'}" for i in steps)
    return [f"{crate}: {kind} import each other in a circle: {told}"]


def violations(crate: str, source: Path, shown_from: Path, order: Mapping[str, list[str]]) -> list[str]:
    """What breaks the rules in one crate, one sentence for each. `order` has the lists of its folders, the crate's own
    under its name: names on one line stand beside each other and do not import each other.
    """
    read = Crate(source, shown_from)
    files: dict[str, dict[str, Import]] = {}
    folders: dict[str, dict[str, dict[str, Import]]] = {}
    for imported in read.imports:
        files.setdefault(imported.user, {}).setdefault(imported.used, imported)
        if (standing := apart(imported.user, imported.used)) is not None:
            folder, user, used = standing
            folders.setdefault(folder, {}).setdefault(user, {}).setdefault(used, imported)
    found = _circle(crate, "files", files)
    for folder, edges in sorted(folders.items()):
        found += (
            _circle(crate, f"folders of {folder.replace('::', '/') or crate}", edges) if not found else []
        )
    for name, lines in order.items():
        folder = "::".join(name.split("/")[1:])
        found += _against(name, lines, _names_in(folder, read.modules), folders.get(folder, {}))
    return found


def _names_in(folder: str, modules: Iterable[str]) -> set[str]:
    inside = (module for module in modules if module and is_below(module, folder))
    return {module.removeprefix(f"{folder}::" if folder else "").split("::")[0] for module in inside}


def _against(name: str, lines: list[str], there: set[str], edges: dict[str, dict[str, Import]]) -> list[str]:
    place = {entry: number for number, line in enumerate(lines) for entry in line.split()}
    found = [f"{name}: {entry} has no place in {TABLE.name}" for entry in sorted(there - place.keys())]
    found += [
        f"{name}: {TABLE.name} names {entry}, which is not there" for entry in sorted(place.keys() - there)
    ]
    for user, imports in sorted(edges.items()):
        for used, imported in sorted(imports.items()):
            if user in place and used in place and place[used] >= place[user]:
                where = "beside" if place[used] == place[user] else "below"
                found.append(f"{imported.where} imports {imported.used}, but {user} stands {where} {used}")
    return found


def orders(table: Path = TABLE) -> dict[str, dict[str, list[str]]]:
    """For each crate, the lists of its folders."""
    lists: dict[str, list[str]] = tomllib.loads(table.read_text(encoding="utf-8"))
    by_crate: dict[str, dict[str, list[str]]] = {}
    for name, lines in lists.items():
        by_crate.setdefault(name.split("/")[0], {})[name] = lines
    return by_crate


def all_violations(root: Path, crates: Collection[str]) -> list[str]:
    """What breaks the rules in those of these crates that have a list, in the repository at `root`."""
    known = orders()
    found = [f"{TABLE.name} names {crate}, which is no crate" for crate in sorted(known.keys() - set(crates))]
    for crate, order in known.items():
        if crate in crates:
            found += violations(crate, root / "crates" / crate / "src", root, order)
    return found
