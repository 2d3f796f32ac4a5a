"""For tests of bytes on sockets: plain connections to servers, and a proxy that spoils what passes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import forebay

MAGIC = b"FOREBAY\n"
"""What every handshake begins with."""

VERSION = 5
"""The version of the protocols, which follows the magic number."""


def addresses(group: forebay.LocalGroup) -> dict[str, list[object]]:
    """Where the servers listen: abstract names of Unix sockets, and TCP addresses."""
    found: dict[str, list[object]] = {"shm": [], "tcp": []}
    for server in json.loads(Path(group.path).read_text())["servers"]:
        for address in server["addresses"]:
            kind, _, rest = address.partition(":")
            if kind == "shm":
                found["shm"].append("\0" + rest.partition("/")[2])
            else:
                host, _, port = rest.rpartition(":")
                found["tcp"].append((host, int(port)))
    return found


def dial(group: forebay.LocalGroup, transport: str, server: int = 0) -> socket.socket:
    """A plain connection to a server of the group."""
    return connect(transport, addresses(group)[transport][server])


def connect(transport: str, address: object) -> socket.socket:
    """A plain connection to this address."""
    family = socket.AF_UNIX if transport == "shm" else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(15)
    made.connect(address)
    return made


def receive(made: socket.socket, length: int) -> bytes:
    """So many bytes, or what came before the end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) < length:
            part = made.recv(length - len(data))
            if not part:
                break
            data += part
    return data


class Proxy:
    """Sits between clients and a server and spoils what passes."""

    def __init__(self, group: forebay.LocalGroup, path: Path, transport: str) -> None:
        """`spoil(bytes, position, direction)` returns what is passed on instead, or None to cut the line."""
        self.spoil: Callable[[bytes, int, str], bytes | None] = lambda data, _position, _direction: data
        self.transport = transport
        self.behind = addresses(group)[transport]
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.listeners: list[socket.socket] = []
        self.sockets: list[socket.socket] = []
        content = json.loads(Path(group.path).read_text())
        for index, server in enumerate(content["servers"]):
            if transport == "tcp":
                listener = socket.create_server(("127.0.0.1", 0))
                server["addresses"] = [f"tcp:127.0.0.1:{listener.getsockname()[1]}"]
            else:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                name = f"forebay-proxy-{os.getpid()}-{id(self)}-{index}"
                listener.bind("\0" + name)
                listener.listen()
                old = next(address for address in server["addresses"] if address.startswith("shm:"))
                server["addresses"] = [old.partition("/")[0] + "/" + name]
            listener.settimeout(0.05)
            self.listeners.append(listener)
            self._start(self._accept, listener, index)
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        self.path = str(path)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, index: int) -> None:
        while not self.stop.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            server = connect(self.transport, self.behind[index])
            self.sockets += [client, server]
            self._start(self._pass_on, client, server, "up")
            self._start(self._pass_on, server, client, "down")

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        source.settimeout(0.05)
        position = 0
        files: list[int] = []
        while not self.stop.is_set():
            try:
                if self.transport == "shm":
                    data, files, _, _ = socket.recv_fds(source, 1 << 16, 8)
                else:
                    data = source.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            passed = self.spoil(data, position, direction) if data else None
            position += len(data)
            try:
                if passed is None:
                    break
                if files:
                    socket.send_fds(target, [passed], files)
                else:
                    target.sendall(passed)
                if len(passed) < len(data):
                    break
            except OSError:
                break
            finally:
                for file in files:
                    os.close(file)
                files = []
        for made in (source, target):
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(5)
        for made in self.listeners + self.sockets:
            made.close()
