# SPDX-License-Identifier: Apache-2.0
"""Cuts an isosurface out of the blocks of a field, such that the pieces fit together without a seam."""

import math
from dataclasses import dataclass

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D


@dataclass
class Grid:
    """Where a field's elements lie. All tuples are (x, y, z), as VTK wants them; a field's are (z, y, x)."""

    extents: tuple
    spacing: tuple
    origin: tuple

    @classmethod
    def of(cls, field):
        spacing, origin = field.spacing or (1.0,) * 3, field.origin or (0.0,) * 3
        return cls(tuple(field.shape[::-1]), tuple(spacing[::-1]), tuple(origin[::-1]))

    @property
    def low(self):
        return np.array(self.origin)

    @property
    def high(self):
        return self.low + np.array(self.spacing) * (np.array(self.extents) - 1)

    @property
    def size(self):
        """The length of the diagonal."""
        return float(np.linalg.norm(self.high - self.low))


@dataclass
class Surface:
    points: np.ndarray  # (n, 3)
    normals: np.ndarray  # (n, 3) to the outside
    colors: np.ndarray  # (n,) the values of the field that colours
    seam: np.ndarray  # (n,) whether a neighbouring block may have this point too
    triangles: np.ndarray  # (m, 3) indices of points

    @classmethod
    def empty(cls):
        vectors, numbers = np.zeros((0, 3), "f4"), np.zeros(0, "f4")
        return cls(vectors, vectors, numbers, np.zeros(0, "?"), np.zeros((0, 3), "i8"))

    @classmethod
    def join(cls, surfaces):
        surfaces = [cls.empty(), *surfaces]
        ends = np.cumsum([len(s.points) for s in surfaces])
        return cls(
            points=np.concatenate([s.points for s in surfaces]),
            normals=np.concatenate([s.normals for s in surfaces]),
            colors=np.concatenate([s.colors for s in surfaces]),
            seam=np.concatenate([s.seam for s in surfaces]),
            triangles=np.concatenate(
                [s.triangles + end - len(s.points) for s, end in zip(surfaces, ends, strict=True)]
            ),
        )

    def gather(self, comm):
        """The surfaces of all workers as one, at worker 0; nothing at the others. Arrays travel as they lie in memory."""
        mine = np.array([len(self.points), len(self.triangles)])
        counts = np.empty((comm.size, 2), mine.dtype)
        comm.Allgather(mine, counts)
        points, triangles = counts.T
        whole = Surface(
            points=gather_rows(comm, self.points, "f4", points),
            normals=gather_rows(comm, self.normals, "f4", points),
            colors=gather_rows(comm, self.colors, "f8", points),
            seam=gather_rows(comm, self.seam, "?", points),
            triangles=gather_rows(comm, self.triangles, "i8", triangles),
        )
        if comm.rank != 0:
            return None
        # Indices count each worker's points: they begin behind those of the workers before it.
        whole.triangles += np.repeat(np.cumsum(points) - points, triangles)[:, np.newaxis]
        return whole

    def smooth_seams(self):
        """Gives the copies of a point on a seam one normal, so that no seam shows."""
        if not self.seam.any():
            return
        _, group = np.unique(self.points[self.seam], axis=0, return_inverse=True)
        group = group.reshape(-1)
        normals = [np.bincount(group, self.normals[self.seam, axis])[group] for axis in range(3)]
        self.normals[self.seam] = unit(np.stack(normals, axis=1))


def gather_rows(comm, rows, dtype, counts):
    """The rows of all workers, of which each has so many, one behind the other at worker 0."""
    mine = np.ascontiguousarray(rows, dtype)
    if comm.rank != 0:
        comm.Gatherv(mine, None)
        return None
    whole = np.empty((counts.sum(), *mine.shape[1:]), dtype)
    comm.Gatherv(mine, [whole, counts * math.prod(mine.shape[1:])])
    return whole


