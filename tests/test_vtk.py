"""VTK's own parallel filters on a communicator of Forebay's."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.native import ROOT
from support.pictures import CUTS, executed, gyroid, placed, put_blocks
from support.pipelines import code, pipeline_status
from support.sessions import producer
from support.waiting import wait_until
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkVersion
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersCore import vtkContourFilter
from vtkmodules.vtkFiltersParallel import vtkIntegrateAttributes
from vtkmodules.vtkParallelCore import vtkSocketCommunicator, vtkSubCommunicator

import forebay
from forebay.vtk import filters
from forebay.vtk.layout import Table

__all__ = ["code"]

BIN = Path(sys.prefix, "bin")
RANKS = ROOT / "tests" / "support" / "vtk_ranks.py"


def told(ranks: int, case: str, *words: object) -> list[Any]:
    """What the ranks of a case print, each a line."""
    command = [sys.executable, "-m", "forebay.MPI", "-n", str(ranks), str(RANKS), case, *map(str, words)]
    environment = {**os.environ, "VTK_DEFAULT_OPENGL_WINDOW": "vtkEGLRenderWindow"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    lines = done.stdout.replace("}{", "}\n{").splitlines()
    found = [json.loads(line) for line in lines if line.startswith(("{", "["))]
    assert found, done.stderr
    return found


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_filters_find_on_many_ranks_what_they_find_on_one(own_place: Path, ranks: int) -> None:
    (all_told,) = told(ranks, "filters", own_place)
    found, alone = all_told["found"], all_told["alone"]
    assert {name: found[name] for name in alone} == alone
    assert all(alone.values())
    edges = [12 * rank // ranks for rank in range(ranks + 1)]
    assert found["vtkDuplicatePolyData"] == [all_told["surface"]] * ranks
    assert found["vtkGenerateProcessIds"] == [[rank, rank] for rank in range(ranks)]
    # Mirrored at the lowest layer of all.
    assert found["vtkPReflectionFilter"] == [[-edges[rank + 1], -edges[rank]] for rank in range(ranks)]
    tried = {*found, "vtkTreeCompositer", "vtkCompressCompositer"}
    assert tried == set(filters.TRIED)


@pytest.mark.parametrize("ranks", [2, 3])
def test_compositers_of_vtk(ranks: int) -> None:
    """They show what one process draws, to the last bit."""
    assert told(ranks, "pictures") == [[0, 0]]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_dies_is_told_although_vtk_does_not_ask(ranks: int) -> None:
    every = told(ranks, "death")
    assert len(every) == ranks - 1
    for one in every:
        assert one["updated"]
        assert one["update"] == "Unreachable"
        assert one["left"].startswith("Unreachable: ")
    # Who hears of it first leaves, and that may be what another one hears.
    assert any("rank 1 (" in one["left"] for one in every)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_gives_up_is_told_although_it_lives(ranks: int) -> None:
    """At once: far below the deadline of 60 seconds, after which it would be a timeout."""
    every = {one["rank"]: one["found"] for one in told(ranks, "gives_up")}
    text = r"ValueError: no such colour: caf\udce9"
    assert every.pop(1) == text
    assert len(every) == ranks - 1
    for found in every.values():
        assert re.match(r"Unreachable: .* rank 1 has revoked communicator \d+: ", found)
        assert text in found


def test_what_would_run_alone_is_refused_by_name() -> None:
    ghosts, more = ["vtkGhostCellsGenerator"], ["vtkRedistributeDataSetFilter", "vtkDistributedDataFilter"]
    assert told(1, "refusals") == [ghosts * 4 + more + ["vtkExpandMarkedElements"] + ghosts]


def test_a_controller_that_is_closed() -> None:
    (found,) = told(1, "closed")
    assert found == [
        *["this controller is closed: its filters would each run alone"] * 2,
        "this controller is in a `with` already",
        "a controller has gone without close(): make it in a `with`",
    ]


def test_a_vtk_that_is_built_in_another_way() -> None:
    """What is not where it should be is refused, and nothing is touched."""
    version, unused = vtkVersion.GetVTKVersion(), ctypes.CFUNCTYPE(None)(lambda: None)
    communicator = vtkSubCommunicator()
    text = rf"^VTK {version} is not built as Forebay knows it: its vtkSubCommunicator has 0 places in its table for _ZN1x1yEv; use"
    with pytest.raises(forebay.Unsupported, match=text):
        Table(communicator, {"_ZN1x1yEv": unused})
    table = Table(communicator, {"_ZN15vtkCommunicator7BarrierEv": unused})
    with pytest.raises(forebay.Unsupported, match="its vtkSocketCommunicator has another table"):
        table.put(vtkSocketCommunicator())

    class Derived(vtkSubCommunicator):
        pass

    with pytest.raises(forebay.Unsupported, match="its Derived has no table of its own"):
        Table(Derived(), {"_ZN15vtkCommunicator7BarrierEv": unused})
    assert communicator.GetNumberOfProcesses() == 1


FORGETS = """
import forebay.vtk
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersParallel import vtkPOutlineFilter

