"""Waiting for what comes about in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def wait_until(condition: Callable[[], Any], timeout: float = 20.0, what: str = "") -> Any:
    """Waits until the condition holds; returns what it returned."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what or condition}"
        time.sleep(0.005)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bounds what takes several times as long where deadlines add up."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds
