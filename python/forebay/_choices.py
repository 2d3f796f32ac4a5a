# SPDX-License-Identifier: Apache-2.0
"""Names of what can be chosen: generated from interface/forebay.toml by scripts/generate_faces.py: change it there."""

from typing import Literal

Association = Literal["cell", "vertex"]
"""What the values of a field belong to."""

Policy = Literal["drop-oldest", "block", "latest"]
"""What becomes of a stream's closed steps when its readers or the memory cannot keep up."""

OnLoss = Literal["skip", "fail"]
"""What a producer does when its servers are gone."""

Durability = Literal["local", "replicated"]
"""When a block is safe of which several servers hold copies."""

Placement = Literal["nearest", "by-block"]
"""Which server holds a block."""

Start = Literal["next", "oldest", "latest", "run", "held", "resume"]
"""With which step a consumer begins."""

Take = Literal["all", "latest"]
"""Which of the steps that wait for it a consumer is given."""

Share = Literal["none", "on-demand", "round-robin"]
"""How the steps of a stream are shared out among consumers of one name."""

OnRankLoss = Literal["fail", "go-on"]
"""What the other ranks of a parallel reader do when one dies."""

Assign = Literal[
    "all", "ranks", "round-robin", "balanced", "slab", "host+ranks", "host+round-robin", "host+balanced"
]
"""Which blocks of a step are whose, among the ranks of a parallel reader."""

Stats = Literal["none", "along", "alone"]
"""Which statistics of a field a consumer needs: minimum, maximum, sum, variance and counts. Complex types have none."""

On = Literal["each", "rise", "fall", "both"]
"""At which evaluations a subscription has events."""

Missing = Literal["skip", "reset"]
"""What evaluations of a subscription are that give nothing known."""

Begin = Literal["resume", "next", "first", "after"]
"""With which event of a subscription a subscriber begins."""

Turn = Literal["unknown", "rose", "holds", "fell"]
"""What an event tells."""

Value = Literal["unknown", "number", "condition", "place"]
"""What a value is."""

Change = Literal["pause", "resume", "remove"]
"""What is done with a subscription."""

Transport = Literal["auto", "shm", "tcp"]
"""How blocks go between this process and the servers."""
