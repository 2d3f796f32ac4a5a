"""A short turn of what `make soak` does for ten minutes."""

from __future__ import annotations

from pathlib import Path

from soak import soak


def test_nothing_is_lost_while_servers_come_and_go(own_place: Path) -> None:
    found = soak(12, seed=2026, stops=0)
    assert found["problems"] == []
    assert found["killed"] > 1
    assert found["steps"] > 300
    assert found["blocks_compared"] > 300
    assert found["pipeline_steps"] > 10
    assert found["driven_steps"] > 10
