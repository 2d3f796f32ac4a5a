"""Runs mpi4py's own tests of what Forebay has, as one rank of COMM_WORLD: run.py DIRECTORY MODULE ..."""

from __future__ import annotations

import fnmatch
import importlib
import json
import sys
import unittest
import warnings
from pathlib import Path

HERE = Path(__file__).parent
# What asks for what is not there, by pattern, with what that is.
LEFT_OUT = json.loads((HERE / "left_out.json").read_text())


def reason(name: str) -> str | None:
    return next((why for pattern, why in LEFT_OUT.items() if fnmatch.fnmatch(name, pattern)), None)


def chosen(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            found += chosen(test)
        elif reason(test.id()) is None:
            found.append(test)
    return found


def main() -> int:
    directory, *modules = sys.argv[1:]
    sys.path[:0] = [str(HERE), directory]
    warnings.simplefilter("error", ResourceWarning)
    # Of all that can be an array, what Python and NumPy have.
    arrays = importlib.import_module("arrayimpl").ArrayBackends
    arrays[:] = [kind for kind in arrays if kind.__name__ in ("ArrayArray", "ArrayNumPy")]
    tests = [
        test
        for module in modules
        for test in chosen(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module)))
    ]
    ran = unittest.TextTestRunner(verbosity=2, stream=sys.stderr).run(unittest.TestSuite(tests))
    told = {"ran": ran.testsRun, "skipped": len(ran.skipped), "good": ran.wasSuccessful()}
    print(json.dumps(told) + "\n", end="", flush=True)
    return 0 if ran.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
