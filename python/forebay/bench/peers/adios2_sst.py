# SPDX-License-Identifier: Apache-2.0
"""ADIOS2's staging engine SST, from the package `adios2` on PyPI (built without MPI: one process each side).

The writer puts one global array each step, the reader gets all of it into an array of its own: SST knows
neither memory to fill in place nor a view for the reader, so this one way stands beside both of Forebay's.

Measured in three ways:

- default: no parameters, synchronous get and put;
- best: the best settings of SST itself that were found: `QueueLimit` of twice the depth that the others have
  (one as deep as theirs, or of 1, makes it wait for itself), locked definitions and selections with
  `SpeculativePreloadMode` on, so that data leaves before it is asked for, deferred get and put.  Once warm,
  this is within the noise of the defaults; marshalling with FFS is slower, the data transport `enet` equal or
  slower, and the package has neither RDMA nor a shared memory transport;
- malloc: the same, and the C library told never to give memory back (`GLIBC_TUNABLES`).  That is no setting
  of SST's, but without it much of its time goes into fresh pages.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

from forebay.bench.errors import BenchError
from forebay.bench.patterns import Array
from forebay.bench.rigs import Fill, Route, Setup, own_array

KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=68719476736"
    ":glibc.malloc.top_pad=268435456"
}
"""An environment in which glibc reuses memory that was freed, whatever its size."""


def contact(name: str) -> str:
    """Where the writer leaves its address: a path, to which SST adds `.sst`."""
    return str(Path(tempfile.gettempdir()) / f"forebay-bench-{os.getuid()}-{name}")


def remove_contact(name: str) -> None:
    """Removes what a writer has left there."""
    Path(contact(name) + ".sst").unlink(missing_ok=True)


class _End:
    def __init__(self, setup: Setup) -> None:
        self.adios2: Any = importlib.import_module("adios2.bindings")
        self.session = self.adios2.ADIOS()  # everything else lives only as long as this
        self.io = self.session.DeclareIO("stream")
        self.io.SetEngine("SST")
        tuned = bool(setup.options["tuned"])
        self.io.SetParameters(
            {"QueueLimit": str(2 * setup.depth), "SpeculativePreloadMode": "ON"} if tuned else {}
        )
        self.tuned = tuned
        self.mode = self.adios2.Mode.Deferred if tuned else self.adios2.Mode.Sync
        self.engine: Any = None

    def close(self) -> None:
        """Ends or leaves the stream."""
        self.engine.Close()


class Writer(_End):
    """The producer's end; opening waits for the reader."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.array = own_array(setup.elements)
        shape = [setup.elements]
        self.variable = self.io.DefineVariable("U", self.array, shape, [0], shape, True)
        self.engine = self.io.Open(contact(setup.name), self.adios2.Mode.Write)
        if self.tuned:
            self.engine.LockWriterDefinitions()

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Fills, puts, ends the step."""
        fill(self.array, number)
        self.engine.BeginStep()
        self.engine.Put(self.variable, self.array, self.mode)
        self.engine.EndStep()


class Reader(_End):
    """The consumer's end."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.engine = self.io.Open(contact(setup.name), self.adios2.Mode.Read)
        if self.tuned:
            self.engine.LockReaderSelections()
        self.array = own_array(setup.elements)

    def read(self, out: Array | None) -> Array:
        """Waits for the next step and gets it, into `out` or into an array of its own."""
        target = self.array if out is None else out
        status = self.engine.BeginStep()
        if status != self.adios2.StepStatus.OK:
            raise BenchError(f"SST's reader got {status} instead of a step")
        self.engine.Get(self.io.InquireVariable("U"), target, self.mode)
        self.engine.EndStep()
        return target

    def release(self) -> None:
        """Nothing to do: the step was ended when it was read."""


def _route(label: str, *, tuned: bool, env: dict[str, str] | None = None, settings: str = "") -> Route:
    return Route(
        label,
        Writer,
        Reader,
        {"tuned": tuned},
        env or {},
        in_place=False,
        view=False,
        settings=settings,
        clean_up=remove_contact,
    )


def routes() -> list[Route]:
    """SST with its defaults, with its best settings, and with those and an allocator that keeps memory."""
    best = "QueueLimit 4, SpeculativePreloadMode ON, all locked, deferred get and put"
    return [
        _route("SST default", tuned=False, settings="no parameters set"),
        _route("SST best", tuned=True, settings=best),
        _route("SST malloc", tuned=True, env=KEEP_MEMORY, settings=f"{best}; glibc keeps freed memory"),
    ]