def cut(block, color_block, grid, isovalues, outside):
    """The surface within one block: from its first element to the first of its neighbour, which is a ghost.

    Where it meets the faces of the domain it is closed with flat lids, which show the inside's colours.
    """
    data = np.asarray(block.data)
    # Ghosts beyond the global array repeat its other side: good for slopes, but not part of the picture.
    first, room = np.array(block.offset), np.array(grid.extents[::-1]) - block.offset
    size = np.minimum(np.array(block.shape) + np.minimum(block.ghost_high, 1), room)
    if min(size) < 2:
        return Surface.empty()
    box = tuple(slice(low, low + n) for low, n in zip(block.ghost_low, size, strict=True))
    # A layer around the domain that is far outside makes the lids.
    lids = [(int(f == 0), int(n == r)) for f, n, r in zip(first, size, room, strict=True)]
    last = first + size - 1
    image = vtkImageData()
    # Counted from the whole array's origin, so that blocks compute the very same points on their seams.
    image.SetExtent([int(e) for d in (2, 1, 0) for e in (first[d] - lids[d][0], last[d] + lids[d][1])])
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin)
    far = outside * 1e4 * (np.abs(data).max() + 1)
    attach(image, "values", np.pad(data[box], lids, constant_values=far))
    attach(image, "slopes", *(np.pad(slope, lids, "edge") for slope in slopes(data, box, grid)))
    attach(image, "colors", np.pad(np.asarray(color_block.data)[box], lids, "edge"))
    found = contour(image, isovalues)
    if found.GetNumberOfPolys() == 0:
        return Surface.empty()

    points = vtk_to_numpy(found.GetPoints().GetData())
    triangles = vtk_to_numpy(found.GetPolys().GetConnectivityArray()).reshape(-1, 3).astype("i8")
    at = (points - grid.low) / grid.spacing
    return with_lids(
        Surface(
            points=points.clip(grid.low.astype("f4"), grid.high.astype("f4")),
            normals=unit(outside * vtk_to_numpy(found.GetPointData().GetArray("slopes"))),
            colors=vtk_to_numpy(found.GetPointData().GetArray("colors")),
            seam=((at < first[::-1] + 1e-3) | (at > last[::-1] - 1e-3)).any(axis=1),
            triangles=triangles[:, ::-outside],  # VTK turns a normal round where it sees a triangle's back
        ),
        grid,
    )


def slopes(data, box, grid):
    """Along x, y and z. Of second order at the edges too, so that neighbours agree without wider ghosts."""
    for axis, spacing in zip((2, 1, 0), grid.spacing, strict=True):
        yield np.gradient(data, spacing, axis=axis, edge_order=min(2, data.shape[axis] - 1))[box]


def attach(image, name, *components):
    values = np.stack(components, axis=-1).reshape(-1, len(components)).astype("f4")
    array = numpy_to_vtk(values, deep=True)
    array.SetName(name)
    image.GetPointData().AddArray(array)


def contour(image, isovalues):
    cutter = vtkFlyingEdges3D()
    cutter.SetInputData(image)
    cutter.SetInputArrayToProcess(0, 0, 0, 0, "values")
    cutter.ComputeNormalsOff()  # ours know the ghosts
    cutter.ComputeScalarsOff()
    cutter.InterpolateAttributesOn()
    for i, value in enumerate(isovalues):
        cutter.SetValue(i, value)
    cutter.Update()
    return cutter.GetOutput()


def with_lids(surface, grid):
    """Gives the lids points of their own with the face's normal: a sharp rim instead of a smeared one."""
    pieces = []
    for axis in range(3):
        for face, side in ((grid.low, -1), (grid.high, 1)):
            near = np.abs(surface.points[:, axis] - face[axis]) < 1e-3 * grid.spacing[axis]
            lid = near[surface.triangles].all(axis=1)
            corners = surface.triangles[lid].reshape(-1)
            normals = np.zeros((len(corners), 3), "f4")
            normals[:, axis] = side
            triangles = np.arange(len(corners)).reshape(-1, 3)
            alone = np.zeros(len(corners), "?")
            pieces.append(
                Surface(surface.points[corners], normals, surface.colors[corners], alone, triangles)
            )
            surface.triangles = surface.triangles[~lid]
    return Surface.join([surface, *pieces])


def unit(vectors):
    return (vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-30)).astype("f4")
