"""Each benchmark measures: tiny sizes, so that its programs and calls are known to work. How fast anything is, is not tested."""

from __future__ import annotations

import json
import subprocess

import pytest
from support.commands import FOREBAY

from forebay.bench import BENCHES

# It wants MPI's launcher on several cores, and does what the demo does.
ELSEWHERE = {"slowdown"}
PEERS = {"stream": ["--peer", "none"], "latency": ["--peer", "none"]}


@pytest.mark.parametrize("name", sorted(set(BENCHES) - ELSEWHERE))
def test_it_measures(name: str) -> None:
    done = subprocess.run(
        [FOREBAY, "bench", name, "--quick", "--json", *PEERS.get(name, [])],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # What fails in a thread of a benchmark is told there alone.
    assert "Traceback" not in done.stderr
    results = json.loads(done.stdout)
    assert results
    for result in results:
        assert result["bench"] == name
        assert result["n"] > 0, result
