# SPDX-License-Identifier: Apache-2.0
"""The three-reader experiment of Mommessin et al., "Automatic data filtering for in situ workflows" (CLUSTER 2017).

A simulation offers 1, 5 or 10 fields, and three readers need one each. What the puts of a step cost the simulation: if everything
goes to everybody, if contracts say what leaves it, and if it was changed by hand to hand over what each reader needs.

python examples/contracts/table.py
python examples/contracts/table.py --sizes 40000 --fields 5 --ranks 1 --steps 20
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import forebay

HERE = Path(__file__).parent
WAYS = ("everything", "contracts", "by-hand")
READERS = 3


def start(group: forebay.LocalGroup, program: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that finds the group."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    environment = {**os.environ, "FOREBAY_GROUP": str(group.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def output(process: subprocess.Popen[str]) -> str:
    """What it printed, once it has ended well."""
    text = process.communicate(timeout=300)[0]
    if process.returncode:
        raise SystemExit(f"{process.args} ended with {process.returncode}")
    return text


def put_seconds(how: str, ranks: int, fields: int, size: int, steps: int) -> float:
    """What the puts of a step take, in the mean over ranks and steps."""
    with forebay.local(servers=1) as group:
        readers = [start(group, "reader.py", how, number, fields) for number in range(READERS)]
        writers = [
            start(group, "producer.py", how, rank, ranks, fields, size, steps) for rank in range(ranks)
        ]
        try:
            means = [float(output(writer)) for writer in writers]
            assert [int(output(reader)) for reader in readers] == [steps] * READERS
        finally:
            for process in (*readers, *writers):
                process.kill()
                process.wait()
    return statistics.mean(means)


def main() -> None:
    """Prints a row for each size and number of fields."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[40_000, 400_000, 4_000_000], help="bytes of a field"
    )
    parser.add_argument("--fields", type=int, nargs="+", default=[1, 5, 10])
    parser.add_argument("--ranks", type=int, default=3, help="of the simulation (3)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many runs counts (3)")
    options = parser.parse_args()
    print(
        "| field | offered | everything | contracts | by hand | contracts, against everything | against by hand |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for size in options.sizes:
        for fields in options.fields:
            runs: dict[str, list[float]] = {how: [] for how in WAYS}
            for turn in range(options.rounds):
                for how in WAYS if turn % 2 == 0 else reversed(WAYS):
                    runs[how].append(put_seconds(how, options.ranks, fields, size, options.steps))
            everything, contracts, by_hand = (statistics.median(runs[how]) * 1e6 for how in WAYS)
            print(
                f"| {size / 1000:.0f} kB | {fields} | {everything:.0f} µs | {contracts:.0f} µs | {by_hand:.0f} µs "
                f"| {everything / contracts:.1f} times faster | {contracts / by_hand:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
