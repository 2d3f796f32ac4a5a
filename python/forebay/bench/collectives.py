# SPDX-License-Identifier: Apache-2.0
"""bench collectives: messages and collectives of processes of one host, beside MPICH and Open MPI.

Each is called again and again by all ranks at once; what is told is the time of one call, for messages of one way. The
communicators take turns, and each time is the median of all turns.

c                from C, among 2, 4 and 8 processes; dup makes another communicator of them, and frees it
python           from Python, on NumPy arrays, among 2 processes, beside mpi4py
wait             processor time of a process that waits for a message for 100 ms
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from forebay.bench.communicators import Communicator, communicators, timed
from forebay.bench.harness import Bar, Report, at_most, repetitions_of, under
from forebay.bench.samples import median, ratio_interval, spread

_SIZES = (8, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 23)
_FEW_SIZES = (8, 1 << 16)
_PAIRS = 1 << 16
_PAIR_WHATS = "allgather,alltoall"
_SIZELESS = "barrier,dup"
_LONG = 1 << 14
# MPICH waits without letting others run: where processes share cores each of its calls takes milliseconds, a long one seconds.
_MPICH_SHARING_CORES = 1 << 10

_Times = dict[str, dict[tuple[str, int], list[float]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--part", choices=("c", "python", "wait"), metavar="PART", help="only one of c, python, wait"
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="only among so many processes, from C")


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all parts, or one."""
    repetitions = repetitions_of(options.repetitions, options.quick, 7, few=2)
    seconds = 0.005 if options.quick else 0.1
    with communicators() as known:
        if len(known) == 1:
            report.note("there is no MPI to compare with: `make peers` installs MPICH and Open MPI")
        if options.part in (None, "c"):
            some = (2,) if options.quick else (2, 4, 8)
            for ranks in some if options.ranks is None else (options.ranks,):
                sizes = _FEW_SIZES if options.quick else _SIZES
                _from_c(known, report, (ranks, sizes), (repetitions, seconds))
        if options.part in (None, "python"):
            _from_python(known, report, (repetitions, seconds))
        if options.part in (None, "wait"):
            _waiting(known, report)


def _in_turn(
    known: list[Communicator],
    ranks: int,
    work_for: Callable[[Communicator], list[tuple[str, str]]],
    turns: tuple[int, float],
    program: str,
) -> _Times:
    """Seconds of one call, of each turn, by communicator, what and bytes."""
    times: _Times = {one.name: {} for one in known}
    repetitions, seconds = turns
    for _ in range(repetitions):
        for one in known:
            for whats, sizes in work_for(one):
                python = [sys.executable, "-m", "forebay.bench.python_collectives", one.module]
                command = [one.program] if program == "c" else python
                told = timed(one.run(ranks, [*command, whats, sizes, str(seconds)]))
                for key, value in told.items():
                    times[one.name].setdefault(key, []).append(value)
    return times


def _from_c(
    known: list[Communicator],
    report: Report,
    among: tuple[int, tuple[int, ...]],
    turns: tuple[int, float],
) -> None:
    ranks, sizes = among
    report.measuring(f"{ranks} processes")
    whats = "bcast,reduce,allreduce" if ranks > 2 else "sendrecv,bcast,reduce,allreduce"
    shares_cores = ranks > (os.cpu_count() or 1)

    def work_for(one: Communicator) -> list[tuple[str, str]]:
        longest = _MPICH_SHARING_CORES if shares_cores and one.name == "MPICH" else sizes[-1]
        some = ",".join(str(size) for size in sizes if size <= longest)
        return [(whats, some), (_SIZELESS, "8"), (_PAIR_WHATS, str(_PAIRS))]

    times = _in_turn(known, ranks, work_for, turns, "c")
    for what, count in times["Forebay"]:
        pairs = what in _PAIR_WHATS.split(",")
        # Among more processes than cores it is Open MPI that is to be met.
        names = ("MPICH", "Open MPI") if ranks == 2 or pairs else ("Open MPI",)
        if what == "dup":
            _tell(report, f"{ranks} processes, dup and free", (what, count), times, (), under(100.0))
            continue
        if pairs:
            bar = at_most(1.3)
        elif ranks == 2:
            bar = at_most(1.2 if count >= _LONG else 3.0)
        else:
            bar = at_most(1.0 if count >= _LONG else 2.0)
        _tell(report, f"{ranks} processes, {what}", (what, count), times, names, bar)


def _from_python(known: list[Communicator], report: Report, turns: tuple[int, float]) -> None:
    report.measuring("from Python")
    work = [("sendrecv,bcast,allreduce", f"8,{1 << 20}")]
    times = _in_turn(known, 2, lambda _: work, turns, "python")
    for what, count in times["Forebay"]:
        case = f"Python, 2 processes, {what}"
        if count >= 1 << 16:
            _tell(report, case, (what, count), times, ("MPICH", "Open MPI"), at_most(1.3))
            continue
        others = [median(times[one][what, count]) for one in ("MPICH", "Open MPI") if times.get(one)]
        bar = under(min(others) * 1e6 + 3.0) if others else None
        _tell(report, case, (what, count), times, ("MPICH", "Open MPI"), bar)
    report.note("from Python below 64 KiB the bar is the better MPI's time and 3 us")


def _tell(
    report: Report, case: str, key: tuple[str, int], times: _Times, names: tuple[str, ...], bar: Bar | None
) -> None:
    """One row, against the best of these."""
    what, count = key
    ours = [1e6 * seconds for seconds in times["Forebay"][key]]
    others = {
        name: [1e6 * seconds for seconds in found[key]]
        for name, found in times.items()
        if name != "Forebay" and key in found
    }
    best = min(
        (name for name in names if name in others), key=lambda name: median(others[name]), default=None
    )
    sized = case if what in _SIZELESS.split(",") else f"{case} {_size(count)}"
    report.value(
        sized,
        median(ours),
        "us",
        against=best,
        against_value=median(others[best]) if best else None,
        interval=ratio_interval(ours, others[best]) if best else None,
        bar=bar if best or not names else None,
        n=len(ours),
        spread=spread(ours),
        more={f"{name} us": median(samples) for name, samples in others.items()},
    )


def _size(count: int) -> str:
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_:
            return f"{count >> (20 if unit == 'MiB' else 10)} {unit}"
    return f"{count} B"


def _waiting(known: list[Communicator], report: Report) -> None:
    report.measuring("a process that waits")
    for one in known:
        command = [sys.executable, "-m", "forebay.bench.python_collectives", one.module, "wait", "8", "1"]
        ((_, share),) = timed(one.run(2, command)).items()
        bar = under(2.0) if one.name == "Forebay" else None
        report.value(f"a process that waits 100 ms, {one.name}", 100 * share, "%", bar=bar)
    report.note("of one core, after the first millisecond; the highest of five waits")
