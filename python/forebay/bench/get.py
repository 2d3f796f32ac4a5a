# SPDX-License-Identifier: Apache-2.0
"""bench get: taking data on one host: a whole block, a region of many blocks, a few bytes.

whole block      inside: fb_step_block and reading the block's last element in a C program, with caches that hold
                 nothing of ours.  Checked: all of it, and that it lies elsewhere than where it was written.
from Python      a step of one block, put by another process, is there; inside the clock: `step[f].blocks()`,
                 its `.data`, and reading its last element.  Checked: it is no copy (the array is read-only
                 and lies in a shared mapping), and what is in it.
next step        inside: `consumer.next()` of that step, which is there already
region           a box of 64 MiB out of a global array of 128 MiB in 8 blocks of 2 servers, with `space.get`
                 into an array that has been touched; beside one memcpy of 64 MiB out of touched shared memory
                 into such an array.  The blocks are 2 x 2 x 2 cubes (the box takes rows of 1 KiB from each),
                 or 8 slabs (runs of 256 KiB).  Compared whole, every time.
512 bytes        inside: `space.put`, and `space.get` of the same into an array
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench import forebay_side, native_side
from forebay.bench.baselines import SharedBuffer, copy_seconds
from forebay.bench.children import Channel, Child
from forebay.bench.errors import WrongData
from forebay.bench.harness import Report, at_least, named_size, repetitions_of, sizes_of, under, within
from forebay.bench.patterns import Array, Pattern
from forebay.bench.rigs import own_array
from forebay.bench.samples import Sample, Samples, interleave, now_ns, seconds_since

_LIMIT_US = 60.0
_GROWTH_LIMIT_US = 10.0
_REGION_BAR = 0.8
_SMALL = 64  # doubles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--sizes", type=float, nargs="+", metavar="MIB", help="whole blocks in MiB (1 8 64 256)"
    )


def put_steps(channel: Channel, path: str, stream: str, elements: int) -> None:
    """The producer: a step for each message."""
    pattern = Pattern(elements)
    array = own_array(elements)
    with forebay_side.producer(path, stream, (elements,)) as producer:

        def put(number: int) -> None:
            pattern.fill(array, number)
            with producer.step(number, time=float(number)) as step:
                step.put(forebay_side.FIELD, array, offset=(0,))

        channel.send("ready")
        for what, number in channel:
            if what == "end":
                break
            last = number
            put(last)
            if what == "warm up":
                while not channel.poll(0.02):
                    last += 1
                    put(last)
                channel.receive()
                last += 1
                put(last)  # one that surely comes after the one that was seen
            channel.send(last)
    channel.send("ended")


def lies_in_shared_memory(array: Array) -> bool:
    """Whether the array's first byte lies in a mapping that is shared with other processes."""
    address = int(array.__array_interface__["data"][0])
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, rights = line.split()[:2]
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= address < high:
            return rights.endswith("s")
    return False


class Blocks:
    """A consumer here and its producer in another process, for blocks of one size."""

    def __init__(self, group: forebay_side.Group, size: int, stack: ExitStack) -> None:
        self.elements = size // 8
        stream = f"get{size}"
        self.pattern = Pattern(self.elements)
        self.child = stack.enter_context(Child("producer", put_steps, group.path, stream, self.elements))
        self.child.answer()
        self.consumer: Any = stack.enter_context(forebay_side.consumer(group, stream))
        self.number = self._attach()

    def _attach(self) -> int:
        """Lets the producer go on until a step has come here: steps before that were not wanted."""
        self.child.tell("warm up", 0)
        self.consumer.next(timeout=30.0).release()
        last = int(self.child.ask("seen", 0))
        while True:
            with self.consumer.next(timeout=30.0) as step:
                if int(step.number) == last:
                    return last + 1

    def take(self) -> Sample:
        """One step, put there and then here."""
        number, self.number = self.number, self.number + 1
        self.child.ask("step", number)
        began = now_ns()
        step = self.consumer.next(timeout=30.0)
        told = now_ns()
        data = forebay_side.whole_block(step)
        last = data[-1]
        ended = now_ns()
        if int(step.number) != number or last != data[-1]:
            raise WrongData(f"step {step.number} arrived where step {number} was due")
        if data.flags.writeable or not lies_in_shared_memory(data):
            raise WrongData("the block is a copy, not a read-only view of shared memory")
        (self.pattern.check if number % 8 else self.pattern.check_all)(data, number)
        del data
        step.release()
        return {"next": (told - began) / 1e9, "block": (ended - told) / 1e9}

    def end(self) -> None:
        """Ends the stream."""
        self.child.ask("end", 0)


