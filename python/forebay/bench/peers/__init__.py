# SPDX-License-Identifier: Apache-2.0
"""The other ways from a producer to a consumer: two bare ones, and the tools that people use today.

Peers come from PyPI and are not installed with Forebay.  A benchmark measures those that are there; with
`--peer NAME` a missing one is an error.
"""

from __future__ import annotations

import argparse
import importlib.util

from forebay.bench.errors import BenchError
from forebay.bench.rigs import Route

NAMES = ("adios2", "iceoryx2")
"""The peers, by the names of their packages."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --peer."""
    parser.add_argument(
        "--peer",
        action="append",
        choices=(*NAMES, "none"),
        help="measure beside this peer, which must be installed; several times for several "
        "(default: all that are installed)",
    )


def chosen(given: list[str] | None) -> tuple[list[str], list[str]]:
    """The peers to measure, and those that were left out because they are not installed."""
    missing = [name for name in NAMES if importlib.util.find_spec(name) is None]
    if given is None:
        return [name for name in NAMES if name not in missing], missing
    wanted = [name for name in NAMES if name in given and "none" not in given]
    for name in wanted:
        if name in missing:
            raise BenchError(f"--peer {name}: the package is not installed; try: pip install {name}")
    return wanted, []


def routes(name: str) -> list[Route]:
    """The ways to set up a peer that are worth measuring."""
    if name == "adios2":
        from forebay.bench.peers import adios2_sst

        return adios2_sst.routes()
    from forebay.bench.peers import iceoryx2

    return iceoryx2.routes()
