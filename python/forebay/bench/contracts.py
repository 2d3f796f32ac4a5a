# SPDX-License-Identifier: Apache-2.0
"""bench contracts: what it costs the simulation to hand over only what somebody needs, and what that saves.

One producer of one rank, and readers in the same process: they wait while the clock runs, and take each step outside it. Each field
has an array of its own, which is written before the puts, as a simulation does. Where contracts are compared the readers of one stream change theirs (`need`), and the
clock runs when the new one has held for two steps: two streams lie in other memory, which makes more of a difference than contracts.

naming all       the puts of a step whose reader names each field, beside one that needs all fields: 1, 3 and 10 fields
one of many      the puts of 5 and 10 fields, of which three readers need one, beside three readers of all fields, and
                 beside a simulation that puts by hand what is needed.  Where the three need different fields no system that
                 stages a field once can win more than a third of the number of fields
a 64th           the put of a field of which a box, a plane or every fourth element in each dimension is needed, beside
                 the put of all of it; and how many bytes are staged for each byte that was asked for
statistics       the put of a field of which statistics alone are needed, and along with the data, beside the bare put
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from forebay.bench import forebay_side
from forebay.bench.harness import MIB, Report, at_least, at_most, named_size, repetitions_of
from forebay.bench.patterns import Array
from forebay.bench.samples import Sample, interleave, now_ns

_NAMED_FROM = 400_000
"""Bytes of a field from which on naming each is to cost nothing."""

_Needs = Mapping[str, Any] | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--part", choices=sorted(_PARTS), metavar="PART", help=f"only one of {', '.join(_PARTS)}"
    )


class Side:
    """A stream with its readers, and arrays of one shape to put under several names."""

    def __init__(
        self,
        group: forebay_side.Group,
        stream: str,
        shape: tuple[int, ...],
        names: Sequence[str],
        needs: Sequence[_Needs],
        stack: ExitStack,
    ) -> None:
        forebay = forebay_side.package()
        whole = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        self.arrays: dict[str, Array] = {name: whole + index for index, name in enumerate(names)}
        self.needs = list(needs)
        self.readers = [
            stack.enter_context(forebay.Consumer(stream, fields=fields, group=group.path, timeout=60))
            for fields in needs
        ]
        options: dict[str, Any] = {"group": group.path, "policy": "block", "timeout": 60}
        self.producer = stack.enter_context(forebay.Producer(stream, **options))
        for name in names:
            self.producer.array(name, dtype="f8", shape=shape)
        self.admin = forebay.Admin(group=group.path)
        self.stream = stream
        self.number = 0

    def puts(self, names: Sequence[str] | None = None) -> float:
        """Seconds that the puts of one step take, of these fields, after all were computed."""
        for array in self.arrays.values():
            array += 1
        arrays = {name: self.arrays[name] for name in names or self.arrays}
        with self.producer.step(self.number) as step:
            began = now_ns()
            for name, array in arrays.items():
                step.put(name, array)
            ended = now_ns()
        for reader in self.readers:
            reader.next().release()
        self.number += 1
        return (ended - began) / 1e9

    def puts_under(self, needs: Sequence[_Needs], names: Sequence[str] | None = None) -> float:
        """The same while the readers need this: ranks have asked, and know."""
        if needs != self.needs:
            for reader, fields in zip(self.readers, needs, strict=True):
                reader.need(fields)
            self.needs = list(needs)
            self.puts(names)
            self.puts(names)
        return self.puts(names)

    def staged_bytes(self) -> int:
        """What the last step staged, in all."""
        self.producer.flush()
        return sum(field["staged_bytes"] or 0 for field in self.admin.contracts(self.stream)["fields"])


def _named(name: str, call: Callable[[], float]) -> Callable[[], Sample]:
    return lambda: {name: call()}


def _naming_all(group: forebay_side.Group, options: argparse.Namespace, report: Report) -> None:
    sizes = (8_000, 40_000) if options.quick else (40_000, 400_000, 4_000_000, 40_000_000)
    repetitions = repetitions_of(options.repetitions, options.quick, 41)
    for count in (1, 3) if options.quick else (1, 3, 10):
        for size in sizes:
            report.measuring(f"{count} fields of {size} bytes")
            names = [f"f{index}" for index in range(count)]
            kinds: Mapping[str, Sequence[_Needs]] = {"all": [None], "named": [dict.fromkeys(names, 1)]}
            with ExitStack() as stack:
                side = Side(group, f"naming {count} {size}", (size // 8,), names, kinds["all"], stack)
                series = interleave(
                    [_named(kind, partial(side.puts_under, needs)) for kind, needs in kinds.items()],
                    repetitions=repetitions,
                    warmup=5,
                )
            report.micros(
                f"naming {count} of {_bytes(size)}",
                series["named"],
                against=f"fields=None, {count} fields of {_bytes(size)}",
                base=series["all"],
                bar=at_most(1.01) if size >= _NAMED_FROM else None,
            )


def _one_of_many(group: forebay_side.Group, options: argparse.Namespace, report: Report) -> None:
    size = 80_000 if options.quick else 4_000_000
    repetitions = repetitions_of(options.repetitions, options.quick, 41)
    for count, bar in ((5, 4.2), (10, 8.2)):
        report.measuring(f"one of {count}")
        names = [f"f{index}" for index in range(count)]
        shape = (size // 8,)
        one: _Needs = {"f0": 1}
        kinds: Mapping[str, tuple[Sequence[_Needs], Sequence[str]]] = {
            "everything": ([None] * 3, names),
            "same": ([one] * 3, names),
            "by hand": ([one] * 3, names[:1]),
            "different": ([{name: 1} for name in names[:3]], names),
        }
        with ExitStack() as stack:
            side = Side(group, f"one of {count}", shape, names, [None] * 3, stack)
            series = interleave(
                [_named(kind, partial(side.puts_under, *how)) for kind, how in kinds.items()],
                repetitions=repetitions,
                warmup=5,
            )
        against = f"three readers of all of {count} fields of {_bytes(size)}"
        rate = {name: [1 / seconds for seconds in samples] for name, samples in series.items()}
        base = rate["everything"]
        report.samples(
            f"three need one of {count}", rate["same"], "/s", against=against, base=base, bar=at_least(bar)
        )
        report.samples(
            f"three need three of {count}",
            rate["different"],
            "/s",
            against=against,
            base=base,
            note=f"a third of {count} is what staging each field once allows",
        )
        report.micros(
            f"one of {count}, automatic",
            series["same"],
            against=f"putting only that one, by hand, of {_bytes(size)}",
            base=series["by hand"],
            bar=at_most(1.02),
        )


def _a_sixty_fourth(group: forebay_side.Group, options: argparse.Namespace, report: Report) -> None:
    edge = 16 if options.quick else 192
    repetitions = repetitions_of(options.repetitions, options.quick, 31)
    quarter, forebay = edge // 4, forebay_side.package()
    parts: Mapping[str, Any] = {
        "a box": np.s_[:quarter, quarter : 2 * quarter, :quarter],
        "planes along z": np.s_[: max(1, edge // 64)],
        "planes along x": np.s_[:, :, : max(1, edge // 64)],
        "every fourth": np.s_[::4, ::4, ::4],
    }
    for name, region in parts.items():
        report.measuring(name)
        with ExitStack() as stack:
            shape = (edge, edge, edge)
            needs = {"U": forebay.every(1, region=region)}
            part = Side(group, f"part {name}", shape, ["U"], [needs], stack)
            whole = Side(group, f"whole {name}", shape, ["U"], [None], stack)
            series = interleave(
                [_named("part", part.puts), _named("whole", whole.puts)], repetitions=repetitions, warmup=5
            )
            asked = part.arrays["U"][region].nbytes
            staged = part.staged_bytes()
        size = 8 * edge**3
        report.micros(
            f"put, {name} of {named_size(size)}",
            series["part"],
            against=f"the put of {named_size(size)} whole",
            base=series["whole"],
            bar=at_most(1 / 8),
        )
        report.value(
            f"staged, {name}",
            staged / MIB,
            "MiB",
            against="what was asked for",
            against_value=asked / MIB,
            bar=at_most(1.1),
        )


def _statistics(group: forebay_side.Group, options: argparse.Namespace, report: Report) -> None:
    size = MIB // 4 if options.quick else 64 * MIB
    repetitions = repetitions_of(options.repetitions, options.quick, 31)
    forebay = forebay_side.package()
    report.measuring("statistics")
    with ExitStack() as stack:
        kinds: Mapping[str, Any] = {"bare": None, "along": True, "alone": "alone"}
        sides = {
            kind: Side(
                group,
                f"statistics {kind}",
                (size // 8,),
                ["U"],
                [{"U": forebay.every(1) if stats is None else forebay.every(1, stats=stats)}],
                stack,
            )
            for kind, stats in kinds.items()
        }
        series = interleave(
            [_named(kind, side.puts) for kind, side in sides.items()], repetitions=repetitions, warmup=5
        )
    for kind in ("along", "alone"):
        report.micros(
            f"statistics {kind}, {named_size(size)}",
            series[kind],
            against=f"the bare put of {named_size(size)}",
            base=series["bare"],
        )


def _bytes(size: int) -> str:
    return f"{size // 1000} kB" if size < 1_000_000 else f"{size // 1_000_000} MB"


_PARTS: Mapping[str, Callable[[forebay_side.Group, argparse.Namespace, Report], None]] = {
    "naming-all": _naming_all,
    "one-of-many": _one_of_many,
    "a-64th": _a_sixty_fourth,
    "statistics": _statistics,
}


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all parts, or one."""
    with forebay_side.local_group(servers=1) as group:
        for name, measure in _PARTS.items():
            if getattr(options, "part", None) in (None, name):
                measure(group, options, report)
