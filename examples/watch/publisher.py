# SPDX-License-Identifier: Apache-2.0
"""One rank of a simulation: hands over its slab of a field, step by step.

python publisher.py RANK SIZE BYTES STEPS PAUSE

Begins when a line comes. Prints the mean time that a step takes to hand over, in seconds: from its beginning until its end has
returned.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import forebay

ROW = (64, 64)
"""The extents of a slice through the domain."""


def main(rank: int, size: int, nbytes: int, steps: int, pause: float) -> None:
    """Writes so many steps, with a pause between them in which a simulation would compute."""
    slices = nbytes // (8 * ROW[0] * ROW[1])
    values = np.random.default_rng(rank).random((slices, *ROW))
    seconds = 0.0
    with forebay.Producer("domain", rank=rank, size=size, policy="block", timeout=120) as sim:
        sim.array("U", dtype="f8", shape=(size * slices, *ROW), dims=("z", "y", "x"))
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(steps):
            time.sleep(pause)
            values += 1.0  # the smallest one is above `number` from now on
            began = time.perf_counter()
            with sim.step(number) as step:
                step.put("U", values, offset=(rank * slices, 0, 0))
            seconds += time.perf_counter() - began
    print(seconds / steps)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        raise SystemExit(__doc__)
    main(*map(int, sys.argv[1:5]), float(sys.argv[5]))