def whole_blocks(
    options: argparse.Namespace, report: Report, group: forebay_side.Group, repetitions: int
) -> None:
    """Blocks of all sizes."""
    blocks: dict[int, Samples] = {}
    for size in sizes_of(options.sizes, options.quick, (1, 8, 64, 256), (0.25, 1)):
        report.measuring(f"whole block {named_size(size)}")
        with ExitStack() as stack:
            side = Blocks(group, size, stack)
            series = interleave([side.take], repetitions=repetitions, warmup=5)
            side.end()
        blocks[size] = native_side.zero_copy(group.path, size, repetitions)[1]
        report.micros(f"whole block {named_size(size)}", blocks[size], bar=under(_LIMIT_US))
        report.micros(f"from Python {named_size(size)}", series["block"])
        report.micros(f"next step {named_size(size)}", series["next"])
    report.growth("whole block", blocks, within(_GROWTH_LIMIT_US))


class Region:
    """A global array in 8 blocks, and a box of half of it."""

    def __init__(self, group: forebay_side.Group, edge: int, slabs: bool) -> None:
        half = edge // 2
        self.space: Any = forebay_side.space(group)
        self.other: Any = forebay_side.space(group)
        shape = (edge, edge, edge)
        self.whole = np.arange(edge**3, dtype=np.float64).reshape(shape)
        self.name = "slabs" if slabs else "cubes"
        boxes: list[tuple[slice, slice, slice]]
        if slabs:
            boxes = [np.s_[i * edge // 8 : (i + 1) * edge // 8, :, :] for i in range(8)]
        else:
            sides = (np.s_[0:half], np.s_[half:edge])
            boxes = [np.s_[z, y, x] for z, y, x in product(sides, sides, sides)]
        self.region = np.s_[:, half // 2 : half // 2 + half, :]  # touches all 8
        for index, box in enumerate(boxes):
            offset = tuple(part.start or 0 for part in box)
            # Each handle keeps what it puts on a server of its own choice, in turn.
            putting = self.space if index % 2 == 0 else self.other
            putting.put(self.name, self.whole[box], step=1, offset=offset, shape=shape)
        self.expected = np.ascontiguousarray(self.whole[self.region])
        self.out = np.zeros_like(self.expected)
        shared = SharedBuffer(self.expected.nbytes)
        self.source = shared.array().reshape(self.expected.shape)
        np.copyto(self.source, self.expected)
        self.copy = np.zeros_like(self.expected)

    def get(self) -> Sample:
        """One get of the region."""
        self.out.fill(-1.0)
        began = now_ns()
        self.space.get(self.name, step=1, region=self.region, out=self.out)
        seconds = seconds_since(began)
        if not np.array_equal(self.out, self.expected):
            raise WrongData(f"a region of {self.name} arrived with other content")
        return {"get": seconds}

    def memcpy(self) -> Sample:
        """One memcpy of as much."""
        self.copy.fill(-1.0)
        return {"memcpy": copy_seconds(self.copy, self.source)}

    def close(self) -> None:
        """Removes the blocks."""
        self.space.remove(self.name, step=1)
        self.space.close()
        self.other.close()


def regions(options: argparse.Namespace, report: Report, group: forebay_side.Group, repetitions: int) -> None:
    """Both ways to cut the array into blocks."""
    for slabs in (False, True):
        report.measuring("region of slabs" if slabs else "region of cubes")
        region = Region(group, 64 if options.quick else 256, slabs)
        held = [server.blocks for server in forebay_side.status(group)]
        series = interleave([region.get, region.memcpy], repetitions=repetitions, warmup=3)
        size = region.expected.nbytes
        report.rate(
            f"region {named_size(size)}, {region.name}",
            size,
            series["get"],
            against=f"memcpy of {named_size(size)} out of touched shared memory",
            base=series["memcpy"],
            bar=None if options.quick else at_least(_REGION_BAR),
            note="blocks on the servers: " + " + ".join(map(str, held)),
        )
        region.close()


def small(report: Report, group: forebay_side.Group, repetitions: int) -> None:
    """A few bytes."""
    report.measuring("512 bytes")
    array, out = own_array(_SMALL), own_array(_SMALL)
    pattern = Pattern(_SMALL)
    numbers = iter(range(1, 1_000_000))
    with forebay_side.space(group) as space:

        def put_and_get() -> Sample:
            number = next(numbers)
            pattern.fill(array, number)
            began = now_ns()
            space.put("small", array, step=number, offset=(0,), shape=(_SMALL,))
            put = seconds_since(began)
            began = now_ns()
            space.get("small", step=number, region=np.s_[:], out=out)
            got = seconds_since(began)
            pattern.check_all(out, number)
            space.remove("small", step=number)
            return {"put": put, "get": got}

        series = interleave([put_and_get], repetitions=repetitions * 10, warmup=50)
    report.micros("put 512 B", series["put"], bar=under(_LIMIT_US))
    report.micros("get 512 B", series["get"], bar=under(_LIMIT_US))


def run(options: argparse.Namespace, report: Report) -> None:
    """Measures whole blocks, regions and small things."""
    repetitions = repetitions_of(options.repetitions, options.quick, 31)
    with forebay_side.local_group(servers=2) as group:
        whole_blocks(options, report, group, repetitions)
        regions(options, report, group, repetitions)
        small(report, group, repetitions)
