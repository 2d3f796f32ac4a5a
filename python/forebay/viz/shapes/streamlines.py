# SPDX-License-Identifier: Apache-2.0
"""Lines along which a vector field flows, from block to block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkFiltersCore import vtkTriangleFilter, vtkTubeFilter

from forebay._step import Step
from forebay.viz.blocks import Piece, pieces
from forebay.viz.domain import Domain
from forebay.viz.facts import Facts
from forebay.viz.layers import Streamlines
from forebay.viz.parts import Part
from forebay.viz.shapes.arrows import check_vector
from forebay.viz.surface import Surface

Array = NDArray[Any]

# How far a line goes in one step, in elements; more, if it would have more steps than that.
_STRIDE = 0.5
_STEPS_MAX = 20_000
_SIDES = 8


class _Lines:
    """Some lines that are being drawn, each a row: where it is, forward or backward, and how long it goes on."""

    def __init__(self, points: Array, ways: Array, left: Array) -> None:
        self.points, self.ways, self.left = points, ways, left

    def pick(self, which: Array) -> _Lines:
        return _Lines(self.points[which], self.ways[which], self.left[which])

    def rows(self) -> Array:
        return np.concatenate([self.points, self.ways[:, None], self.left[:, None]], axis=1)

    @classmethod
    def of_rows(cls, rows: Array) -> _Lines:
        rows = rows.reshape(-1, 5)
        return cls(rows[:, :3].copy(), rows[:, 3].copy(), rows[:, 4].copy())


def streamlines(layer: Streamlines, step: Step, domain: Domain, facts: Facts) -> list[Part]:
    """The parts of all lines that lie in this worker's blocks. What leaves a block goes on in the next one, whoever has that.

    By the classical method of Runge and Kutta of fourth order, along lines of unit speed, with linear interpolation.
    """
    check_vector(layer.vector, step)
    found = pieces(step, (*layer.vector, *layer.fields), domain, below=1, above=2)
    lines = _seeds(layer, domain)
    tracks: list[list[Array]] = [[] for _ in found]
    while True:
        leaving = [_Lines.of_rows(np.zeros((0, 5)))]
        for piece, track in zip(found, tracks, strict=True):
            here = lines.pick(_inside(piece, lines.points) & (lines.left > 0))
            if len(here.points):
                leaving.append(_follow(piece, layer, here, track))
        mine = np.concatenate([some.rows() for some in leaving])
        counts = np.zeros(facts.comm.Get_size(), "i8")
        facts.comm.Allgather(np.array([mine.size]), counts)
        if not counts.any():
            break
        every = np.empty(int(counts.sum()))
        facts.comm.Allgatherv(mine.reshape(-1), [every, counts])
        lines = _Lines.of_rows(every)
    width = layer.width / 2
    return [
        Part.of(piece, _tubes(piece, layer, track, width)) for piece, track in zip(found, tracks, strict=True)
    ]


def _seeds(layer: Streamlines, domain: Domain) -> _Lines:
    """Where lines begin: at equal distances in the domain, both forward and backward."""
    low, high = domain.scene_box
    axes = [
        a + (b - a) * (np.arange(count) + 0.5) / count
        for a, b, count in zip(low, high, layer.seeds, strict=True)
    ]
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    both = np.concatenate([points, points])
    return _Lines(both, np.repeat([1.0, -1.0], len(points)), np.full(len(both), layer.length))


def _index(piece: Piece, points: Array) -> Array:
    """Where points lie, in elements of the grid, as z, y, x."""
    return ((points - piece.grid.origin) / piece.grid.spacing)[:, ::-1]


def _inside(piece: Piece, points: Array) -> NDArray[np.bool_]:
    """Which of them are in a block: up to the first element of the next one, which has that; at the end of the domain including it."""
    index = _index(piece, points)
    last = np.array(piece.grid.shape) - 1
    ends = np.where(np.array(piece.end) > last, np.nextafter(last, np.inf), np.array(piece.end))
    return np.asarray(np.all((index >= piece.begin) & (index < ends), axis=1))


def _follow(piece: Piece, layer: Streamlines, lines: _Lines, track: list[Array]) -> _Lines:
    """Draws lines until they leave the block, end, or are as long as they should be; returns those that have left it."""
    stride = max(_STRIDE * float(piece.grid.spacing.min()), layer.length / _STEPS_MAX)
    paths: list[list[Array]] = [[point] for point in lines.points]
    alive = np.arange(len(lines.points))
    left = [np.zeros(0, "i8")]
    while alive.size:
        steps = np.minimum(lines.left[alive], stride)
        points, ways = lines.points[alive], (lines.ways[alive] * steps)[:, None]
        moved = _moved(piece, layer.vector, points, ways)
        goes = np.isfinite(moved.sum(axis=1))
        alive, moved = alive[goes], moved[goes]
        lines.points[alive] = moved
        # What is left of a step by rounding is none.
        lines.left[alive] -= steps[goes]
        lines.left[lines.left < 1e-6 * stride] = 0
        for line, point in zip(alive.tolist(), moved, strict=True):
            paths[line].append(point)
        stays, goes_on = _inside(piece, moved), lines.left[alive] > 0
        left.append(alive[~stays & goes_on])
        alive = alive[stays & goes_on]
    track += [np.array(path) for path in paths if len(path) > 1]
    return lines.pick(np.concatenate(left))


def _moved(piece: Piece, vector: tuple[str, str, str], points: Array, ways: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        one = _direction(piece, vector, points)
        two = _direction(piece, vector, points + ways / 2 * one)
        three = _direction(piece, vector, points + ways / 2 * two)
        four = _direction(piece, vector, points + ways * three)
        return np.asarray(points + ways / 6 * (one + 2 * two + 2 * three + four))


def _direction(piece: Piece, vector: tuple[str, str, str], points: Array) -> Array:
    """Where the field points to there, 1 long; NaN where it is 0 or there is none."""
    found = np.stack([sampled(piece, name, points) for name in vector], axis=1)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(lengths > 0, found / lengths, np.nan)


def sampled(piece: Piece, name: str, points: Array) -> Array:
    """A field at some points: linear between its eight elements around each; NaN outside of what the piece has."""
    values, index = piece.values[name], _index(piece, points) - piece.first
    last = np.array(values.shape) - 1
    outside = np.asarray(np.any((index < 0) | (index > last) | ~np.isfinite(index), axis=1))
    index = np.where(outside[:, None], 0, index)
    low = np.minimum(np.floor(index).astype("i8"), np.maximum(last - 1, 0))
    part = index - low
    found = np.zeros(len(points))
    for corner in np.ndindex(2, 2, 2):
        share = np.prod(np.where(corner, part, 1 - part), axis=1)
        z, y, x = np.minimum(low + corner, last).T
        # What counts nothing may be no number.
        found += np.where(share == 0, 0, share * values[z, y, x])
    return np.where(outside, np.nan, found)


def _tubes(piece: Piece, layer: Streamlines, track: list[Array], radius: float) -> Surface:
    if not track:
        return Surface.empty()
    points = np.concatenate(track)
    if layer.color is None:
        values = np.linalg.norm([sampled(piece, name, points) for name in layer.vector], axis=0)
    else:
        values = sampled(piece, layer.color, points)
    lines, data, places = vtkCellArray(), vtkPolyData(), vtkPoints()
    lengths = np.array([len(path) for path in track])
    lines.SetData(
        numpy_to_vtk(np.concatenate([[0], np.cumsum(lengths)]).astype("i8"), deep=True),
        numpy_to_vtk(np.arange(len(points), dtype="i8"), deep=True),
    )
    places.SetData(numpy_to_vtk(points.astype("f4"), deep=True))
    data.SetPoints(places)
    data.SetLines(lines)
    array = numpy_to_vtk(np.ascontiguousarray(values), deep=True)
    array.SetName("values")
    data.GetPointData().AddArray(array)
    tubes, triangles = vtkTubeFilter(), vtkTriangleFilter()
    tubes.SetInputData(data)
    tubes.SetRadius(radius)
    tubes.SetNumberOfSides(_SIDES)
    tubes.CappingOn()
    triangles.SetInputConnection(tubes.GetOutputPort())
    triangles.Update()
    made = triangles.GetOutput()
    if made.GetNumberOfPolys() == 0:
        return Surface.empty()
    return Surface(
        vtk_to_numpy(made.GetPoints().GetData()),
        vtk_to_numpy(made.GetPointData().GetNormals()),
        vtk_to_numpy(made.GetPointData().GetArray("values")),
        vtk_to_numpy(made.GetPolys().GetConnectivityArray()).reshape(-1, 3).astype("i8"),
    )