class Forgets(forebay.Pipeline):
    fields = {"U": forebay.every(1)}

    def execute(self, step, comm):
        outline, image = vtkPOutlineFilter(), vtkImageData()
        image.SetDimensions(2, 2, 2)
        outline.SetInputData(image)
        controller = forebay.vtk.Controller(comm)
        outline.SetController(controller)
        if step.number == 1:
            controller._own.set_timeout(0.5)
        if comm.rank == 0 or step.number == 0:
            outline.Update()
        try:
            controller.close()
        except forebay.Error:
            pass
"""


def test_a_step_fails_although_its_code_does_not_ask(
    two: forebay.LocalGroup, code: Callable[[str], str]
) -> None:
    """Another worker did not answer: VTK told nobody, and neither does the code."""
    forebay.Admin(group=two.path).create_pipeline("forgets", f"{code(FORGETS)}:Forgets", stream="s")
    with producer(two, "s", policy="block") as sim:
        sim.array("U", dtype="f8", shape=(4,))
        for number in range(2):
            with sim.step(number) as step:
                step.put("U", np.zeros(4), offset=(0,))

        def all_ran() -> bool:
            status = pipeline_status(two, "forgets")
            return status["executed"] + status["failed"] >= 2

        wait_until(all_ran)
    status = pipeline_status(two, "forgets")
    assert (status["executed"], status["failed"]) == (1, 1), status["last_error"]
    assert "did not" in status["last_error"] or "Timeout" in status["last_error"], status["last_error"]


def test_the_area_of_a_surface_whose_blocks_lie_anywhere(own_place: Path) -> None:
    """The page's own pipeline: on workers with many blocks, with one, and with none, and with a spacing below 0."""
    text = (ROOT / "docs" / "vtk.md").read_text().partition("```python\n# area.py\n")[2].partition("```")[0]
    text = text.replace('"U": forebay.every(10)', '"U": forebay.every(1)').replace("0.5", "0.4")
    told_to = own_place / "areas"
    area = own_place / "area.py"
    area.write_text(
        text.replace(
            "print(step.number,", f"print(step.number, file=open({str(told_to)!r}, 'a'), *["
        ).replace("else 0.0)", "else 0.0])")
    )
    u = gyroid()[0]
    spacing, origin = (0.5, -0.25, 1.0), (1.0, 2.0, 3.0)
    whole = vtkImageData()
    whole.SetDimensions(*u.shape[::-1])
    whole.SetSpacing(1.0, 0.25, 0.5)
    values = numpy_to_vtk(np.flip(u, 1).reshape(-1), deep=True)
    whole.GetPointData().SetScalars(values)
    surface, alone = vtkContourFilter(), vtkIntegrateAttributes()
    surface.SetInputData(whole)
    surface.SetValue(0, 0.4)
    alone.SetInputConnection(surface.GetOutputPort())
    alone.SetController(None)
    alone.Update()
    right = alone.GetOutput().GetCellData().GetArray("Area").GetValue(0)
    with forebay.local(servers=3) as group, forebay.Admin(group=group.path) as admin:
        admin.create_pipeline("area", f"{area}:Area", stream="s")
        for number, (seed, cuts) in enumerate([(1, CUTS), (2, CUTS), (3, [(0, n) for n in u.shape])]):
            with producer(group, "s", policy="block", placement=placed(seed)) as sim:
                sim.array("U", dtype="f4", shape=u.shape, spacing=spacing, origin=origin)
                with sim.step(0) as step:
                    put_blocks(step, {"U": u}, number, cuts)
            executed(group, number + 1, "area")
    found = [float(line.split()[-1]) for line in told_to.read_text().splitlines()]
    assert found == [pytest.approx(right, rel=1e-6)] * 3


