# SPDX-License-Identifier: Apache-2.0
"""Comparing two programs closer than the machine's noise.

Runs alternate A B B A, so that a drift that is even over four runs cancels out.  Each run counts with the
median of its steps, which a few disturbed steps do not move.  Neighbours form a pair; what counts is the
median of the pairs' ratios, and its 95 % bootstrap interval.  The two runs of A in each four tell in the same
way how far two equal programs seem to differ: the noise that is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from forebay.bench.samples import Samples, median, median_interval, percentile

StepTimes = Samples
_LEAST_ROUNDS = 3


@dataclass
class Pairs:
    """Step times of the runs of A and of B, in the order in which they were paired."""

    a: list[StepTimes] = field(default_factory=list)
    b: list[StepTimes] = field(default_factory=list)

    def logs(self) -> list[float]:
        """For each pair, the logarithm of B's median step over A's."""
        return [math.log(median(b) / median(a)) for a, b in zip(self.a, self.b, strict=True)]

    def ratio(self) -> float:
        """How much longer a step of B takes."""
        return math.exp(median(self.logs()))

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `ratio`."""
        low, high = median_interval(self.logs())
        return math.exp(low), math.exp(high)

    def mean_ratio(self) -> float:
        """The same of the mean step, which counts disturbed steps too."""
        means = [math.log((sum(b) / len(b)) / (sum(a) / len(a))) for a, b in zip(self.a, self.b, strict=True)]
        return math.exp(median(means))

    def quiet_ratio(self) -> float:
        """The same of each run's tenth percentile: of steps that little else has disturbed."""
        quiet = [math.log(percentile(b, 10) / percentile(a, 10)) for a, b in zip(self.a, self.b, strict=True)]
        return math.exp(median(quiet))

    def noise(self) -> float:
        """How far two runs of A in the same four are apart, in the middle: a relative difference."""
        logs = [abs(math.log(median(second) / median(first))) for first, second in _twos(self.a)]
        return math.exp(median(logs)) - 1.0 if logs else math.nan


def _twos(runs: list[StepTimes]) -> list[tuple[StepTimes, StepTimes]]:
    return list(zip(runs[0::2], runs[1::2], strict=True))


def compare(
    a: Callable[[], StepTimes], b: Callable[[], StepTimes], *, rounds: int, close_enough: float = 0.0
) -> Pairs:
    """Runs A B B A up to `rounds` times, and fewer once the interval is narrower than `close_enough`."""
    pairs = Pairs()
    for done in range(1, rounds + 1):
        first_a, first_b, second_b, second_a = a(), b(), b(), a()
        pairs.a += [first_a, second_a]
        pairs.b += [first_b, second_b]
        low, high = pairs.interval()
        if done >= _LEAST_ROUNDS and high - low < close_enough:
            break
    return pairs
