# SPDX-License-Identifier: Apache-2.0
"""Writes the minimum, maximum and mean of a field, a line for each step: the smallest useful pipeline.

forebay pipeline create stats examples/pipelines/stats.py:Stats --config '{"output": "stats.jsonl"}'
"""

import json

import forebay
from forebay import MPI


class Stats(forebay.Pipeline):
    stream = "grayscott"
    fields = {"U": forebay.every(1)}

    def execute(self, step, comm):
        # Ghosts repeat what other blocks hold, so only interiors count.
        blocks = [block.interior for block in step.blocks("U")]
        low = comm.allreduce(min((float(b.min()) for b in blocks), default=float("inf")), op=MPI.MIN)
        high = comm.allreduce(max((float(b.max()) for b in blocks), default=float("-inf")), op=MPI.MAX)
        total = comm.allreduce(sum(float(b.sum()) for b in blocks))
        count = comm.allreduce(sum(b.size for b in blocks))
        if comm.rank == 0:
            line = {"step": step.number, "time": step.time, "min": low, "max": high, "mean": total / count}
            with open(self.config.get("output", "stats.jsonl"), "a") as file:
                print(json.dumps(line), file=file, flush=True)
