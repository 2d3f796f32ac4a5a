# SPDX-License-Identifier: Apache-2.0
"""The three experiments of Jin et al., "A scalable messaging system for accelerating discovery from large scale scientific simulations"
(HiPC 2012), and its comparison with fetching and evaluating oneself, at the size of one machine.

1. weak scaling: `covered(U[region])`, and reading the region after the notice, with more and more publishers, subscribers and servers;
2. the number of events: `min(U[region]) > 0`, which holds at each step, with the same numbers;
3. the amount of data: the same of larger and larger regions; beside a reader that gets the region and computes, and beside a subscription
   that never fires.

python examples/watch/table.py
python examples/watch/table.py --mib 1 --steps 5 --scales 1 --regions 2 --plot watch.png
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import forebay

HERE = Path(__file__).parent
MIB = 1 << 20
PUBLISHERS, SUBSCRIBERS = 4, 2
"""For each server."""
PAUSE = 0.1
"""Seconds for which the simulation computes between two steps."""
PARTS = ("managing", "waiting", "computing", "aggregating")

Row = dict[str, float]


def start(group: forebay.LocalGroup, program: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that finds the group."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    environment = {**os.environ, "FOREBAY_GROUP": str(group.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    if not (told := process.stdout.readline()):
        raise SystemExit(f"{process.args} has ended")
    return told


def begin(process: subprocess.Popen[str]) -> None:
    """Has it begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def run(how: str, servers: int, regions: list[tuple[int, int]], publishers: int, mib: int, steps: int) -> Row:
    """What it takes, in the mean over processes and steps: seconds."""
    with forebay.local(servers=servers) as group:
        pause = PAUSE * publishers / PUBLISHERS  # more processes share the same cores
        arguments = (publishers, mib * MIB, steps, pause)
        writers = [start(group, "publisher.py", rank, *arguments) for rank in range(publishers)]
        readers: list[subprocess.Popen[str]] = []
        try:
            for writer in writers:
                line(writer)
            readers += [start(group, "subscriber.py", how, *region, steps) for region in regions]
            for reader in readers:
                line(reader)
            for writer in writers:
                begin(writer)
            publishing = statistics.mean(float(line(writer)) for writer in writers)
            told = [json.loads(line(reader)) for reader in readers]
            row = {key: statistics.mean(one[key] for one in told) for key in told[0]}
            if how != "fetches":
                row |= responses(forebay.Admin(group=group.path), how, len(regions), steps)
        finally:
            for process in (*readers, *writers):
                process.kill()
                process.wait()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.close()
                process.stdout.close()
    return {"publishing": publishing, **row}


def responses(admin: forebay.Admin, how: str, count: int, steps: int) -> Row:
    """How long the servers take from when a step is closed until its events are told, and with what."""
    for _ in range(600):
        watched = [one for one in admin.subscriptions() if one["name"].startswith(how)]
        if len(watched) == count and all(one["evaluated"] == steps for one in watched):
            parts = {
                part: statistics.mean(one["response"][part] / steps for one in watched) for part in PARTS
            }
            return {**parts, "responding": sum(parts.values())}
        time.sleep(0.1)
    raise SystemExit("not all steps were evaluated")


