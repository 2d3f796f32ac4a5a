"""Bytes that no honest peer sends: told by kind, and the servers go on with everybody else."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.arrays import reference
from support.groups import edited, is_given_back
from support.sessions import check_it_works, consumer, producer
from support.spoiling import MAGIC, VERSION, Proxy, dial, receive
from support.waiting import wait_until

import forebay

SHAPE = (8, 6)


def opening(version: int = VERSION, body: bytes = bytes(48)) -> bytes:
    return MAGIC + struct.pack("<HH", version, len(body)) + body


def test_another_version_is_told(two: forebay.LocalGroup, transport: str) -> None:
    for version in (0, VERSION - 1, VERSION + 1, 99, 65535):
        with dial(two, transport) as made:
            made.sendall(opening(version))
            head = receive(made, 13)
            assert head[:8] == MAGIC
            assert head[10] == forebay.WrongVersion.code
    check_it_works(two, transport)


@pytest.mark.parametrize(
    "answer, error",
    [
        (MAGIC + struct.pack("<HBH", 99, 0, 48) + bytes(48), forebay.WrongVersion),
        (MAGIC + struct.pack("<HBH", 99, 13, 2) + b"no", forebay.WrongVersion),
        (MAGIC + struct.pack("<HBH", VERSION, 0, 48) + bytes(48), forebay.WrongSecret),
        (MAGIC + struct.pack("<HBH", VERSION, 12, 2) + b"no", forebay.WrongSecret),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", forebay.Protocol),
        (MAGIC + struct.pack("<HBH", VERSION, 200, 2) + b"no", forebay.Protocol),
        (MAGIC + struct.pack("<HBH", VERSION, 0, 65535), forebay.Error),
        (MAGIC[:5], forebay.Error),
        (b"", forebay.Error),
    ],
    ids=["version", "refused", "secret", "refused secret", "http", "unknown", "long", "cut", "closed"],
)
def test_a_server_that_is_none(
    two: forebay.LocalGroup, own_place: Path, answer: bytes, error: type[forebay.Error]
) -> None:
    """What answers in the place of a server is told by kind, and asked once."""
    calls = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        stop = threading.Event()

        def serve() -> None:
            nonlocal calls
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    made, _ = listener.accept()
                    calls += 1
                    with made:
                        made.settimeout(5)
                        receive(made, 60)
                        made.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        server = {"id": 0, "pid": 1, "addresses": [f"tcp:127.0.0.1:{port}"]}
        path = edited(two, own_place / "fake.json", servers=[server], size=1)
        try:
            with pytest.raises(error):
                consumer(path, timeout=5)
            # One that hangs up may be dying: it is looked whether it is there at all.
            assert calls == 1 + (error is forebay.Error and len(answer) < 10)
        finally:
            stop.set()
            thread.join()


def test_a_server_that_never_answers(two: forebay.LocalGroup, own_place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = {"id": 0, "pid": 4242, "addresses": [f"tcp:127.0.0.1:{port}"]}
        path = edited(two, own_place / "fake.json", servers=[server], size=1)
        started = time.monotonic()
        with pytest.raises(forebay.Timeout, match=r"server0 \(process 4242\)"):
            consumer(path, timeout=0.5)
        assert time.monotonic() - started < 10


def test_openings_cut_anywhere(two: forebay.LocalGroup, transport: str) -> None:
    """Handshakes that end early, are garbage, or stay open: servers go on with everybody else."""
    whole = opening()
    waiting = []
    for length in range(len(whole)):
        made = dial(two, transport)
        made.sendall(whole[:length])
        if length % 3 == 0:
            waiting.append(made)
        else:
            made.close()
    for data in (
        os.urandom(2000),
        opening(VERSION, b""),
        MAGIC + struct.pack("<HH", VERSION, 65535) + bytes(70000),
        MAGIC + struct.pack("<HH", VERSION, 65535),
        opening() * 20,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        with dial(two, transport) as made, contextlib.suppress(ConnectionError):
            made.sendall(data)
            receive(made, 1 << 16) if len(data) > 60 else None
    check_it_works(two, transport)
    for made in waiting:
        made.close()


@pytest.fixture
def proxy(one: forebay.LocalGroup, own_place: Path, transport: str) -> Iterator[Proxy]:
    made = Proxy(one, own_place / "proxy.json", transport)
    yield made
    made.close()


def small_session(path: str, transport: str, values: list[float]) -> None:
    """A producer and a reader of blocks that travel inside control messages."""
    with (
        contextlib.closing(consumer(path, transport=transport, timeout=1, start="run")) as reader,
        contextlib.closing(producer(path, transport=transport, timeout=1, on_loss="fail")) as sim,
    ):
        sim.array("U", dtype="f8", shape=SHAPE)
        for number in range(3):
            with sim.step(number) as step:
                step.put("U", reference(SHAPE, "f8", number))
            with reader.next() as found:
                np.testing.assert_array_equal(found["U"][...], reference(SHAPE, "f8", found.number))
                values.append(found.number)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_flipped_bit_in_a_control_message(
    proxy: Proxy, one: forebay.LocalGroup, transport: str, direction: str
) -> None:
    """It is noticed by one side or the other; never a wrong byte, and the server goes on."""
    for place in (*range(0, 62, 7), *range(70, 400, 23), *range(500, 1500, 161)):

        def spoil(data: bytes, position: int, where: str, place: int = place) -> bytes:
            if where == direction and position <= place < position + len(data):
                changed = bytearray(data)
                changed[place - position] ^= 1 << place % 8
                return bytes(changed)
            return data

        proxy.spoil = spoil
        seen: list[float] = []
        with contextlib.suppress(forebay.Error):
            small_session(proxy.path, transport, seen)
        assert seen == sorted(seen)
    check_it_works(one, transport)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("direction", ["up", "down"])
def test_lines_cut_at_any_byte(proxy: Proxy, one: forebay.LocalGroup, transport: str, direction: str) -> None:
    """Told as an error that names the server; the server forgets what was half done."""
    for place in (*range(0, 62, 5), *range(65, 300, 17), *range(300, 3000, 331), 10**9):

        def spoil(data: bytes, position: int, where: str, place: int = place) -> bytes | None:
            if where == direction and position + len(data) > place:
                return data[: max(0, place - position)] or None
            return data

        proxy.spoil = spoil
        seen: list[float] = []
        if place == 10**9:
            small_session(proxy.path, transport, seen)
            assert seen == [0, 1, 2]
        else:
            with contextlib.suppress(forebay.Error):
                small_session(proxy.path, transport, seen)
            assert seen == sorted(seen)
    check_it_works(one, transport)
    wait_until(lambda: is_given_back(one))


def frame(length: int, payload: int = 0, descriptors: int = 0, flags: int = 0, body: bytes = b"") -> bytes:
    """A frame's header, with a right checksum, and its body."""
    head = struct.pack("<IBBHQQQ", length, descriptors, flags, 0, 1, 1, payload)
    return head + struct.pack("<I", zlib.crc32(head + body)) + body


