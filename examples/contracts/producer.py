# SPDX-License-Identifier: Apache-2.0
"""One rank of a simulation that offers several fields, of which three readers need one each.

python producer.py HOW RANK SIZE FIELDS BYTES STEPS

HOW is `contracts` or `everything`: one stream with all fields, and what leaves the simulation is what readers ask for. Or
`by-hand`: a stream for each reader, and the simulation knows which of its fields go into which. Prints the mean time that the
puts of a step take, in seconds.
"""

from __future__ import annotations

import contextlib
import sys
import time

import numpy as np

import forebay

READERS = 3


def main(how: str, rank: int, size: int, fields: int, nbytes: int, steps: int) -> None:
    """Writes so many steps."""
    arrays = {f"f{n}": np.full(nbytes // 8, float(n)) for n in range(fields)}
    shape, offset = (size * nbytes // 8,), (rank * nbytes // 8,)
    with contextlib.ExitStack() as stack:

        def stream(name: str, offered: list[str], readers: int) -> forebay.Producer:
            options = {"rank": rank, "size": size, "policy": "block", "wait_for_readers": readers}
            sim = stack.enter_context(forebay.Producer(name, timeout=120, **options))
            for field in offered:
                sim.array(field, dtype="f8", shape=shape)
            return sim

        if how == "by-hand":
            needed = [f"f{min(n, fields - 1)}" for n in range(READERS)]
            streams = [(stream(f"for-{n}", [field], 1), [field]) for n, field in enumerate(needed)]
        else:
            streams = [(stream("all", list(arrays), READERS), list(arrays))]
        seconds = 0.0
        for number in range(steps):
            for sim, offered in streams:
                with sim.step(number) as step:
                    began = time.perf_counter()
                    for field in offered:
                        step.put(field, arrays[field], offset=offset)
                    seconds += time.perf_counter() - began
    print(seconds / steps)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
