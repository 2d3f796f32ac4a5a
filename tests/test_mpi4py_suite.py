"""mpi4py's own tests of what Forebay has run on its communicators, from the source archive that its authors publish."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent / "target" / "mpi4py" / "test"
MODULES = {
    "test_cco_buf": 60,
    "test_cco_nb_buf": 60,
    "test_cco_nb_vec": 50,
    "test_cco_obj": 36,
    "test_cco_vec": 50,
    "test_msgspec": 44,
    "test_msgzero": 8,
    "test_op": 7,
    "test_p2p_buf": 12,
    "test_p2p_obj": 28,
    "test_pickle": 6,
    "test_request": 8,
    "test_status": 9,
}
"""The modules, and how many tests of each there are at least that ask for nothing else than what is there."""


@pytest.mark.skipif(not TESTS.exists(), reason="mpi4py's tests are not here: run `make mpi4py-tests`")
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("module", MODULES)
def test_mpi4pys_own(module: str, ranks: int, own_place: Path) -> None:
    suite = HERE / "mpi4py_suite"
    run = [sys.executable, "-m", "forebay.MPI", "-n", str(ranks), str(suite / "run.py"), str(TESTS), module]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=100, check=False)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert len(told) == ranks
    assert all(rank["good"] and rank["ran"] >= MODULES[module] for rank in told), told