HANDSHAKE = 60 + 26
"""How many bytes a client sends to prove that it holds the secret: an opening, and its confirmation."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("transport", ["shm"])
def test_frames_with_absurd_lengths(proxy: Proxy, one: forebay.LocalGroup) -> None:
    """From a peer that knows the secret: after its handshake it sends nonsense."""
    nonsense = [
        frame(0xFFFFFFFF),
        frame((16 << 20) + 1),
        frame(16 << 20),
        frame(0, payload=2**64 - 1),
        frame(0, payload=2**63),
        frame(1, payload=2**40, body=b"\7"),
        frame(0, descriptors=255),
        frame(0, flags=255),
        frame(1, body=b"\xff"),
        frame(3, body=b"\0\xff\xff"),
        frame(20, body=b"\xff" * 20),
        bytes(36),
        os.urandom(5000),
    ]
    before = sum(server["rss_bytes"] for server in forebay.Admin(group=one.path).status()["servers"])
    for extra in nonsense:

        def spoil(data: bytes, position: int, where: str, extra: bytes = extra) -> bytes:
            kept = max(0, HANDSHAKE - position)
            return data[:kept] + extra if where == "up" and kept < len(data) else data

        proxy.spoil = spoil
        with pytest.raises(forebay.Error):
            consumer(proxy.path, transport="shm", timeout=0.5)
    check_it_works(one)
    after = sum(server["rss_bytes"] for server in forebay.Admin(group=one.path).status()["servers"])
    assert after - before < 100 << 20


def test_many_connections_that_say_nothing(one: forebay.LocalGroup, transport: str) -> None:
    idle = [dial(one, transport) for _ in range(300)]
    check_it_works(one, transport)
    for made in idle:
        made.close()
