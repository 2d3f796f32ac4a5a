"""Python snippets that run as processes of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PREAMBLE = """
import json, os, sys, signal, threading, time
import numpy as np
import forebay
from support.arrays import *
from support.groups import *
from support.processes import *
from support.sessions import *
from support.waiting import *
"""


class Child:
    """A Python process that runs a snippet. It talks by lines."""

    def __init__(self, code: str, *arguments: object, inside: Sequence[str] = (), **options: Any) -> None:
        text = PREAMBLE + textwrap.dedent(code)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-W", "error", "-c", text, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )
        self.pid = self.process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    def line(self, timeout: float = 30.0) -> str:
        """Its next line."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the child says nothing for {timeout:g} s; {self.errors}") from None
        if line is None:
            self.process.wait(5)
            self._readers[1].join(5)
            raise AssertionError(f"the child ended ({self.process.returncode}): {self.errors}")
        return line

    def expect(self, wanted: str, timeout: float = 30.0) -> None:
        """Its next line is this one."""
        found = self.line(timeout)
        assert found == wanted, f"{found!r} instead of {wanted!r}; {self.errors}"

    def say(self, text: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        """It reads the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def ended(self, timeout: float = 30.0) -> list[str]:
        """Waits for its end, which must be a good one; the lines that were not read yet."""
        code = self.code(timeout)
        assert code == 0, f"the child ended with {code}: {self.errors}"
        lines = []
        while (line := self._lines.get(timeout=5)) is not None:
            lines.append(line)
        return lines

    def code(self, timeout: float = 30.0) -> int:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(f"the child hangs: {self.errors}") from None
        for reader in self._readers:
            reader.join(5)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
