# SPDX-License-Identifier: Apache-2.0
"""Repetition in turn, medians, spread, and how sure a ratio is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Samples = list[float]
Sample = Mapping[str, float]
"""What one repetition measured: one or more named values, most often seconds."""

now_ns = time.monotonic_ns
"""CLOCK_MONOTONIC: the same clock in every process of a host."""


def seconds_since(began_ns: int) -> float:
    """Seconds from `began_ns` until now."""
    return (now_ns() - began_ns) / 1e9


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones."""
    return float(np.median(samples))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: a sample that was measured, never one between two."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(samples: Sequence[float]) -> float:
    """The distance from p10 to p90, relative to the median."""
    middle = median(samples)
    return (percentile(samples, 90) - percentile(samples, 10)) / middle if middle else 0.0


def interleave(
    subjects: Sequence[Callable[[], Sample]],
    *,
    repetitions: int,
    warmup: int,
    each: Callable[[int], None] = lambda turn: None,
) -> dict[str, Samples]:
    """Runs all subjects in turn, repetition by repetition, and collects what they measured by name.

    Every other repetition goes through the subjects backwards, so that none always profits from what ran
    before it.  The first `warmup` repetitions are thrown away.
    """
    collected: dict[str, Samples] = {}
    for turn in range(-warmup, repetitions):
        each(turn)
        for subject in subjects if turn % 2 == 0 else reversed(subjects):
            sample = subject()
            if turn >= 0:
                for name, value in sample.items():
                    collected.setdefault(name, []).append(value)
    return collected


def ratio_interval(
    subject: Sequence[float], base: Sequence[float], *, draws: int = 2000
) -> tuple[float, float]:
    """The 95 % bootstrap interval of median(subject) / median(base).

    Where both have as many samples, the n-th of both were taken side by side and are drawn together.
    """
    random = np.random.default_rng(1)
    above, below = np.asarray(subject, dtype=float), np.asarray(base, dtype=float)
    picks = random.integers(0, len(above), (draws, len(above)))
    others = picks if len(above) == len(below) else random.integers(0, len(below), (draws, len(below)))
    ratios = np.median(above[picks], axis=1) / np.median(below[others], axis=1)
    return float(np.percentile(ratios, 2.5)), float(np.percentile(ratios, 97.5))


def median_interval(samples: Sequence[float], *, draws: int = 4000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    random = np.random.default_rng(1)
    values = np.asarray(samples, dtype=float)
    medians = np.median(values[random.integers(0, len(values), (draws, len(values)))], axis=1)
    return float(np.percentile(medians, 2.5)), float(np.percentile(medians, 97.5))
