"""The rule which crate may depend on which, and that this repository keeps it."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "check_crate_order.py"

_spec = importlib.util.spec_from_file_location("check_crate_order", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
order = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(order)


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
