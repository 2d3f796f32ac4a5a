# SPDX-License-Identifier: Apache-2.0
"""What a virtual machine's host has taken away while something was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_WORTH_TELLING = 0.05


@dataclass(frozen=True)
class ProcessorTime:
    """What all processors have done since the machine started, in ticks of the kernel (`man 5 proc_stat`)."""

    busy: int
    stolen: int

    @staticmethod
    def now() -> ProcessorTime:
        """Read from the kernel; nothing at all where it cannot be read."""
        try:
            fields = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:]]
            user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields[:8]
        except (OSError, ValueError):
            return ProcessorTime(0, 0)
        return ProcessorTime(user + nice + system + interrupts + soft_interrupts, stolen)


def stolen_since(before: ProcessorTime) -> str | None:
    """A remark, where the host kept so much of the time that this machine wanted that no figure can be judged."""
    now = ProcessorTime.now()
    stolen, busy = now.stolen - before.stolen, now.busy - before.busy
    share = stolen / max(1, stolen + busy)
    if share < _WORTH_TELLING:
        return None
    return (
        f"NOT TO BE JUDGED: the host of this virtual machine kept {share * 100:.0f} % of the processor time that "
        "was wanted meanwhile (steal in /proc/stat); repeat it when less else runs there"
    )
