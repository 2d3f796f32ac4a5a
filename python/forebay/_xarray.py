# SPDX-License-Identifier: Apache-2.0
"""Steps and fields as xarray has them: labelled dimensions, coordinates, units. xarray is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._errors import Conflict, NotFound

if TYPE_CHECKING:
    from forebay._step import Field, Step

_AXES = {"x": "X", "y": "Y", "z": "Z"}
"""What CF calls the axis of a dimension that is named so."""
_LOCATIONS = {"cell": "face", "vertex": "node"}
"""What SGRID and UGRID call it."""


def _package() -> Any:
    try:
        return importlib.import_module("xarray")
    except ImportError as error:
        raise ImportError(f"{error}; xarray comes with: pip install 'forebay[xarray]'") from error


def of_field(field: Field, step: Step) -> Any:
    """A field as a DataArray."""
    array = _variable(_package(), field, step)
    return array.assign_coords(_when(step)).assign_attrs(_whose(step))


def of_step(step: Step, fields: str | Sequence[str] | None) -> Any:
    """The fields of a step as a Dataset; a particle species, by its name, as one of its own."""
    xarray = _package()
    if isinstance(fields, str) and fields not in step:
        return _species(xarray, step, fields)
    names = step.fields if fields is None else [fields] if isinstance(fields, str) else list(fields)
    chosen = [step[name] for name in names]
    if fields is None:
        chosen = [field for field in chosen if field.shape is not None]
    arrays = [_variable(xarray, field, step) for field in chosen]
    # What says where others lie is a coordinate of theirs.
    places_of_others = {name for array in arrays for name in array.coords}
    arrays = _renamed([array for array in arrays if array.name not in places_of_others])
    variables: dict[str, Any] = {}
    places: dict[str, Any] = {}
    for array in arrays:
        for dim in array.dims:
            _agree(places, array, dim)
        variables[array.name] = array
    found = xarray.Dataset(variables, attrs={**step.attrs, **_whose(step)})
    return found.assign_coords(_when(step))


def _variable(xarray: Any, field: Field, step: Step) -> Any:
    """The field assembled, as far as the reader's contract asks for it, with the places of its elements."""
    if field.shape is None:
        raise NotFound(
            f"field '{field.name}' has no global shape, and so no place in an array: read its blocks one by one, or name its "
            "species"
        )
    dims = field.dims or tuple(f"{field.name}_dim_{number}" for number in range(field.ndim))
    part = field._needed()
    coords: dict[Any, Any] = {}
    for number, (dim, extent) in enumerate(zip(dims, field.shape, strict=True)):
        about = {"axis": _AXES[dim]} if dim in _AXES else {}
        fixed = _places(field, dim, extent, step)
        if fixed is not None:
            units = {"units": fixed.units} if fixed.units else {}
            coords[dim] = (dim, fixed[part[number]], {**fixed.attrs, **units, **about})
        elif field.spacing or field.origin:
            spacing = field.spacing[number] if field.spacing else 1.0
            origin = field.origin[number] if field.origin else 0.0
            coords[dim] = (dim, origin + spacing * np.arange(extent)[part[number]], about)
    attrs = {**field.attrs, "association": field.association, "location": _LOCATIONS[field.association]}
    if field.units:
        attrs["units"] = field.units
    return xarray.DataArray(field[part], coords, dims, name=field.name, attrs=attrs)


def _places(field: Field, dim: str, extent: int, step: Step) -> Field | None:
    """The static field that says where the elements lie along a dimension: it has the dimension's name and length."""
    if dim == field.name or dim not in step:
        return None
    found = step[dim]
    is_whole = found.static and found.shape == (extent,) and found._needed() == (slice(0, extent),)
    return found if is_whole else None


def _when(step: Step) -> dict[str, Any]:
    """Time, number and run, as coordinates without a dimension."""
    time = np.nan if step.time is None else step.time
    units = step.attrs.get("time_units")
    return {
        "time": ((), time, {"units": units} if isinstance(units, str) else {}),
        "step": ((), step.number),
        "run": ((), step.run),
    }


def _whose(step: Step) -> dict[str, Any]:
    return {"forebay_stream": step.stream, "forebay_run": step.run}


def _renamed(arrays: list[Any]) -> list[Any]:
    """Where vertices and cells have dimensions of one name and of other lengths, those of vertices are called so."""
    cells: dict[Any, int] = {}
    for array in arrays:
        if array.attrs["association"] == "cell":
            cells.update(array.sizes)
    told = []
    for array in arrays:
        names = {
            dim: f"{dim}_vertex"
            for dim, extent in array.sizes.items()
            if array.attrs["association"] == "vertex" and cells.get(dim, extent) != extent
        }
        told.append(array.rename(names).assign_attrs(vertex_dims=list(names)) if names else array)
    return told


def _agree(places: dict[Any, tuple[str, Any]], array: Any, dim: Any) -> None:
    """Notes where the elements of a dimension lie; fails if those of another field lie elsewhere."""
    mine = array.coords[dim].values if dim in array.coords else array.sizes[dim]
    other, known = places.setdefault(dim, (array.name, mine))
    if not np.array_equal(known, mine):
        raise Conflict(
            f"dimension '{dim}' has other places in field '{array.name}' than in '{other}': choose fields that share it "
            f"(fields=['{array.name}'])"
        )


def _species(xarray: Any, step: Step, species: str) -> Any:
    """A particle species: one dimension of its name, vectors with a second one."""
    variables = {}
    for name, values in step.particles(species).items():
        field = step[f"{species}/{name}"]
        dims = (species,) if values.ndim == 1 else (species, f"{name}_component")
        attrs = {**field.attrs, **({"units": field.units} if field.units else {})}
        variables[name] = (dims, values, attrs)
    found = xarray.Dataset(variables, attrs={**step.attrs, **_whose(step)})
    return found.assign_coords(_when(step))
