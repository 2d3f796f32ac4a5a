# SPDX-License-Identifier: Apache-2.0
"""Forebay: stage a simulation's fields in memory, step by step, for whoever wants to look.

In the simulation, one `Producer` for each rank::

    with forebay.Producer("grayscott", rank=rank, size=size) as sim:
        sim.array("U", dtype="f8", shape=(N, N, N), dims=("z", "y", "x"))
        for number in range(n):
            with sim.step(number, time=t) as step:
                step.put("U", local, offset=low, ghost_low=1, ghost_high=1)

Anywhere else, at any moment::

    with forebay.Consumer("grayscott", fields={"U": forebay.every(10)}) as viewer:
        for step in viewer:
            plane = step["U"][:, :, 32]
"""

from forebay._admin import Admin, group_text
from forebay._consumer import Consumer
from forebay._contract import every
from forebay._errors import (
    # generated from interface/forebay.toml: error imports
    Closed,
    Conflict,
    ConnectionFile,
    Crashed,
    Dropped,
    Ended,
    Error,
    Forked,
    Full,
    Internal,
    Invalid,
    Io,
    Lost,
    NotCovered,
    NotFound,
    OutOfBounds,
    OverBudget,
    PipelineFailed,
    Protocol,
    StepOrder,
    Timeout,
    Torn,
    TypeMismatch,
    Unreachable,
    Unsupported,
    WrongSecret,
    WrongVersion,
    # end of what is generated
)
from forebay._expressions import Place
from forebay._forebay import __version__
from forebay._given import BlockToPlace, Cursor
from forebay._installed import get_cmake_dir, get_include, get_library, get_pkgconfig_dir
from forebay._local import LocalGroup, LocalServer, local
from forebay._mpi.compositing import front_to_back
from forebay._mpi.named import Comm
from forebay._pipeline import Pipeline
from forebay._pipeline_handle import PipelineHandle, PipelineRequest
from forebay._producer import OpenStep, Producer
from forebay._space import Space, SpaceArray
from forebay._step import Block, Field, RankBounds, Stats, Step
from forebay._stream import StepInfo, Stream, streams
from forebay._subscription import Event, Subscription, UnknownWarning, subscribe

# People see where they find them, in tracebacks too.
for _kind in (Error, *Error.__subclasses__()):
    _kind.__module__ = "forebay"
del _kind

__all__ = [
    "Admin",
    "Block",
    "BlockToPlace",
    "Comm",
    "Consumer",
    "Cursor",
    "Event",
    "Field",
    "LocalGroup",
    "LocalServer",
    "OpenStep",
    "Pipeline",
    "PipelineHandle",
    "PipelineRequest",
    "Place",
    "Producer",
    "RankBounds",
    "Space",
    "SpaceArray",
    "Stats",
    "Step",
    "StepInfo",
    "Stream",
    "Subscription",
    "UnknownWarning",
    "__version__",
    "every",
    "front_to_back",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "get_pkgconfig_dir",
    "group_text",
    "local",
    "streams",
    "subscribe",
]
__all__ += [
    # generated from interface/forebay.toml: error names
    "Closed",
    "Conflict",
    "ConnectionFile",
    "Crashed",
    "Dropped",
    "Ended",
    "Error",
    "Forked",
    "Full",
    "Internal",
    "Invalid",
    "Io",
    "Lost",
    "NotCovered",
    "NotFound",
    "OutOfBounds",
    "OverBudget",
    "PipelineFailed",
    "Protocol",
    "StepOrder",
    "Timeout",
    "Torn",
    "TypeMismatch",
    "Unreachable",
    "Unsupported",
    "WrongSecret",
    "WrongVersion",
    # end of what is generated
]
