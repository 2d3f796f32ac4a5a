# SPDX-License-Identifier: Apache-2.0
"""The report for people: a table that fits 80 columns."""

from __future__ import annotations

import math
import os
import platform
import textwrap

from forebay.bench.harness import Record, Report

WIDTH = 80
_CASE = 30
_TITLES = f"{'case':<{_CASE}} {'value':>8} {'unit':<5} {'ratio':>6} {'bar':>8} {'':<6} {'n':>4} {'spread':>6}"


def header(cores: int) -> str:
    """What machine this is, and how busy it was."""
    load = os.getloadavg()[0]
    machine = f"{platform.system()} {platform.release()}, {cores} cores, load {load:.1f} before, "
    return _wrap(
        machine + "GB are 10^9 bytes; medians; ratio: value / reference; spread: (p90 - p10) / median; "
        "each pair measured in turn, warm-up thrown away",
        indent="",
    )


def table(report: Report) -> str:
    """All results of a benchmark, then its notes."""
    lines = ["", f"bench {report.bench}", _TITLES]
    reference: str | None = None
    for record in report.records:
        if record.against and (against := _reference(record)) != reference:
            reference = against
            lines.append(_wrap(f"against {against}:", indent=" "))
        elif not record.against:
            reference = None
        lines.append(_line(record))
        if record.more:
            lines.append(_wrap(", ".join(f"{key} {number(value)}" for key, value in record.more.items())))
        if record.note:
            lines.append(_wrap(record.note))
    lines += [_wrap(note, indent=" ") for note in report.notes]
    return "\n".join(lines)


def number(value: float) -> str:
    """A number with about three digits that mean something."""
    size = abs(value)
    if not math.isfinite(value):
        return "-"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def _reference(record: Record) -> str:
    return f"{record.against}, {number(record.against_value or 0)} {record.unit}"


def _line(record: Record) -> str:
    case = record.case
    above = ""
    if len(case) > _CASE:
        above, case = _wrap(case, indent="") + "\n", ""
    ratio = (
        "" if record.ratio is None else f"{record.ratio:.3f}" if record.ratio < 10 else f"{record.ratio:.1f}"
    )
    holds = {None: "", True: "ok", False: "MISSED"}[record.holds]
    spread = "" if record.spread is None else f"{record.spread * 100:.0f} %"
    line = (
        f"{case:<{_CASE}} {number(record.value):>8} {record.unit:<5} {ratio:>6} "
        f"{record.bar or '':>8} {holds:<6} {record.n:>4} {spread:>6}"
    )
    return above + line.rstrip()


def _wrap(text: str, indent: str = "    ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ")
