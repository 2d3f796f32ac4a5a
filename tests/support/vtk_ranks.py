"""One rank of some that use VTK's parallel filters: prints what it found as JSON. `vtk_ranks.py CASE [PLACE]`, as a program."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import vtkmodules.vtkRenderingOpenGL2  # noqa: F401 - VTK finds its implementations by such imports
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkFloatArray, vtkPoints, vtkUnsignedCharArray
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPolyData, vtkTable
from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm, vtkTrivialProducer
from vtkmodules.vtkFiltersCore import vtkContourFilter, vtkThreshold
from vtkmodules.vtkFiltersExtraction import vtkExpandMarkedElements
from vtkmodules.vtkFiltersParallel import (
    vtkAggregateDataSetFilter,
    vtkCollectPolyData,
    vtkDistributedDataFilter,
    vtkDuplicatePolyData,
    vtkGenerateProcessIds,
    vtkIntegrateAttributes,
    vtkPOutlineCornerFilter,
    vtkPOutlineFilter,
    vtkPProbeFilter,
    vtkPReflectionFilter,
    vtkPResampleFilter,
)
from vtkmodules.vtkFiltersParallelDIY2 import vtkGhostCellsGenerator, vtkRedistributeDataSetFilter
from vtkmodules.vtkFiltersParallelStatistics import (
    vtkPContingencyStatistics,
    vtkPCorrelativeStatistics,
    vtkPDescriptiveStatistics,
    vtkPMultiCorrelativeStatistics,
    vtkPOrderStatistics,
    vtkPPCAStatistics,
)
from vtkmodules.vtkIOHDF import vtkHDFReader, vtkHDFWriter
from vtkmodules.vtkIOParallelXML import (
    vtkXMLPImageDataWriter,
    vtkXMLPPolyDataWriter,
    vtkXMLPUnstructuredGridWriter,
)
from vtkmodules.vtkIOXML import (
    vtkXMLPImageDataReader,
    vtkXMLPPolyDataReader,
    vtkXMLPUnstructuredGridReader,
)
from vtkmodules.vtkParallelCore import vtkDummyController, vtkMultiProcessController
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkRenderer, vtkRenderWindow
from vtkmodules.vtkRenderingParallel import vtkCompressCompositer, vtkTreeCompositer

import forebay
import forebay.vtk
from forebay import MPI
from forebay.vtk import link

COMM = MPI.COMM_WORLD
LAYERS = 12


def image(rank: int, size: int) -> vtkImageData:
    """A rank's part of a field, cut along z."""
    first, last = (LAYERS * number // size for number in (rank, rank + 1))
    made = vtkImageData()
    made.SetExtent(0, 9, 0, 7, first, last)
    made.SetSpacing(0.5, 1, 1)
    z, y, x = np.mgrid[first : last + 1, 0:8, 0:10]
    values = numpy_to_vtk((np.sin(x) * y + 0.3 * z).reshape(-1), deep=True)
    values.SetName("f")
    made.GetPointData().SetScalars(values)
    return made


def surface(of: vtkImageData) -> vtkPolyData:
    """Where a field is 1.5."""
    contour = vtkContourFilter()
    contour.SetInputData(of)
    contour.SetValue(0, 1.5)
    contour.Update()
    return contour.GetOutput()


def table(rank: int, size: int) -> vtkTable:
    """A rank's part of some rows of whole numbers."""
    rows = np.random.default_rng(1).integers(0, 5, (300, 3)).astype("f8")
    made = vtkTable()
    for number, name in enumerate("abc"):
        column = numpy_to_vtk(np.ascontiguousarray(rows[rank::size, number]), deep=True)
        column.SetName(name)
        made.AddColumn(column)
    return made


def updated(make: type, take: Callable[[Any], Any], given: Any = None, **settings: Any) -> Callable[..., Any]:
    """A case: a filter of this class, and what is taken of its output."""

    def case(controller: Any, rank: int, size: int) -> Any:
        one = make()
        if hasattr(one, "SetController"):
            one.SetController(controller)
        for name, value in settings.items():
            getattr(one, name)(*value)
        one.SetInputData((given or image)(rank, size))
        _update(one, controller)
        return take(one.GetOutput())

    return case


def _update(one: vtkAlgorithm, controller: Any) -> None:
    if isinstance(controller, forebay.vtk.Controller):
        controller.update(one)
    else:
        one.Update()


def cut(rank: int, size: int) -> vtkPolyData:
    """A rank's part of the surface."""
    return surface(image(rank, size))


def probe(controller: Any, rank: int, size: int) -> Any:
    """The field along a line."""
    points, line = vtkPoints(), vtkPolyData()
    for number in range(20):
        points.InsertNextPoint(0.2 * number, 3.3, 0.55 * number)
    line.SetPoints(points)
    one = vtkPProbeFilter()
    one.SetController(controller)
    one.SetInputData(line)
    one.SetSourceData(image(rank, size))
    _update(one, controller)
    values = one.GetOutput().GetPointData().GetArray("f")
    return None if not values else vtk_to_numpy(values).round(9).tolist()


def statistics(make: type, columns: tuple[str, ...]) -> Callable[..., Any]:
    """What statistics find of the rows."""

    def case(controller: Any, rank: int, size: int) -> Any:
        one = make()
        one.SetController(controller)
        one.SetInputData(0, table(rank, size))
        if len(columns) == 1:
            one.AddColumn(columns[0])
        elif len(columns) == 2:
            one.AddColumnPair(*columns)
        else:
            for name in columns:
                one.SetColumnStatus(name, 1)
            one.RequestSelectedColumns()
        one.SetLearnOption(True)
        one.SetDeriveOption(True)
        _update(one, controller)
        return numbers(one.GetOutputDataObject(1))

    return case


def numbers(model: Any) -> list[Any]:
    """All tables of a model, which was a set of blocks until VTK 9.5."""
    found = []
    if hasattr(model, "GetNumberOfBlocks"):
        tables = [model.GetBlock(number) for number in range(model.GetNumberOfBlocks())]
    else:
        kinds = range(model.GetNumberOfTableTypes())
        tables = [
            model.GetTable(kind, number) for kind in kinds for number in range(model.GetNumberOfTables(kind))
        ]
    for rows in filter(None, tables):
        for row in range(rows.GetNumberOfRows()):
            cells = [rows.GetValue(row, column) for column in range(rows.GetNumberOfColumns())]
            found.append([round(c.ToDouble(), 6) if c.IsNumeric() else c.ToString() for c in cells])
    return sorted(found, key=str)


def written(make: type, reader: type, ending: str, given: Callable[..., Any]) -> Callable[..., Any]:
    """What is in the files that all ranks have written together."""

    def case(controller: Any, rank: int, size: int) -> Any:
        file = Path(sys.argv[2], f"{make.__name__}-{size}.{ending}")
        one = make()
        one.SetController(controller)
        one.SetFileName(str(file))
        part = vtkTrivialProducer()
        part.SetOutput(given(rank, size))
        part.SetWholeExtent(0, 9, 0, 7, 0, LAYERS)  # of images: each rank has a part of one
        one.SetInputConnection(part.GetOutputPort())
        if hasattr(one, "SetNumberOfPieces"):
            one.SetNumberOfPieces(size)
            one.SetStartPiece(rank)
            one.SetEndPiece(rank)
        one.Write()
        if size > 1:
            COMM.Barrier()
        if rank != 0:
            return None
        read = reader()
        read.SetFileName(str(file))
        read.Update()
        return content(read.GetOutputDataObject(0))

    return case


def kept(rank: int, size: int) -> Any:
    """The elements in which the field is above 1."""
    one = vtkThreshold()
    one.SetInputData(image(rank, size))
    one.SetLowerThreshold(1.0)
    one.Update()
    return one.GetOutput()


def content(data: Any) -> Any:
    """How many cells there are, and a number for where their points are and what stands at these. Their order says nothing."""
    parts = getattr(data, "GetNumberOfPartitions", None)
    all_parts = [data] if parts is None else [data.GetPartition(number) for number in range(parts())]
    cells = sorted(cell for part in all_parts for cell in cells_of(part))
    return [len(cells), hashlib.sha256(repr(cells).encode()).hexdigest()] if cells else None


def cells_of(part: Any) -> list[Any]:
    """Each cell's kind, and its points with what stands at them."""
    points = np.array([part.GetPoint(number) for number in range(part.GetNumberOfPoints())]).reshape(-1, 3)
    values = part.GetPointData().GetArray("f")
    at = np.column_stack([points, *([] if values is None else [vtk_to_numpy(values)])]).round(6) + 0.0
    found = []
    for number in range(part.GetNumberOfCells()):
        cell = part.GetCell(number)
        corners = [at[cell.GetPointId(corner)].tolist() for corner in range(cell.GetNumberOfPoints())]
        found.append((cell.GetCellType(), sorted(corners)))
    return found


def rounded(values: Any) -> list[float]:
    """Numbers that may differ by their rounding."""
    return [round(float(value), 6) for value in values]


def area(data: Any) -> Any:
    """What vtkIntegrateAttributes finds; on other ranks than the first nothing."""
    return rounded(vtk_to_numpy(data.GetCellData().GetArray("Area"))) if data.GetNumberOfCells() else None


CASES: dict[str, Callable[..., Any]] = {
    "vtkIntegrateAttributes": updated(vtkIntegrateAttributes, area, cut),
    "vtkAggregateDataSetFilter": updated(
        vtkAggregateDataSetFilter, content, cut, SetNumberOfTargetProcesses=(1,)
    ),
    "vtkCollectPolyData": updated(vtkCollectPolyData, content, cut),
    "vtkPOutlineFilter": updated(vtkPOutlineFilter, content),
    "vtkPOutlineCornerFilter": updated(vtkPOutlineCornerFilter, content),
    "vtkPProbeFilter": probe,
    "vtkPResampleFilter": updated(
        vtkPResampleFilter,
        lambda data: (
            rounded(vtk_to_numpy(data.GetPointData().GetArray("f"))) if data.GetNumberOfPoints() else None
        ),
        SetSamplingDimension=(6, 6, 6),
    ),
    "vtkPContingencyStatistics": statistics(vtkPContingencyStatistics, ("a", "b")),
    "vtkPCorrelativeStatistics": statistics(vtkPCorrelativeStatistics, ("a", "b")),
    "vtkPDescriptiveStatistics": statistics(vtkPDescriptiveStatistics, ("a",)),
    "vtkPMultiCorrelativeStatistics": statistics(vtkPMultiCorrelativeStatistics, ("a", "b", "c")),
    "vtkPOrderStatistics": statistics(vtkPOrderStatistics, ("a",)),
    "vtkPPCAStatistics": statistics(vtkPPCAStatistics, ("a", "b", "c")),
    "vtkXMLPPolyDataWriter": written(vtkXMLPPolyDataWriter, vtkXMLPPolyDataReader, "pvtp", cut),
    "vtkXMLPImageDataWriter": written(vtkXMLPImageDataWriter, vtkXMLPImageDataReader, "pvti", image),
    "vtkXMLPUnstructuredGridWriter": written(
        vtkXMLPUnstructuredGridWriter, vtkXMLPUnstructuredGridReader, "pvtu", kept
    ),
    "vtkHDFWriter": written(vtkHDFWriter, vtkHDFReader, "vtkhdf", cut),
}
"""Of these the first rank's answer is that of one process."""


def filters() -> None:
    """The answers of all cases: of all ranks together, and of the first one alone with the same."""
    found, alone = {}, {}
    for name, case in CASES.items():
        with forebay.vtk.Controller(COMM) as controller:
            found[name] = case(controller, COMM.rank, COMM.size)
    with forebay.vtk.Controller(COMM) as controller:
        each = vtkDuplicatePolyData()
        each.SetController(controller)
        each.InitializeSchedule(COMM.size)
        each.SetInputData(cut(COMM.rank, COMM.size))
        controller.update(each)
        found["vtkDuplicatePolyData"] = COMM.gather(content(each.GetOutput()))
        ids = vtkGenerateProcessIds()
        ids.SetController(controller)
        ids.SetInputData(image(COMM.rank, COMM.size))
        controller.update(ids)
        told = ids.GetOutput().GetPointData().GetArray("PointProcessIds").GetRange()
        found["vtkGenerateProcessIds"] = COMM.gather(told)
        mirror = vtkPReflectionFilter()
        mirror.SetController(controller)
        mirror.SetInputData(image(COMM.rank, COMM.size))
        mirror.SetPlaneToZMin()
        mirror.CopyInputOff()
        controller.update(mirror)
        found["vtkPReflectionFilter"] = COMM.gather(mirror.GetOutput().GetBounds()[4:])
    if COMM.rank == 0:
        nobody = vtkDummyController()
        vtkMultiProcessController.SetGlobalController(nobody)
        for name, case in CASES.items():
            alone[name] = case(nobody, 0, 1)
        print(json.dumps({"found": found, "alone": alone, "surface": content(cut(0, 1))}))


def death() -> None:
    """Another rank dies before it has taken part."""
    told = {}
    one = vtkIntegrateAttributes()
    try:
        with forebay.vtk.Controller(COMM) as controller:
            COMM.Barrier()
            if COMM.rank == 1:
                os._exit(0)
            one.SetController(controller)
            one.SetInputData(cut(COMM.rank, COMM.size))
            one.Update()
            told["updated"] = True  # VTK does not say that anything is wrong
            try:
                controller.update(one)
            except forebay.Error as error:
                told["update"] = type(error).__name__
    except forebay.Error as error:
        told["left"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told), flush=True)


