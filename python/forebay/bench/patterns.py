# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks move: data that tells its step, cheap to write and cheap to check.

Every element is the step's constant, written as fast as memory allows; 64 places, the first and the last
among them, are stamped with where they are and which step it is, so that data of another step, shifted data
and missing data are all seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.bench.errors import WrongData
from forebay.bench.samples import now_ns

Array = npt.NDArray[Any]
_PLACES = 64


class Pattern:
    """The data of one field of `elements` doubles."""

    def __init__(self, elements: int) -> None:
        random = np.random.default_rng(elements)
        drawn = random.integers(0, elements, _PLACES - 2)
        self.elements = elements
        self._places = np.unique(np.concatenate([[0, elements - 1], drawn]))
        self._stamps = -1.0 - self._places

    def fill(self, array: Array, number: int) -> None:
        """Writes the data of a step."""
        flat = array.reshape(-1)
        flat.fill(number + 0.5)
        flat[self._places] = self._stamps - number * 0.25

    @staticmethod
    def step_of(first: float) -> int:
        """The step that an array belongs to, by its first element."""
        return round((-1.0 - first) * 4)

    def check(self, array: Array, number: int) -> None:
        """Checks the stamped places."""
        flat = array.reshape(-1)
        good = len(flat) == self.elements and np.array_equal(flat[self._places], self._stamps - number * 0.25)
        if not good:
            raise WrongData(f"step {number} of {self.elements} elements arrived with other content")

    def check_all(self, array: Array, number: int) -> None:
        """Compares every element."""
        self.check(array, number)
        flat = array.reshape(-1)
        wrong = np.flatnonzero(flat != number + 0.5)
        if not np.array_equal(wrong, self._places):
            raise WrongData(
                f"step {number} arrived with other content than it was sent with, between its stamps"
            )


def stamp(array: Array, number: int) -> None:
    """Writes the time, in nanoseconds of CLOCK_MONOTONIC, into the first 8 bytes."""
    array.reshape(-1)[:1].view(np.int64)[0] = now_ns()


def age_ns(array: Array) -> int:
    """How long ago `stamp` wrote this array.  The value is read before the clock."""
    written = int(array.reshape(-1)[:1].view(np.int64)[0])
    return now_ns() - written
