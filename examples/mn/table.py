# SPDX-License-Identifier: Apache-2.0
"""M ranks of a simulation, read by N ranks of another code: builds both programs, runs them, prints a table.

python examples/mn/table.py                       4:1, 4:2, 4:4, 16:1 and 3:4, with 131,072 stars a rank
python examples/mn/table.py --stars 1000 3:2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import forebay

HERE = Path(__file__).parent
SCRIPTS = Path(sysconfig.get_path("scripts"))
STEPS = 1_000_000
"""More than are read: the simulation is ended when its reader has gone."""
VISITS = 2
STEPS_OF_A_VISIT = 10


def build(into: Path) -> tuple[Path, Path]:
    """The simulation and the reader."""
    where = [
        f"-I{forebay.get_include()}",
        f"-L{forebay.get_library()}",
        f"-Wl,-rpath,{forebay.get_library()}",
    ]
    simulation, reader = into / "simulation", into / "profile"
    sources = [str(HERE / name) for name in ("simulation.c", "particles.c", "exchange.c")]
    c = [
        "mpicc",
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        *sources,
        *where,
        "-lforebay",
        "-lm",
        "-o",
        str(simulation),
    ]
    cpp = ["mpicxx", "-std=c++17", "-O2", "-Wall", "-Wextra", str(HERE / "profile.cpp"), *where, "-lforebay"]
    for command in (c, [*cpp, "-o", str(reader)]):
        subprocess.run([str(SCRIPTS / command[0]), *command[1:]], check=True)
    return simulation, reader


def mpi(group: forebay.LocalGroup, ranks: int, program: Path, *arguments: object) -> subprocess.Popen[str]:
    """Starts a program on so many ranks, which find the group."""
    command = [str(SCRIPTS / "mpiexec"), "-n", str(ranks), str(program), *map(str, arguments)]
    environment = {**os.environ, "FOREBAY_GROUP": str(group.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def measure(programs: tuple[Path, Path], writers: int, readers: int, stars: int) -> list[dict[str, Any]]:
    """What the reader printed: its visits, and the steps of the last."""
    with forebay.local(servers=2) as group:
        reader = mpi(group, readers, programs[1], VISITS, STEPS_OF_A_VISIT)
        over = programs[0].with_name(f"over-{writers}-{readers}")
        simulation = mpi(group, writers, programs[0], stars, STEPS, over)
        try:
            output = reader.communicate(timeout=300)[0]
            early = simulation.poll() is not None
            over.touch()
            simulation.communicate(timeout=60)
        finally:
            for process in (reader, simulation):
                process.terminate()
                process.communicate(timeout=30)
    if reader.returncode or simulation.returncode or early:
        raise SystemExit(
            f"{writers}:{readers}: reader {reader.returncode}, simulation {simulation.returncode}"
        )
    return [json.loads(line) for line in output.splitlines()]


def check(told: list[dict[str, Any]], writers: int, stars: int) -> None:
    """No star is lost, none is counted twice, and each lies where its rank says."""
    steps = [line for line in told if "step" in line]
    assert len(steps) == STEPS_OF_A_VISIT, steps
    for step in steps:
        assert step["stars"] == sum(step["profile"]) == writers * stars, step
        assert (step["ranks"], step["outside"]) == (writers, 0), step


def main() -> None:
    """Prints a row for each pair."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="*", default=["4:1", "4:2", "4:4", "16:1", "3:4"], metavar="M:N")
    parser.add_argument("--stars", type=int, default=131_072, help="of each rank at the beginning (131072)")
    options = parser.parse_args()
    print("| simulation : reader | a step | attached in | stars there in | computed in |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        programs = build(Path(place))
        for pair in options.pairs:
            writers, readers = map(int, pair.split(":"))
            told = measure(programs, writers, readers, options.stars)
            check(told, writers, options.stars)
            visits = [line for line in told if "visit" in line]
            last, steps = visits[-1], visits[-1]["visit"]
            print(
                f"| {pair} | {last['bytes'] / steps / 1e6:.1f} MB | {1e3 * last['attached_s']:.0f} ms "
                f"| {1e3 * last['taking_s'] / steps:.2f} ms | {1e3 * last['computing_s'] / steps:.0f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
