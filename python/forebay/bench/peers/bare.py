# SPDX-License-Identifier: Apache-2.0
"""The limits of a stream: bare shared memory with two semaphores, and a bare loopback connection.

Neither knows steps, readers that come and go, or what happens when one side dies; both move the same data in
the same loop as Forebay and the peers do.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from typing import Any

import numpy as np

from forebay.bench.baselines import SharedBuffer, connect, receive_into, tune
from forebay.bench.patterns import Array
from forebay.bench.rigs import Fill, Route, Setup, own_array


class _Slots:
    """A ring of slots in one memory file, all pages touched."""

    def __init__(self, setup: Setup) -> None:
        descriptor = os.open(setup.options["path"], os.O_RDWR)
        shared = SharedBuffer(setup.depth * setup.elements * 8, descriptor)
        self.slots = [
            shared.array(offset=i * setup.elements * 8, count=setup.elements) for i in range(setup.depth)
        ]
        self.free: Any = setup.options["free"]
        self.full: Any = setup.options["full"]
        self.turn = 0

    def next_slot(self) -> Array:
        slot = self.slots[self.turn]
        self.turn = (self.turn + 1) % len(self.slots)
        return slot

    def close(self) -> None:
        """Nothing to do."""


class SlotWriter(_Slots):
    """The producer's end of bare shared memory."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.array = own_array(setup.elements)

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Fills the next free slot, or copies into it."""
        if not in_place:
            fill(self.array, number)
        self.free.acquire()
        slot = self.next_slot()
        if in_place:
            fill(slot, number)
        else:
            np.copyto(slot, self.array)
        self.full.release()


class SlotReader(_Slots):
    """The consumer's end of bare shared memory."""

    def read(self, out: Array | None) -> Array:
        """Waits for the next full slot."""
        self.full.acquire()
        slot = self.next_slot()
        if out is None:
            return slot
        np.copyto(out, slot)
        return out

    def release(self) -> None:
        """Frees the slot."""
        self.free.release()


class SocketWriter:
    """The producer's end of a bare loopback connection."""

    def __init__(self, setup: Setup) -> None:
        self.array = own_array(setup.elements)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tune(self.socket, None)
        self.socket.connect(setup.options["listener"].getsockname())

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Fills and sends."""
        fill(self.array, number)
        self.socket.sendall(self.array.data.cast("B"))

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()


class SocketReader:
    """The consumer's end of a bare loopback connection."""

    def __init__(self, setup: Setup) -> None:
        self.shared = SharedBuffer(setup.elements * 8)
        self.array = self.shared.array()
        self.view = memoryview(self.shared.map)
        self.socket, _ = setup.options["listener"].accept()
        tune(self.socket, None)

    def read(self, out: Array | None) -> Array:
        """Receives into touched shared memory."""
        receive_into(self.socket, self.view)
        if out is None:
            return self.array
        np.copyto(out, self.array)
        return out

    def release(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()


def shared_memory(elements: int, depth: int) -> Route:
    """Bare shared memory; a route for one rig."""
    spawn = multiprocessing.get_context("spawn")
    descriptor = os.memfd_create("forebay-bench")
    os.ftruncate(descriptor, elements * 8 * depth)
    options = {
        "path": f"/proc/{os.getpid()}/fd/{descriptor}",
        "free": spawn.Semaphore(depth),
        "full": spawn.Semaphore(0),
    }
    return Route(
        "bare shm",
        SlotWriter,
        SlotReader,
        options,
        settings=f"{depth} touched slots, two semaphores",
        clean_up=lambda name: os.close(descriptor),
    )


def loopback() -> Route:
    """A bare loopback connection; a route for one rig."""
    listener, client = connect(None)
    client.close()
    return Route(
        "bare tcp",
        SocketWriter,
        SocketReader,
        {"listener": listener},
        in_place=False,
        settings="TCP_NODELAY, the system's buffers, into touched shared memory",
        clean_up=lambda name: listener.close(),
    )
