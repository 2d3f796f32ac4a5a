# SPDX-License-Identifier: Apache-2.0
"""The extension module, as the package uses it."""

from collections.abc import Callable
from typing import Any

__version__: str

_Needs = list[tuple[str, str | None, int]] | None

class ReadBuffer:
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

class WriteBuffer:
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

class Producer:
    def __init__(
        self,
        stream: str,
        rank: int,
        size: int,
        group: str | None,
        policy_name: str,
        keep: int,
        queue_bytes: int | None,
        timeout: float | None,
        transport: str,
        continues: tuple[int, int] | None,
        on_loss: str,
    ) -> None: ...
    @property
    def run(self) -> int: ...
    @property
    def transport(self) -> str: ...
    def lost(self) -> tuple[str, int] | None: ...
    def array(
        self,
        name: str,
        dtype: str,
        ndim: int,
        shape: list[int] | None,
        every: int,
        association: str,
        dims: list[str],
        spacing: list[float],
        origin: list[float],
        units: str,
        stats: bool,
    ) -> None: ...
    def begin(self, step: int, time: float) -> None: ...
    def demanded(self, field: str) -> bool: ...
    def put(
        self,
        field: str,
        address: int,
        stored: list[int],
        strides: list[int],
        element: int,
        number: int,
        level: int,
        offset: list[int] | None,
        shape: list[int],
        low: list[int],
        high: list[int],
        wait: bool,
    ) -> str: ...
    def wait(self) -> int: ...
    def alloc(
        self,
        field: str,
        number: int,
        level: int,
        offset: list[int] | None,
        shape: list[int],
        low: list[int],
        high: list[int],
    ) -> tuple[int, WriteBuffer] | None: ...
    def commit(self, allocation: int) -> None: ...
    def abort(self, allocation: int) -> None: ...
    def end(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

class Consumer:
    def __init__(
        self,
        stream: str,
        fields: _Needs,
        every: int,
        group: str | None,
        window: int,
        start: str,
        follow: bool,
        timeout: float | None,
        transport: str,
    ) -> None: ...
    def next_step(self, timeout: float | None) -> Step: ...
    def close(self) -> None: ...

class Step:
    @property
    def run(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def missed(self) -> int: ...
    @property
    def rewound(self) -> bool: ...
    @property
    def torn(self) -> bool: ...
    def fields(self) -> list[str]: ...
    def field(self, name: str) -> dict[str, Any]: ...
    def blocks(self, name: str, all_servers: bool) -> list[tuple[dict[str, Any], ReadBuffer]]: ...
    def read(
        self,
        name: str,
        offset: list[int],
        shape: list[int],
        step: list[int],
        address: int,
        strides: list[int],
        element: int,
    ) -> None: ...
    def release(self) -> None: ...

class Space:
    def __init__(self, group: str | None, timeout: float | None, transport: str) -> None: ...
    def put(
        self,
        name: str,
        dtype: str,
        global_: list[int] | None,
        step: int,
        offset: list[int] | None,
        address: int,
        shape: list[int],
        strides: list[int],
        element: int,
    ) -> None: ...
    def get(
        self,
        name: str,
        step: int,
        timeout: float,
        make: Callable[[dict[str, Any]], tuple[list[int], list[int], list[int], int, list[int], int]],
    ) -> None: ...
    def remove(self, name: str, step: int) -> None: ...

class Comm:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def set_timeout(self, timeout: float) -> None: ...
    def send(self, dest: int, tag: int, bytes_: bytes) -> None: ...
    def recv(self, source: int, tag: int) -> bytes: ...
    def barrier(self) -> None: ...
    def broadcast(self, root: int, bytes_: bytes) -> bytes: ...
    def gather(self, root: int, bytes_: bytes) -> list[bytes] | None: ...
    def allgather(self, bytes_: bytes) -> list[bytes]: ...

class Worker:
    def __init__(self, group: str, server: int, pipeline: str, instance: int) -> None: ...
    def ready(self, fields: _Needs, every: int) -> None: ...
    def failed(self, traceback: str) -> None: ...
    def next_order(self, timeout: float, comm_timeout: float) -> tuple[int, Step, Comm] | None: ...
    def done(self, execution: int, error: str | None, seconds: float) -> None: ...

def status(group: str | None, transport: str, timeout: float | None) -> str: ...
def create_pipeline(
    group: str | None,
    transport: str,
    timeout: float | None,
    name: str,
    stream: str,
    command: list[str],
    code: str,
    config: str,
    directory: str,
) -> None: ...
def destroy_pipeline(group: str | None, transport: str, timeout: float | None, name: str) -> None: ...
def shutdown(group: str | None, transport: str, timeout: float | None) -> None: ...
def error_kinds() -> list[tuple[str, int]]: ...
