"""Steps and fields as xarray has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from support.arrays import reference
from support.sessions import consumer, open_ranks, producer, write_steps

import forebay

SHAPE = (4, 6)


def put(sim: forebay.Producer, number: int, time: float | None = None, **arrays: Any) -> None:
    with sim.step(number, time=time) as step:
        for name, array in arrays.items():
            step.put(name, array)


def test_a_field_has_its_dimensions_places_and_units(two: forebay.LocalGroup, transport: str) -> None:
    """Assembled of the blocks of several ranks, and alive after its step."""
    with (
        consumer(two, transport=transport) as reader,
        open_ranks(two, "s", 2, transport=transport) as ranks,
    ):
        for sim in ranks:
            sim.array(
                "U",
                dtype="f8",
                shape=SHAPE,
                dims=("y", "x"),
                origin=(1.0, -2.0),
                spacing=(0.5, 0.25),
                units="m/s",
                attrs={"long_name": "speed"},
            )
            sim.attr("time_units", "s")
        write_steps(ranks, [7], lambda number: reference(SHAPE, "f8", number))
        with reader.next() as step:
            array = step["U"].to_xarray()
            dataset = step.to_xarray()
        assert isinstance(array, xr.DataArray)
        assert (array.dims, array.name) == (("y", "x"), "U")
        np.testing.assert_array_equal(array.values, reference(SHAPE, "f8", 7))
        np.testing.assert_array_equal(array["y"], 1.0 + 0.5 * np.arange(4))
        np.testing.assert_array_equal(array["x"], -2.0 + 0.25 * np.arange(6))
        assert (array["x"].attrs["axis"], array.attrs["units"]) == ("X", "m/s")
        assert (array.attrs["long_name"], array.attrs["association"], array.attrs["location"]) == (
            "speed",
            "cell",
            "face",
        )
        assert (float(array["time"]), int(array["step"]), int(array["run"])) == (7 / 8, 7, ranks[0].run)
        assert array["time"].attrs == {"units": "s"}
        assert (array.attrs["forebay_stream"], array.attrs["forebay_run"]) == ("s", ranks[0].run)
        # As scientists then go on.
        assert float(array.sel(y=1.5, x=-1.75)) == reference(SHAPE, "f8", 7)[1, 1]
        xr.testing.assert_identical(dataset["U"].drop_attrs(), array.drop_attrs())
        assert dataset.attrs == {"time_units": "s", "forebay_stream": "s", "forebay_run": ranks[0].run}


def test_steps_are_put_one_behind_the_other(one: forebay.LocalGroup) -> None:
    with consumer(one, window=8) as reader, producer(one) as sim:
        sim.array("U", dtype="f4", shape=SHAPE)
        for number in range(3):
            put(sim, number, number / 4, U=reference(SHAPE, "f4", number))
        found = []
        for _ in range(3):
            with reader.next() as step:
                found.append(step.to_xarray())
        all_of_them = xr.concat(found, dim="time", coords="different", compat="equals")
        assert all_of_them["U"].dims == ("time", "U_dim_0", "U_dim_1")
        np.testing.assert_array_equal(all_of_them["time"], [0, 0.25, 0.5])
        np.testing.assert_array_equal(all_of_them["U"][2], reference(SHAPE, "f4", 2))


def test_vertices_and_cells_of_one_mesh(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("cells", dtype="f8", shape=(4,), dims=("x",), spacing=1.0, origin=0.5)
        sim.array("nodes", dtype="f8", shape=(5,), dims=("x",), spacing=1.0, association="vertex")
        put(sim, 0, cells=np.zeros(4), nodes=np.ones(5))
        with reader.next() as step:
            found = step.to_xarray()
            assert found["cells"].dims == ("x",)
            assert found["nodes"].dims == ("x_vertex",)
            assert found["nodes"].attrs["vertex_dims"] == ["x"]
            np.testing.assert_array_equal(found["x_vertex"], np.arange(5.0))
            assert step["nodes"].to_xarray().dims == ("x",)


def test_fields_that_do_not_fit_together(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.array("U", dtype="f8", shape=(4,), dims=("x",), spacing=1.0)
        sim.array("V", dtype="f8", shape=(4,), dims=("x",), spacing=2.0)
        sim.array("loose", dtype="f8", ndim=1)
        put(sim, 0, U=np.zeros(4), V=np.ones(4))
        with sim.step(1) as step:
            step.put("U", np.zeros(4))
            step.put("V", np.zeros(2), offset=(0,))
            step.put("loose", np.zeros(3))
        with reader.next() as found:
            with pytest.raises(
                forebay.Conflict, match="dimension 'x' has other places in field 'V' than in 'U'"
            ):
                found.to_xarray()
            assert list(found.to_xarray(["V"])) == ["V"]
        with reader.next() as found:
            assert list(found.to_xarray(["U"])) == ["U"]
            with pytest.raises(forebay.NotCovered, match="'V'"):
                found.to_xarray(["V"])
            with pytest.raises(forebay.NotFound, match="field 'loose' has no global shape"):
                found.to_xarray(["loose"])
            with pytest.raises(forebay.NotFound, match="'W'"):
                found.to_xarray(["W"])


def test_a_species_has_one_dimension(one: forebay.LocalGroup) -> None:
    with consumer(one) as reader, producer(one) as sim:
        sim.particles("ions", {"x": ("f8", 3), "charge": "f4"}, units={"x": "m"})
        with sim.step(0) as step:
            step.put("ions/x", np.arange(15.0).reshape(5, 3))
            step.put("ions/charge", np.arange(5, dtype="f4"))
        with reader.next() as found:
            ions = found.to_xarray("ions")
        assert ions["x"].dims == ("ions", "x_component")
        assert (ions["x"].attrs["units"], ions["charge"].dims) == ("m", ("ions",))
        np.testing.assert_array_equal(ions["x"], np.arange(15.0).reshape(5, 3))


def test_a_reader_of_a_part_gets_that(one: forebay.LocalGroup, transport: str) -> None:
    """With the places of its elements; static fields say them, too."""
    lies = np.linspace(0, 1, 6) ** 2
    needed = {"U": forebay.every(1, region=np.s_[2, 1::2]), "V": forebay.every(1), "x": forebay.every(1)}
    with (
        consumer(one, fields=needed, transport=transport) as reader,
        producer(one, transport=transport) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE, dims=("y", "x"), origin=(1.0, 0.0), spacing=(0.5, 1.0))
        sim.array("V", dtype="f8", shape=(3,), dims=("z",))
        sim.array("x", dtype="f8", shape=(6,), dims=("x",), units="m", static=True)
        put(sim, 0, U=reference(SHAPE, "f8", 0), V=np.arange(3.0), x=lies)
        with reader.next() as step:
            array, dataset = step["U"].to_xarray(), step.to_xarray()
            alone = step.to_xarray("V")
    np.testing.assert_array_equal(array.values, reference(SHAPE, "f8", 0)[2:3, 1::2])
    np.testing.assert_array_equal(array["y"], [2.0])
    np.testing.assert_array_equal(array["x"], lies[1::2])
    assert array["x"].attrs["units"] == "m"
    assert set(dataset.data_vars) == {"U", "V"}
    xr.testing.assert_identical(dataset["U"].drop_attrs(), array.drop_attrs())
    np.testing.assert_array_equal(alone["V"], [0, 1, 2])
