"""Private groups, child processes, each transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forebay
from support.children import Child
from support.groups import BUDGET


@pytest.fixture
def one(own_place: Path) -> Iterator[forebay.LocalGroup]:
    """A private group of one server."""
    with forebay.local(servers=1, budget_bytes=BUDGET) as group:
        yield group


@pytest.fixture
def two(own_place: Path) -> Iterator[forebay.LocalGroup]:
    """A private group of two servers."""
    with forebay.local(servers=2, budget_bytes=BUDGET) as group:
        yield group


@pytest.fixture
def three(own_place: Path) -> Iterator[forebay.LocalGroup]:
    """A private group of three servers."""
    with forebay.local(servers=3, budget_bytes=BUDGET) as group:
        yield group


@pytest.fixture
def patient_three(own_place: Path) -> Iterator[forebay.LocalGroup]:
    """A private group of three servers of which none is given up while a test runs."""
    with forebay.local(servers=3, budget_bytes=BUDGET, silence=600) as group:
        yield group


@pytest.fixture(params=[1, 2], ids=["one server", "two servers"])
def group(own_place: Path, request: pytest.FixtureRequest) -> Iterator[forebay.LocalGroup]:
    """A private group of one server, and of two."""
    with forebay.local(servers=request.param, budget_bytes=BUDGET) as made:
        yield made


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport."""
    name: str = request.param
    return name


@pytest.fixture
def child(own_place: Path) -> Iterator[Callable[..., Child]]:
    """Starts Python snippets as processes; what still runs at the end is killed."""
    children: list[Child] = []

    def start(code: str, *arguments: object, **options: object) -> Child:
        children.append(Child(code, *arguments, **options))
        return children[-1]

    yield start
    for started in children:
        started.close()
