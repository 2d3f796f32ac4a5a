# SPDX-License-Identifier: Apache-2.0
"""What `bench pictures` keeps for its figures: seconds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Measured:
    """Medians, and one series of steps."""

    pipelines: dict[str, dict[str, dict[int, tuple[float, float]]]] = field(default_factory=dict)
    """Of a step, by the pipeline, the MPI, and how many processes there were: with its messages, and with Forebay's in the same processes."""
    elastic: dict[int, float] = field(default_factory=dict)
    """By the number of servers before it."""
    restart: dict[int, float] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    """The longest time without a picture while a server joined."""
    joins: list[dict[str, float]] = field(default_factory=list)
    """Of each step what each call took, when it began, and how many workers it had."""
    asked: float | None = None
    """When a server was asked for, on the same clock."""
