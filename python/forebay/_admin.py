# SPDX-License-Identifier: Apache-2.0
"""Administration of a group."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from forebay import _forebay
from forebay._errors import Invalid, PipelineFailed


class Admin:
    """Looks after a group: status, pipelines, ending. `group`, `timeout`, `transport` are as in `Producer`."""

    def __init__(
        self,
        *,
        group: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        transport: str = "auto",
    ) -> None:
        self._where = (os.fspath(group) if group is not None else None, transport, timeout)

    def status(self) -> dict[str, Any]:
        """What each server says of itself: memory, streams, pipelines, connections. Waits for all of them."""
        told: dict[str, Any] = json.loads(_forebay.status(*self._where))
        return told

    def create_pipeline(
        self,
        name: str,
        code: str | type,
        *,
        stream: str | None = None,
        config: Mapping[str, object] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Gives every server a worker that runs `code`: `"file.py:Class"`, or a class defined in a file.

        It runs on `stream`; by default on the one that the class names, or the only one that the group has.
        Waits until every worker is ready, or raises `PipelineFailed` with the traceback.
        """
        if isinstance(code, type):
            source = inspect.getsourcefile(code)
            if source is None:
                raise Invalid(f"{code!r} was not defined in a file")
            code = f"{source}:{code.__qualname__}"
        file, _, class_name = code.rpartition(":")
        if not file or not class_name:
            raise Invalid(f"{code!r} does not name a pipeline's code: write 'file.py:Class'")
        path = os.path.abspath(file)
        if not os.path.exists(path):
            raise Invalid(f"there is no file {path}")
        command = [python, "-m", "forebay.worker"]
        target = f"{path}:{class_name}"
        chosen = stream if stream is not None else self._stream_of(command, target)
        told = json.dumps(dict(config or {}))
        _forebay.create_pipeline(*self._where, name, chosen, command, target, told, os.getcwd())

    def _stream_of(self, command: list[str], target: str) -> str:
        """The stream that a pipeline's class names, or the only one that the group has."""
        # In a process of its own: the code may need another Python, or do things at import.
        told = subprocess.run(
            [*command, "--describe", "--code", target],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if told.returncode != 0:
            raise PipelineFailed(told.stderr.strip() or f"{target} cannot be loaded")
        named: str | None = json.loads(told.stdout.splitlines()[-1])["stream"]
        if named is not None:
            return named
        streams = [
            stream["name"] for server in self.status()["servers"] for stream in server.get("streams", ())
        ]
        if len(streams) != 1:
            there = f"the group has {', '.join(streams)}" if streams else "the group has none yet"
            raise Invalid(f"say which stream the pipeline runs on: its class names none, and {there}")
        return str(streams[0])

    def destroy_pipeline(self, name: str) -> None:
        """Ends a pipeline and its workers."""
        _forebay.destroy_pipeline(*self._where, name)

    def shutdown(self) -> None:
        """Ends every server of the group."""
        _forebay.shutdown(*self._where)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""
