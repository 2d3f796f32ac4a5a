# SPDX-License-Identifier: Apache-2.0
"""What the system, not Forebay, says about the memory and the CPU time of processes (Linux)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    """Memory in bytes: of the processes themselves, and of the memory files that they hold open.

    Resident shared pages are counted with the files, once, whoever maps them, so that the sum counts no page
    twice.
    """

    private: int
    shared: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.private + self.shared


def footprint(pids: Iterable[int]) -> Footprint:
    """The memory of several processes together."""
    private = mapped = 0
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        resident = _resident(pid)
        private += resident["RssAnon"] + resident["RssFile"]
        mapped += resident["RssShmem"]
        files.update(memory_files(pid))
    return Footprint(private, max(mapped, sum(files.values())))  # files can be mapped and yet not held open


def _resident(pid: int) -> dict[str, int]:
    """Resident bytes by kind: anonymous pages, pages of programs and libraries, shared memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    parts = (line.partition(":") for line in lines if line.startswith("Rss"))
    return {name: int(value.split()[0]) * 1024 for name, _, value in parts}


def memory_files(pid: int) -> dict[tuple[int, int], int]:
    """The bytes really allocated to each memory file that a process holds open, by device and inode."""
    files: dict[tuple[int, int], int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("/memfd:"):
                continue
            found = entry.stat()
        except FileNotFoundError:  # closed meanwhile
            continue
        files[found.st_dev, found.st_ino] = found.st_blocks * 512
    return files


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # the thread has ended meanwhile
            continue
    return total / 1e9
