# SPDX-License-Identifier: Apache-2.0
"""Which of VTK's filters work with a controller that is none of MPI's, and which may not be used with it.

What is built on VTK's library DIY asks for a communicator of MPI; without one it works on each process for itself, says nothing, and its answer
is wrong. Those that were tried and found right, on several ranks, stand here; all others that take a controller are refused by name.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from vtkmodules.vtkCommonCore import vtkVersion
from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm

from forebay._errors import Unsupported

_TRIED: Final = {
    "vtkAggregateDataSetFilter",
    "vtkCollectPolyData",
    "vtkCompressCompositer",
    "vtkDuplicatePolyData",
    "vtkGenerateProcessIds",
    "vtkHDFWriter",
    "vtkIntegrateAttributes",
    "vtkPContingencyStatistics",
    "vtkPCorrelativeStatistics",
    "vtkPDescriptiveStatistics",
    "vtkPMultiCorrelativeStatistics",
    "vtkPOrderStatistics",
    "vtkPOutlineCornerFilter",
    "vtkPOutlineFilter",
    "vtkPPCAStatistics",
    "vtkPProbeFilter",
    "vtkPReflectionFilter",
    "vtkPResampleFilter",
    "vtkTreeCompositer",
    "vtkXMLPImageDataWriter",
    "vtkXMLPPolyDataWriter",
    "vtkXMLPUnstructuredGridWriter",
}
# In VTK 9.4 the first rank writes what it has itself.
_SINCE: Final = {"vtkHDFWriter": (9, 5)}
_VERSION: Final = (vtkVersion.GetVTKMajorVersion(), vtkVersion.GetVTKMinorVersion())
TRIED: Final = frozenset(name for name in _TRIED if _SINCE.get(name, (9, 4)) <= _VERSION)
"""Each is compared, in a test, with what one process finds."""

# Where others are that take a controller. What composes pictures is in vtkRenderingParallel, and works.
_MODULES: Final = (
    "vtkFiltersAMR",
    "vtkFiltersExtraction",
    "vtkFiltersFlowPaths",
    "vtkFiltersParallel",
    "vtkFiltersParallelDIY2",
    "vtkFiltersParallelImaging",
    "vtkFiltersParallelStatistics",
    "vtkIOAMR",
    "vtkIOCGNSReader",
    "vtkIOEnSight",
    "vtkIOHDF",
    "vtkIOIOSS",
    "vtkIOParallel",
    "vtkIOParallelExodus",
    "vtkIOParallelLSDyna",
    "vtkIOParallelXML",
)


def guard(controller: type) -> None:
    """Has filters that were not tried refuse such a controller when they are given it, or made while it is the global one.

    They are otherwise what they were. All modules come first: one that is loaded later would not find a class that another one overrides.
    """
    modules = [importlib.import_module(f"vtkmodules.{module}") for module in _MODULES]
    for found in [found for module in modules for found in vars(module).values()]:
        takes_one = hasattr(found, "SetController") and hasattr(found, "override")
        if takes_one and found.__name__ not in TRIED:
            found.override(_refusing(found, controller))


def refuse_any(algorithm: vtkAlgorithm, trusted: frozenset[str]) -> None:
    """`Unsupported` if a filter, or one that it takes its input from, was not tried."""
    waiting, seen = [algorithm], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        name = one.GetClassName()
        if hasattr(one, "SetController") and name not in TRIED | trusted:
            raise _unsupported(name)
        waiting += [
            one.GetInputConnection(port, number).GetProducer()
            for port in range(one.GetNumberOfInputPorts())
            for number in range(one.GetNumberOfInputConnections(port))
        ]


def _refusing(found: Any, controller: type) -> type:
    """The same class, but for what it does with such a controller."""

    def check(given: object) -> None:
        if isinstance(given, controller) and found.__name__ not in given.trusted:  # type: ignore[attr-defined]
            raise _unsupported(found.__name__)

    def __init__(self: Any, *args: Any, **properties: Any) -> None:  # noqa: N807 - it becomes a method
        check(found.GetController(self))
        found.__init__(self, *args, **properties)

    def set_controller(self: Any, given: Any) -> None:
        check(given)
        found.SetController(self, given)

    methods = {
        "__init__": __init__,
        "SetController": set_controller,
        "controller": property(found.GetController, set_controller),
        "__doc__": found.__doc__,
        "__module__": found.__module__,
    }
    return type(found.__name__, (found,), methods)


def _unsupported(name: str) -> Unsupported:
    return Unsupported(
        f"{name} was not found to work with Forebay's controller: filters that need MPI run on each worker for itself, without a word, and are"
        " wrong; docs/vtk.md names those that work, and Controller(comm, trusted=...) takes one that you have tried yourself"
    )
