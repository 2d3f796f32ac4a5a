"""What the tutorial's programs print."""

from __future__ import annotations

import numpy as np


def expected() -> str:
    """What every reader prints after its first line."""
    lines = []
    for number in range(5):
        z, y, x = np.indices((4, 5, 6))
        u = 1000.0 * number + 100 * z + 10 * y + x
        lines += [
            f"step {number}, time {0.5 * number:4.1f}",
            f"  sum   {u.sum():10.1f}",
            f"  value {u[2, 4, 1]:10.1f}",
            "  row   " + "".join(f"{value:10.1f}" for value in u[1, 3, 2:5]),
        ]
    return "\n".join(lines) + "\n"
