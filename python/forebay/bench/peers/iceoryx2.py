# SPDX-License-Identifier: Apache-2.0
"""iceoryx2, the Python package of that name: publish and subscribe in shared memory, without a copy.

Best settings found: a dynamic slice of doubles whose largest length is known when the publisher is created
(a pool that grows costs fresh pages), static allocation, one publisher, one subscriber that borrows one
sample, a queue as deep as for everything else here, no overflow, a publisher that retries until delivered.
The publisher loans, fills (or copies its own array into the loan) and sends; the subscriber maps the sample.

iceoryx2's publish and subscribe has no wait of its own: a subscriber polls, or an event service wakes it.
For streams the subscriber polls for 100 us and then waits for the event; for latency, both are measured.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench.patterns import Array
from forebay.bench.rigs import Fill, Route, Setup, own_array
from forebay.bench.samples import now_ns

_POLL_NS = 100_000
_WAIT_MS = 50


def _slots(pointer: int, elements: int) -> Array:
    memory = (ctypes.c_double * elements).from_address(pointer)
    return np.ctypeslib.as_array(memory)


class _End:
    """The service, by a name and in files that only this pair uses, so that they can all be removed."""

    def __init__(self, setup: Setup) -> None:
        self.iox: Any = importlib.import_module("iceoryx2")
        self.iox.set_log_level(self.iox.LogLevel.Fatal)
        config = self.iox.config.default()
        self.prefix = f"fbbench_{setup.name}_"
        self.root = Path(tempfile.gettempdir()) / self.prefix
        config.global_cfg.prefix = self.iox.FileName.new(self.prefix)
        config.global_cfg.root_path = self.iox.Path.new(str(self.root))
        self.node = self.iox.NodeBuilder.new().config(config).create(self.iox.ServiceType.Ipc)
        self.elements = setup.elements
        name = self.iox.ServiceName.new(setup.name)
        self.service = (
            self.node.service_builder(name)
            .publish_subscribe(self.iox.Slice[ctypes.c_double])
            .max_publishers(1)
            .max_subscribers(1)
            .subscriber_max_buffer_size(setup.depth)
            .subscriber_max_borrowed_samples(1)
            .history_size(0)
            .enable_safe_overflow(False)
            .open_or_create()
        )
        self.events = self.node.service_builder(name).event().open_or_create()
        self.wait = str(setup.options["wait"])


class Publisher(_End):
    """The producer's end."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.publisher = (
            self.service.publisher_builder()
            .initial_max_slice_len(setup.elements)
            .max_loaned_samples(1)
            .allocation_strategy(self.iox.AllocationStrategy.Static)
            .backpressure_strategy(self.iox.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        self.notifier = self.events.notifier_builder().create()
        self.array = own_array(setup.elements)

    def write(self, number: int, fill: Fill, in_place: bool) -> None:
        """Loans, fills or copies, sends."""
        if not in_place:
            fill(self.array, number)
        loan = self.publisher.loan_slice_uninit(self.elements)
        slots = _slots(loan.payload_ptr, self.elements)
        if in_place:
            fill(slots, number)
        else:
            np.copyto(slots, self.array)
        loan.assume_init().send()
        if self.wait != "poll":
            self.notifier.notify()

    def close(self) -> None:
        """Leaves the service."""
        self.publisher.delete()
        self.notifier.delete()


class Subscriber(_End):
    """The consumer's end."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.subscriber = self.service.subscriber_builder().buffer_size(setup.depth).create()
        self.listener = self.events.listener_builder().create()
        self.sample: Any = None

    def _receive(self) -> Any:
        began = now_ns()
        patience = self.iox.Duration.from_millis(_WAIT_MS)
        while True:
            sample = self.subscriber.receive()
            if sample is not None:
                return sample
            if self.wait == "event" or (self.wait == "both" and now_ns() - began > _POLL_NS):
                self.listener.timed_wait(patience)

    def read(self, out: Array | None) -> Array:
        """Waits for the next sample."""
        self.sample = self._receive()
        view = _slots(self.sample.payload_ptr, self.elements)
        if out is None:
            return view
        np.copyto(out, view)
        return out

    def release(self) -> None:
        """Gives the sample back."""
        self.sample.delete()
        self.sample = None

    def close(self) -> None:
        """Leaves the service and removes what it keeps in files."""
        self.subscriber.delete()
        self.listener.delete()


def remove_files(name: str) -> None:
    """Removes what the services of a pair leave in the file system."""
    prefix = f"fbbench_{name}_"
    shutil.rmtree(Path(tempfile.gettempdir()) / prefix, ignore_errors=True)
    for left in Path("/dev/shm").glob(f"{prefix}*"):
        left.unlink(missing_ok=True)


def routes() -> list[Route]:
    """For streams: the best settings found."""
    settings = (
        "static slices, depth as the others, retry until delivered; polls 100 us, then waits for an event"
    )
    return [
        Route("iceoryx2", Publisher, Subscriber, {"wait": "both"}, settings=settings, clean_up=remove_files)
    ]


def latency_routes() -> list[Route]:
    """Waiting for an event, as Forebay's reader sleeps too, and polling, which takes a whole core."""
    return [
        Route("iceoryx2 event", Publisher, Subscriber, {"wait": "event"}, clean_up=remove_files),
        Route("iceoryx2 polling", Publisher, Subscriber, {"wait": "poll"}, clean_up=remove_files),
    ]
