"""Checks which crate depends on which, against the list in the design, and which file inside a crate imports which.

A crate may use those above it in the list, never those below or beside it. Bindings use the client alone,
so that every language gets the same; only their tests may use the server, to have something to talk to. The
lowest crate does no input or output. The order inside crates stands in `file_order.toml`, its rules in `file_order.py`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import file_order

PREFIX = "forebay-"

# Lowest first; crates on one line stand beside each other.
LAYERS = (
    ("core",),
    ("query",),
    ("wire",),
    ("store",),
    ("transport",),
    ("comm",),
    ("cluster",),
    ("client",),
    ("server",),
    ("cli", "capi", "python"),
)
LAYER = {crate: number for number, crates in enumerate(LAYERS) for crate in crates}

# Of our own crates, these use only the ones named.
ONLY = {"capi": {"client"}, "python": {"client"}}

# These are sans-IO: sockets, clocks and threads are their callers' business.
INPUT_AND_OUTPUT = {"async-std", "libc", "mio", "nix", "polling", "rustix", "smol", "socket2", "tokio"}
FORBIDDEN = {"core": INPUT_AND_OUTPUT, "query": INPUT_AND_OUTPUT}


def violations(metadata: Mapping[str, Any]) -> list[str]:
    """What breaks the rules in the output of `cargo metadata --no-deps`, one sentence for each."""
    found = []
    for package in metadata["packages"]:
        crate = package["name"].removeprefix(PREFIX)
        if crate not in LAYER:
            found.append(f"{package['name']} has no place in the list of scripts/check_crate_order.py")
            continue
        for dependency in package["dependencies"]:
            name = dependency["name"]
            if name in FORBIDDEN.get(crate, ()):
                found.append(f"{crate} depends on {name}, but does no input or output")
            tests_need_it = dependency.get("kind") == "dev" and name == PREFIX + "server"
            if name.startswith(PREFIX) and name != package["name"] and not tests_need_it:
                found += _order(crate, name.removeprefix(PREFIX))
    return sorted(set(found))


def _order(crate: str, used: str) -> list[str]:
    if used not in LAYER:
        return [f"{crate} depends on {used}, which has no place in the list"]
    if LAYER[used] >= LAYER[crate]:
        where = "beside" if LAYER[used] == LAYER[crate] else "above"
        return [f"{crate} depends on {used}, which stands {where} it"]
    if crate in ONLY and used not in ONLY[crate]:
        return [f"{crate} depends on {used}, but a binding uses {' and '.join(sorted(ONLY[crate]))} alone"]
    return []


def workspace_metadata(root: Path) -> dict[str, Any]:
    """What cargo says about the crates of the workspace at `root`."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE)
    metadata: dict[str, Any] = json.loads(done.stdout)
    return metadata


def main() -> int:
    """Prints the violations in this repository and returns the exit status."""
    root = Path(__file__).resolve().parent.parent
    found = violations(workspace_metadata(root)) + file_order.all_violations(root, LAYER)
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
