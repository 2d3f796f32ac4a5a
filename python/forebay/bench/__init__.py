# SPDX-License-Identifier: Apache-2.0
"""`forebay bench`: what Forebay costs on this machine, beside the machine's limits and beside other tools.

Each benchmark is a module of its own, named as on the command line.  Times differ from machine to machine,
so what counts are ratios, and both sides of a ratio are measured in the same run, repetition by repetition in
turn.  What was moved is checked.  Every result says how often it was measured and how far it spread.
"""

BENCHES = (
    "put",
    "get",
    "tcp",
    "stream",
    "latency",
    "step",
    "contracts",
    "readers",
    "subscribe",
    "collectives",
    "composite",
    "pictures",
    "slowdown",
    "startup",
    "elastic",
    "memory",
    "idle",
)
"""The benchmarks, in the order in which `all` runs them."""
