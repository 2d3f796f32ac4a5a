"""The rules which crate may depend on which, and which file on which inside a crate, and that this repository keeps them."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_crate_order as order  # noqa: E402
import file_order as files_of  # noqa: E402


def workspace(**crates: list[str]) -> dict:
    """Metadata of a workspace in which each crate depends on those named; ours have no prefix here."""
    return {
        "packages": [
            {
                "name": f"forebay-{crate}",
                "dependencies": [{"name": f"forebay-{d}" if d in order.LAYER else d} for d in dependencies],
            }
            for crate, dependencies in crates.items()
        ]
    }


def test_what_is_allowed() -> None:
    assert (
        order.violations(workspace(core=["serde"], transport=["core", "store"], cli=["server", "client"]))
        == []
    )


def test_a_dev_dependency_on_itself_is_allowed() -> None:
    assert order.violations(workspace(store=["store"])) == []


@pytest.mark.parametrize("crate, used", [("core", "wire"), ("store", "transport"), ("client", "server")])
def test_upwards(crate: str, used: str) -> None:
    assert order.violations(workspace(**{crate: [used]})) == [
        f"{crate} depends on {used}, which stands above it"
    ]


def test_sideways() -> None:
    assert order.violations(workspace(cli=["capi"])) == ["cli depends on capi, which stands beside it"]


@pytest.mark.parametrize("binding", ["capi", "python"])
@pytest.mark.parametrize("used", ["core", "store", "server"])
def test_a_binding_uses_the_client_alone(binding: str, used: str) -> None:
    assert order.violations(workspace(**{binding: ["client", used]})) == [
        f"{binding} depends on {used}, but a binding uses client alone"
    ]


def test_core_does_no_io() -> None:
    assert order.violations(workspace(core=["tokio"])) == [
        "core depends on tokio, but does no input or output"
    ]


def test_a_crate_without_a_place() -> None:
    assert order.violations(workspace(extra=[])) == [
        "forebay-extra has no place in the list of scripts/check_crate_order.py"
    ]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_this_repository() -> None:
    assert order.violations(order.workspace_metadata(ROOT)) == []


def test_a_bindings_tests_may_start_servers() -> None:
    metadata = workspace(capi=["client", "server"])
    metadata["packages"][0]["dependencies"][1]["kind"] = "dev"
    assert order.violations(metadata) == []


# ---- files inside a crate -----------------------------------------------------------------------------


def crate(root: Path, **files: str) -> Path:
    """The sources of a crate; `a__b` is the file `a/b.rs`."""
    for name, code in files.items():
        path = root / "crates/some/src" / (name.replace("__", "/") + ".rs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return root / "crates/some/src"


def told(root: Path, table: list[str] | None = None, **files: str) -> list[str]:
    """What is wrong with a crate of these files, whose own list this is."""
    orders = {} if table is None else {"some": table}
    return files_of.violations("some", crate(root, **files), root, orders)


def test_a_file_that_imports_back_up(tmp_path: Path) -> None:
    low = "//! The lower one.\n\nuse std::sync::Arc;\nuse crate::high::{Peak, Top as Other};\n"
    assert told(tmp_path, ["low", "high"], lib="mod low;\nmod high;", low=low, high="pub struct Top;") == [
        "crates/some/src/low.rs:4 imports high, but low stands below high"
    ]


def test_a_path_in_the_code_is_an_import(tmp_path: Path) -> None:
    low = "fn work() {\n    crate::high::climb();\n}\n"
    assert told(tmp_path, ["low", "high"], low=low, high="pub fn climb() {}") == [
        "crates/some/src/low.rs:2 imports high, but low stands below high"
    ]


def test_files_beside_each_other(tmp_path: Path) -> None:
    assert told(tmp_path, ["one two"], one="use super::two::Two;", two="pub struct Two;") == [
        "crates/some/src/one.rs:1 imports two, but one stands beside two"
    ]


def test_a_circle_of_three(tmp_path: Path) -> None:
    one, two, three = "use crate::two::Two;", "\nuse crate::three::Three;", "use crate::{\n    one::One,\n};"
    assert told(tmp_path, one=one, two=two, three=three) == [
        "some: files import each other in a circle: crates/some/src/one.rs:1 imports two, "
        "crates/some/src/two.rs:2 imports three, crates/some/src/three.rs:1 imports one"
    ]


def test_a_circle_of_folders_whose_files_are_in_none(tmp_path: Path) -> None:
    files = {"a__x": "use crate::b::y::Y;", "b__y": "pub struct Y;", "b__z": "use crate::a::w::W;"}
    assert told(tmp_path, **files, a__w="pub struct W;", a="mod x;\nmod w;", b="mod y;\nmod z;") == [
        "some: folders of some import each other in a circle: crates/some/src/a/x.rs:1 imports b::y, "
        "crates/some/src/b/z.rs:1 imports a::w"
    ]


def test_a_parent_that_re_exports_its_child_may_be_used_by_it(tmp_path: Path) -> None:
    parent = "mod child;\nmod other;\npub(crate) use child::Child;\npub use other::*;\npub struct Shared;\n"
    child, other = "use super::Shared;\npub struct Child;", "use super::Child;\npub struct Other;"
    assert told(tmp_path, parent=parent, parent__child=child, parent__other=other) == []


def test_a_parent_that_uses_its_child_may_not(tmp_path: Path) -> None:
    parent = "mod child;\nuse child::Child;\npub struct Shared(Child);\n"
    assert told(tmp_path, parent=parent, parent__child="use super::Shared;\npub struct Child;") == [
        "some: files import each other in a circle: crates/some/src/parent.rs:2 imports parent::child, "
        "crates/some/src/parent/child.rs:1 imports parent"
    ]


@pytest.mark.parametrize("exported", ["pub use top::peak::Peak;", "pub use top::*;"])
def test_a_re_export_is_followed_to_where_the_name_is_defined(tmp_path: Path, exported: str) -> None:
    top = "mod peak;\npub use peak::Peak;"
    files = {"lib": f"mod low;\nmod top;\n{exported}", "top": top, "top__peak": "pub struct Peak;"}
    assert told(tmp_path, ["low", "top"], **files, low="use crate::Peak;") == [
        "crates/some/src/low.rs:1 imports top::peak, but low stands below top"
    ]


def test_what_is_compiled_for_tests_alone_does_not_count(tmp_path: Path) -> None:
    low = (
        '#[cfg(test)]\nmod checks;\n// use crate::high::A;\nconst TEXT: &str = "crate::high::B";\n'
        '#[cfg(any(test, feature = "testing"))]\nuse crate::high::C;\n'
        "#[cfg(test)]\nmod tests {\n    use crate::high::D;\n}\n"
        '#[cfg(test)]\n#[path = "low_tests.rs"]\nmod more;\n'
    )
    tests = {"low__checks": "use crate::high::E;", "low_tests": "use crate::high::F;"}
    assert told(tmp_path, ["low", "high"], low=low, high="", **tests) == []
    seen = low + "#[cfg(not(test))]\nuse crate::high::G;\n"
    assert told(tmp_path, ["low", "high"], low=seen, high="", **tests) == [
        "crates/some/src/low.rs:15 imports high, but low stands below high"
    ]


def test_the_table_and_the_files_are_the_same(tmp_path: Path) -> None:
    assert told(tmp_path, ["one", "gone"], one="", new="") == [
        "some: new has no place in file_order.toml",
        "some: file_order.toml names gone, which is not there",
    ]


def test_a_folder_has_its_own_list(tmp_path: Path) -> None:
    source = crate(tmp_path, f__low="use super::high::High;", f__high="pub struct High;")
    assert files_of.violations("some", source, tmp_path, {"some/f": ["low", "high"]}) == [
        "crates/some/src/f/low.rs:1 imports f::high, but low stands below high"
    ]


def test_the_files_of_this_repository() -> None:
    assert files_of.all_violations(ROOT, order.LAYER) == []
    compared = {"core", "wire", "store", "transport", "comm", "client", "server"}
    assert compared <= files_of.orders().keys()
