"""Every test has a place of its own, and leaves no process, file or memory behind."""

from __future__ import annotations

import gc
import os
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.processes import MARK, marked_processes
from support.waiting import wait_until


def shared_files() -> set[str]:
    """Files in /dev/shm that could be ours."""
    place = Path("/dev/shm")
    return {entry.name for entry in place.iterdir() if "forebay" in entry.name} if place.is_dir() else set()


def open_memory_files() -> int:
    """Memory files that this process has open or mapped."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += "memfd:" in os.readlink(entry)
        except OSError:
            continue
    return count + Path("/proc/self/maps").read_text().count("memfd:forebay")


def pytest_collection_finish() -> None:
    """What has been imported stays: a collection after each test then looks only at what that test has made."""
    gc.collect()
    gc.freeze()


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers whether a test failed: its traceback then keeps what the test held."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(autouse=True)
def own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Gives a test directories of its own and checks that it leaves no process, file or memory behind."""
    mark = uuid.uuid4().hex
    temporary, runtime = tmp_path / "tmp", tmp_path / "run"
    temporary.mkdir()
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("FOREBAY_GROUP", raising=False)
    before = shared_files()
    yield tmp_path
    wait_until(lambda: not marked_processes(mark), 10, f"left running: {marked_processes(mark)}")
    assert shared_files() <= before
    assert list(temporary.iterdir()) == []
    assert [entry for entry in runtime.rglob("*") if entry.is_file()] == []
    if request.node.stash.get(FAILED, False):
        return
    gc.collect()
    assert open_memory_files() == 0, "this process still maps memory of servers that are gone"
