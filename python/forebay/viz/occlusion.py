# SPDX-License-Identifier: Apache-2.0
"""How much light comes to each particle between the others around it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._errors import Invalid

Array = NDArray[Any]

# Shares of all directions are added up as whole numbers: in any order the sum is the same.
_WHOLE = 1 << 24
# So many cells at most in each dimension: the number of a cell has 64 bits.
_CELLS = 2_000_000
# More pairs than that take longer than the other workers wait.
_MOST_PAIRS = 1 << 28
# So many pairs are looked at together.
_PAIRS = 1 << 21


def light_of(places: Array, radius: float, reach: float) -> Array:
    """How much light comes to each sphere of so many places, (n, 3): (n,) in float32, from 0 to 1. Copies of places and cells are made.

    Of all directions a sphere at distance d takes the share (1 - sqrt(1 - (radius / d)^2)) / 2. The shares of all that are no farther
    away than `reach` are added up in each of the eight octants around a sphere. What is then open of an octant, if they stand there
    at random, is e to the power of minus that part of it that they take; the light is the square root of the mean.
    """
    taken = _taken(places.astype("f8"), radius, reach)
    return np.asarray(np.sqrt(np.exp(-8 * taken / _WHOLE).mean(axis=1)), "f4")


def _taken(places: Array, radius: float, reach: float) -> Array:
    """The shares that the others take of each one's directions, in each octant, (n, 8)."""
    found = np.zeros((len(places), 8), "i8")
    if not len(places):
        return found
    # Cells as long as the reach: whoever is near enough is in one's own cell, or in one of those around it.
    low, high = places.min(axis=0), places.max(axis=0)
    if ((high - low) / reach).max() > _CELLS:
        raise Invalid(
            f"spheres: a reach of {reach:g} is too small for a domain from {low} to {high}: it is cut into cells as long as that"
        )
    extent = ((high - low) / reach).astype("i8") + 3
    cells = ((places - low) / reach).astype("i8") + 1
    numbers = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    order = np.argsort(numbers, kind="stable")
    sorted_numbers, sorted_places = numbers[order], places[order]
    pairs = sum(int(counts.sum()) for _, counts in _beside(sorted_numbers, extent))
    if pairs > _MOST_PAIRS:
        raise Invalid(
            f"spheres: within a reach of {reach:g} around {len(places)} particles there are some {pairs:.1e} others: take a smaller one"
        )
    for begins, counts in _beside(sorted_numbers, extent):
        for some in _portions(counts):
            who = np.repeat(np.arange(some.start, some.stop), counts[some])
            ends = np.cumsum(counts[some])
            within = np.arange(len(who)) - np.repeat(ends - counts[some], counts[some])
            whom = np.repeat(begins[some], counts[some]) + within
            apart = sorted_places[whom] - sorted_places[who]
            away = np.linalg.norm(apart, axis=1)
            near = (away <= reach) & (who != whom)
            sine = np.minimum(radius / np.maximum(away[near], radius), 1)
            shares = np.rint((1 - np.sqrt(1 - sine**2)) / 2 * _WHOLE).astype("i8")
            octants = (apart[near] > 0) @ np.array([1, 2, 4])
            np.add.at(found, (order[who[near]], octants), shares)
    return found


def _beside(numbers: Array, extent: Array) -> Iterator[tuple[Array, Array]]:
    """For a cell's own place and each around it: of each particle where those begin that are in that cell, and how many they are."""
    for x, y, z in itertools.product((-1, 0, 1), repeat=3):
        wanted = numbers + (x * extent[1] + y) * extent[2] + z
        begins = np.searchsorted(numbers, wanted, "left")
        yield begins, np.searchsorted(numbers, wanted, "right") - begins


def _portions(counts: Array) -> list[slice]:
    """The particles in portions that have not many more pairs than are looked at together."""
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(_PAIRS, int(ends[-1]) if len(ends) else 0, _PAIRS), "left") + 1
    edges = [0, *np.unique(cuts).tolist(), len(counts)]
    return [slice(begin, end) for begin, end in itertools.pairwise(edges) if end > begin]
