# SPDX-License-Identifier: Apache-2.0
"""Administration of a group."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from forebay import _forebay
from forebay._errors import Invalid


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
        stream: str,
        config: Mapping[str, object] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Gives every server a worker that runs `code`: `"file.py:Class"`, or a class defined in a file.

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
        _forebay.create_pipeline(
            *self._where,
            name,
            stream,
            command,
            f"{path}:{class_name}",
            json.dumps(dict(config or {})),
            os.getcwd(),
        )

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
