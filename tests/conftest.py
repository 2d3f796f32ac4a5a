"""What runs around every test: the fixtures and checks of the package `support`."""

from __future__ import annotations

import signal

import pytest

# The values in a failed assertion are shown also where it stands in one of these.
pytest.register_assert_rewrite("support")

pytest_plugins = [
    "support.fixtures",
    "support.hosts",
    "support.native",
    "support.pipelines",
    "support.tidiness",
]


def pytest_configure() -> None:
    """Ctrl-C reaches children also where a shell has started the tests in the background: it is ignored there."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
