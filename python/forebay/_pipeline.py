# SPDX-License-Identifier: Apache-2.0
"""Pipelines: user code that runs beside the data."""

from __future__ import annotations

from typing import Any

from forebay._contract import Fields
from forebay._mpi.named import Comm
from forebay._step import Step


class Pipeline:
    """Base of all pipelines. One instance lives in each worker process, beside each server.

    `fields` is the contract, as a consumer's; it may also be set in `__init__`, from the configuration.
    `stream` names the stream that it runs on; without it the one that is given when the pipeline is
    created, or the only one that the group has.

    In a worker FOREBAY_GROUP names its group, so that what it opens without a group is there, and
    FOREBAY_PIPELINE the pipeline.
    """

    stream: str | None = None
    fields: Fields = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def warm_up(self) -> None:
        """Called once, before this worker takes part in any step: no step waits for it.

        What makes a first step slow belongs here, such as drawing a frame that nobody sees. What it raises
        fails the worker, as in `__init__`.
        """

    def execute(self, step: Step, comm: Comm) -> None:
        """Runs on one closed step, on every worker at the same time.

        `step.blocks(name)` are this worker's blocks, as views that are valid until it returns: copy what
        is to be kept.
        """
        raise NotImplementedError("a pipeline defines execute(self, step, comm)")

    def close(self) -> None:
        """Called when the pipeline ends in good order. It has 10 seconds."""
