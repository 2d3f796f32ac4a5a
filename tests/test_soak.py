"""The soak test (`make soak`) would find something."""

from __future__ import annotations

import soak
from support import reference

import forebay


def test_a_wrong_byte_is_found(one: forebay.LocalGroup) -> None:
    with (
        forebay.Consumer("s", group=one.path, timeout=20) as reader,
        forebay.Producer("s", group=one.path, timeout=20) as sim,
    ):
        shape = (soak.ROWS, soak.COLUMNS)
        sim.array("U", dtype="f8", shape=shape)
        sim.array("small", dtype="f8", shape=(soak.RANKS * soak.SMALL,))
        for spoiled in (False, True):
            number = int(spoiled)
            whole = reference(shape, "f8", number)
            whole[90, 190] += spoiled
            with sim.step(number) as step:
                step.put("U", whole)
                for rank in range(soak.RANKS):
                    step.put("small", soak.small(rank, number), offset=(rank * soak.SMALL,), number=rank)
            checks = soak.Checks()
            checks.step(reader.next())
            assert bool(checks.wrong) == spoiled
