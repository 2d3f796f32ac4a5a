# SPDX-License-Identifier: Apache-2.0
"""`python -m forebay.bench NAME ...`: runs one benchmark, or all of them.

Exit status: 0 where all bars hold, 1 where one is missed, 2 where something failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import textwrap
import traceback
from types import ModuleType

from forebay.bench import BENCHES
from forebay.bench.errors import BenchError
from forebay.bench.harness import Record, Report
from forebay.bench.stolen import ProcessorTime, stolen_since
from forebay.bench.table import header, table

HELD, MISSED, FAILED = 0, 1, 2
_WIDTH = 79
# A row of a table in a benchmark's description; two blanks after a full stop begin a sentence.
_ROW = re.compile(r"(\S(?:.*?[^\s.:;])?)(\s{2,})(\S.*)")


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"forebay.bench.{name}")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help of 80 columns, however wide the terminal is: descriptions are wrapped already."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def narrow(text: str) -> str:
    """Text wrapped for a terminal of 80 columns: paragraphs, and tables of a word and what it means."""
    told: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        rows: list[tuple[str, int, list[str]]] = []
        for line in block.splitlines():
            row = _ROW.match(line)
            if row:
                rows.append((row[1], len(row[1]) + len(row[2]), [row[3]]))
            elif rows and (line.startswith(" ") or not rows[-1][1]):
                rows[-1][2].append(line.strip())
            else:
                rows.append(("", 0, [line.strip()]))
        for term, indent, words in rows:
            first, rest = term.ljust(indent), " " * indent
            filled = textwrap.fill(" ".join(words), _WIDTH, initial_indent=first, subsequent_indent=rest)
            told += filled.splitlines()
        told.append("")
    return "\n".join(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forebay bench",
        description="Measures Forebay on this machine, beside the machine's limits and beside other tools.",
        epilog="Exit status: 0 where all bars hold, 1 where one is missed, 2 where something failed.",
    )
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print a list of objects, one for each result")
    common.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes and few repetitions, without bars: to try it, not to judge",
    )
    common.add_argument("--no-bars", action="store_true", help="leave the bars out: never exit with status 1")
    common.add_argument("--repetitions", type=int, metavar="N", help="how often to measure each thing")
    everything = names.add_parser("all", parents=[common], help="all of them, each with its defaults")
    everything.set_defaults(benches=BENCHES)
    for name in BENCHES:
        bench = _load(name)
        words = bench.__doc__.strip().splitlines()[0] if bench.__doc__ else ""
        sub = names.add_parser(
            name,
            parents=[common],
            help=words.rstrip(".").split(": ", 1)[-1],
            description=narrow(bench.__doc__ or ""),
            formatter_class=_Help,
        )
        bench.add_arguments(sub)
        sub.set_defaults(benches=(name,))
    return parser


def _options_of(name: str, options: argparse.Namespace) -> argparse.Namespace:
    """The options of one benchmark; `all` gives each its own defaults."""
    if options.name == name:
        return options
    parser = argparse.ArgumentParser()
    _load(name).add_arguments(parser)
    defaults = parser.parse_args([])
    return argparse.Namespace(**{**vars(defaults), **vars(options)})


def _run(name: str, options: argparse.Namespace, report: Report) -> bool:
    """Runs one benchmark.  Returns whether it went through; a failure is told on standard error."""
    before = ProcessorTime.now()
    try:
        _load(name).run(_options_of(name, options), report)
    except BenchError as error:
        print(f"forebay bench {name}: {error}", file=sys.stderr)
        return False
    except Exception:
        traceback.print_exc()
        print(f"forebay bench {name}: failed; see above", file=sys.stderr)
        return False
    finally:
        report.progress_done()
    if remark := stolen_since(before):
        report.note(remark)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Runs what the command line says, prints the results, returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.repetitions is not None and options.repetitions < 1:
        print("forebay bench: --repetitions: expected a number from 1", file=sys.stderr)
        return FAILED
    records: list[Record] = []
    failed = False
    if not options.json:
        print(header(os.cpu_count() or 1))
    for name in options.benches:
        report = Report(name, bars=not (options.no_bars or options.quick), progress=not options.json)
        failed |= not _run(name, options, report)
        records += report.records
        if options.json:
            for note in report.notes:
                print(f"forebay bench {name}: {note}", file=sys.stderr)
        else:
            print(table(report), flush=True)
    if options.json:
        print(json.dumps([record.as_json() for record in records], indent=1))
    if failed:
        return FAILED
    return MISSED if any(record.holds is False for record in records) else HELD


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
