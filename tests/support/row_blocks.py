"""Steps that are put row by row: a large and a small block for each row of three."""

from __future__ import annotations

from typing import Any

import numpy as np

import forebay
from support.arrays import reference

SHAPE = (60, 50)


def declare_rows(sim: forebay.Producer) -> None:
    """Declares both fields."""
    sim.array("U", dtype="f8", shape=SHAPE)
    sim.array("small", dtype="f8", shape=(6,))


def put_rows(step: Any, number: int, rows: range) -> None:
    """A large and a small block for each row of three."""
    whole = reference(SHAPE, "f8", number)
    for row in rows:
        step.put("U", whole[row * 20 : row * 20 + 20], offset=(row * 20, 0), number=row)
        step.put("small", np.full(2, number + row / 8), offset=(row * 2,), number=row)


def check_rows(found: Any, number: int) -> None:
    """The step is whole, and none was missed before it."""
    assert (found.number, found.missed, found.torn) == (number, 0, False)
    np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", number))
    np.testing.assert_array_equal(found["small"][...], np.repeat([number, number + 1 / 8, number + 2 / 8], 2))