def gives_up() -> None:
    """Another rank fails by itself, and lives on."""
    found = ""
    try:
        with forebay.vtk.Controller(COMM) as controller:
            if COMM.rank == 1:
                raise ValueError("no such colour: caf\udce9")  # a name that is no text
            one = vtkIntegrateAttributes()
            one.SetController(controller)
            one.SetInputData(cut(COMM.rank, COMM.size))
            controller.update(one)
    except (forebay.Error, ValueError) as error:
        found = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
    COMM.Barrier()
    print(json.dumps({"rank": COMM.rank, "found": found}), flush=True)


def drawn(part: vtkPolyData, compositer: Any = None) -> Any:
    """A picture of a surface, with those of the other ranks if there is one who puts them together: colours, from the lowest row on."""
    mapper, actor, renderer, window = vtkPolyDataMapper(), vtkActor(), vtkRenderer(), vtkRenderWindow()
    mapper.SetInputData(part)
    mapper.SetScalarRange(0, 6)
    # Each part's points would be moved by another amount, and neighbours would no longer meet.
    mapper.SetVBOShiftScaleMethod(0)
    actor.SetMapper(mapper)
    renderer.AddActor(actor)
    window.SetOffScreenRendering(1)
    window.SetMultiSamples(0)
    window.SetSize(160, 120)
    window.AddRenderer(renderer)
    renderer.ResetCamera(0, 4.5, 0, 7, 0, LAYERS)
    renderer.GetActiveCamera().Azimuth(50)
    renderer.ResetCameraClippingRange(0, 4.5, 0, 7, 0, LAYERS)
    window.Render()
    colors, depths = vtkUnsignedCharArray(), vtkFloatArray()
    window.GetRGBACharPixelData(0, 0, 159, 119, 0, colors)
    window.GetZbufferData(0, 0, 159, 119, depths)
    if compositer is not None:
        scratch = vtkUnsignedCharArray(), vtkFloatArray()
        for one, given in zip(scratch, (colors, depths), strict=True):
            one.DeepCopy(given)
        compositer.CompositeBuffer(colors, depths, *scratch)
    return vtk_to_numpy(colors).reshape(120, 160, 4)[..., :3]