def slabs(slices: int, count: int) -> list[tuple[int, int]]:
    """The domain cut into so many regions along its first dimension."""
    return [(number * slices // count, (number + 1) * slices // count) for number in range(count)]


def ms(seconds: float) -> str:
    """Milliseconds, or microseconds."""
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Prints a table."""
    print(f"\n{title}\n")
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |", flush=True)


def scaling(options: argparse.Namespace, how: str) -> dict[int, Row]:
    """With more and more of all."""
    found = {}
    for servers in options.scales:
        slices = PUBLISHERS * servers * options.mib * MIB // (8 * 64 * 64)
        regions = slabs(slices, SUBSCRIBERS * servers)
        found[servers] = run(how, servers, regions, PUBLISHERS * servers, options.mib, options.steps)
    return found


def weak_scaling(options: argparse.Namespace) -> dict[int, Row]:
    """The first experiment."""
    found = scaling(options, "covered")
    rows = []
    for servers, row in found.items():
        mib = options.mib * PUBLISHERS / SUBSCRIBERS
        rows.append(
            [
                f"{PUBLISHERS * servers} / {servers} / {SUBSCRIBERS * servers}",
                *(ms(row[part]) for part in ("submitting", "publishing", "responding", "reading")),
                f"{mib * MIB / row['reading'] / 1e9:.1f} GB/s",
            ]
        )
    head = [
        "publishers / servers / subscribers",
        "submitting",
        "publishing a step",
        "responding",
        "reading",
        "each reads with",
    ]
    table("Weak scaling", head, rows)
    return found


def events(options: argparse.Namespace) -> dict[int, Row]:
    """The second one."""
    found = scaling(options, "fires")
    rows = [
        [
            f"{PUBLISHERS * servers} / {servers} / {SUBSCRIBERS * servers}",
            *(ms(row[part]) for part in (*PARTS, "responding")),
            f"{SUBSCRIBERS * servers / row['responding']:.0f}",
        ]
        for servers, row in found.items()
    ]
    table("Events", ["publishers / servers / subscribers", *PARTS, "responding", "events a second"], rows)
    return found


def amounts(options: argparse.Namespace) -> dict[float, dict[str, Row]]:
    """The third one, and the comparison."""
    servers = max(options.scales)
    publishers = PUBLISHERS * servers
    slices = publishers * options.mib * MIB // (8 * 64 * 64)
    found: dict[float, dict[str, Row]] = {}
    for share in [2.0**-power for power in reversed(range(options.regions))]:
        # Each subscriber watches another part, together they watch this share.
        regions = [
            (first, first + max(1, int((last - first) * share))) for first, last in slabs(slices, SUBSCRIBERS)
        ]
        found[share] = {
            how: run(how, servers, regions, publishers, options.mib, options.steps)
            for how in ("fires", "silent", "fetches")
        }
    rows = []
    for share, ways in found.items():
        fires, silent, fetches = ways["fires"], ways["silent"], ways["fetches"]
        by_hand, ours = fetches["reading"] + fetches["computing"], fires["responding"] + fires["reading"]
        rows.append(
            [
                f"{share * publishers * options.mib:.0f} MiB",
                *(ms(time) for time in (fires["responding"], fires["reading"], ours, by_hand)),
                f"{by_hand / ours:.1f}",
                ms(silent["responding"]),
                f"{by_hand / silent['responding']:.1f}",
            ]
        )
    head = [
        "watched",
        "responding",
        "reading",
        "together",
        "fetched and computed",
        "times faster when it fires",
    ]
    table("Amount of data", [*head, "responding when it does not", "times faster then"], rows)
    return found


def plot(
    path: str, weak: dict[int, Row], many: dict[int, Row], large: dict[float, dict[str, Row]], mib: int
) -> None:
    """The three experiments as pictures."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (first, second, third) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    names = [f"{PUBLISHERS * n}\n{n}\n{SUBSCRIBERS * n}" for n in weak]
    for key, label in (("publishing", "publishing"), ("responding", "responding"), ("reading", "reading")):
        first.plot(names, [row[key] * 1e3 for row in weak.values()], marker="o", label=label)
    first.set(title="weak scaling: covered(region)", xlabel="publishers, servers, subscribers", ylabel="ms")
    bottom = [0.0] * len(many)
    for part in PARTS:
        heights = [row[part] * 1e3 for row in many.values()]
        second.bar(names, heights, bottom=bottom, label=part)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    second.set(title="events: min(region) > 0", xlabel="publishers, servers, subscribers", ylabel="ms")
    publishers = PUBLISHERS * max(weak)
    labels = [f"{share * publishers * mib:.0f}" for share in large]
    places = range(len(labels))
    for offset, ways, stack in (
        (-0.27, "fetches", ("reading", "computing")),
        (0.0, "fires", ("responding", "reading")),
        (0.27, "silent", ("responding",)),
    ):
        low = [0.0] * len(labels)
        for part in stack:
            heights = [found[ways][part] * 1e3 for found in large.values()]
            label = {"fetches": "by hand", "fires": "fires", "silent": "does not fire"}[ways]
            third.bar([x + offset for x in places], heights, 0.25, bottom=low, label=f"{label}: {part}")
            low = [a + b for a, b in zip(low, heights, strict=True)]
    third.set_xticks(list(places), labels)
    third.set(title="amount of data", xlabel="MiB that are watched", ylabel="ms")
    for axes in (first, second, third):
        axes.legend(fontsize="small")
        axes.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=16, help="what each publisher puts at a step (16)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--scales", type=int, nargs="+", default=[1, 2, 4], help="numbers of servers (1 2 4)")
    parser.add_argument(
        "--regions", type=int, default=4, help="how many sizes of regions, each twice the one before (4)"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw them, too")
    options = parser.parse_args()
    found = weak_scaling(options), events(options), amounts(options)
    if options.plot:
        plot(options.plot, *found, options.mib)


if __name__ == "__main__":
    main()
