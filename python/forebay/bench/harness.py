# SPDX-License-Identifier: Apache-2.0
"""Results, the bars that they must pass, and the report that collects them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from forebay.bench.samples import Samples, median, ratio_interval, spread

MIB = 1 << 20


@dataclass(frozen=True)
class Bar:
    """What a result has to reach: its ratio or its value, at least or below a limit."""

    of: Literal["ratio", "value"]
    sense: Literal[">=", "<=", "<"]
    limit: float

    def holds(self, value: float, ratio: float | None) -> bool:
        """Whether a result passes."""
        measured = value if self.of == "value" else ratio
        if measured is None or not math.isfinite(measured):
            return False
        if self.sense == ">=":
            return measured >= self.limit
        return measured <= self.limit if self.sense == "<=" else measured < self.limit

    def __str__(self) -> str:
        return f"{self.sense} {self.limit:g}" + ("x" if self.of == "ratio" else "")


def at_least(limit: float) -> Bar:
    """The ratio is at least `limit`."""
    return Bar("ratio", ">=", limit)


def at_most(limit: float) -> Bar:
    """The ratio is at most `limit`."""
    return Bar("ratio", "<=", limit)


def under(limit: float) -> Bar:
    """The value is under `limit`, in the result's unit."""
    return Bar("value", "<", limit)


def within(limit: float) -> Bar:
    """The value is `limit` or less, in the result's unit."""
    return Bar("value", "<=", limit)


@dataclass(frozen=True)
class Record:
    """One result.  `ratio` is `value / against_value`, or of pairs of them where the benchmark says so.

    `spread` is (p90 - p10) / median of the samples.
    """

    bench: str
    case: str
    value: float
    unit: str
    against: str | None = None
    against_value: float | None = None
    ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    bar: str | None = None
    holds: bool | None = None
    n: int = 1
    spread: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as an object of JSON; numbers that JSON does not know become null."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class Report:
    """Collects the records of one benchmark."""

    bench: str
    bars: bool = True
    progress: bool = True
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Adds a remark below the table."""
        if text not in self.notes:
            self.notes.append(text)

    def measuring(self, what: str) -> None:
        """Says on the terminal what is being measured."""
        if self.progress and sys.stderr.isatty():
            print(f"\r\x1b[K{self.bench}: {what} ...", end="", file=sys.stderr, flush=True)

    def progress_done(self) -> None:
        """Clears the line of `measuring`."""
        if self.progress and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def value(
        self,
        case: str,
        value: float,
        unit: str,
        *,
        against: str | None = None,
        against_value: float | None = None,
        ratio: float | None = None,
        interval: tuple[float, float] | None = None,
        bar: Bar | None = None,
        n: int = 1,
        spread: float | None = None,
        more: Mapping[str, float] | None = None,
        note: str | None = None,
    ) -> None:
        """Adds a result that is one number; `ratio` only where it is not simply that of the two values."""
        if ratio is None and against_value is not None:
            ratio = value / against_value if against_value else math.nan
        bar = bar if self.bars else None
        self.records.append(
            Record(
                bench=self.bench,
                case=case,
                value=value,
                unit=unit,
                against=against,
                against_value=against_value,
                ratio=ratio,
                ratio_interval=interval,
                bar=str(bar) if bar else None,
                holds=bar.holds(value, ratio) if bar else None,
                n=n,
                spread=spread,
                more=dict(more or {}),
                note=note,
            )
        )

    def samples(
        self,
        case: str,
        samples: Samples,
        unit: str,
        *,
        against: str | None = None,
        base: Samples | None = None,
        bar: Bar | None = None,
        more: Mapping[str, float] | None = None,
        note: str | None = None,
    ) -> None:
        """Adds the median of samples that are already in `unit`, against the median of `base`."""
        self.value(
            case,
            median(samples),
            unit,
            against=against,
            against_value=median(base) if base else None,
            interval=ratio_interval(samples, base) if base else None,
            bar=bar,
            n=len(samples),
            spread=spread(samples),
            more=more,
            note=note,
        )

    def rate(
        self,
        case: str,
        size: int,
        seconds: Samples,
        *,
        against: str | None = None,
        base: Samples | None = None,
        bar: Bar | None = None,
        note: str | None = None,
    ) -> None:
        """Adds how fast `size` bytes moved, from the seconds that it took; `base` is seconds too."""
        rates = [size / s / 1e9 for s in seconds]
        base_rates = [size / s / 1e9 for s in base] if base else None
        self.samples(case, rates, "GB/s", against=against, base=base_rates, bar=bar, note=note)

    def micros(
        self,
        case: str,
        seconds: Samples,
        *,
        against: str | None = None,
        base: Samples | None = None,
        bar: Bar | None = None,
        note: str | None = None,
    ) -> None:
        """Adds a duration in microseconds, from seconds."""
        times = [s * 1e6 for s in seconds]
        base_times = [s * 1e6 for s in base] if base else None
        self.samples(case, times, "us", against=against, base=base_times, bar=bar, note=note)

    def growth(self, what: str, by_size: Mapping[int, Samples], bar: Bar) -> None:
        """Adds how many microseconds longer the largest size takes than the smallest, from seconds."""
        if len(by_size) < 2:
            return
        small, large = min(by_size), max(by_size)
        self.value(
            f"{what}, growth",
            (median(by_size[large]) - median(by_size[small])) * 1e6,
            "us",
            bar=bar,
            n=len(by_size[large]),
            note=f"median at {named_size(large)} less median at {named_size(small)}",
        )


def repetitions_of(given: int | None, quick: bool, usual: int, few: int = 3) -> int:
    """How often to measure: as said on the command line, else as usual, else few."""
    return given if given is not None else few if quick else usual


def named_size(size: int) -> str:
    """A size in the largest unit that divides it."""
    for unit, bytes_each in (("MiB", MIB), ("KiB", 1024)):
        if size >= bytes_each and size % bytes_each == 0:
            return f"{size // bytes_each} {unit}"
    return f"{size} B"


def sizes_of(
    given: Sequence[float] | None, quick: bool, usual: Sequence[float], tiny: Sequence[float]
) -> list[int]:
    """Sizes in bytes, from MiB given on the command line or else the usual or the tiny ones."""
    chosen = given if given is not None else tiny if quick else usual
    return [max(64, int(mib * MIB) // 64 * 64) for mib in chosen]
