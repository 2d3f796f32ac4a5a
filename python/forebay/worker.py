# SPDX-License-Identifier: Apache-2.0
"""The process that runs one pipeline beside one server. Started by the server, not by hand."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import inspect
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from forebay import _forebay
from forebay._contract import as_needs
from forebay._errors import Error, Timeout
from forebay._mpi.named import Comm
from forebay._pipeline import Pipeline
from forebay._step import Step

# How long a worker may wait for the others within one operation of their communicator.
_COMM_TIMEOUT = 60.0
# How long a pipeline may take to close once its worker was asked to end.
_CLOSE_TIMEOUT = 10.0


def load(code: str) -> type[Pipeline]:
    """The class named by `file.py:Class`. The file's directory is importable, as for scripts."""
    file, _, name = code.rpartition(":")
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("forebay_pipeline", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Objects of the module can be pickled only if it can be found by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise AttributeError(f"{file} has no class '{name}'")
    if inspect.isfunction(found):
        return _of_function(found)
    if not (isinstance(found, type) and issubclass(found, Pipeline)):
        raise TypeError(f"{name} in {file} is no subclass of forebay.Pipeline, and no function")
    return found


def _of_function(function: Callable[..., object]) -> type[Pipeline]:
    """A pipeline that calls a function: of a step in its first worker, of a step and the communicator in all."""
    takes_comm = len(inspect.signature(function).parameters) > 1

    class Called(Pipeline):
        def execute(self, step: Step, comm: Comm) -> None:
            if takes_comm:
                function(step, comm)
            elif comm.rank == 0:
                function(step)

    return Called


def run(worker: _forebay.Worker, pipeline: Pipeline) -> None:
    """Carries out orders until the server is gone or the process is told to end."""
    while True:
        try:
            order = worker.next_order(3600.0, _COMM_TIMEOUT)
        except Timeout:
            continue
        if order is None:
            continue
        execution, core, comm = order
        started = time.perf_counter()
        error = None
        try:
            _execute(pipeline, Step(core), Comm._of(comm))
        except Exception:
            error = traceback.format_exc()
        # The step's memory is used again once this is told: views of it must be gone.
        core.release()
        del core, comm, order
        gc.collect()
        worker.done(execution, error, time.perf_counter() - started)


def _execute(pipeline: Pipeline, step: Step, comm: Comm) -> None:
    pipeline.execute(step, comm)
    for error in comm._errors:
        raise error


def main() -> int:
    """Runs the worker."""
    parser = argparse.ArgumentParser(prog="python -m forebay.worker", description=__doc__)
    parser.add_argument("--code", required=True)
    parser.add_argument("--describe", action="store_true", help="only say which stream the class names")
    for name in ("group", "server", "pipeline", "instance"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    # What the pipeline opens without naming a group is of its own.
    if given.group is not None and given.pipeline is not None:
        os.environ["FOREBAY_GROUP"], os.environ["FOREBAY_PIPELINE"] = given.group, given.pipeline
    # Draw without a display unless something else was chosen.
    os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")
    if given.describe:
        sys.stdout.write(json.dumps({"stream": load(given.code).stream}))
        return 0

    def end(_signal: int, _frame: FrameType | None) -> None:
        # Asked by the server, or by the kernel since the server died: then nobody else sees to the end.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _CLOSE_TIMEOUT)
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # On a machine that it shares with the simulation, the simulation goes first.
    os.nice(10)
    worker = _forebay.Worker(given.group, int(given.server), given.pipeline, int(given.instance))
    try:
        loaded = load(given.code)
        # Collecting after each execution then looks only at what came since: modules alone take some 10 ms.
        gc.collect()
        gc.freeze()
        pipeline = loaded(json.loads(os.environ.get("FOREBAY_PIPELINE_CONFIG", "{}")))
        needs = as_needs(pipeline.fields)
        if type(pipeline).execute is Pipeline.execute:
            raise TypeError(f"{given.code} has no method execute(self, step, comm)")
        pipeline.warm_up()
    except BaseException:
        worker.failed(traceback.format_exc())
        return 1
    worker.ready(needs, 1)
    try:
        run(worker, pipeline)
    except Error as error:
        # Most likely the server is gone, and with it the reason to be.
        sys.stderr.write(f"{error}\n")
        return 0
    finally:
        pipeline.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
