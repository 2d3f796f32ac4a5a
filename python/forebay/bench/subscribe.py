# SPDX-License-Identifier: Apache-2.0
"""bench subscribe: expressions, and what the servers watch for.

submit           submitting a subscription, from a process that has one already
parse            parsing and checking a text, beside numexpr's validate; texts that are refused
max              `max(U)` by reading it: in this process on one core beside numpy.max of the same memory, and by a
                 server on all cores beside as many threads of NumPy
count            `count(sqrt(u**2 + v**2 + w**2) > 3)`, beside NumPy and numexpr on one core
tiles            `count(U > c)` of which statistics decide all but one tile in 512, beside DuckDB in memory
exact            `sum` and `var`: the same bits on 1, 2, 3 and 7 servers, and how fast, beside NumPy
percentile       `percentile(U, 99)` of eight blocks, beside NumPy; the approximate one beside a KLL sketch
event            from the last put to the event, beside a reader that gets all and computes, by us and by SST
put              a put with statistics on the way, beside one without; and the same of ADIOS2's BP5
series           `for` and `until` of 10,000 subscriptions on random series, beside what Prometheus's promtool says
many             processor time for a step that 1,000 subscriptions watch, beside one
slowdown         a simulation on all cores with ten subscriptions that read everything, beside one with a reader that
                 does nothing
"""

from __future__ import annotations

import argparse

from forebay.bench import asked, series, watched
from forebay.bench.harness import Report

_PARTS = {
    "submit": watched.submit,
    "parse": asked.parse,
    "max": asked.maximum,
    "count": asked.compound,
    "tiles": asked.tiles,
    "exact": asked.exact,
    "percentile": asked.percentile,
    "event": watched.event,
    "put": watched.put,
    "series": series.series,
    "many": watched.many,
    "slowdown": watched.slowdown,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--part", choices=sorted(_PARTS), metavar="PART", help=f"only one of {', '.join(_PARTS)}"
    )


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures all parts, or one."""
    for name, part in _PARTS.items():
        if options.part in (None, name):
            report.measuring(name)
            part(options, report)
