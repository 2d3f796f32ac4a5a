"""Fixtures: private groups, child processes, and the check that nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import BUDGET, MARK, Child, marked_processes, wait_until

import forebay


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


def pytest_configure() -> None:
    """Ctrl-C reaches children also where a shell has started the tests in the background: it is ignored there."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def namespaces(*which: str) -> Iterator[list[str]]:
    """Network namespaces: they count as hosts, and share no memory. What is made in them goes with them."""
    names = [f"fb{os.getpid()}{name}" for name in which]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made: {error}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def attach(host: str, number: int, device: str) -> None:
    """Gives a host its address."""
    ip("-n", host, "addr", "add", f"10.99.0.{number + 1}/24", "dev", device)
    ip("-n", host, "link", "set", device, "up")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two hosts with a cable between them."""
    with namespaces("a", "b") as names:
        ip("-n", names[0], "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", names[1])
        for number, name in enumerate(names):
            attach(name, number, f"v{number}")
        yield names


@pytest.fixture
def three_hosts() -> Iterator[list[str]]:
    """Three hosts, and as the last one the switch between them."""
    with namespaces("a", "b", "c", "switch") as names:
        *ends, switch = names
        ip("-n", switch, "link", "add", "name", "sw0", "type", "bridge")
        ip("-n", switch, "link", "set", "sw0", "up")
        for number, name in enumerate(ends):
            port = f"p{number}"
            ip("-n", switch, "link", "add", "name", port, "type", "veth", "peer", "name", "v0", "netns", name)
            ip("-n", switch, "link", "set", port, "master", "sw0", "up")
            attach(name, number, "v0")
        yield names
