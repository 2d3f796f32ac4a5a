# SPDX-License-Identifier: Apache-2.0
"""The limits of this machine: one copy through shared memory, one pass through a loopback socket.

Shared memory is what an arena is made of: an anonymous memory file, mapped, each of its pages touched by the
process that copies.  A first touch costs many times what the copy costs, so untouched memory would be no
limit at all.
"""

from __future__ import annotations

import mmap
import os
import socket
import time

import numpy as np
import numpy.typing as npt

from forebay.bench.children import Channel, Child
from forebay.bench.patterns import Array, Pattern
from forebay.bench.samples import now_ns, seconds_since

_LOOPBACK = "127.0.0.1"


class SharedBuffer:
    """A mapped anonymous memory file with every page touched by this process."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self.size = size
        self.descriptor = os.memfd_create("forebay-bench") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, size)
        self.map = mmap.mmap(self.descriptor, size)
        np.frombuffer(self.map, dtype=np.uint8).fill(1)

    def array(self, dtype: npt.DTypeLike = np.float64, offset: int = 0, count: int = -1) -> Array:
        """The memory as an array."""
        return np.frombuffer(self.map, dtype=dtype, offset=offset, count=count)


def copy_seconds(target: Array, source: Array) -> float:
    """Copies, and says how long it took."""
    began = now_ns()
    np.copyto(target, source)
    return seconds_since(began)


def connect(buffers: int | None) -> tuple[socket.socket, socket.socket]:
    """A listening socket for one connection, and an unconnected one with the same options."""
    listener, client = (socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(2))
    for one in (listener, client):
        tune(one, buffers)
    listener.bind((_LOOPBACK, 0))
    listener.listen(1)
    return listener, client


def tune(one: socket.socket, buffers: int | None) -> None:
    """No delay; send and receive buffers of so many bytes, or as the system thinks best."""
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffers:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Receives exactly as many bytes as fit."""
    while len(view):
        got = connection.recv_into(view, len(view), socket.MSG_WAITALL)
        if got == 0:
            raise ConnectionError("the other end has closed the connection")
        view = view[got:]


def _loopback_server(channel: Channel, port: int, size: int, buffers: int | None) -> None:
    shared = SharedBuffer(size)
    view = memoryview(shared.map)
    pattern = Pattern(size // 8)
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tune(connection, buffers)
    connection.connect((_LOOPBACK, port))
    channel.send("ready")
    for what, *more in channel:
        if what == "put":
            receive_into(connection, view)
            connection.sendall(b"k")
            channel.send(None)
        elif what == "get":
            connection.recv(1)
            connection.sendall(view)
            channel.send(None)
        elif what == "check":
            pattern.check_all(shared.array(), more[0])
            channel.send(None)


class LoopbackPair:
    """A bare TCP connection to another process of this host that holds touched shared memory."""

    def __init__(self, size: int, buffers: int | None = None) -> None:
        listener, client = connect(buffers)
        client.close()
        self._child = Child("loopback", _loopback_server, listener.getsockname()[1], size, buffers)
        self._connection, _ = listener.accept()
        tune(self._connection, buffers)
        listener.close()
        self._child.answer()

    def put_seconds(self, source: Array) -> float:
        """From before the first byte is sent until the other side has said that all are in its memory."""
        self._child.tell("put")
        time.sleep(0.001)  # so that it waits on the socket, as a server does
        began = now_ns()
        self._connection.sendall(source.data.cast("B"))
        self._connection.recv(1)
        seconds = seconds_since(began)
        self._child.answer()
        return seconds

    def get_seconds(self, out: Array) -> float:
        """From before the request is sent until all bytes are in `out`."""
        self._child.tell("get")
        time.sleep(0.001)
        began = now_ns()
        self._connection.sendall(b"g")
        receive_into(self._connection, out.data.cast("B"))
        seconds = seconds_since(began)
        self._child.answer()
        return seconds

    def check(self, number: int) -> None:
        """Lets the other side compare what it holds with the step `number`."""
        self._child.ask("check", number)

    def close(self) -> None:
        """Ends the other process."""
        self._connection.close()
        self._child.close()
