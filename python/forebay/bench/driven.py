# SPDX-License-Identifier: Apache-2.0
"""A simulation that drives the Mandelbulb's pipeline, step by step, while servers join."""

from __future__ import annotations

import contextlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.bench import forebay_side, grayscott, pictures_scenes
from forebay.bench.errors import BenchError
from forebay.bench.samples import now_ns, seconds_since

_BLOCKS = 8
_PATIENCE_S = 60.0
_CONFIG = {"size": [800, 600], "samples": 1, "plain": True}


class Driven:
    """A group of so many servers, a pipeline on them, and this process as the simulation's only rank."""

    def __init__(self, servers: int, edge: int) -> None:
        """So many servers, and a cube of so many points along each edge."""
        self._values = pictures_scenes.mandelbulb((edge, edge, edge))
        self._made = contextlib.ExitStack()
        self._place = self._made.enter_context(tempfile.TemporaryDirectory())
        self._run: contextlib.ExitStack = contextlib.ExitStack()
        self._group: Any = None
        self._handle: Any = None
        self._number = 0
        self._began = now_ns()
        self.told: list[dict[str, float]] = []
        """Of each step what each call took, when it began, and how many workers it had."""
        self.asked: float | None = None
        """When a server was asked for, on the same clock."""
        self._start(servers)

    def _start(self, servers: int) -> None:
        forebay = forebay_side.package()
        self._group = self._run.enter_context(forebay.local(servers=servers))
        code = grayscott.examples() / "pipelines" / "mandelbulb.py"
        with forebay.Admin(group=self._group.path) as admin:
            config = {"output": self._place, **_CONFIG}
            admin.create_pipeline("bulb", f"{code}:Bulb", stream="mandelbulb", driven=True, config=config)
        # So that each server has some of the blocks, although there is one rank.
        self._handle = self._run.enter_context(
            forebay.PipelineHandle("bulb", group=self._group.path, placement="by-block")
        )
        self._handle.array("escape", dtype="f4", shape=self._values.shape)
        self._number = 0

    def steps(self, count: int) -> None:
        """So many steps, one after the other."""
        for _ in range(count):
            self._step()

    def _step(self) -> int:
        """One step: how many workers drew it."""
        laps = [now_ns()]
        workers = self._handle.activate(self._number)
        laps.append(now_ns())
        for block in range(_BLOCKS):
            first, end = (len(self._values) * n // _BLOCKS for n in (block, block + 1))
            self._handle.stage("escape", self._values[first:end], offset=(first, 0, 0), number=block)
        laps.append(now_ns())
        self._handle.execute(self._number)
        laps.append(now_ns())
        self._handle.deactivate(self._number)
        laps.append(now_ns())
        names = ("activate", "stage", "execute", "deactivate")
        took = {name: (b - a) / 1e9 for name, a, b in zip(names, laps, laps[1:], strict=False)}
        self.told.append({**took, "began": (laps[0] - self._began) / 1e9, "workers": len(workers)})
        if not Path(self._place, f"bulb-{self._number:06d}.png").exists():
            raise BenchError(f"there is no picture of step {self._number}")
        self._number += 1
        return len(workers)

    def grown(self, *, after: int = 0, cores: list[int] | None = None) -> tuple[float, float]:
        """Adds a server, which runs on these cores: the seconds until a picture in which it drew is there, and the longest time
        without one until then. `after` steps follow.
        """
        before = len(self._group.servers)
        asked = last = now_ns()
        self.asked = (asked - self._began) / 1e9
        longest = 0.0
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(self._add, cores)
            drew = 0
            while drew <= before:
                if joining.done():
                    joining.result()  # or why none was added
                if seconds_since(asked) > _PATIENCE_S:
                    raise BenchError(f"no picture was drawn by {before + 1} servers within {_PATIENCE_S:g} s")
                drew = self._step()
                longest, last = max(longest, seconds_since(last)), now_ns()
            took = seconds_since(asked)
            joining.result()
        self.steps(after)
        return took, longest

    def _add(self, cores: list[int] | None) -> None:
        if cores is not None:
            os.sched_setaffinity(0, cores)  # of this thread, and of what it starts
        self._group.add_servers()

    def restarted(self, servers: int) -> float:
        """Ends the group and starts one of so many servers: the seconds until they have drawn a picture."""
        asked = now_ns()
        self._run.close()
        for file in Path(self._place).glob("*.png"):
            file.unlink()
        self._start(servers)
        if self._step() != servers:
            raise BenchError(f"not all of {servers} servers drew the first picture")
        return seconds_since(asked)

    def close(self) -> None:
        """Ends all."""
        self._run.close()
        self._made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