def pictures() -> None:
    """VTK's own compositers put together what one process draws."""
    differing = []
    for make in (vtkTreeCompositer, vtkCompressCompositer):
        with forebay.vtk.Controller(COMM) as controller:
            compositer = make()
            compositer.SetController(controller)
            together = drawn(cut(COMM.rank, COMM.size), compositer)
        if COMM.rank == 0:
            alone = drawn(cut(0, 1))
            assert len(np.unique(alone.reshape(-1, 3), axis=0)) > 100
            differing.append(int((together != alone).any(axis=2).sum()))
    if COMM.rank == 0:
        print(json.dumps(differing))


def told(kind: type[Exception], call: Callable[[], object]) -> str:
    """What an error of this kind says; nothing if there is none."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""


def refusals() -> None:
    """What is told of filters that may not be used with a controller; one process."""

    def refused(call: Callable[[], object]) -> str:
        return told(forebay.Unsupported, call).partition(" was not found to work with Forebay's controller")[
            0
        ]

    before = vtkGhostCellsGenerator()
    found = []
    with forebay.vtk.Controller(COMM) as controller:
        found += [
            refused(lambda: vtkGhostCellsGenerator()),
            refused(lambda: vtkGhostCellsGenerator(number_of_ghost_layers=2)),
            refused(lambda: before.SetController(controller)),
            refused(lambda: setattr(before, "controller", controller)),
            refused(lambda: vtkRedistributeDataSetFilter()),
            refused(lambda: vtkDistributedDataFilter().SetController(controller)),
            refused(lambda: vtkExpandMarkedElements().SetController(controller)),
        ]
        # One that another one takes its input from; and one that was given its controller by C++.
        integrate = vtkIntegrateAttributes()
        integrate.SetInputConnection(before.GetOutputPort())
        found.append(refused(lambda: controller.update(integrate)))
        integrate.RemoveAllInputs()
        integrate.SetInputData(cut(0, 1))
        controller.update(integrate)
    with forebay.vtk.Controller(COMM, trusted=["vtkGhostCellsGenerator"]) as controller:
        before.SetController(controller)
        assert before.GetController() is controller
    # With others they are what they were, and all other modules are found.
    other = vtkDummyController()
    before.controller = other
    assert before.GetController() is other
    made = vtkGhostCellsGenerator(number_of_ghost_layers=3)
    assert (made.GetClassName(), made.GetNumberOfGhostLayers()) == ("vtkGhostCellsGenerator", 3)
    importlib.import_module("vtkmodules.all")
    print(json.dumps(found))


def closed() -> None:
    """A controller that is closed, and one that is forgotten; one process."""
    controller = forebay.vtk.Controller(COMM)
    assert (controller.GetNumberOfProcesses(), controller.GetLocalProcessId()) == (1, 0)
    controller.close()
    controller.close()
    assert not COMM._errors
    integrate = vtkIntegrateAttributes()
    integrate.SetController(controller)
    integrate.SetInputData(cut(0, 1))
    found = [
        told(forebay.Closed, lambda: controller.update(integrate)),
        told(forebay.Closed, controller.__enter__),
    ]
    with forebay.vtk.Controller(COMM) as twice:
        found.append(told(forebay.Invalid, twice.__enter__))
    assert vtkMultiProcessController.GetGlobalController() is not twice
    # Whichever is left first, the global one is what it was.
    before = vtkMultiProcessController.GetGlobalController()
    for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1), (1, 2, 0)):
        several = [forebay.vtk.Controller(COMM).__enter__() for _ in range(3)]
        left = set()
        for number in order:
            several[number].__exit__(None, None, None)
            left.add(number)
            last = max({0, 1, 2} - left, default=None)
            wanted = before if last is None else several[last]
            assert vtkMultiProcessController.GetGlobalController() is wanted
    # Who was given a part of a communicator has failed that one, too.
    forgotten = forebay.vtk.Controller(COMM.Dup().Split(0))
    del forgotten
    assert not link._of_objects
    print(json.dumps([*found, *map(str, COMM._errors)]))


if __name__ == "__main__":
    cases = (filters, death, gives_up, pictures, refusals, closed)
    {case.__name__: case for case in cases}[sys.argv[1]]()
