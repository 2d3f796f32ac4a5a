# SPDX-License-Identifier: Apache-2.0
"""One of the three readers: takes its field of each step, and checks it.

python reader.py HOW NUMBER FIELDS

With `contracts` it says which field it needs, with `everything` it does not. `by-hand` the simulation has a stream for it.
"""

from __future__ import annotations

import sys

import forebay


def main(how: str, number: int, fields: int) -> None:
    """Reads until the simulation ends; prints how many steps there were."""
    mine = f"f{min(number, fields - 1)}"
    stream = f"for-{number}" if how == "by-hand" else "all"
    needed = [mine] if how == "contracts" else None
    steps = 0
    with forebay.Consumer(stream, fields=needed, name=f"reader{number}", start="run", timeout=120) as reader:
        for step in reader:
            for block in step[mine].blocks():
                assert block.data[0] == block.data[-1] == float(mine[1:])
            steps += 1
    print(steps)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
