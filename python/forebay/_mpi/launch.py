# SPDX-License-Identifier: Apache-2.0
"""`python -m forebay.MPI -n 4 program.py`: starts a program several times on this host, as the ranks of COMM_WORLD."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from forebay._errors import Error

# As many ranks as a communicator may have.
_RANKS_MAX = 4096
# How often it is looked whether a rank has ended.
_LOOK = 0.02
# How long the others may take when one has failed.
_REST = 5.0


def main() -> int:
    """Starts the ranks, and waits for them. Fails as the first one that does; the others are ended then."""
    parser = argparse.ArgumentParser(prog="python -m forebay.MPI", description=__doc__)
    parser.add_argument("-n", type=int, default=1, metavar="N", help="how many (default: 1)")
    parser.add_argument(
        "--group",
        help="the group through which they meet; without it, and without FOREBAY_GROUP, a server of their own",
    )
    parser.add_argument("-m", action="store_true", dest="module", help="the program is a module")
    parser.add_argument("program", help="a Python program, or - for the shell command that follows")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args()
    if not 1 <= given.n <= _RANKS_MAX:
        parser.error(f"-n {given.n}: 1 to {_RANKS_MAX} are possible")
    if given.program == "-":
        command = given.arguments
    else:
        command = [sys.executable, *(["-m"] if given.module else []), given.program, *given.arguments]
    # Batch systems end jobs so: the ranks and the server end with this process.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_by)
    try:
        with _group(given.group or os.environ.get("FOREBAY_GROUP"), alone=given.n == 1) as group:
            return _run(command, given.n, group)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Error as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _end_by(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _group(group: str | None, *, alone: bool) -> Iterator[str | None]:
    """The group that was given, or one of a single server that ends with this process."""
    if group is not None or alone:
        yield group
        return
    from forebay._local import local

    with local(servers=1, budget_bytes=1 << 24) as own:
        yield own.path


def _run(command: list[str], count: int, group: str | None) -> int:
    name = f"ranks of {uuid.uuid4()}"
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            told = {"FOREBAY_COMM": name, "FOREBAY_RANK": str(rank), "FOREBAY_SIZE": str(count)}
            if group is not None:
                told["FOREBAY_GROUP"] = group
            ranks.append(subprocess.Popen(command, env={**os.environ, **told}))
        return _wait(ranks)
    finally:
        _end(ranks)


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = next((code for code in codes if code), None)
        if failed is not None:
            return failed if failed > 0 else 128 - failed
        if all(code == 0 for code in codes):
            return 0
        time.sleep(_LOOK)


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Ends those that are left: they are told first."""
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(signal.SIGTERM)
    until = time.monotonic() + _REST
    for rank in ranks:
        try:
            rank.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