# ---- in C++ ------------------------------------------------------------------------------------------------


def test_the_controller_in_cpp(one: forebay.LocalGroup, own_place: Path) -> None:
    """Built against the VTK that is installed with its headers; it tells the same of the same."""
    if not Path("/usr/include/vtk-9.1").exists():
        pytest.skip("there are no headers of VTK: apt install libvtk9-dev")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "FOREBAY_GROUP": one.path}

    def run(*words: object) -> None:
        done = subprocess.run(
            list(map(str, words)), env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr

    built = own_place / "built"
    run("cmake", "-S", ROOT / "integrations" / "vtk", "-B", built, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", built, "-j", "2")

    def ranks(*words: str) -> list[tuple[int, str, str]]:
        """Of all three: how they ended, and what they said."""
        command = str(built / "forebay_vtk_example")
        every = [
            subprocess.Popen(
                [command, str(rank), "3", *words],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(3)
        ]
        return [
            (one.wait(), said[0], said[1])
            for one, said in [(one, one.communicate(timeout=60)) for one in every]
        ]

    assert ranks() == [(0, "3 ranks: area 3.140892\n", ""), (0, "", ""), (0, "", "")]
    for ended, _, said in ranks("untried"):
        assert ended == 1
        assert "integrating: FB_UNSUPPORTED: vtkTransmitPolyDataPiece was not found to work" in said
    *others, last = ranks("alone")
    assert "integrating: FB_UNSUPPORTED: vtkTransmitPolyDataPiece was not found to work" in last[2]
    for ended, _, said in others:
        assert ended == 1
        assert re.search(
            r"FB_UNREACHABLE: .*rank 2 has revoked communicator \d+: FB_UNSUPPORTED: vtkTransmit", said
        )
    for ended, _, said in ranks("gone")[:2]:
        assert ended == 1
        assert re.search(r"FB_UNREACHABLE: .*: FB_CLOSED: a controller has gone without Close\(\)", said)
    first, second, last = ranks("dies")
    assert last == (0, "", "")
    for ended, out, said in (first, second):
        assert (ended, out) == (1, "")
        assert "integrating: FB_UNREACHABLE: " in said  # after what VTK says
    assert "rank 2 (" in first[2] + second[2]


def test_the_same_filters_are_refused_in_cpp() -> None:
    header = (ROOT / "integrations" / "vtk" / "refused.h").read_text()
    names = re.findall(r'"(vtk\w+)"', header.partition("/* of older versions")[0])
    assert names == sorted(names)
    modules = [importlib.import_module(f"vtkmodules.{name}") for name in filters._MODULES]
    known = {name: found for module in modules for name, found in vars(module).items()}
    bases = {base.__name__ for name in filters.TRIED for base in getattr(known.get(name), "__mro__", ())}
    takes_one = {
        found.__name__
        for found in known.values()
        if hasattr(found, "SetController") and hasattr(found, "override")
    }
    assert set(names) == takes_one - filters.TRIED - bases
